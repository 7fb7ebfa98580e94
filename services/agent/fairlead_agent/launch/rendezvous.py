"""Rendezvous before the start: no rank of a gang starts its program before every rank's node has reported that it is ready.

Without it the first ranks wait in their rendezvous, and give up, while another still pulls its image. The ranks meet at
the node of rank 0: the others ask it again and again, until it answers that all are ready. A rank that asks too
early is asked to come again; a rank that is ordered to stop meanwhile stops. The rendezvous is not stored: a new process
of rank 0's agent ends the runs it had not started.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import structlog

from fairlead_agent.core.runs import RunKey, key_of
from fairlead_agent.launch.plan import Unlaunchable
from fairlead_bus.port import Bus, Unavailable
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.desired import RunOrder
from fairlead_schemas.wire.rank_rpc import GangAnswer, RankReady, decode_answer, encode_gang

#: An answer is held back so long while others are missing.
HOLD_S = 2.0
ANSWER_S = 5.0
#: Pause before asking again, and before looking again whether the run is still wanted.
AGAIN_S = 0.3
#: The longest that ranks wait for each other: an image that takes longer is not going to come.
MEETING_S = 1800.0
LOGGED_EVERY_S = 60.0
NAMED_MAX = 5

_log = structlog.get_logger()


class _Gathering:
    """Rank 0's list of who is there."""

    def __init__(self, order: RunOrder) -> None:
        self.order = order
        self.ready: set[int] = set()
        self.complete = asyncio.Event()

    def add(self, rank: int) -> None:
        self.ready.add(rank)
        if len(self.ready) == len(self.order.nodes):
            self.complete.set()

    def missing(self) -> str:
        absent = [f"rank {rank} on {node}" for rank, node in enumerate(self.order.nodes) if rank not in self.ready]
        more = f" and {len(absent) - NAMED_MAX} more" if len(absent) > NAMED_MAX else ""
        return ", ".join(absent[:NAMED_MAX]) + more


class Rendezvous:
    """Rendezvous of the ranks of one node's runs. `may_start` returns True if a run may still be started, and ends one that
    may not."""

    def __init__(
        self, bus: Bus, node: str, may_start: Callable[[RunKey], bool], *, longest_s: float = MEETING_S
    ) -> None:
        self._bus, self._node, self._may_start, self._longest_s = bus, node, may_start, longest_s
        self._gatherings: dict[RunKey, _Gathering] = {}

    async def meet(self, order: RunOrder) -> bool:
        """Wait until every rank is ready. Return False if the run is not wanted any more, which was then reported. Raises
        Unlaunchable.
        """
        key, waited = key_of(order), self._here(order) if order.rank == 0 else self._there(order)
        try:
            async with asyncio.timeout(self._longest_s):
                return await self._while_wanted(key, waited)
        except TimeoutError as error:
            gathering = self._gatherings.get(key)
            who = gathering.missing() if gathering is not None else f"not all of {len(order.nodes)} ranks"
            raise Unlaunchable(f"not ready within {self._longest_s:g} s: {who}") from error

    def answer(self, order: RunOrder, call: RankReady) -> Coroutine[Any, Any, GangAnswer]:
        """Another rank of the run of this order, whose rank 0 is here, is ready."""
        return self._answer(order, call)

    def over(self, key: RunKey) -> None:
        """The run has ended."""
        self._gatherings.pop(key, None)

    async def _while_wanted(self, key: RunKey, waited: Coroutine[Any, Any, None]) -> bool:
        task = asyncio.ensure_future(waited)
        try:
            while not task.done():
                if not self._may_start(key):
                    return False
                await asyncio.wait({task}, timeout=AGAIN_S)
            task.result()
            return self._may_start(key)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _here(self, order: RunOrder) -> None:
        gathering = self._gatherings.setdefault(key_of(order), _Gathering(order))
        gathering.add(0)
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOGGED_EVERY_S):
                    await gathering.complete.wait()
                return
            _log.info("a run waits for its other ranks", run=key_of(order).name, missing=gathering.missing())

    async def _there(self, order: RunOrder) -> None:
        subject = subjects.gang(self._node, order.nodes[0])
        call = RankReady(job=order.job, attempt=order.attempt, epoch=order.epoch, rank=order.rank)
        while True:
            with contextlib.suppress(Unavailable, msgspec.MsgspecError):
                answer = decode_answer(await self._bus.request(subject, encode_gang(call), timeout_s=ANSWER_S))
                if answer.go:
                    return
            await asyncio.sleep(AGAIN_S)

    async def _answer(self, order: RunOrder, call: RankReady) -> GangAnswer:
        gathering = self._gatherings.setdefault(key_of(order), _Gathering(order))
        gathering.add(call.rank)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HOLD_S):
                await gathering.complete.wait()
        return GangAnswer(go=gathering.complete.is_set())
