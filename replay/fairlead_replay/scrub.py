"""The scrub: reads the whole log in the background, over and over, and reports damage that no reader has met yet.

Services start from snapshots, so an old commit may be unreadable for months without anybody noticing. The first pass over a
log of usual size is quick, so that damage from before a start is found soon; later passes keep to a small share of one CPU.
Nothing is decided or mended here. Start at `Scrub.run`.
"""

import asyncio
import time
from collections.abc import Callable, Iterator

import structlog

from fairlead_bus.log import LogReader
from fairlead_bus.port import Bus, BusError, LogDamaged, Stored
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import Scrubbed

#: Percent of one CPU that passes may take after the first.
PERCENT = 0.5
#: A first pass over at most so many commits is quick: so many each second.
QUICK_COMMITS, QUICK_PER_S = 200_000, 5_000
#: Commits that are checked without giving way to questions.
SLICE = 50
#: Checking is about half of the cost; the rest is receiving.
COST_OF_RECEIVING = 2.0
#: Least pause between two passes, and after an error of the bus.
PAUSE_S, RETRY_S = 20.0, 2.0
#: Commits that do not arrive for so long are looked for one by one.
SILENCE_S = 5.0

log = structlog.get_logger()


def pause_s(commits: int, cost_s: float, *, quick: bool, percent: float) -> float:
    """Seconds to wait after so many commits, whose check took `cost_s` of CPU time."""
    if quick:
        return max(0.0, commits / QUICK_PER_S - cost_s)
    return cost_s * COST_OF_RECEIVING * (100.0 / percent - 1.0)


class Scrub:
    """Passes over the log of one bus. `result` is that of the newest commits checked, kept over passes."""

    def __init__(self, bus: Bus, *, percent: float = PERCENT, cpu: Callable[[], float] = time.thread_time) -> None:
        self._bus, self._percent, self._cpu = bus, percent, cpu
        self.result = Scrubbed()

    async def run(self) -> None:
        """Run one pass after another, without end."""
        while True:
            try:
                await self._pass()
            except BusError as error:
                log.debug("scrub waits for the bus", reason=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                await asyncio.sleep(PAUSE_S)

    async def _pass(self) -> None:
        """Check up to the log's end as it is now. Raises Unavailable; damage goes into the result."""
        end = (await self._bus.state(subjects.LOG)).last
        self.result = self.result.changed(sequence=0, end=end)
        reader = LogReader(self._bus)
        try:
            await self._check(reader, end)
        except LogDamaged as error:
            self._found(error)
        else:
            if self.result.damaged:
                log.info("scrub finds the log whole again", end=end)
            self.result = self.result.changed(passes=self.result.passes + 1, sequence=end, damaged=0, reason="")
        finally:
            await reader.close()

    def _found(self, error: LogDamaged) -> None:
        if (error.sequence, str(error)) != (self.result.damaged, self.result.reason):
            log.critical(
                "scrub found the log damaged", condition="log_damaged", sequence=error.sequence, reason=str(error)
            )
        passes = self.result.passes + 1
        self.result = self.result.changed(passes=passes, damaged=error.sequence, reason=str(error))

    async def _check(self, reader: LogReader, end: int) -> None:
        quick = self.result.passes == 0 and end <= QUICK_COMMITS
        while reader.chain.last < end:
            for piece in _slices(await self._arrived(reader)):
                began = self._cpu()
                for stored in piece:
                    reader.check_envelope(stored)
                cost_s = self._cpu() - began
                self.result = self.result.changed(sequence=reader.chain.last)
                await asyncio.sleep(pause_s(len(piece), cost_s, quick=quick, percent=self._percent))

    async def _arrived(self, reader: LogReader) -> list[Stored]:
        """Return the next commits. Raises LogDamaged if the server delivers none although its log continues: the server does not
        report such a gap.
        """
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    return await reader.messages()
            except TimeoutError:
                following = reader.chain.last + 1
                if await self._bus.read(subjects.LOG, following) is None:
                    last = (await self._bus.state(subjects.LOG)).last
                    raise LogDamaged(following, f"the commit is gone, though the log ends at {last}") from None


def _slices(batch: list[Stored]) -> Iterator[list[Stored]]:
    for start in range(0, len(batch), SLICE):
        yield batch[start : start + SLICE]
