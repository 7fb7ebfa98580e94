"""The gateway's view of the stream of commands: whether a command that is stored now would be decided.

The bus alone says so: the stream held against the log (`fairlead_bus.command_loss`), and its last sequence, which
must never be below one that this gateway has seen. While commands are lost every new one is refused with 503, until a
person has accepted the loss.
"""

import asyncio

import structlog

from fairlead_bus.command_loss import Gap, Inspector
from fairlead_bus.port import Bus, OutcomeUnknown, Unavailable
from fairlead_gateway.errors import HttpError
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import Condition

#: How often the stream's end is asked for.
LOOK_S = 1.0
#: A client that was refused asks again after so long.
RETRY_AFTER_S = 30

log = structlog.get_logger()


class CommandWatch:
    """Knows whether commands can be taken."""

    def __init__(self, bus: Bus) -> None:
        self._inspector = Inspector(bus)
        self._wake = asyncio.Event()
        #: Not set until the stream was looked at, and again after each reconnect: the server may have restarted.
        self._fresh = asyncio.Event()
        #: The highest sequence that the stream is known to have had.
        self.seen = 0
        self._condition: Condition | None = None
        bus.on_reconnect(self._reconnected)

    def _reconnected(self) -> None:
        self._fresh.clear()
        self._wake.set()

    @property
    def is_fresh(self) -> bool:
        """True once the stream was looked at since the last reconnect."""
        return self._fresh.is_set()

    async def until_fresh(self, deadline: float) -> None:
        """Wait for that, up to a deadline in the event loop's time. Raises Unavailable."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._fresh.wait()
        except TimeoutError:
            raise Unavailable("the stream of commands could not be looked at since the bus came back") from None

    @property
    def conditions(self) -> list[Condition]:
        """The reason why no command can be taken, if there is one."""
        return [self._condition] if self._condition is not None else []

    def require(self) -> None:
        """Raise HttpError (503) while commands are lost."""
        if self._condition is not None:
            raise refusal(self._condition)

    def stored(self, sequence: int, seen_before: int) -> HttpError | None:
        """Take note of a stored message. Return a refusal where its sequence was given out before: the message would not be
        read.

        `seen_before` is `seen` as it was before the message was sent for the first time: the answer to a repetition may be
        below what others have stored since.
        """
        if sequence > seen_before:
            self.seen = max(self.seen, sequence)
            return None
        self._went_back(sequence)
        assert self._condition is not None, "it went back"
        return refusal(self._condition)

    async def run(self) -> None:
        """Look every second, and at once after a reconnect."""
        while True:
            self._wake.clear()
            try:
                await self.look()
            except (Unavailable, OutcomeUnknown) as error:
                log.debug("commands not looked at", reason=str(error))
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Look at the stream once. Raises Unavailable, LogDamaged."""
        seen = self.seen
        report = await self._inspector.look(again=not self.is_fresh)
        last = self._inspector.last
        if report.is_lost:
            self._set(Condition(code="commands_lost", message=report.message()))
        elif last < seen:
            self._went_back(last)
        else:
            self._set(None)
            self.seen = max(self.seen, last, report.read_up_to)
        self._fresh.set()

    def _went_back(self, last: int) -> None:
        gap = Gap(last + 1, self.seen)
        message = (
            f"stream {subjects.CMD} has lost {gap} ({gap.last - gap.first + 1}): it ends at {last}, expected at least "
            f"{self.seen}, which was stored while this gateway ran"
        )
        self._set(Condition(code="commands_lost", message=message, arguments=f"--through {self.seen}"))

    def _set(self, condition: Condition | None) -> None:
        before, self._condition = self._condition, condition
        if condition is not None and before is None:
            log.critical("commands lost, none are taken", reason=condition.message, hint=condition.hint())
        elif condition is None and before is not None:
            log.info("commands are taken again")


def refusal(condition: Condition) -> HttpError:
    """The answer to a command while the condition holds."""
    detail = f"no command is taken until a person has accepted a loss: {condition.message}"
    return HttpError(503, condition.code, detail, hint=condition.hint(), retry_after_s=RETRY_AFTER_S)
