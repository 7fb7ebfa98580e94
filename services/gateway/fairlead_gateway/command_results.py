"""Path of commands to the bus and of their answers back.

Commands that arrive while one publish is in flight go into the next message (nats-server does one fsync per
message: docs/reference/facts.md). A message keeps its id over resends, so that the server drops a repetition.
Answers are the outcomes that the views fold; `decided` hands them to the waiting requests.

`ResultWaiter` is what routes use: it gives a command its id, sends it and waits a bounded time. A command that is stored
and not decided by then is answered 202 (`UndecidedCommand`), everywhere.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from itertools import count, islice

import msgspec
import structlog

from fairlead_bus.port import Bus, BusError, OutcomeUnknown, StreamFull, TooLarge, Unavailable
from fairlead_gateway.errors import EarlyAnswer, HttpError, HttpResponse, rejected
from fairlead_gateway.http_messages import RequestHead, command_key, encode
from fairlead_gateway.monitoring.command_watch import CommandWatch
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.outcomes import KEYED
from fairlead_gateway.views.rows import OutcomeRow
from fairlead_schemas.http.api import SubmitResult
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import MESSAGE_BYTES_MAX, MESSAGE_COMMANDS_MAX, CommandBase, digest_of

log = structlog.get_logger()

#: Commands that wait to be published, per service; more are refused with 503.
PENDING_MAX = 50_000
#: A message is resent under the same id for this long; the server remembers ids for two minutes.
RESEND_S = 30.0
RESEND_PAUSE_S = 0.2
#: Marks of principals that are remembered: one is made for every command.
MARKS_KEPT = 10_000

encode_command = msgspec.json.Encoder(order="deterministic").encode


class PendingResults:
    """Request that waits for the outcomes of one or more commands, in order."""

    __slots__ = ("future", "left", "outcomes", "stored", "unstored")

    def __init__(self, commands: int) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.outcomes: list[OutcomeRow | None] = [None] * commands
        self.left = commands
        #: Commands that the bus has not acknowledged yet, and whether it has acknowledged all.
        self.unstored = commands
        self.stored = False

    def decided(self, index: int, outcome: OutcomeRow) -> None:
        """Record the outcome of one of the commands. The last one ends the wait."""
        self.outcomes[index] = outcome
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(None)

    def fail(self, error: HttpError) -> None:
        """End the wait with a refusal, unless it has ended."""
        if not self.future.done():
            self.future.set_exception(error)


#: Command to be published: its id, its bytes and the request that waits for it.
type _Pending = tuple[str, bytes, PendingResults]


class _Deadlines:
    """Ends waits that have lasted for one length, with one timer for all of them: the waits end in the order in which they
    began, and a timer for each request costs as much as the rest of its wait."""

    def __init__(self) -> None:
        #: Loop times and futures, the oldest first.
        self._due: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._is_armed = False

    def add(self, future: asyncio.Future[None], length_s: float) -> None:
        """End a wait after `length_s`, which is the same for all."""
        loop, due = asyncio.get_running_loop(), self._due
        while due and due[0][1].done():
            due.popleft()
        due.append((loop.time() + length_s, future))
        if not self._is_armed:
            self._is_armed = True
            loop.call_later(length_s, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        due, now = self._due, loop.time()
        while due and (due[0][0] <= now or due[0][1].done()):
            _give_up(due.popleft()[1])
        self._is_armed = bool(due)
        if due:
            loop.call_at(due[0][0], self._look, loop)


class CommandPublisher:
    """Publishes commands to one service and keeps who waits for which."""

    def __init__(
        self,
        bus: Bus,
        service: str,
        watch: CommandWatch,
        on_append: Callable[[BusError | None], None] = lambda error: None,
    ) -> None:
        """`on_append` is called with each append's outcome; None: stored."""
        self._bus = bus
        self._watch = watch
        self._on_append = on_append
        self._subject = subjects.cmd(service)
        self._pending: deque[_Pending] = deque()
        self._wake = asyncio.Event()
        self._deadlines = _Deadlines()
        #: {command: its waiters, with the command's position among each one's}; a repeated command may have several.
        self._waiting: dict[str, list[tuple[PendingResults, int]]] = {}
        self._prefix = os.urandom(6).hex()
        self._ids = count(1)
        self._messages = count(1)
        self.published = 0

    def new_id(self, principal: str = "") -> str:
        """Return a command id that no other gateway process makes, marked as the principal's."""
        return f"{self._prefix}-{next(self._ids):x}{owner_mark(principal)}"

    def send(self, commands: list[tuple[str, bytes]], known: dict[str, OutcomeRow]) -> PendingResults:
        """Queue commands (id, encoded) for publication; those whose outcome is known already are not sent
        again. Raise HttpError (503) when too many wait or commands are lost, (413) when one is larger than a message
        may be."""
        largest = max([len(body) for _, body in commands])
        if largest + 2 > MESSAGE_BYTES_MAX:
            detail = f"the command has {largest} bytes, at most {MESSAGE_BYTES_MAX - 2} are taken"
            hint = "keep scripts and data in files; apply a large queue file in parts"
            raise HttpError(413, "too_large", detail, hint=hint)
        if len(self._pending) + len(commands) > PENDING_MAX:
            raise HttpError(503, "busy", f"{len(self._pending)} commands wait for the bus already", retry_after_s=1)
        if not known or any(command_id not in known for command_id, _ in commands):
            self._watch.require()
        waiter = PendingResults(len(commands))
        for index, (command_id, body) in enumerate(commands):
            if command_id in known:
                waiter.unstored -= 1
                waiter.decided(index, known[command_id])
                continue
            self._waiting.setdefault(command_id, []).append((waiter, index))
            self._pending.append((command_id, body, waiter))
        self._wake.set()
        return waiter

    def decided(self, command_id: str, outcome: OutcomeRow) -> bool:
        """Hand an outcome that came in with the log to the requests that wait for it. Return False if none does."""
        waiters = self._waiting.pop(command_id, None)
        if waiters is None:
            return False
        for waiter, index in waiters:
            waiter.decided(index, outcome)
        return True

    async def wait(self, waiter: PendingResults, ids: list[str], timeout_s: float) -> bool:
        """Wait for all outcomes; False when some are missing in time. Raise HttpError when the bus refused. `timeout_s` is the
        same for every single command.
        """
        timer = None
        if len(ids) == 1:
            self._deadlines.add(waiter.future, timeout_s)
        else:
            timer = asyncio.get_running_loop().call_later(timeout_s, _give_up, waiter.future)
        try:
            await waiter.future
            return True
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return False
        finally:
            if timer is not None:
                timer.cancel()
            if waiter.left:
                for command_id in ids:
                    self._forget(command_id, waiter)

    def _forget(self, command_id: str, waiter: PendingResults) -> None:
        others = [entry for entry in self._waiting.pop(command_id, ()) if entry[0] is not waiter]
        if others:
            self._waiting[command_id] = others

    # -- publication

    async def run(self) -> None:
        """Publish without end: one message is in flight, and commands that arrive meanwhile go into the next."""
        while True:
            await self._wake.wait()
            while self._pending:
                await self._publish(self._next_message())
            self._wake.clear()

    def _next_message(self) -> list[_Pending]:
        batch: list[_Pending] = []
        size = 2
        for pending in islice(self._pending, MESSAGE_COMMANDS_MAX):
            size += len(pending[1]) + 1
            if batch and size > MESSAGE_BYTES_MAX:
                break
            batch.append(pending)
        for _ in batch:
            self._pending.popleft()
        return batch

    async def _publish(self, batch: list[_Pending]) -> None:
        payload = b"[" + b",".join([body for _, body, _ in batch]) + b"]"
        msg_id = f"{self._prefix}.{next(self._messages)}"
        refusal = await self._store(payload, msg_id)
        for command_id, _, waiter in batch:
            if refusal is None:
                waiter.unstored -= 1
                waiter.stored = not waiter.unstored
            else:
                self._waiting.pop(command_id, None)
                waiter.fail(refusal)
        self.published += len(batch)

    async def _store(self, payload: bytes, msg_id: str) -> HttpError | None:
        """Store one message; the refusal to answer with when it cannot be."""
        deadline = asyncio.get_running_loop().time() + RESEND_S
        seen: int | None = None
        while True:
            try:
                if not self._watch.is_fresh:
                    await self._watch.until_fresh(deadline)
                if seen is None:
                    self._watch.require()
                    seen = self._watch.seen
                sequence = await self._bus.append(subjects.CMD, self._subject, payload, msg_id=msg_id)
                self._on_append(None)
                return self._watch.stored(sequence, seen)
            except HttpError as refusal:
                return refusal
            except StreamFull as error:
                self._on_append(error)
                return HttpError(
                    503, "commands_full", "the stream of commands is full; nothing was stored", retry_after_s=10
                )
            except TooLarge as error:
                return HttpError(413, "too_large", str(error))
            except (OutcomeUnknown, Unavailable) as error:
                self._on_append(error)
                if asyncio.get_running_loop().time() >= deadline:
                    log.error("command message not stored", message=msg_id, reason=str(error))
                    return HttpError(503, "bus_away", f"the bus does not answer: {error}", retry_after_s=5)
                await asyncio.sleep(RESEND_PAUSE_S)

    def statistics(self) -> dict[str, int]:
        """{"pending", "waiting", "published"}."""
        return {"pending": len(self._pending), "waiting": len(self._waiting), "published": self.published}


def _give_up(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.cancel()


@lru_cache(MARKS_KEPT)
def owner_mark(principal: str) -> str:
    """Return the end of the ids of a principal's commands, by which it may ask for their outcomes; "" without sign-on."""
    return f"-{digest_of(principal.encode())[:12]}" if principal else ""


#: Added to the wait for each command of a list.
LIST_WAIT_S = 0.002


class UndecidedCommand(EarlyAnswer):
    """The 202 of a command that is stored and was not decided in time: its id, and where its outcome will be."""

    def __init__(self, command_id: str, sequence: int) -> None:
        super().__init__(f"command {command_id} was not decided in time")
        self.result = SubmitResult(command=command_id, sequence=sequence)

    def response(self, request_id: str) -> HttpResponse:
        """Return the answer."""
        location = f"/v1/commands/{self.result.command}".encode()
        return HttpResponse(202, encode(self.result), ((b"location", location),))


def verb_refusal(outcome: OutcomeRow) -> HttpError:
    """Return the answer to a verb that its service refused."""
    return rejected(outcome.code, outcome.message)


class ResultWaiter:
    """Sends commands and waits for their outcomes."""

    def __init__(
        self, views: Views, *, wait_s: float, is_ready: Callable[[], bool], has_room: Callable[[], bool]
    ) -> None:
        self._views = views
        self._wait_s = wait_s
        self._is_ready = is_ready
        self._has_room = has_room
        #: Called with the seconds that each decision took.
        self.on_decided: Callable[[float], None] | None = None

    def require_ready(self) -> None:
        """Raise HttpError (503) until the views have caught up with the log."""
        if not self._is_ready():
            raise HttpError(503, "catching_up", f"reading the log, at sequence {self._views.sequence}", retry_after_s=1)

    def require_room(self) -> None:
        """Raise HttpError (503) for new jobs when the log nears its limit. Cancels and similar commands are still accepted."""
        if not self._has_room():
            raise HttpError(
                503,
                "log_full",
                "the log is full: no new jobs are accepted; running jobs continue",
                hint="raise FAIRLEAD_LOG_MAX_BYTES and restart the services, then send it again",
                retry_after_s=30,
            )

    def command_id(self, gate: CommandPublisher, head: RequestHead, *content: str) -> str:
        """Return an id for a verb's command, the same one again under the same Idempotency-Key. Raise HttpError (409)."""
        key, principal = command_key(head.user, "verb", head.key), head.caller.principal
        return self.keyed_id(key, *content, principal=principal) if key else gate.new_id(principal)

    def keyed_id(self, key: str, *content: str, principal: str = "") -> str:
        """Return the id (hex) of a command sent under a key. Raise HttpError (409) where the key was used for another command."""
        command_id = f"{KEYED}{key}-{digest_of(chr(0).join(content).encode())[:16]}{owner_mark(principal)}"
        if self._views.outcomes.keyed(key) not in ("", command_id):
            raise HttpError(
                409,
                "idempotency_conflict",
                "this key was used before, for something else",
                hint="a new command needs a new key (a CloudEvent: a new id)",
            )
        return command_id

    async def carry_out(
        self,
        gate: CommandPublisher,
        command: CommandBase,
        refusal: Callable[[OutcomeRow], HttpError] = verb_refusal,
    ) -> OutcomeRow:
        """Send the command of a verb and return its outcome once it is carried out. Raise HttpError or UndecidedCommand."""
        self.require_ready()
        return await self.outcome(gate, command.id, encode_command(command), refusal)

    async def outcome(
        self, gate: CommandPublisher, command_id: str, body: bytes, refusal: Callable[[OutcomeRow], HttpError]
    ) -> OutcomeRow:
        """Return the outcome of one encoded command that its service accepted. Raise HttpError or UndecidedCommand."""
        outcome = (await self.outcomes(gate, [(command_id, body)])).outcomes[0]
        if outcome is None:
            raise self.undecided(command_id)
        if outcome.code:
            raise refusal(outcome)
        return outcome

    async def outcomes(self, gate: CommandPublisher, commands: list[tuple[str, bytes]]) -> PendingResults:
        """Wait for every command's outcome; those missing in time stay None. Raise HttpError when the commands were not
        stored."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        ids = [command_id for command_id, _ in commands]
        waiter = gate.send(commands, self._known(ids))
        done = await gate.wait(waiter, ids, self._wait_s + LIST_WAIT_S * len(commands))
        if not done:
            self._require_stored(waiter, ids)
        elif self.on_decided is not None:
            self.on_decided(loop.time() - began)
        return waiter

    def undecided(self, command_id: str) -> UndecidedCommand:
        """Return the answer about a command that was not decided in time."""
        return UndecidedCommand(command_id, self._views.sequence)

    def _known(self, ids: list[str]) -> dict[str, OutcomeRow]:
        """Outcomes of ids made from an idempotency key that were decided earlier: repeating changes nothing."""
        get = self._views.outcomes.get
        return {one: outcome for one in ids if one[0] == KEYED and (outcome := get(one)) is not None}

    def _require_stored(self, waiter: PendingResults, ids: list[str]) -> None:
        """Raise HttpError (503) if nothing was decided because the bus is silent; a slow queue is no error."""
        if not waiter.stored:
            raise HttpError(
                503,
                "bus_away",
                "the bus has not confirmed the command; it may be stored or not",
                hint=f"see GET /v1/commands/{ids[0]}, or send it again with an Idempotency-Key",
                retry_after_s=2,
                instance=f"/v1/commands/{ids[0]}",
            )
