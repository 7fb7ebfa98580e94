"""Files of runs over HTTP: from the node that has them, listed and as an archive, also of nodes that say nonsense."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead_agent.core.output_retention import Keep
from fairlead_agent.runtimes.run_files import answered
from fairlead_bus.port import Message
from fairlead_gateway.routes import run_files
from fairlead_gateway.routes.run_files import ERRORS_MEMBER
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.run_files import CHUNK_BYTES_MAX, FileEntry, ReadFiles, RunFiles, decode_question, encode
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.job_output import running
from tests.gateway.world import GatewayWorld

LARGE = bytes(range(256)) * 8192


async def serve(world: GatewayWorld, node: str, directory: Path) -> None:
    """Let a node answer as an agent does, from one directory for all runs."""

    async def answer(message: Message) -> bytes:
        return answered(message.payload, lambda _: directory, Keep())

    await world.hub.connect().serve(subjects.rpc_node(node, "files"), answer)


async def play(world: GatewayWorld, answers: Callable[[ReadFiles], RunFiles]) -> None:
    """Let n1 answer what a test says."""

    async def answer(message: Message) -> bytes:
        return encode(answers(decode_question(message.payload)))

    await world.hub.connect().serve(subjects.rpc_node("n1", "files"), answer)


def fill(directory: Path) -> None:
    """Files of a run."""
    work = directory / "work"
    (work / "logs/deep").mkdir(parents=True)
    (work / "empty").mkdir()
    (work / "train.py").write_bytes(b"print()")
    (work / "logs/deep/a.log").write_bytes(b"1")
    (work / "large").write_bytes(LARGE)
    (work / "run").write_bytes(b"x")
    (work / "run").chmod(0o4755)
    (work / "link").symlink_to("/etc/passwd")
    (directory / "outputs/model").mkdir(parents=True)
    (directory / "outputs/model/m.pt").write_bytes(b"2")


def members(answer: httpx.Response) -> dict[str, tuple[bytes, int, bytes | str]]:
    """{name: (type, mode, content or target)} of an archive."""
    assert answer.status_code == 200, answer.text
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        found: dict[str, tuple[bytes, int, bytes | str]] = {}
        for each in archive:
            file = archive.extractfile(each) if each.isreg() else None
            found[each.name] = (each.type, each.mode, file.read() if file is not None else each.linkname)
        return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a run."""
    fill(tmp_path)
    return tmp_path


async def test_a_directory_is_listed(directory: Path) -> None:
    """With the kind, size and target of each entry."""
    async with GatewayWorld() as world:
        job = await running(world)
        await serve(world, "n1", directory)
        found = (await world.http.get(f"/v1/jobs/{job}/files")).json()
        assert (found["job"], found["node"], found["rank"], found["entry"]["kind"]) == (job, "n1", 0, "directory")
        assert {
            each["name"]: (each["kind"], each.get("size", 0), each.get("target", "")) for each in found["entries"]
        } == {
            "empty": ("directory", 0, ""),
            "large": ("file", len(LARGE), ""),
            "link": ("link", 0, "/etc/passwd"),
            "logs": ("directory", 0, ""),
            "run": ("file", 1, ""),
            "train.py": ("file", 7, ""),
        }
        outputs = (await world.http.get(f"/v1/jobs/{job}/files", params={"path": "/"})).json()
        assert [each["name"] for each in outputs["entries"]] == ["model"]


async def test_an_archive_has_everything(directory: Path) -> None:
    """Files in parts, empty directories, links as links, and no mode that grants more than to run a file."""
    async with GatewayWorld() as world:
        job = await running(world)
        await serve(world, "n1", directory)
        found = members(await world.http.get(f"/v1/jobs/{job}/archive"))
        assert found == {
            "empty": (tarfile.DIRTYPE, 0o755, ""),
            "large": (tarfile.REGTYPE, 0o644, LARGE),
            "link": (tarfile.SYMTYPE, 0o644, "/etc/passwd"),
            "logs": (tarfile.DIRTYPE, 0o755, ""),
            "logs/deep": (tarfile.DIRTYPE, 0o755, ""),
            "logs/deep/a.log": (tarfile.REGTYPE, 0o644, b"1"),
            "run": (tarfile.REGTYPE, 0o755, b"x"),
            "train.py": (tarfile.REGTYPE, 0o644, b"print()"),
        }
        deep = members(await world.http.get(f"/v1/jobs/{job}/archive", params={"path": "logs/deep"}))
        assert [*deep] == ["deep", "deep/a.log"]
        one = members(await world.http.get(f"/v1/jobs/{job}/archive", params={"path": "model/m.pt"}))
        assert one == {"m.pt": (tarfile.REGTYPE, 0o644, b"2")}
        outputs = members(await world.http.get(f"/v1/jobs/{job}/archive", params={"path": "/"}))
        assert [*outputs] == ["model", "model/m.pt"]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({"path": "none"}, 404, "unknown_file"),
        ({"path": "../stdout"}, 422, "invalid"),
        ({"path": "/etc/passwd"}, 422, "invalid"),
        ({"path": "link/x"}, 422, "invalid"),
        ({"path": "x" * 2000}, 422, "invalid"),
        ({"rank": 1}, 404, "unknown_rank"),
        ({"rank": -1}, 422, "invalid"),
        ({"attempt": 2}, 404, "unknown_attempt"),
    ],
)
async def test_missing_files_are_refused(directory: Path, query: dict[str, Any], status: int, code: str) -> None:
    """Before an archive begins."""
    async with GatewayWorld() as world:
        job = await running(world)
        await serve(world, "n1", directory)
        for kind in ("files", "archive"):
            answer = await world.http.get(f"/v1/jobs/{job}/{kind}", params=query)
            assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (status, code), answer.text


async def test_a_job_that_waits_and_a_node_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer says what to do."""
    monkeypatch.setattr(run_files, "AGENT_TIMEOUT_S", 0.05)
    async with GatewayWorld() as world:
        waiting = await world.submit(resources={"cpu": 1})
        answer = await world.http.get(f"/v1/jobs/{waiting}/files")
        assert (answer.status_code, answer.json()["hint"]) == (409, f"fairlead why {waiting}")
        job = await running(world)
        answer = await world.http.get(f"/v1/jobs/{job}/archive")
        assert (answer.status_code, answer.json()["detail"]) == (503, "n1 does not answer")


async def test_a_file_that_changes_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has gained is not sent; what it has lost is zeros, and the archive says so."""
    sizes = {"grows": 3 * CHUNK_BYTES_MAX, "shrinks": CHUNK_BYTES_MAX + 5}

    def answers(asked: ReadFiles) -> RunFiles:
        if not asked.path:
            entries = tuple(FileEntry(name=name, kind="file", size=size) for name, size in sizes.items())
            return RunFiles(entry=FileEntry(name="work", kind="directory"), entries=entries)
        size = sizes[asked.path]
        data = b"x" * CHUNK_BYTES_MAX if asked.path == "grows" or not asked.offset else b""
        return RunFiles(
            entry=FileEntry(name=asked.path, kind="file", size=size if not asked.offset else 2 * size), data=data
        )

    async with GatewayWorld() as world:
        job = await running(world)
        await play(world, answers)
        found = members(await world.http.get(f"/v1/jobs/{job}/archive"))
        assert found["grows"][2] == b"x" * sizes["grows"]
        assert found["shrinks"][2] == b"x" * CHUNK_BYTES_MAX + bytes(5)
        assert (
            found[ERRORS_MEMBER][2]
            == b"shrinks: became shorter while it was read; zeros follow %d bytes\n" % CHUNK_BYTES_MAX
        )


async def test_a_hostile_node_ends_no_gateway() -> None:
    """Names that lead elsewhere, lists and depths without end, and files of sizes that they do not have."""
    directory = FileEntry(name="d", kind="directory")

    def answers(asked: ReadFiles) -> RunFiles:
        names = ("../x", "/etc/passwd", "a/b", "", ".", "d")
        entries = tuple(FileEntry(name=name, kind="directory") for name in names)
        return RunFiles(entry=directory, entries=entries, more=True)

    async with GatewayWorld() as world:
        job = await running(world)
        await play(world, answers)
        found = members(await world.http.get(f"/v1/jobs/{job}/archive"))
        assert max(found, key=len) == "/".join(["d"] * (run_files.DEPTH_MAX + 1))
        assert len(found) == run_files.DEPTH_MAX + 2
    huge = FileEntry(name="huge", kind="file", size=2**60, modified_ns=2**63 - 1)
    async with GatewayWorld() as world:
        job = await running(world)
        await play(world, lambda asked: RunFiles(entry=huge, data=b"x"))
        answer = await world.http.get(f"/v1/jobs/{job}/archive", params={"path": "huge"})
        assert len(answer.content) < 2 * CHUNK_BYTES_MAX
        assert (await world.http.get(f"/v1/jobs/{job}/files", params={"path": "huge"})).json()["entry"]["size"] == 2**60


async def test_each_rank_has_its_own(tmp_path: Path) -> None:
    """The rank's node is asked."""
    async with GatewayWorld() as world:
        job = await running(world, 2)
        for node in ("n1", "n2"):
            (tmp_path / node / "work").mkdir(parents=True)
            (tmp_path / node / "work/who").write_text(node)
            await serve(world, node, tmp_path / node)
        nodes = [part.node for part in world.gateway.views.jobs.rows[job].parts]
        for rank, node in enumerate(nodes):
            query = {"path": "who", "rank": rank}
            assert members(await world.http.get(f"/v1/jobs/{job}/archive", params=query))["who"][2] == node.encode()


async def test_files_are_shown_to_those_who_may_read_the_job() -> None:
    """As its output is."""
    async with AccountsWorld(queue=True) as world:
        await world.person("eve")
        job = (await world.ask("POST", "/v1/jobs", {"command": ["true"]}, status=201))["id"]
        eve = next(p for p in (await world.ask("GET", "/v1/people"))["items"] if p["login"] == "eve")
        _, session = await world.session(eve["id"])
        for kind in ("files", "archive", "logs"):
            assert (await world.send("GET", f"/v1/jobs/{job}/{kind}", token=session)).status_code == 404
            assert (await world.send("GET", f"/v1/jobs/{job}/{kind}", token="")).status_code == 401
