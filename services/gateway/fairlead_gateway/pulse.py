"""Signs of life, collected: each service is asked, its lease is read, and a command without a reader is stored now and
then.

`readiness.py` judges them. A round costs a request to each service; while the gateway is not ready, rounds are
frequent, so that a start is noticed at once.
"""

import asyncio
import contextlib
import time

import msgspec

from fairlead_bus.port import Bus, BusError, StreamFull
from fairlead_gateway.commandwatch import CommandWatch
from fairlead_gateway.folding import Folding
from fairlead_gateway.readiness import OTHERS, WRITERS, Evidence, Facts
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import ALIVE, Condition, decode_alive

ROUND_S = 2.0
ROUND_UNREADY_S = 0.25
ANSWER_S = 2.0
#: Without a command stored for so long, an empty one is: an idle gateway must notice a server that refuses.
IDLE_S = 10.0
#: No service reads the commands of this name.
NOBODY = "probe"


class Pulse:
    """The conditions of this gateway's cluster; `run` keeps them fresh."""

    def __init__(self, bus: Bus, folding: Folding, watch: CommandWatch) -> None:
        self._bus, self._folding, self._watch = bus, folding, watch
        self.evidence = Evidence(self._now())

    def conditions(self) -> list[Condition]:
        """Return what is wrong as of now, worst first."""
        folding = self._folding
        facts = Facts(
            folding.bus_answers, folding.is_near_end, folding.has_room, folding.views.sequence, folding.log_end
        )
        found = self.evidence.conditions(facts, self._now())
        if lost := self._watch.conditions:  # the reason why no command is stored
            return [*lost, *(each for each in found if each.code != "commands_refused")]
        return found

    def appended(self, error: BusError | None) -> None:
        """The outcome of a command's append; None: stored."""
        if error is None:
            self.evidence.stored(self._now())
        else:
            self.evidence.not_stored(str(error), is_full=isinstance(error, StreamFull))

    async def run(self) -> None:
        """Collect signs of life in rounds, without end."""
        while True:
            works = [self._ask(name) for name in (*WRITERS, *OTHERS)]
            works += [self._look_at_lease(name) for name in WRITERS]
            if not self.evidence.stored_since(self._now() - IDLE_S):
                works.append(self._probe())
            await asyncio.gather(*works)
            await asyncio.sleep(ROUND_UNREADY_S if any(each.blocks for each in self.conditions()) else ROUND_S)

    async def _ask(self, service: str) -> None:
        # Without an answer there is nothing to note: the last one becomes older.
        with contextlib.suppress(BusError, msgspec.MsgspecError):
            answer = await self._bus.request(subjects.rpc(service, ALIVE), b"", timeout_s=ANSWER_S)
            self.evidence.answered(service, decode_alive(answer), self._now(), self._folding.log_end)

    async def _look_at_lease(self, service: str) -> None:
        with contextlib.suppress(BusError):
            if await self._bus.get(subjects.LEASE, service) is not None:
                self.evidence.leased(service, self._now())

    async def _probe(self) -> None:
        """Store a command that no service reads. Skip a stream that has lost messages: its sequences would fill the gap up to
        the one that counts as read, and would hide the loss.
        """
        if not self._watch.is_fresh or self._watch.conditions:
            return
        seen = self._watch.seen
        try:
            sequence = await self._bus.append(subjects.CMD, subjects.cmd(NOBODY), b"[]")
            self._watch.stored(sequence, seen)
        except BusError as error:
            self.appended(error)
        else:
            self.appended(None)

    @staticmethod
    def _now() -> float:
        return time.monotonic()
