"""HTML and files of the pages: what is in them, who gets them, and what the browser may do with them."""

import base64
import gzip
import hashlib
import re
from pathlib import Path

import pytest

from fairlead_gateway.pages.web_files import MODULES, WebFiles, folder
from fairlead_gateway.routes.pages import PAGES
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.world import GatewayWorld, gpus


def _files(root: Path, *, with_modules: bool = True) -> WebFiles:
    (root / "vendor").mkdir()
    (root / "main.js").write_text("import 'preact';" + " " * 2000)
    (root / "tokens.css").write_text(":root{}")
    (root / "secret.txt").write_text("not for browsers")
    for name in MODULES.values() if with_modules else ():
        (root / "vendor" / name).write_text("export {};")
    return WebFiles(root)


def test_files_are_named_by_what_is_in_them(tmp_path: Path) -> None:
    """A changed byte changes every address; other kinds of files are never served; what is long is compressed."""
    files = _files(tmp_path)
    assert set(files.files) == {"main.js", "tokens.css", *(f"vendor/{name}" for name in MODULES.values())}
    assert files.files["main.js"].encoding == "gzip"
    assert gzip.decompress(files.files["main.js"].body).startswith(b"import")
    (tmp_path / "tokens.css").write_text(":root{ }")
    assert WebFiles(tmp_path).version != files.version
    assert WebFiles(tmp_path).files["main.js"] == files.files["main.js"]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert _files(tmp_path, with_modules=False).missing == list(MODULES.values())


def test_all_imports_of_a_page_are_fetched_at_once(tmp_path: Path) -> None:
    """Static imports, over several lines too, each once; not those inside functions, nor what does not exist."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/a.js").write_text(
        'import {\n  b,\n} from "./b.js";\nexport { c } from "../main.js";\nimport "./gone.js";\n'
    )
    (tmp_path / "lib/b.js").write_text('import { h } from "preact";\n')
    (tmp_path / "lib/late.js").write_text("export {};")
    _files(tmp_path)
    (tmp_path / "main.js").write_text('import { a } from "./lib/a.js";\nload(() => import("./lib/late.js"));\n')
    files = WebFiles(tmp_path)
    assert files.modules_of("main.js", "lib/none.js") == ["main.js", "lib/a.js", "lib/b.js", "vendor/preact.js"]


def test_every_path_of_the_rail_is_a_page() -> None:
    """The frame, the list of modules and the gateway name the same pages."""
    frame = (folder() / "parts/frame.js").read_text()
    rail = set(re.findall(r'\{ path: "([^"]+)"', frame))
    assert rail == {path for path in PAGES if path != "/" and "{" not in path}
    main = (folder() / "main.js").read_text()
    named = {name for name in re.findall(r'\], ?"(\w+)", \(\)|/, "(\w+)", \(\)', main) for name in name if name}
    assert named == set(PAGES.values())
    for module in re.findall(r'import\("\./(pages/\w+\.js)"\)', main):
        assert (folder() / module).is_file(), module


async def test_a_page_is_html_with_numbers_and_allows_its_own_scripts_alone() -> None:
    """The import map and the style sheet are the only script and style in it, and their digests are in the policy."""
    async with GatewayWorld() as world:
        node = await world.node("n1")
        await world.run(node, command=["true"], name="<b>bold</b>", resources=gpus(2))
        answer = await world.http.get("/queues?at=3&anything=else")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "Nodes: 1 (1 simulated)" in answer.text
        assert "<b>bold" not in answer.text
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        inside = re.findall(r"<(?:script type=\"importmap\"|style)>(.*?)</(?:script|style)>", answer.text, re.DOTALL)
        assert inside and "--accent" in "".join(inside)
        for text in inside:
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in policy
        assert not re.findall(r"<script(?![^>]*(?:importmap|src=))", answer.text)


async def test_files_are_kept_for_good_and_unknown_ones_are_not_found() -> None:
    async with GatewayWorld() as world:
        page = (await world.http.get("/map")).text
        [address] = re.findall(r'src="(/web/\w+)/main\.js"', page) or re.findall(r"(/web/\w+)/", page)[:1] or [""]
        address += "/tokens.css"
        answer = await world.http.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert "--accent" in answer.text
        version = address.split("/")[2]
        for path in (
            "/web/other/tokens.css",
            f"/web/{version}/nothing.js",
            f"/web/{version}/../package.json",
            f"/web/{version}/%2e%2e/package.json",
            f"/web/{version}/package.json",
            f"/web/{version}//etc/passwd",
            f"/web/{version}/lib/",
        ):
            answer = await world.http.get(path)
            assert answer.status_code == 404, path


async def test_who_is_not_signed_in_is_led_to_the_sign_in_and_back() -> None:
    """401 with a page that goes to the sign-in; nothing of the cluster is in it, for any path."""
    async with SignedWorld() as world:
        await world.node("secret-node")
        for path in PAGES:
            shown = path.format(job="7", node="secret-node")
            answer = await world.ask("", "GET", f"{shown}?at=5")
            assert answer.status_code == 401
            encoded = shown.replace("/", "%2F")
            assert f'content="0; url=/sign-in?to={encoded}%3Fat%3D5"' in answer.text
            assert "secret-node" not in answer.text.replace(encoded, "")


async def test_a_member_sees_own_queues_alone() -> None:
    async with SignedWorld() as world:
        await world.node("hidden-node")
        await world.configure(research={}, other={})
        await world.person("ann", viewer="queue:research")
        page = (await world.ask("ann", "GET", "/queues")).text
        assert "research" in page
        assert "other" not in page
        assert "hidden-node" not in page
        assert 'data-person="ann"' in page
        assert set(re.findall(r'data-may="([^"]*)"', page)[0].split()) >= {"job:read", "queue:read"}
        await world.person("bob")
        assert 'data-may="job:read"' in (await world.ask("bob", "GET", "/queues")).text


@pytest.mark.parametrize("path", ["/jobs/7", "/nodes/%3Cscript%3Ealert(1)", "/jobs/%22%3E%3Cimg%3E"])
async def test_names_in_the_address_never_reach_the_html(path: str) -> None:
    async with GatewayWorld() as world:
        answer = await world.http.get(path)
        assert answer.status_code == 200
        assert "<img" not in answer.text
        assert "alert" not in answer.text
