"""`fairlead cp`: what is copied where, and archives that nobody should unpack. `submit --sync`: what is sent."""

import io
import json
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead_schemas.wire import trees
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, job_document


def archive(*members: tuple[str, bytes | str | None], end: bool = True) -> bytes:
    """Members: a file's content, a link's target, or None for a directory."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, what in members:
            info = tarfile.TarInfo(name)
            if what is None:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
            elif isinstance(what, str):
                info.type, info.linkname = tarfile.SYMTYPE, what
            else:
                info.size, info.mode = len(what), 0o4755
            tar.addfile(info, io.BytesIO(what) if isinstance(what, bytes) else None)
    return out.getvalue() if end else out.getvalue()[:700]


def serve(gateway: GatewayStub, job: str, *members: tuple[str, bytes | str | None], end: bool = True) -> None:
    """Answer with an archive."""
    headers = {"content-type": "application/x-tar"}
    answer = httpx.Response(200, content=archive(*members, end=end), headers=headers)
    gateway.answers["GET", f"/v1/jobs/{job}/archive"] = (200, answer)


def names(root: Path) -> list[str]:
    """Everything below a directory."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present directory, which is empty."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "here"


@pytest.mark.parametrize(
    ("source", "destination", "there", "expected"),
    [
        ("7:logs/a.log", "b.log", (), ["b.log"]),
        ("7:logs/a.log", ".", (), ["a.log"]),
        ("7:logs/a.log", "new/", (), ["new", "new/a.log"]),
        ("7:logs/a.log", "new/b.log", (), ["new", "new/b.log"]),
        ("7:logs/a.log", "d", ("d",), ["d", "d/a.log"]),
    ],
)
def test_a_file_is_copied_as_cp_does(
    gateway: GatewayStub,
    run: Run,
    here: Path,
    source: str,
    destination: str,
    there: tuple[str, ...],
    expected: list[str],
) -> None:
    """Under the destination's name, or into the directory that it is."""
    for name in there:
        (here / name).mkdir()
    serve(gateway, "7", ("a.log", b"text"))
    ran = run("cp", source, destination)
    assert (ran.code, ran.err) == (0, "1 file, 4 bytes\n")
    assert names(here) == expected
    path = here / expected[-1]
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode) & 0o7022) == (b"text", 0)


@pytest.mark.parametrize(
    ("destination", "there", "expected"),
    [
        (".", (), ["model", "model/d", "model/d/w", "model/l"]),
        ("copy", (), ["copy", "copy/d", "copy/d/w", "copy/l"]),
        ("copy", ("copy",), ["copy", "copy/model", "copy/model/d", "copy/model/d/w", "copy/model/l"]),
    ],
)
def test_a_directory_is_copied_as_cp_does(
    gateway: GatewayStub, run: Run, here: Path, destination: str, there: tuple[str, ...], expected: list[str]
) -> None:
    """With its links, as links."""
    for name in there:
        (here / name).mkdir()
    serve(gateway, "7", ("model", None), ("model/d", None), ("model/d/w", b"x"), ("model/l", "d/w"))
    assert run("cp", "7:model", destination).code == 0
    assert names(here) == expected
    assert (here / expected[-1]).is_symlink()


def test_the_whole_directory_goes_into_its_destination(gateway: GatewayStub, run: Run, here: Path) -> None:
    """Its contents, not a directory around them."""
    serve(gateway, "7", ("a", b"1"), ("d", None), ("d/b", b"22"))
    assert run("cp", "7:", "copy").err == "2 files, 3 bytes\n"
    assert names(here) == ["copy", "copy/a", "copy/d", "copy/d/b"]


def test_each_rank_has_a_directory_of_its_own(gateway: GatewayStub, run: Run, here: Path) -> None:
    """With `--rank all`, as many as the job has nodes."""
    gateway.on("GET", "/v1/jobs/7", job_document("7", nodes=["n1", "n2"]))
    serve(gateway, "7", ("m", b"1"))
    ran = run("cp", "7:m", "out", "--rank", "all")
    assert (ran.code, ran.err) == (0, "2 files, 2 bytes\n")
    assert names(here) == ["out", "out/rank-0", "out/rank-0/m", "out/rank-1", "out/rank-1/m"]
    assert [request.url.params.get("rank") for request in gateway.requests if "archive" in request.url.path] == [
        None,
        "1",
    ]


HOSTILE: list[tuple[str, bytes | str | None]] = [
    ("../out", b"x"),
    ("/etc/cron.d/out", b"x"),
    ("d/../../out", b"x"),
    ("link", "/etc"),
    ("link", "../.."),
]


@pytest.mark.parametrize(("name", "what"), HOSTILE)
def test_nothing_is_unpacked_outside_of_the_destination(
    gateway: GatewayStub, run: Run, here: Path, name: str, what: bytes | str | None
) -> None:
    """The rest is copied, and what is left out is named."""
    serve(gateway, "7", (name, what), ("ok", b"1"))
    before = names(here.parent)
    ran = run("cp", "7:", "copy")
    assert (here / "copy/ok").read_bytes() == b"1"
    assert set(names(here.parent)) - set(before) <= {
        "here/copy",
        "here/copy/ok",
        "here/copy/etc",
        "here/copy/etc/cron.d",
        "here/copy/etc/cron.d/out",
    }
    assert name.rpartition("/")[2] in ran.err or ran.code == 0


def test_a_file_that_follows_a_link_stays_inside(gateway: GatewayStub, run: Run, here: Path) -> None:
    """An archive that makes a link and then writes through it."""
    serve(gateway, "7", ("d", "."), ("d/x", b"1"), ("e", "d/.."), ("e/y", b"2"))
    run("cp", "7:", "copy")
    assert not (here / "y").exists()


def test_what_could_not_be_read_is_an_error(gateway: GatewayStub, run: Run, here: Path) -> None:
    """The gateway names it in a member of its own, which is no file."""
    serve(gateway, "7", ("a", b"1"), (".fairlead-errors", b"b: it is another thing now\n"))
    ran = run("cp", "7:", "copy")
    assert (ran.code, names(here)) == (1, ["copy", "copy/a"])
    assert "warning: not copied: b: it is another thing now" in ran.err
    assert "1 file could not be copied" in ran.err


def test_an_archive_that_breaks_off_is_an_error(gateway: GatewayStub, run: Run, here: Path) -> None:
    """With what helps."""
    serve(gateway, "7", ("a", bytes(5000)), end=False)
    ran = run("cp", "7:", "copy")
    assert ran.code != 0
    assert "the archive broke off" in ran.err


def test_without_a_destination_it_lists(gateway: GatewayStub, run: Run, here: Path) -> None:
    """Page by page; names do not steer the terminal."""
    document: dict[str, Any] = {
        "job": "7", "attempt": 1, "rank": 0, "node": "n1", "path": "", "sequence": 40,
        "entry": {"name": "work", "kind": "directory"},
    }  # fmt: skip

    def answer(request: httpx.Request) -> tuple[int, Any]:
        if request.url.params.get("after"):
            return 200, {**document, "entries": [{"name": "z\x1b[2J", "kind": "file", "size": 5}], "next": None}
        entries = [{"name": "d", "kind": "directory"}, {"name": "l", "kind": "link", "target": "d"}]
        return 200, {**document, "entries": entries, "next": "l"}

    gateway.answers["GET", "/v1/jobs/7/files"] = answer
    assert run("cp", "7:").out.split("\n") == [
        "              d/",
        "              l -> d",
        "     5 bytes  z [2J",
        "",
    ]
    assert run("cp", "7:none/such", "-o", "json").out.startswith("{")


@pytest.mark.parametrize(
    ("words", "message"), [(("7:x", ".", "--rank", "x"), "--rank"), (("7-9:x", "."), "expected one job")]
)
def test_a_source_is_one_job_and_one_rank(
    gateway: GatewayStub, run: Run, here: Path, words: tuple[str, ...], message: str
) -> None:
    """Before anything is asked for."""
    ran = run("cp", *words)
    assert (ran.code, message in ran.err) == (2, True)


# ---------------------------------------------------------------------------------------- submit --sync


class Store:
    """Pieces that the stub was sent."""

    def __init__(self, gateway: GatewayStub) -> None:
        self.gateway = gateway
        self.pieces: list[str] = []
        gateway.answers["POST", "/v1/pieces:missing"] = self._missing
        gateway.on("POST", "/v1/jobs", {"id": "7", "state": "queued", "sequence": 40}, 201)

    def _missing(self, request: httpx.Request) -> tuple[int, Any]:
        digests = json.loads(request.content)["digests"]
        for digest in digests:
            self.gateway.answers["PUT", f"/v1/pieces/{digest}"] = self._put(digest)
        return 200, {"missing": [each for each in digests if each not in self.pieces], "sequence": 40}

    def _put(self, digest: str) -> Callable[[httpx.Request], tuple[int, Any]]:
        def put(request: httpx.Request) -> tuple[int, Any]:
            assert trees.digest_of(request.content).hex() == digest
            self.pieces.append(digest)
            return 200, {"digest": digest, "bytes": len(request.content), "sequence": 40}

        return put

    def submitted(self) -> dict[str, Any]:
        """The newest job file."""
        sent = [request for request in self.gateway.requests if request.url.path == "/v1/jobs"][-1]
        return json.loads(sent.content)


def test_a_directory_is_sent_once(gateway: GatewayStub, run: Run, here: Path) -> None:
    """Then the job file has its name, and no working directory of this machine."""
    (here / "src").mkdir()
    (here / "src/a.py").write_text("print()")
    store = Store(gateway)
    ran = run("submit", "--sync", "src", "--outputs", "m=*.pt", "--outputs", "m=x/", "--", "true")
    assert ran.code == 0
    assert ran.err.startswith("sync: 1 file, 7 bytes; sent 2 pieces")
    job = store.submitted()
    assert trees.parse_tree_name(job["sync"]) == bytes.fromhex(store.pieces[-1])
    assert ("workdir" in job, job["outputs"]) == (False, {"m": ["*.pt", "x/"]})
    assert run("submit", "--sync", "src", "--", "true").err.endswith("nothing new\n")
    assert len(store.pieces) == 2


def test_a_path_of_a_job_file_is_relative_to_the_file(gateway: GatewayStub, run: Run, here: Path) -> None:
    """Its path is relative to the file, wherever the command is typed; a name that the cluster gave is left as it is."""
    (here / "p/src").mkdir(parents=True)
    (here / "p/src/a.py").write_text("print()")
    (here / "p/job.yaml").write_text("command: [x]\nsync: src\n")
    store = Store(gateway)
    assert run("submit", "-f", "p/job.yaml").code == 0
    name = store.submitted()["sync"]
    assert run("submit", "p/job.yaml").code == 0
    assert store.submitted()["sync"] == name
    (here / "p/job.yaml").write_text(f"command: [x]\nsync: {name}\n")
    assert run("submit", "-f", "p/job.yaml").code == 0
    assert (store.submitted()["sync"], len(store.pieces)) == (name, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sync", "none", "--", "x"), "none"),
        (("--sync", "file", "--", "x"), "expected a directory, found a file"),
        (("--sync", ".", "--workdir", "/x", "--", "x"), "workdir: leave it out"),
        (("--outputs", "m", "--", "x"), "--outputs: expected NAME=PATH"),
        (("--outputs", "m=../x", "--", "x"), "outputs.m"),
        (("--outputs", "M=x", "--", "x"), "outputs"),
    ],
)
def test_a_directory_that_cannot_go_is_refused(
    gateway: GatewayStub, run: Run, here: Path, words: tuple[str, ...], message: str
) -> None:
    """No job is submitted."""
    (here / "file").touch()
    Store(gateway)
    ran = run("submit", *words)
    assert (ran.code, message in ran.err) == (2, True), ran.err
    assert not any(request.url.path == "/v1/jobs" for request in gateway.requests)


def test_a_dry_run_sends_no_piece(gateway: GatewayStub, run: Run, here: Path) -> None:
    """The name is found without the cluster."""
    (here / "a").touch()
    store = Store(gateway)
    run("submit", "--sync", ".", "--dry-run", "--", "x")
    assert store.pieces == []
    assert not any("pieces" in request.url.path for request in gateway.requests)


def test_a_copy_into_a_job_names_the_way_that_there_is(gateway: GatewayStub, run: Run, here: Path) -> None:
    """People of scp and kubectl try it; the source is no job."""
    (here / "project").mkdir()
    refused = run("cp", "project", "2:")
    assert refused.code == 2 and "submit --sync" in refused.err and not gateway.requests
