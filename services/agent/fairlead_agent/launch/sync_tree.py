"""A job's own directory, put together from the pieces that its submitter sent, before its run starts.

It is made below `<agent>/staged`, and the runtime moves it into the run's directory when that exists: a run has all of its
directory or does not start. Everything that comes over the bus is checked: digests, paths, sizes, totals. Links are made last, so no
file is written through one. Start at `SyncTrees.stage`.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path

from fairlead_agent.core.runs import RunKey
from fairlead_agent.launch.plan import Unlaunchable
from fairlead_bus.pieces import PieceDamaged
from fairlead_bus.port import BusError
from fairlead_schemas.units.quantities import format_bytes
from fairlead_schemas.wire import trees
from fairlead_schemas.wire.trees import PathCheck, Tree, TreeEntry, TreeRefused

#: Pieces that are fetched at once.
FETCHED_AT_ONCE = 8
TRIES = 5
#: Of the disk, beyond the directory itself.
SPARE_BYTES = 64 * 2**20

type Fetch = Callable[[bytes], Awaitable[bytes | None]]


class SyncTrees:
    """Directories that go with jobs, on one node. `fetch` returns a piece by its digest, None where the bus has none."""

    def __init__(self, directory: Path, fetch: Fetch, *, open_to_all: bool, retry_s: float = 0.2) -> None:
        """`open_to_all`: any user may write, as a container's user may be anybody; the run's directory around it is closed."""
        self._base, self._fetch, self._retry_s = directory / "staged", fetch, retry_s
        self._open = open_to_all

    def clear(self) -> None:
        """Remove what an earlier process of the agent left."""
        shutil.rmtree(self._base, ignore_errors=True)

    async def stage(self, key: RunKey, name: str) -> str:
        """Make the directory of a run, empty where `name` is "", and return its path. Raises Unlaunchable; then nothing is left."""
        staged = self._base / key.name
        try:
            await asyncio.to_thread(self._make, staged)
            if name:
                await self._fill(staged, name)
        except BaseException as error:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, staged, ignore_errors=True))
            match error:
                case TreeRefused():
                    raise Unlaunchable(f"its directory {name} cannot be used: {error}", "job") from error
                case OSError():
                    reason = error.strerror or str(error)
                    raise Unlaunchable(f"its directory cannot be made on this node: {reason}", "node") from error
                case _:
                    raise
        return str(staged)

    def _make(self, staged: Path) -> None:
        shutil.rmtree(staged, ignore_errors=True)
        self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged.mkdir(mode=0o700)
        self._allow(staged, 0o755)

    def _allow(self, path: Path | int, mode: int) -> None:
        """Set the mode of a file or directory, whatever the agent's umask is. What one may do, all may where it is open to all."""
        os.chmod(path, mode | (mode & 0o700) >> 3 | (mode & 0o700) >> 6 if self._open else mode)  # noqa: PTH101 -- also of descriptors

    async def _fill(self, staged: Path, name: str) -> None:
        digest = trees.parse_tree_name(name)
        if digest is None:
            raise TreeRefused('expected "sha256:" and 64 hex digits')
        tree = trees.decode_tree(await self._piece(digest))
        free = shutil.disk_usage(staged).free
        if free < tree.size + SPARE_BYTES:
            raise OSError(0, f"it has {format_bytes(tree.size)}, and the disk {format_bytes(free)} left")
        writer = _Writer(staged, tree, self._allow)
        async for data in self._pieces(tree.groups):
            entries = trees.decode_group(data).entries
            await asyncio.to_thread(writer.write, entries)
            for entry in entries:
                if entry.pieces:
                    await self._large(writer, entry)
        await asyncio.to_thread(writer.finish)

    async def _large(self, writer: "_Writer", entry: TreeEntry) -> None:
        with writer.opened(entry) as file:
            left = entry.size
            async for data in self._pieces(entry.pieces):
                if len(data) != min(left, trees.PIECE_BYTES_MAX):
                    raise TreeRefused(
                        f"{entry.path[:200]!r}: expected a piece of {left} bytes at most, found {len(data)}"
                    )
                left -= len(data)
                await asyncio.to_thread(_write, file, data)

    async def _pieces(self, digests: Iterable[bytes]) -> AsyncIterator[bytes]:
        """Yield pieces in order, fetched ahead."""
        waiting: list[asyncio.Task[bytes]] = []
        try:
            for digest in digests:
                waiting.append(asyncio.ensure_future(self._piece(digest)))
                if len(waiting) == FETCHED_AT_ONCE:
                    yield await waiting.pop(0)
            while waiting:
                yield await waiting.pop(0)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _piece(self, digest: bytes) -> bytes:
        """Return a piece. Raises TreeRefused for one that is not there or damaged, OSError where the bus stays away."""
        for attempt in range(TRIES):
            try:
                data = await self._fetch(digest)
            except PieceDamaged as error:
                raise TreeRefused(str(error)) from error
            except BusError:
                await asyncio.sleep(self._retry_s * 2**attempt)
                continue
            if data is None:
                raise TreeRefused(f"piece {digest.hex()} is not on the bus any more: submit the job again with --sync")
            return data
        raise OSError(0, "the bus cannot be reached")


class _Writer:
    """Writer of one directory. Its methods block."""

    def __init__(self, staged: Path, tree: Tree, allow: Callable[[Path | int, int], None]) -> None:
        self._staged, self._tree, self._allow = staged, tree, allow
        self._check = PathCheck()
        self._entries = self._size = 0
        self._links: list[TreeEntry] = []
        self._made: set[Path] = {staged}

    def write(self, entries: Iterable[TreeEntry]) -> None:
        """Write small files and directories, and note links. Raises TreeRefused, OSError."""
        for entry in entries:
            if fault := self._check.take(entry.path):
                raise TreeRefused(f"{entry.path[:200]!r}: {fault}")
            self._entries += 1
            self._size += entry.size
            if self._entries > self._tree.entries or self._size > self._tree.size:
                raise TreeRefused(f"expected {self._tree.entries} files of {self._tree.size} bytes, found more")
            if entry.target:
                self._links.append(entry)
            elif entry.directory:
                self._directory(self._staged / entry.path)
            elif not entry.pieces:
                with self.opened(entry) as file:
                    _write(file, entry.data)

    @contextlib.contextmanager
    def opened(self, entry: TreeEntry) -> Iterator[int]:
        """Open a new file for its content, and give it its mode at the end. Raises OSError."""
        path = self._staged / entry.path
        self._directory(path.parent)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            yield file
            self._allow(file, 0o755 if entry.executable else 0o644)
        finally:
            os.close(file)

    def finish(self) -> None:
        """Make the links, and check that nothing is missing. Raises TreeRefused, OSError."""
        for entry in self._links:
            path = self._staged / entry.path
            self._directory(path.parent)
            path.symlink_to(entry.target)
        if (self._entries, self._size) != (self._tree.entries, self._tree.size):
            raise TreeRefused(
                f"expected {self._tree.entries} files of {self._tree.size} bytes, found {self._entries} of {self._size}"
            )

    def _directory(self, path: Path) -> None:
        if path not in self._made:
            self._directory(path.parent)
            path.mkdir(exist_ok=True)
            self._allow(path, 0o755)
            self._made.add(path)


def _write(file: int, data: bytes) -> None:
    """Write all of it: a disk that becomes full takes a part first. Raises OSError."""
    while data:
        data = data[os.write(file, data) :]
