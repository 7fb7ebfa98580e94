"""A job's directory from pieces: whole or not there, and nothing outside of it, whatever the pieces say."""

import asyncio
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead_agent.core.runs import RunKey
from fairlead_agent.launch.plan import Unlaunchable
from fairlead_agent.launch.sync_tree import SyncTrees
from fairlead_bus.pieces import PieceDamaged
from fairlead_bus.port import Unavailable
from fairlead_schemas.wire import trees
from fairlead_schemas.wire.trees import Tree, TreeEntry, TreeGroup

# ruff: noqa: ASYNC240 -- files of a test, in the page cache

KEY = RunKey("7", 1, 0)


class Pieces:
    """What the bus has."""

    def __init__(self) -> None:
        self.found: dict[bytes, bytes] = {}
        self.asked: list[bytes] = []

    def put(self, data: bytes) -> bytes:
        """Store a piece; its digest."""
        self.found[trees.digest_of(data)] = data
        return trees.digest_of(data)

    def tree(self, *entries: TreeEntry, **changed: Any) -> str:
        """Store a directory; its name."""
        group = self.put(trees.encode_piece(TreeGroup(entries=entries)))
        given = {"entries": len(entries), "size": sum(entry.size for entry in entries), "groups": (group,)}
        return trees.name_of_tree(self.put(trees.encode_piece(Tree(**given | changed))))

    async def get(self, digest: bytes) -> bytes | None:
        """As a store does."""
        self.asked.append(digest)
        return self.found.get(digest)


def file(path: str, data: bytes = b"x", **more: Any) -> TreeEntry:
    """A small file."""
    return TreeEntry(path=path, size=len(data), data=data, **more)


def trees_of(tmp_path: Path, fetch: Any, *, open_to_all: bool = False) -> SyncTrees:
    """Trees of a node that retries at once."""
    return SyncTrees(tmp_path, fetch, open_to_all=open_to_all, retry_s=0.001)


async def refused(tmp_path: Path, pieces: Pieces, name: str) -> Unlaunchable:
    """The refusal of a directory, of which nothing is left."""
    with pytest.raises(Unlaunchable) as found:
        await trees_of(tmp_path, pieces.get).stage(KEY, name)
    assert [*(tmp_path / "staged").iterdir()] == []
    return found.value


async def test_a_directory_is_as_it_was_sent(tmp_path: Path) -> None:
    """Content, modes, links, empty directories, files of many pieces, names of other languages."""
    pieces = Pieces()
    large = [os.urandom(trees.PIECE_BYTES_MAX), os.urandom(trees.PIECE_BYTES_MAX), b"end"]
    name = pieces.tree(
        file("a.py", b"print()"),
        file("bin/run", b"#!/bin/sh\n", executable=True),
        TreeEntry(path="empty/dir", directory=True),
        file("empty.txt", b""),
        TreeEntry(path="link", target="bin/run"),
        TreeEntry(path="weights", size=sum(map(len, large)), pieces=tuple(map(pieces.put, large))),
        file("é/名.txt", b"1"),
    )
    staged = Path(await trees_of(tmp_path, pieces.get).stage(KEY, name))
    assert (staged / "weights").read_bytes() == b"".join(large)
    assert {p.relative_to(staged).as_posix(): p.read_bytes() for p in staged.rglob("*") if p.is_file()} == {
        "a.py": b"print()",
        "bin/run": b"#!/bin/sh\n",
        "empty.txt": b"",
        "link": b"#!/bin/sh\n",
        "weights": b"".join(large),
        "é/名.txt": b"1",
    }
    assert (staged / "link").readlink() == Path("bin/run")
    assert (staged / "empty/dir").is_dir()
    modes = {name: stat.S_IMODE((staged / name).stat().st_mode) for name in ("a.py", "bin/run", "bin", ".")}
    assert modes == {"a.py": 0o644, "bin/run": 0o755, "bin": 0o755, ".": 0o755}


async def test_any_user_of_a_container_may_write(tmp_path: Path) -> None:
    """Whatever the agent's umask is; the run's directory around it is closed."""
    pieces = Pieces()
    staged = Path(
        await trees_of(tmp_path, pieces.get, open_to_all=True).stage(
            KEY, pieces.tree(file("d/a"), file("d/b", executable=True))
        )
    )
    modes = [stat.S_IMODE((staged / name).stat().st_mode) for name in (".", "d", "d/a", "d/b")]
    assert modes == [0o777, 0o777, 0o666, 0o777]
    assert stat.S_IMODE(staged.parent.stat().st_mode) == 0o700


async def test_a_job_without_a_sent_directory_has_an_empty_one(tmp_path: Path) -> None:
    """For its outputs; what an earlier try has left is gone."""
    staging = trees_of(tmp_path, Pieces().get)
    (Path(await staging.stage(KEY, "")) / "old").touch()
    assert [*Path(await staging.stage(KEY, "")).iterdir()] == []
    staging.clear()
    assert not (tmp_path / "staged").exists()


HOSTILE: list[tuple[tuple[TreeEntry, ...], dict[str, Any], str]] = [
    ((file("../out"),), {}, "relative path"),
    ((file("/etc/cron.d/x"),), {}, "relative path"),
    ((file("a/../../out"),), {}, "relative path"),
    ((file("a\0b"),), {}, "relative path"),
    ((TreeEntry(path="a", target="/etc"),), {}, "stays in the directory"),
    ((TreeEntry(path="a", target="../../x"),), {}, "stays in the directory"),
    ((TreeEntry(path="a", target="b"), file("a/x")), {}, "found a file or link"),
    ((TreeEntry(path="a", target="."), file("a/x")), {}, "found a file or link"),
    ((file("a"), file("a")), {}, "each path once"),
    ((file("a"), file("a/b")), {}, "found a file or link"),
    ((file("a/b"), file("a")), {}, "each path once"),
    ((file("a"), file("b")), {"entries": 1}, "found more"),
    ((file("a"), file("b")), {"entries": 3}, "expected 3 files"),
    ((file("a", bytes(1000)),), {"size": 999}, "found more"),
    ((file("a", b"x"),), {"size": 2}, "expected 1 files of 2 bytes"),
    ((), {"entries": 10**9}, "at most 50000 files"),
    ((), {"size": 2**50}, "at most 2.0 GiB"),
    ((), {"groups": (b"short",)}, "digests"),
    ((), {"version": 7}, "version 1"),
]


@pytest.mark.parametrize(("entries", "changed", "words"), HOSTILE)
async def test_a_hostile_directory_ends_the_start(
    tmp_path: Path, entries: tuple[TreeEntry, ...], changed: dict[str, Any], words: str
) -> None:
    """Nothing is written outside, nothing is left, and the message says what is wrong: it is the job's fault."""
    pieces = Pieces()
    error = await refused(tmp_path, pieces, pieces.tree(*entries, **changed))
    assert words in str(error)
    assert error.fault == "job"
    assert {path.name for path in tmp_path.rglob("*")} <= {"staged"}


async def test_a_piece_of_another_size_ends_the_start(tmp_path: Path) -> None:
    """A large file has the size that its entry states."""
    pieces = Pieces()
    short = TreeEntry(path="a", size=trees.PIECE_BYTES_MAX + 5, pieces=(pieces.put(b"x"), pieces.put(b"yyyyy")))
    assert "expected a piece of" in str(await refused(tmp_path, pieces, pieces.tree(short)))


async def test_a_missing_piece_says_what_to_do(tmp_path: Path) -> None:
    """Of the root, of a group, of a large file."""
    pieces = Pieces()
    name = pieces.tree(TreeEntry(path="a", size=3, pieces=(pieces.put(b"abc"),)))
    for digest in list(pieces.found):
        data = pieces.found.pop(digest)
        assert "submit the job again with --sync" in str(await refused(tmp_path, pieces, name))
        pieces.found[digest] = data


async def test_a_damaged_piece_ends_the_start(tmp_path: Path) -> None:
    """What the store finds damaged is not used."""

    async def damaged(digest: bytes) -> bytes:
        raise PieceDamaged(f"piece {digest.hex()} is damaged on the bus")

    with pytest.raises(Unlaunchable, match="damaged on the bus"):
        await trees_of(tmp_path, damaged).stage(KEY, trees.name_of_tree(bytes(32)))


async def test_a_bus_that_is_away_is_asked_again(tmp_path: Path) -> None:
    """A moment costs no start; when it stays away, another node may start the job."""
    pieces = Pieces()
    name, failures = pieces.tree(file("a")), 3

    async def fetch(digest: bytes) -> bytes | None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise Unavailable("away")
        return await pieces.get(digest)

    assert await trees_of(tmp_path, fetch).stage(KEY, name)
    failures = 10**6
    with pytest.raises(Unlaunchable, match="the bus cannot be reached") as found:
        await trees_of(tmp_path, fetch).stage(KEY, name)
    assert found.value.fault == "node"


async def test_a_full_disk_is_the_nodes_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is fetched where the room is known to be too little; also when it ends in the middle."""
    pieces = Pieces()
    name = pieces.tree(file("a", bytes(1000)))
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 10))  # type: ignore[attr-defined]
        error = await refused(tmp_path, pieces, name)
    assert ("disk 10 bytes left" in str(error), error.fault, len(pieces.asked)) == (True, "node", 1)
    real: Callable[..., int] = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) == 1000:
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        error = await refused(tmp_path, pieces, name)
    assert ("No space left on device" in str(error), error.fault) == (True, "node")


async def test_a_stop_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    """The run was not wanted any more while its pieces came."""
    pieces = Pieces()
    name, waits = pieces.tree(file("a"), file("b")), asyncio.Event()

    async def fetch(digest: bytes) -> bytes | None:
        if len(pieces.asked) == 1:
            waits.set()
            await asyncio.Event().wait()
        return await pieces.get(digest)

    task = asyncio.ensure_future(trees_of(tmp_path, fetch).stage(KEY, name))
    async with asyncio.timeout(60):
        await waits.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [*(tmp_path / "staged").iterdir()] == []


async def test_links_that_lead_round_or_out_are_made_and_not_followed(tmp_path: Path) -> None:
    """A loop, and two links that together lead outside: what they name is not touched."""
    pieces = Pieces()
    name = pieces.tree(
        TreeEntry(path="a", target="b"),
        TreeEntry(path="b", target="a"),
        TreeEntry(path="d/dot", target="."),
        TreeEntry(path="out", target="d/dot/dot/../../.."),
        file("z", b"1"),
    )
    staged = Path(await trees_of(tmp_path, pieces.get).stage(KEY, name))
    assert sorted(path.name for path in staged.iterdir()) == ["a", "b", "d", "out", "z"]
    assert {path.name for path in tmp_path.iterdir()} == {"staged"}
