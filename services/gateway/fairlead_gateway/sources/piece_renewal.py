"""Renewal of the directories of jobs that have not ended, and of datasets: their pieces are sent again before the bus removes them.

The bus removes a piece some weeks after it was last sent, whoever needs it. Every gateway looks; a directory that one has renewed is
renewed for all. So a directory goes some weeks after its last job has ended, and nobody has to delete it (ADR 0024).
"""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from fairlead_bus.pieces import PieceStore
from fairlead_bus.port import BusError
from fairlead_gateway.views.fold import Views
from fairlead_schemas.wire.lifecycle import END_STATES
from fairlead_schemas.wire.trees import parse_tree_name

#: Time between two looks: far less than half of a piece's life, which is a day at least.
LOOK_S = 6 * 3600.0

_log = structlog.get_logger()


class _Synced(msgspec.Struct):
    sync: str = ""


_synced = msgspec.json.Decoder(_Synced)


def directories_of(views: Views) -> list[bytes]:
    """Return the digests of all directories of jobs that have not ended, and of datasets that are not retired, each once."""
    kept = (row.digest for row in views.storage.datasets.values() if not row.retired)
    found: dict[bytes, None] = {digest: None for each in kept if (digest := parse_tree_name(each)) is not None}
    for row in views.jobs.rows.values():
        if row.state not in END_STATES and b'"sync"' in bytes(row.spec):
            digest = parse_tree_name(_synced.decode(row.spec).sync)
            if digest is not None:
                found[digest] = None
    return list(found)


class PieceRenewal:
    """Renewal by one gateway. `is_ready`: the views are those of the log's end."""

    def __init__(self, views: Views, store: PieceStore, is_ready: Callable[[], bool]) -> None:
        self._views, self._store, self._is_ready = views, store, is_ready

    async def run(self) -> None:
        """Look without end."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> int:
        """Renew what needs it. Return how many pieces were sent."""
        renewed = 0
        for digest in directories_of(self._views) if self._is_ready() else ():
            try:
                renewed += await self._store.renew(digest)
            except BusError as error:
                _log.warning("a directory could not be renewed", tree=digest.hex(), reason=str(error))
        if renewed:
            _log.info("pieces of directories renewed", pieces=renewed)
        return renewed
