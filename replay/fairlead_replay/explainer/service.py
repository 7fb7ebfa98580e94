"""Service that receives questions and answers them one at a time, in order. The shell around `kept_folds.py` and
`answers.py`.

Any number of explainers may run: each question goes to one of them. Without questions, an explainer holds a
connection and the scrub (`scrub.py`), and no state. It imports the cores at the first question: with numpy they take
more memory than the rest of the process, and many explainers are never asked. Start at `Explainer`.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import structlog

from fairlead_bus import bus_faults
from fairlead_bus.environment_settings import number
from fairlead_bus.port import Bus, BusError, LogDamaged, Message, Unavailable
from fairlead_replay.kept_folds import Fold, Folds, NotYet, placer_kind, queue_kind
from fairlead_replay.scrub import PERCENT, Scrub
from fairlead_schemas.queries.explainer import (
    ANSWER_S,
    COMMANDS_MAX,
    Ask,
    AskDefrag,
    AskDryRun,
    AskPacking,
    AskQueueChange,
    AskQueues,
    AskWhy,
    DryRunOutcome,
    ExplainerAnswer,
    decode_ask,
    encode,
)
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import ALIVE, Alive, encode_alive

if TYPE_CHECKING:
    from fairlead_queue.core import QueueCore

NAME = "explainer"
#: Without a question for so long, and at most twice as long, what was folded is let go.
IDLE_S = 60.0
#: Questions that may wait. Further ones are answered with a request to ask again.
WAITING_MAX = 64
#: Under a bus message's 1 MiB.
ANSWER_BYTES_MAX = 1_000_000

log = structlog.get_logger()


class Explainer:
    """The running service; `run` until `stop`. `clock` is wall time in ns."""

    def __init__(
        self,
        bus: Bus,
        *,
        clock: Callable[[], int] = time.time_ns,
        idle_s: float = IDLE_S,
        scrub_percent: float = PERCENT,
    ) -> None:
        self._bus, self._clock, self._idle_s = bus, clock, idle_s
        self._folds, self._placers = Folds(bus, queue_kind), Folds(bus, placer_kind)
        self._both = (self._folds, self._placers)
        #: Answers in the making, and the turn that they have one after the other, in the order of arrival.
        self._answers: set[asyncio.Task[bytes]] = set()
        self._turn = asyncio.Lock()
        self._taken = self._answered = self._refused = self._failed = 0
        self._stopping = asyncio.Event()
        self._scrub = Scrub(bus, percent=scrub_percent)
        self._damage: LogDamaged | None = None

    async def run(self) -> int:
        """Answer until stopped or the log proves to be damaged; returns the exit code."""
        served = [
            await self._bus.serve(subjects.ASK, self._take, group=NAME),
            await self._bus.serve(subjects.rpc(NAME, "state"), self._state, group=NAME),
            await self._bus.serve(subjects.rpc(NAME, ALIVE), self._alive, group=NAME),
        ]
        works = (self._release_when_idle(), self._stopping.wait(), self._scrub.run())
        tasks = [asyncio.create_task(work) for work in works]
        log.info("answering")
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # the work ends by a fault of its own only
            return bus_faults.end_service(NAME, self._damage) if self._damage is not None else 0
        finally:
            for subscription in served:
                await subscription.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._say_goodbye()
            await self._release()

    async def stop(self) -> None:
        """Request `run` to end; waiting callers are asked to repeat their questions."""
        self._stopping.set()

    async def _say_goodbye(self) -> None:
        for answer in self._answers:
            answer.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)
        with contextlib.suppress(BusError):
            await self._bus.flush()

    # -- questions come in

    async def _take(self, message: Message) -> bytes:
        try:
            ask = decode_ask(message.payload)
        except msgspec.MsgspecError as error:
            return _no_answer("invalid", str(error))
        if not isinstance(ask, AskDryRun) and ask.at < 0:
            return _no_answer("invalid", f"expected a log sequence from 1, or 0 for the newest, found {ask.at}")
        if isinstance(ask, AskDryRun) and len(ask.commands) > COMMANDS_MAX:
            return _no_answer("invalid", f"expected at most {COMMANDS_MAX} jobs, found {len(ask.commands)}")
        if len(self._answers) > WAITING_MAX:
            self._refused += 1
            return _no_answer("busy", f"{WAITING_MAX} questions wait already; ask again")
        deadline = asyncio.get_running_loop().time() + ANSWER_S
        answer = asyncio.create_task(self._answer(ask, deadline))
        self._answers.add(answer)
        answer.add_done_callback(self._answers.discard)
        await asyncio.wait((answer,))
        return _no_answer("busy", "this explainer is stopping; ask again") if answer.cancelled() else answer.result()

    async def _state(self, message: Message) -> bytes:
        return msgspec.json.encode(self.statistics())

    async def _alive(self, message: Message) -> bytes:
        return encode_alive(Alive(sequence=self.statistics()["sequence"], scrub=self._scrub.result))

    def statistics(self) -> dict[str, int]:
        """Return counts since the start; `sequence` is the position of the fold, 0 while no fold is held."""
        return {
            "sequence": max((folds.reached for folds in self._both if folds.held), default=0),
            "waiting": max(0, len(self._answers) - 1),
            "answered": self._answered,
            "refused": self._refused,
            "failed": self._failed,
            "folded": sum(folds.folded for folds in self._both),
        }

    # -- answers go out

    async def _release(self) -> None:
        await self._folds.release()
        await self._placers.release()

    async def _release_when_idle(self) -> None:
        while True:
            taken = self._taken
            await asyncio.sleep(self._idle_s)
            async with self._turn:
                if taken == self._taken and any(folds.held for folds in self._both):
                    await self._release()
                    log.info("released the folded states: idle")

    async def _answer(self, ask: Ask, deadline: float) -> bytes:
        """Return an answer to a question in every case, errors included."""
        folds = self._placers if isinstance(ask, AskDefrag | AskPacking) else self._folds
        async with self._turn:
            self._taken += 1
            try:
                payload = encode(await self._find_out(ask, deadline))
                self._answered += 1
                if len(payload) > ANSWER_BYTES_MAX:
                    size = f"the answer takes {len(payload)} bytes, at most {ANSWER_BYTES_MAX}"
                    return _no_answer("invalid", f"{size}: ask for less")
                return payload
            except NotYet as error:
                self._answered += 1
                return _no_answer("not_yet", str(error), error.last)
            except TimeoutError as error:
                self._refused += 1
                reached = f"the log is folded up to sequence {folds.reached} of {folds.last}; ask again"
                return _no_answer("busy", str(error) or reached, folds.reached)
            except Unavailable as error:
                log.warning("question not answered", reason=str(error))
                message = f"the log cannot be read now: {error}"
            except LogDamaged as error:
                self._damage = error
                self._stopping.set()
                message = f"the log is damaged: {error}"
            except Exception as error:
                log.exception("question not answered", kind=type(ask).__name__)
                # The fault may have left behind a state that no log has.
                await self._release()
                message = f"{type(error).__name__}: the explainer's log has more"
            self._failed += 1
            return _no_answer("failed", message)

    async def _find_out(self, ask: Ask, deadline: float) -> ExplainerAnswer:
        """Compute the answer to a question. The cores' functions may scan thousands of jobs: they run on a thread."""
        if _is_past(deadline):
            raise TimeoutError("many were asked before it; ask again")
        from fairlead_queue.change_preview import queue_change
        from fairlead_queue.standing import standings
        from fairlead_replay.explainer.answers import defrag, packing, why

        match ask:
            case AskWhy():
                fold = await self._folds.at(ask.at, deadline)
                return await asyncio.to_thread(why, fold.core.state, fold.sequence, ask.job)
            case AskQueues():
                fold = await self._folds.at(ask.at, deadline)
                return ExplainerAnswer(sequence=fold.sequence, queues=standings(fold.core.state))
            case AskDefrag():
                placer = await self._placers.at(ask.at, deadline)
                found = placer.core.state, placer.sequence, ask.pool, ask.now_ns or self._clock()
                return await asyncio.to_thread(defrag, *found)
            case AskPacking():
                placer = await self._placers.at(ask.at, deadline)
                away = frozenset(ask.away)
                return await asyncio.to_thread(packing, placer.core.state, placer.sequence, ask.pool, away)
            case AskQueueChange():
                fold = await self._folds.at(0, deadline)
                found = await asyncio.to_thread(queue_change, fold.core, fold.sequence, ask.command, self._clock())
                return ExplainerAnswer(sequence=fold.sequence, change=found)
            case AskDryRun():
                return await self._dry_runs(ask, await self._folds.at(0, deadline), deadline)

    async def _dry_runs(self, ask: AskDryRun, fold: "Fold[QueueCore]", deadline: float) -> ExplainerAnswer:
        from fairlead_queue.explain.dry_run import dry_run

        # As for the queue's own clock: never before the newest commit.
        now_ns = max(self._clock(), fold.core.state.at_ns)
        outcomes: list[DryRunOutcome] = []
        for command in ask.commands:
            if _is_past(deadline):
                tried = f"{len(outcomes)} of {len(ask.commands)} jobs were looked at within {ANSWER_S:g} s"
                raise TimeoutError(f"{tried}; ask again, for fewer at once")
            outcomes.append(await asyncio.to_thread(dry_run, fold.core.state, command, now_ns))
        return ExplainerAnswer(sequence=fold.sequence, outcomes=tuple(outcomes))


def _is_past(deadline: float) -> bool:
    return asyncio.get_running_loop().time() >= deadline


def _no_answer(error: str, message: str, sequence: int = 0) -> bytes:
    return encode(ExplainerAnswer(sequence=sequence, error=error, message=message))


async def build(bus: Bus) -> Explainer:
    """The explainer on a connected bus. Raises BadSetting."""
    return Explainer(
        bus, scrub_percent=number(os.environ, "FAIRLEAD_SCRUB_PERCENT", PERCENT, unit="percent", below=100)
    )
