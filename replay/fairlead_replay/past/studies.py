"""What-if studies that people order over HTTP: played in processes of their own, one at a time, bounded, and shown by rights.

A study waits in a bounded line, runs below a bound of memory and of time, and can be ended. What was found is kept as a whole, and
each answer shows of it what its reader may see now: own jobs by name, those of others as totals, as in SQL. Start at `Studies`.
"""

import asyncio
import contextlib
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import structlog

from fairlead_bus.port import Bus, BusError, LogDamaged
from fairlead_gateway.access.caller import CLUSTER, Caller
from fairlead_gateway.access.redaction import scrub
from fairlead_gateway.access.targets import Sight, document_target
from fairlead_gateway.views.fold import Views
from fairlead_replay.audit import read_log
from fairlead_replay.export import encode_line
from fairlead_replay.past.study_process import StudyProcess
from fairlead_replay.whatif import worker
from fairlead_replay.whatif.documents import WHOLE, StudyReader, shown
from fairlead_schemas.http.api import WhatIf
from fairlead_schemas.queries.studies import WAIT_S, StudyRefused, StudyWish
from fairlead_schemas.units.quantities import QuantityError, parse_duration
from fairlead_schemas.units.timestamps import parse_rfc3339, rfc3339

#: Studies that may wait; studies of one person that wait or run; studies that are over and kept.
WAITING_MAX, OWN_MAX, KEPT = 8, 2, 16
#: What else there is.
ELSEWHERE = "fairlead whatif --data DIR plays an exported log on any machine"
#: Bytes of the log that a process of a study gets at once.
FEED_BYTES = 256 * 1024

log = structlog.get_logger()


class StudyBounds(NamedTuple):
    """What one study may take; no bytes: no bound, no seconds: there are no studies."""

    memory_bytes: int
    seconds: float


class NotOrdered(Exception):
    """A question that gets no study: the status of the answer, and its words."""

    def __init__(self, status: int, code: str, detail: str, *, field: str = "", hint: str = "") -> None:
        super().__init__(detail)
        self.status = status
        self.words = StudyRefused(code=code, detail=detail, errors=((field, detail),) if field else (), hint=hint)


class OrderedStudy:
    """One study: its order, how far it is, and what came of it."""

    def __init__(self, name: str, caller: Caller, order: worker.StudyOrder) -> None:
        self.order = order
        self.owner, self.is_open = caller.principal, caller.is_open
        self.about = WhatIf(id=name, state="queued", user=caller.user, created_at=rfc3339(time.time_ns()))
        self.whole: dict[str, Any] | None = None
        self.errors: tuple[tuple[str, str], ...] = ()
        self._moved = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """True once nothing about it changes any more."""
        return self.about.state in ("done", "failed", "cancelled")

    def move(self, **fields: Any) -> None:
        """Change what is told of it."""
        for name, value in fields.items():
            setattr(self.about, name, value)
        self.about.revision += 1
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def news(self, seen: int) -> None:
        """Return once it has come further than a revision, or after a while."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                while self.about.revision <= seen and not self.is_over:
                    await self._moved.wait()


class Studies:
    """All studies of this process. `views`: of the log's end, by whose rights they are shown."""

    def __init__(self, bus: Bus, views: Callable[[], Views], process: str, bounds: StudyBounds) -> None:
        self._bus, self._views, self._bounds = bus, views, bounds
        #: First part of the names of all studies.
        self._process = process
        self._studies: OrderedDict[str, OrderedStudy] = OrderedDict()
        self._line: deque[OrderedStudy] = deque()
        self._runner: asyncio.Task[None] | None = None
        self._count = 0

    def order(self, wish: StudyWish, caller: Caller) -> OrderedStudy:
        """Put a study in the line. Raises NotOrdered."""
        if not self._bounds.seconds:
            raise NotOrdered(
                503, "whatif_off", "this cluster plays no studies (FAIRLEAD_WHATIF_MAX_S is 0)", hint=ELSEWHERE
            )
        order = self._order_of(wish)
        self._check_room(caller)
        self._count += 1
        study = OrderedStudy(f"{self._process}-{self._count}", caller, order)
        self._studies[study.about.id] = study
        self._line.append(study)
        self._tell_places()
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run_line(), name="studies")
        return study

    def find(self, name: str, caller: Caller) -> OrderedStudy:
        """Return a study of the caller's, or any for one who sees the whole cluster. Raises NotOrdered (404)."""
        study = self._studies.get(name)
        if study is None or not self._may(study, caller):
            raise NotOrdered(
                404,
                "unknown_whatif",
                f"there is no study {name[:80]}",
                hint="the newest are kept, in the memory of the process that played them",
            )
        return study

    def cancel(self, study: OrderedStudy) -> None:
        """End a study, or take it out of the line; one that is over stays as it is."""
        if study.is_over:
            return
        if study.task is not None:
            study.task.cancel()
        else:
            self._line.remove(study)
            study.move(state="cancelled")
            self._tell_places()

    def document(self, study: OrderedStudy, caller: Caller, *, even_so: bool, brief: bool) -> WhatIf:
        """Return a study as the caller may see it now."""
        found = msgspec.structs.replace(study.about, message=self._reader(caller).words(study.about.message))
        if study.whole is not None and not brief:
            found.study = shown(study.whole, self._reader(caller), even_so=even_so)
        return found

    async def close(self) -> None:
        """End what runs."""
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)

    # -- who may

    def _may(self, study: OrderedStudy, caller: Caller) -> bool:
        if caller.is_open or study.is_open:
            return caller.is_open
        return caller.principal == study.owner or Sight(self._views(), caller).is_whole

    def _reader(self, caller: Caller) -> StudyReader:
        if caller.is_open:
            return WHOLE
        views = self._views()
        sight = Sight(views, caller)
        if sight.is_whole:
            return StudyReader(name=views.name_of)
        return StudyReader(
            job=lambda row: caller.may("job:read", document_target(views, row)),
            user=lambda user: sight.all_jobs or user in (caller.principal, caller.user),
            queue=sight.queue,
            totals=caller.may("queue:read", CLUSTER) and caller.may("node:read", CLUSTER),
            words=lambda text: scrub(sight, text),
            name=views.name_of,
        )

    # -- the order

    def _order_of(self, wish: StudyWish) -> worker.StudyOrder:
        from fairlead_replay.whatif.overlay import InvalidOverlay, read_overlay  # the cores: most are never asked

        try:
            read_overlay(wish.change)
        except InvalidOverlay as error:
            refused = NotOrdered(422, "invalid_change", str(error))
            refused.words = msgspec.structs.replace(
                refused.words, errors=tuple((f"change.{e.field}".rstrip("."), e.message) for e in error.errors)
            )
            raise refused from None
        from_ns, to_ns = _time("from", wish.from_), _time("to", wish.to)
        if from_ns and to_ns and to_ns <= from_ns:
            raise NotOrdered(
                422, "invalid_window", f"expected a time after from ({wish.from_}), found {wish.to}", field="to"
            )
        return worker.StudyOrder(
            change=wish.change,
            from_ns=from_ns,
            to_ns=to_ns,
            seeds=wish.seeds,
            closed=wish.users == "closed",
            grid_ns=_grid(wish.grid),
            memory_bytes=self._bounds.memory_bytes,
        )

    def _check_room(self, caller: Caller) -> None:
        open_ = [each for each in self._studies.values() if not each.is_over]
        own = sum(not caller.is_open and each.owner == caller.principal for each in open_)
        if own >= OWN_MAX:
            raise NotOrdered(
                429,
                "too_many_whatifs",
                f"{own} of your studies wait or run already",
                hint="wait for one, or end it with DELETE /v1/whatif/{name}",
            )
        if len(self._line) >= WAITING_MAX:
            raise NotOrdered(
                503, "busy", f"{WAITING_MAX} studies wait already; one runs at a time", hint="ask again in some minutes"
            )

    # -- the line

    def _tell_places(self) -> None:
        runs = sum(each.task is not None and not each.is_over for each in self._studies.values())
        for place, study in enumerate(self._line):
            if study.about.ahead != place + runs:
                study.move(ahead=place + runs)

    async def _run_line(self) -> None:
        while self._line:
            study = self._line.popleft()
            study.task = asyncio.create_task(self._run(study), name="study")
            study.move(state="reading", ahead=0)
            self._tell_places()
            try:
                await asyncio.shield(asyncio.wait((study.task,)))
            except asyncio.CancelledError:
                study.task.cancel()
                await asyncio.wait((study.task,))
                raise
            self._forget()

    def _forget(self) -> None:
        over = [name for name, study in self._studies.items() if study.is_over]
        for name in over[: max(0, len(over) - KEPT)]:
            del self._studies[name]

    async def _run(self, study: OrderedStudy) -> None:
        try:
            async with asyncio.timeout(self._bounds.seconds):
                await self._play(study)
        except asyncio.CancelledError:
            study.move(state="cancelled")
        except TimeoutError:
            told = f"it takes longer than {self._bounds.seconds:g} s; choose a shorter window or fewer seeds"
            study.move(state="failed", message=f"{told} (FAIRLEAD_WHATIF_MAX_S)")
        except (LogDamaged, BusError, OSError) as error:
            study.move(state="failed", message=str(error))
        except Exception as error:
            log.exception("study has failed", study=study.about.id)
            study.move(state="failed", message=f"{type(error).__name__}: the log of the process for the past has more")

    async def _play(self, study: OrderedStudy) -> None:
        enough = asyncio.Event()
        async with StudyProcess() as process:
            feeding = asyncio.create_task(self._feed(process, study.order, enough))
            try:
                async for word in process.words():
                    if word.state == "over":
                        self._take_last(study, word)
                        return
                    if word.state == "enough":
                        enough.set()
                    else:
                        plays = word.plays or study.about.plays
                        study.move(state=word.state, commits_read=word.commits, plays_done=word.done, plays=plays)
                if feeding.done() and (error := feeding.exception()) is not None:
                    raise error
                code, text = await process.end()
                log.error("study has ended without a word", study=study.about.id, code=code, text=text)
                study.move(state="failed", message=_end_words(code, study.order.memory_bytes))
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)

    @staticmethod
    def _take_last(study: OrderedStudy, word: worker.WorkerWord) -> None:
        if word.document is not None:
            study.whole = word.document
            study.move(state="done", plays_done=study.about.plays)
        else:
            refusal = word.refusal or worker.StudyRefusal(message="it has said nothing")
            study.errors = refusal.errors
            study.move(state="failed", message=refusal.message)

    async def _feed(self, process: StudyProcess, order: worker.StudyOrder, enough: asyncio.Event) -> None:
        """Send the order and the log. Where the log cannot be read, the input is closed, and the process ends."""
        lines, size = [worker.encode_order(order)], 0
        try:
            async for stored in read_log(self._bus):
                lines.append(encode_line(stored))
                size += len(lines[-1])
                if enough.is_set():
                    break
                if size >= FEED_BYTES:
                    if not await process.write(b"".join(lines)):
                        return
                    lines, size = [], 0
            await process.write(b"".join([*lines, worker.END]))
        except (LogDamaged, BusError):
            process.close_input()
            raise


def _end_words(code: int, memory_bytes: int) -> str:
    if code < 0:
        perhaps = f"perhaps it needs more than {memory_bytes // 1024**2} MiB of memory (FAIRLEAD_WHATIF_MAX_MIB)"
        return f"its process was ended by signal {-code}: {perhaps}"
    return f"its process has ended with exit code {code}: the log of the process for the past has more"


def _time(field: str, text: str) -> int:
    if not text:
        return 0
    try:
        at_ns = parse_rfc3339(text)
    except (ValueError, OverflowError):
        at_ns = 0
    if at_ns <= 0:
        raise NotOrdered(
            422,
            "invalid_window",
            f'expected RFC 3339 with a zone, such as "2026-11-28T10:15:00Z", found "{text[:40]}"',
            field=field,
        )
    return at_ns


def _grid(text: str) -> int:
    try:
        return parse_duration(text) if text else 0
    except QuantityError as error:
        raise NotOrdered(422, "invalid_grid", str(error), field="grid") from None
