"""Copies of the warehouse for people's SQL: the whole one, and for members a copy of the part that they may see.

A second process may not open a file that has a writer, and a query must never slow down the process that stores: hence
copies. A copy is made when a query arrives, the old one is older than a second and something has changed. Making copies
is held below a 20th of all time.
"""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import structlog

from fairlead_telemetry.sql.member_copy import MemberScope, write_member_copy

#: A copy is remade when it is older than this, the warehouse has advanced, and copying takes under a 20th of
#: all time.
FRESH_S = 1.0
COPY_SHARE = 20
#: Members' copies that are kept; the one that was asked for longest ago goes first.
PARTS_MAX = 8
#: The file's name is the database's name in SHOW DATABASES; the folder tells copies apart.
FILE = "warehouse.duckdb"

log = structlog.get_logger("telemetry.sql")

type Make = Callable[[Path], Awaitable[None]]


class WarehouseCopy(NamedTuple):
    """Copy of the warehouse: the version, the time when it was made, and how long that took."""

    path: Path
    version: int
    made_at: float
    took_s: float


class WarehouseCopies:
    """Owns the folder of copies."""

    def __init__(self, directory: Path, *, copy_to: Make, version: Callable[[], int], fresh_s: float = FRESH_S) -> None:
        """`copy_to` writes a consistent copy of the warehouse; `version` tells whether it changed."""
        self._directory, self._filed = directory / "copies", directory / "filed"
        for folder in (self._directory, self._filed):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        self._copy_to = copy_to
        self._version = version
        self.fresh_s = fresh_s
        self._made = 0
        self._whole: WarehouseCopy | None = None
        #: {scope: its copy}, the one that was asked for last behind.
        self._parts: dict[MemberScope, WarehouseCopy] = {}
        #: {scope: number that distinguishes its rows of files}
        self._numbers: dict[MemberScope, int] = {}
        self._making = asyncio.Lock()

    @property
    def folder(self) -> Path:
        """Folder of the copies."""
        return self._directory

    async def fresh(self, scope: MemberScope | None) -> Path:
        """Return a copy with the rows that the scope may see (None: everything); make it again when it is stale."""
        async with self._making:  # a copy in use as a source is not removed
            return (await self._fresh_whole() if scope is None else await self._fresh_part(scope)).path

    def close(self) -> None:
        """Remove all copies."""
        for folder in (self._directory, self._filed):
            shutil.rmtree(folder, ignore_errors=True)

    def _is_fresh(self, copy: WarehouseCopy) -> bool:
        age_s = time.monotonic() - copy.made_at
        return copy.version == self._version() or age_s < max(self.fresh_s, COPY_SHARE * copy.took_s)

    async def _fresh_whole(self) -> WarehouseCopy:
        old = self._whole
        if old is not None and self._is_fresh(old):
            return old
        self._whole = await self._make(self._version(), self._copy_to)
        self._remove(old)
        return self._whole

    async def _fresh_part(self, scope: MemberScope) -> WarehouseCopy:
        old = self._parts.pop(scope, None)
        if old is not None and self._is_fresh(old):
            self._parts[scope] = old
            return old
        self._remove(old)
        whole = await self._fresh_whole()

        async def make(target: Path) -> None:
            await asyncio.to_thread(write_member_copy, whole.path, target, scope, self._kept(scope))

        made = self._parts[scope] = await self._make(whole.version, make)
        while len(self._parts) > PARTS_MAX:
            gone = next(iter(self._parts))
            self._remove(self._parts.pop(gone))
            for suffix in (".duckdb", ".key"):
                self._kept(gone).with_suffix(suffix).unlink(missing_ok=True)
            del self._numbers[gone]
        return made

    def _kept(self, scope: MemberScope) -> Path:
        """Return the path of the database that keeps a scope's file rows between two copies."""
        number = self._numbers.setdefault(scope, self._made)
        return self._filed / f"{number}.duckdb"

    async def _make(self, version: int, make: Make) -> WarehouseCopy:
        self._made += 1
        path = self._directory / str(self._made) / FILE
        path.parent.mkdir()
        started = time.monotonic()
        try:
            await make(path)
        except BaseException:
            shutil.rmtree(path.parent, ignore_errors=True)  # a full disk must not fill further
            raise
        ended = time.monotonic()
        log.debug("warehouse_copied", version=version, bytes=path.stat().st_size, s=round(ended - started, 3))
        return WarehouseCopy(path, version, ended, ended - started)

    def _remove(self, copy: WarehouseCopy | None) -> None:
        if copy is not None:  # a worker may still have it open, and lets go at its next question
            shutil.rmtree(copy.path.parent, ignore_errors=True)
