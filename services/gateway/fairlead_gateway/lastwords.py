"""The last lines that a run has printed, as part of why its job failed, or is not running yet.

They are no part of the log: output may hold content that its owner would not keep permanently. So they are looked
up on request, on the bus and in the agent's own file, and are available as long as the output is.
"""

import asyncio
import contextlib

from fairlead_bus.port import Bus, BusError
from fairlead_gateway.logs import Output, wanted
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow

#: Of a failed job; what Slurm and Kubernetes users look at first.
FAILED_LINES = 200
#: Of one that has its place: what its agent waits for.
PLACED_LINES = 3
BYTES_MAX = 64 * 1024
#: A reason comes soon, with the output or without.
WAIT_S = 3.0


async def last_words(bus: Bus, views: Views, row: JobRow) -> list[str]:
    """The newest lines, both streams as they came, of the rank that decided the end; [] where they say nothing more."""
    count = {"failed": FAILED_LINES, "placed": PLACED_LINES}.get(row.state, 0)
    if not count or not row.parts or row.elements is not None:
        return []
    rank = row.end_rank if row.end_rank < len(row.parts) else 0
    source = wanted(row.id, row.attempt, tuple(part.node for part in row.parts), rank, "")
    text = b""
    with contextlib.suppress(TimeoutError, BusError):
        async with asyncio.timeout(WAIT_S):
            async for chunk in Output(bus, views, source, follow=False).text(count):
                text += chunk
    return text[-BYTES_MAX:].decode(errors="replace").splitlines()
