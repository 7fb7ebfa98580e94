"""The process that answers about the past: it follows the log, keeps keyframes, and gives the gateway documents of any moment.

Any number may run; each has its own directory of keyframes, and each question goes to one of them. The gateway's application is made
at the first question: many of these processes are never asked. Start at `Past`.
"""

import asyncio
import contextlib
import os
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self
from uuid import uuid4

import msgspec
import structlog

from fairlead_bus import bus_faults
from fairlead_bus.bus_faults import retry_until_available
from fairlead_bus.environment_settings import BadSetting
from fairlead_bus.log import Folded, identity
from fairlead_bus.port import Bus, BusError, LogDamaged, Message
from fairlead_gateway.sources.live_views import LiveViews
from fairlead_replay.archive.contents import is_archive
from fairlead_replay.estimates.estimator import Estimator
from fairlead_replay.past.archived_log import with_archive
from fairlead_replay.past.keyframe_writer import KeyframeWriter
from fairlead_replay.past.keyframes import BYTES_MAX, KeyframeStore
from fairlead_schemas.queries import estimates, past, studies
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import ALIVE, Alive, encode_alive

if TYPE_CHECKING:
    from fairlead_replay.past.documents import PastDocuments
    from fairlead_replay.past.studies import Studies

NAME = "past"
#: Where keyframes are, unless set: below FAIRLEAD_DATA of a local stack, else in the working directory.
DIRECTORY = "past"
MIB = 1024**2
#: Memory and time of one what-if study, unless set.
STUDY_BYTES_MAX, STUDY_S = 4 * 1024**3, 900.0
#: Questions that may wait; further ones are asked to come again.
WAITING_MAX = 32
#: A gateway may be so much ahead for this long.
FOLLOW_S, LOOK_S = 1.0, 0.005
#: Answers whose further pieces are kept.
ANSWERS_KEPT = 8
#: Bodies from this size on are compressed.
COMPRESS_BYTES = 64 * 1024
#: Pause between two readings of people's names.
NAMES_S = 60.0

log = structlog.get_logger()


class PastSettings(NamedTuple):
    """Where keyframes are kept, how many bytes of them, what a what-if study may take, and an archive of the log for what was trimmed."""

    directory: Path = Path(DIRECTORY)
    bytes_max: int = BYTES_MAX
    study_bytes_max: int = STUDY_BYTES_MAX
    study_s: float = STUDY_S
    archive: Path | None = None

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Self:
        """Read FAIRLEAD_PAST_DIR, FAIRLEAD_PAST_MAX_MIB, FAIRLEAD_PAST_ARCHIVE, FAIRLEAD_WHATIF_MAX_MIB and FAIRLEAD_WHATIF_MAX_S. Raises
        BadSetting.
        """
        directory = env.get("FAIRLEAD_PAST_DIR") or str(Path(env.get("FAIRLEAD_DATA") or ".") / DIRECTORY)
        kept = _whole(env, "FAIRLEAD_PAST_MAX_MIB", "MiB of keyframes, 0 for none", BYTES_MAX // MIB)
        memory = _whole(
            env, "FAIRLEAD_WHATIF_MAX_MIB", "MiB of memory of a study, 0 for no bound", STUDY_BYTES_MAX // MIB
        )
        study_s = _whole(env, "FAIRLEAD_WHATIF_MAX_S", "seconds of a study, 0 for no studies", int(STUDY_S))
        return cls(Path(directory), kept * MIB, memory * MIB, float(study_s), _archive(env))


def _archive(env: Mapping[str, str]) -> Path | None:
    text = env.get("FAIRLEAD_PAST_ARCHIVE", "")
    if text and not is_archive(Path(text)):
        raise BadSetting(f'FAIRLEAD_PAST_ARCHIVE: expected the directory of an archive, found "{text[:200]}"')
    return Path(text) if text else None


def _whole(env: Mapping[str, str], name: str, meaning: str, usual: int) -> int:
    text = env.get(name, "")
    if text and not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise BadSetting(f'{name}: expected {meaning}, found "{text[:20]}"')
    return int(text) if text else usual


class Past:
    """The running process; `run` until `stop`."""

    def __init__(self, bus: Bus, settings: PastSettings | None = None) -> None:
        self._settings = settings or PastSettings()
        self._bus = bus = with_archive(bus, self._settings.archive)
        self.live = LiveViews(bus, saves=False)
        self._writer = KeyframeWriter(self.live.views, {})
        self._estimator = Estimator(bus, self._settings.directory)
        self._documents: PastDocuments | None = None
        self._store_task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._pieces = AnswerPieces()
        #: First part of the names of its studies, by which questions about them are addressed.
        self._process = uuid4().hex[: studies.PROCESS_CHARS]
        #: Made when a study is ordered first.
        self._studies: Studies | None = None
        self._answered = self._refused = 0
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Follow the log and answer until stopped; returns the exit code, 70 where the log is damaged."""
        try:
            await self.restore()
        except LogDamaged as error:
            return bus_faults.end_service(NAME, error)
        served = [
            await self._bus.serve(subjects.PAST, self._take, group=NAME),
            await self._bus.serve(subjects.ESTIMATES, self._estimate, group=NAME),
            await self._bus.serve(subjects.rpc(NAME, "state"), self._state, group=NAME),
            await self._bus.serve(studies.START, self._take_study, group=NAME),
            await self._bus.serve(studies.follow_up(self._process), self._take_study),
            await self._bus.serve(subjects.rpc(NAME, ALIVE), self._alive, group=NAME),
        ]
        works = (self.live.run(), self.live.watch_end(), self._read_names(), self._stopping.wait())
        tasks = [asyncio.create_task(work) for work in works]
        estimating = asyncio.create_task(self._estimator.run())
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            return 0
        except KeyError as error:
            return bus_faults.end_service(NAME, LogDamaged(self.live.views.sequence, f"not valid: {error}"))
        except LogDamaged as error:
            return bus_faults.end_service(NAME, error)
        finally:
            for subscription in served:
                await subscription.close()
            for task in (*tasks, estimating):
                task.cancel()
            await asyncio.gather(*tasks, estimating, return_exceptions=True)
            if self._studies is not None:
                await self._studies.close()
            await self._writer.settle()

    async def stop(self) -> None:
        """Let `run` return."""
        self._stopping.set()

    # -- the fold

    async def restore(self) -> None:
        """Take up the newest keyframe of this log, if there is one. Raises LogDamaged."""
        self.live.on_folded = self._folded
        await self._open_store()
        state = await retry_until_available(lambda: self._bus.state(subjects.LOG))
        self.live.log_end = state.last
        self.live.caught_up = not state.last
        store = self._writer.store
        found = None
        if store is not None:
            found = await retry_until_available(lambda: store.nearest_of_log(self._bus, state.last))
        if found is None:
            log.info("no keyframe, folding the log from its start", log_end=state.last)
            return
        self.live.take_up(found.views, found.heads)
        self._writer = KeyframeWriter(found.views, dict(found.heads), events=found.events)
        self._writer.store = store
        log.info(
            "keyframe taken up",
            sequence=found.sequence,
            log_end=state.last,
            keyframes=len(store.places) if store else 0,
        )

    async def _open_store(self) -> None:
        """Open the keyframes of the log; it has none before its first commit."""
        log_id = await retry_until_available(lambda: identity(self._bus))
        if log_id:
            store = KeyframeStore(self._settings.directory, log_id, self._settings.bytes_max)
            await asyncio.to_thread(store.open)
            self._writer.store = store

    def _folded(self, batch: list[Folded]) -> None:
        self._writer.folded(batch)
        if self._writer.store is None and batch and self._store_task is None:
            self._store_task = asyncio.create_task(self._open_store(), name="keyframes")

    async def _read_names(self) -> None:
        """Read the login names of principals, which documents show, and follow their changes."""
        while True:
            await asyncio.sleep(1.0 if self._documents is None else NAMES_S)
            if self._documents is not None and self.live.caught_up:
                with contextlib.suppress(BusError):
                    await self._find_names(self._documents)

    async def _find_names(self, documents: "PastDocuments") -> None:
        people = documents.gateway.accounts.people
        await people.logins([*self.live.views.access.kinds])

    # -- questions

    async def _take(self, message: Message) -> bytes:
        try:
            question = past.decode_question(message.payload)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return no_answer("invalid", str(error))
        if question.answer:
            return self._pieces.piece(question.answer, question.piece)
        if self._waiting >= WAITING_MAX:
            self._refused += 1
            return no_answer("busy", f"{WAITING_MAX} questions wait already; ask again")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._answer(question)
        finally:
            self._waiting -= 1

    async def _answer(self, question: past.PastQuestion) -> bytes:
        if not await self._reached(question.sequence):
            self._refused += 1
            reached = f"the log is folded up to {self.live.views.sequence}, asked for {question.sequence}"
            return no_answer("behind", reached)
        try:
            documents = await self._made()
            status, headers, body = await documents.answer(question)
        except Exception as error:
            log.exception("question about the past not answered", path=question.path, request=question.request_id)
            self._documents = None  # the fault may have left behind a state that no log has
            return no_answer("failed", f"{type(error).__name__}: the log of the process for the past has more")
        self._answered += 1
        return self._pieces.answer(status, headers, body)

    async def _made(self) -> "PastDocuments":
        if self._documents is None:
            from fairlead_replay.past.documents import (
                PastDocuments,
            )  # the web framework: many processes are never asked

            self._documents = PastDocuments(self._bus, self.live, lambda: self._writer.store)
            await self._documents.gateway.accounts.people.open()
            await self._find_names(self._documents)
        return self._documents

    async def _reached(self, sequence: int) -> bool:
        """Return True once the views have what the gateway has seen, soon."""
        if not self.live.caught_up:
            return False
        deadline = asyncio.get_running_loop().time() + FOLLOW_S
        while self.live.views.sequence < sequence and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        return self.live.views.sequence >= sequence

    # -- studies

    async def _take_study(self, message: Message) -> bytes:
        try:
            question = studies.decode_question(message.payload)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return no_answer("invalid", str(error))
        if question.verb == "piece":
            return self._pieces.piece(question.name, question.piece)
        if not await self._reached(question.sequence):
            return no_answer("behind", f"the log is folded up to {self.live.views.sequence}")
        try:
            return self._pieces.answer(*await self._study(question))
        except Exception as error:
            log.exception("question about a study not answered", verb=question.verb, study=question.name)
            return no_answer("failed", f"{type(error).__name__}: the log of the process for the past has more")

    async def _study(self, question: studies.StudyQuestion) -> tuple[int, list[tuple[str, str]], bytes]:
        from fairlead_replay.past.studies import NotOrdered

        ordered = await self._ordered()
        caller = (await self._made()).caller(question.caller)
        try:
            if question.verb == "start":
                study, status = ordered.order(question.wish or studies.StudyWish(change={}), caller), 202
            else:
                study, status = ordered.find(question.name, caller), 200
            if question.verb == "cancel":
                ordered.cancel(study)
                await study.news(study.about.revision)
            elif question.seen >= 0:
                await study.news(question.seen)
        except NotOrdered as refused:
            return refused.status, [], studies.encode(refused.words)
        found = ordered.document(study, caller, even_so=question.even_so, brief=question.brief)
        return status, [], studies.encode(found)

    async def _ordered(self) -> "Studies":
        if self._studies is None:
            from fairlead_replay.past.studies import Studies, StudyBounds

            bounds = StudyBounds(self._settings.study_bytes_max, self._settings.study_s)
            self._studies = Studies(self._bus, lambda: self.live.views, self._process, bounds)
        return self._studies

    async def _estimate(self, message: Message) -> bytes:
        """Answer a question about starts; the estimator is a process of its own."""
        try:
            ask = estimates.decode_ask(message.payload)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return estimates.encode(estimates.EstimatesAnswer(error="invalid", message=str(error)))
        sequence = ask.sequence if isinstance(ask, estimates.AskStart) else 0
        answer = await self._estimator.ask(message.payload, sequence)
        return answer if isinstance(answer, bytes) else estimates.encode(answer)

    # -- signs of life

    async def _state(self, message: Message) -> bytes:
        return msgspec.json.encode(self.statistics())

    async def _alive(self, message: Message) -> bytes:
        return encode_alive(Alive(sequence=self.live.views.sequence))

    def statistics(self) -> dict[str, int]:
        """Return counts since the start, and of keyframes as they are."""
        places = self._writer.store.places if self._writer.store is not None else []
        return {
            "sequence": self.live.views.sequence,
            "answered": self._answered,
            "refused": self._refused,
            "waiting": self._waiting,
            "keyframes": len(places),
            "keyframe_bytes": sum(place.bytes for place in places),
            "written": self._writer.written,
            "estimated": self._estimator.answered,
            "estimates_refused": self._estimator.refused,
        }


class AnswerPieces:
    """Bodies of the newest answers in several pieces, by the names of the answers."""

    def __init__(self) -> None:
        #: {name: body}, newest last.
        self._bodies: OrderedDict[str, bytes] = OrderedDict()

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> bytes:
        """Return the message with the head of an answer and the first piece of its body."""
        compressed = len(body) >= COMPRESS_BYTES
        sent = zlib.compress(body, 1) if compressed else body
        pieces = max(1, -(-len(sent) // past.PIECE_BYTES))
        name = ""
        if pieces > 1:
            name = uuid4().hex
            self._bodies[name] = sent
            while len(self._bodies) > ANSWERS_KEPT:
                self._bodies.popitem(last=False)
        head = past.PastAnswer(status=status, headers=tuple(headers), answer=name, pieces=pieces, compressed=compressed)
        return past.encode_answer(head, sent[: past.PIECE_BYTES])

    def piece(self, name: str, number: int) -> bytes:
        """Return the message with a further piece."""
        body = self._bodies.get(name)
        begin = number * past.PIECE_BYTES
        if body is None or not 0 < begin < len(body):
            return no_answer("unknown", "this answer has no such piece, or it was given too long ago; ask again")
        return past.encode_answer(past.PastAnswer(), body[begin : begin + past.PIECE_BYTES])


def no_answer(error: str, message: str) -> bytes:
    """Return the message that there is no answer. `error`: as of `PastAnswer`."""
    return past.encode_answer(past.PastAnswer(error=error, message=message))


async def build(bus: Bus) -> Past:
    """The process on a connected bus. Raises BadSetting."""
    return Past(bus, PastSettings.from_environment(os.environ))
