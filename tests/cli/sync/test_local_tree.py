"""Pieces of a directory on this machine: equal directories have one name, unchanged files are not read again, and changes are seen."""

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

from fairlead.errors import FairleadError, InputRefused, from_problem
from fairlead.sync.local_tree import YOUNG_NS, LocalTree
from fairlead.sync.send import SentDirectory, send_directory
from fairlead.sync.walk import walk
from fairlead_agent.core.runs import RunKey
from fairlead_agent.launch.sync_tree import SyncTrees
from fairlead_schemas.http.api import Problem
from fairlead_schemas.wire import trees


class Cluster:
    """What a cluster has; `lost` is missing again."""

    def __init__(self) -> None:
        self.pieces: dict[str, bytes] = {}

    def missing_pieces(self, digests: list[str]) -> list[str]:
        """As a gateway answers."""
        return [digest for digest in digests if digest not in self.pieces]

    def send_piece(self, digest: str, data: bytes) -> None:
        """As a gateway checks."""
        assert trees.digest_of(data).hex() == digest
        assert len(data) <= trees.PIECE_BYTES_MAX
        self.pieces[digest] = data

    async def get(self, digest: bytes) -> bytes | None:
        """As a node reads."""
        return self.pieces.get(digest.hex())


def fill(root: Path, files: int = 100) -> None:
    """Files of several groups, and a large one."""
    for number in range(files):
        path = root / f"d{number % 5}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"file {number}\n" * 20)
    (root / "large").write_bytes(os.urandom(trees.PIECE_BYTES_MAX + 1000))
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o755)
    (root / "link").symlink_to("run")
    (root / "empty").mkdir()


def tree_of(root: Path, index: Path | None = None, *, later_s: float = 0) -> LocalTree:
    """The directory, as it is seen some time later."""
    return LocalTree(root, walk(root), index, lambda: time.time_ns() + int(later_s * 1e9))


def send(root: Path, cluster: Cluster, tmp_path: Path) -> SentDirectory:
    """Send it, with an index of its own."""
    return send_directory(root, cluster, lambda _: None, index=tmp_path / "index")


def test_equal_directories_have_one_name(tmp_path: Path) -> None:
    """Wherever they are and whenever they were written; a mode, a link or a byte more is another one."""
    fill(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", symlinks=True)
    name = tree_of(tmp_path / "a").digest
    assert tree_of(tmp_path / "b").digest == name
    (tmp_path / "b/run").chmod(0o644)
    assert tree_of(tmp_path / "b").digest != name
    (tmp_path / "b/run").chmod(0o4755)
    assert tree_of(tmp_path / "b").digest == name
    (tmp_path / "b/empty").rmdir()
    assert tree_of(tmp_path / "b").digest != name


def test_a_node_makes_the_same_directory(tmp_path: Path) -> None:
    """From end to end: what is sent is what is unpacked, byte for byte."""
    fill(tmp_path / "a")
    cluster = Cluster()
    sent = send(tmp_path / "a", cluster, tmp_path)
    staged = Path(
        asyncio.run(SyncTrees(tmp_path / "node", cluster.get, open_to_all=False).stage(RunKey("1", 1, 0), sent.name))
    )
    assert (sent.files, sent.pieces) == (104, len(cluster.pieces))
    assert tree_of(staged).digest == tree_of(tmp_path / "a").digest


def test_unchanged_files_are_not_read_again(tmp_path: Path) -> None:
    """Neither small ones nor parts of large ones; the name is the same."""
    fill(tmp_path / "a")
    index, later_s = tmp_path / "index", YOUNG_NS / 1e9 + 1
    first = tree_of(tmp_path / "a", index, later_s=later_s)
    again = tree_of(tmp_path / "a", index, later_s=later_s)
    assert (first.files_read, again.files_read, again.digest) == (102, 0, first.digest)
    path = tmp_path / "a/d1/f1"
    at = path.stat()
    path.write_text(path.read_text().replace("file", "FILE"))
    os.utime(path, ns=(at.st_atime_ns, at.st_mtime_ns))  # same size and time: the change of the inode shows it
    changed = tree_of(tmp_path / "a", index, later_s=later_s)
    assert 0 < changed.files_read < 100
    assert changed.digest != first.digest


def test_a_file_that_changed_a_moment_ago_is_read_again(tmp_path: Path) -> None:
    """It may change again within one tick of the clock, under the same times."""
    fill(tmp_path / "a")
    assert (
        tree_of(tmp_path / "a", tmp_path / "index").files_read == tree_of(tmp_path / "a", tmp_path / "index").files_read
    )


@pytest.mark.parametrize("damage", [b"", b"\xff", b"\x82\xa7version\x02\xa5known\x80"])
def test_a_damaged_index_costs_reading_only(tmp_path: Path, damage: bytes) -> None:
    """Also one of another version, or one that cannot be written."""
    fill(tmp_path / "a")
    name = tree_of(tmp_path / "a").digest
    (tmp_path / "index").write_bytes(damage)
    assert tree_of(tmp_path / "a", tmp_path / "index", later_s=9).digest == name
    assert tree_of(tmp_path / "a", tmp_path / "index", later_s=9).files_read == 0
    assert tree_of(tmp_path / "a", Path("/proc/none/index"), later_s=9).digest == name


def test_only_what_changed_is_sent(tmp_path: Path) -> None:
    """A file more or less costs its group and the root; a piece that the cluster has lost is sent again from unchanged files."""
    fill(tmp_path / "a")
    cluster = Cluster()
    assert send(tmp_path / "a", cluster, tmp_path).pieces == len(cluster.pieces) > 4
    assert send(tmp_path / "a", cluster, tmp_path).pieces == 0
    (tmp_path / "a/d1/new").write_text("x")
    assert send(tmp_path / "a", cluster, tmp_path).pieces == 2
    whole = dict(cluster.pieces)
    cluster.pieces.clear()
    send(tmp_path / "a", cluster, tmp_path)
    assert cluster.pieces.items() <= whole.items()


def test_a_file_that_changes_while_it_is_sent_is_read_again(tmp_path: Path) -> None:
    """The sent directory is one that was there; a file that never rests is named."""
    fill(tmp_path / "a", 3)
    changes = 2

    class Busy(Cluster):
        def missing_pieces(self, digests: list[str]) -> list[str]:
            nonlocal changes
            changes -= 1
            if changes >= 0:
                (tmp_path / "a/large").write_bytes(os.urandom(2 * trees.PIECE_BYTES_MAX))
            return super().missing_pieces(digests)

    held = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairlead.sync.local_tree.HELD_BYTES_MAX", held)
        cluster = Busy()
        assert send(tmp_path / "a", cluster, tmp_path).name == trees.name_of_tree(tree_of(tmp_path / "a").digest)
        changes = 10**6
        with pytest.raises(InputRefused, match="'large' changes while it is read"):
            send(tmp_path / "a", Busy(), tmp_path)


def test_a_bound_on_requests_slows_it_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway may answer 429 to each second piece; any other error ends it at once."""
    fill(tmp_path / "a")
    pauses: list[float] = []
    monkeypatch.setattr("fairlead.sync.send.pause", pauses.append)

    class Bounded(Cluster):
        status = 429
        tries = 0

        def send_piece(self, digest: str, data: bytes) -> None:
            self.tries += 1
            if self.tries % 2:
                raise from_problem(Problem(type="", title="", status=self.status))
            super().send_piece(digest, data)

    cluster = Bounded()
    assert send(tmp_path / "a", cluster, tmp_path).pieces == len(cluster.pieces) == len(pauses)
    refusing = Bounded()
    refusing.status = 403
    with pytest.raises(FairleadError):
        send(tmp_path / "a", refusing, tmp_path)
    assert refusing.tries == 1


def test_nothing_is_sent_without_a_client(tmp_path: Path) -> None:
    """A dry run needs the name only."""
    fill(tmp_path / "a")
    found = send_directory(tmp_path / "a", None, lambda _: None, index=tmp_path / "index")
    assert (found.pieces, found.name) == (0, trees.name_of_tree(tree_of(tmp_path / "a").digest))
