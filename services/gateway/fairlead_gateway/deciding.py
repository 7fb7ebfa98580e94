"""Waiting for decisions: send commands, wait a bounded time, say honestly what is known when it is over."""

import asyncio
from collections.abc import Callable

from fairlead_gateway.commands import CommandGate, Waiter
from fairlead_gateway.problems import Refused
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.outcomes import KEYED
from fairlead_gateway.views.rows import Outcome
from fairlead_schemas.wire.commands import digest_of

#: Added to the wait for each command of a list.
LIST_WAIT_S = 0.002


class Decisions:
    """The outcomes of commands, waited for."""

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
        """Raises Refused (503) until the views have caught up with the log."""
        if not self._is_ready():
            raise Refused(503, "catching_up", f"reading the log, at sequence {self._views.sequence}", retry_after_s=1)

    def require_room(self) -> None:
        """Raise Refused (503) for new jobs when the log nears its limit. Cancels and similar commands are still accepted."""
        if not self._has_room():
            raise Refused(
                503, "log_full", "the log is full: no new jobs are taken; running jobs go on",
                hint="raise FAIRLEAD_LOG_MAX_BYTES and restart the services, then send it again", retry_after_s=30,
            )  # fmt: skip

    def keyed_id(self, key: str, *content: str) -> str:
        """Return the id (hex) of a command sent under a key. Raise Refused (409) where the key was used for another command."""
        command_id = f"{KEYED}{key}-{digest_of(chr(0).join(content).encode())[:16]}"
        if self._views.outcomes.keyed(key) not in ("", command_id):
            raise Refused(
                409, "idempotency_conflict", "this key was used before, for something else",
                hint="a new wish needs a new key (a CloudEvent: a new id)",
            )  # fmt: skip
        return command_id

    async def outcome(self, gate: CommandGate, command_id: str, body: bytes) -> Outcome | None:
        """The outcome of one command, or None: stored, not decided in time. Raises Refused."""
        return (await self.outcomes(gate, [(command_id, body)])).outcomes[0]

    async def outcomes(self, gate: CommandGate, commands: list[tuple[str, bytes]]) -> Waiter:
        """Wait for every command's outcome; those missing in time stay None. Raises Refused when the
        commands were not stored."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        ids = [command_id for command_id, _ in commands]
        waiter = gate.send(commands, self._known(ids))
        done = await gate.wait(waiter, ids, self._wait_s + LIST_WAIT_S * len(commands))
        if not done:
            self._explain(waiter, ids)
        elif self.on_decided is not None:
            self.on_decided(loop.time() - began)
        return waiter

    def _known(self, ids: list[str]) -> dict[str, Outcome]:
        """Outcomes of ids made from an idempotency key that were decided earlier: repeating changes nothing."""
        get = self._views.outcomes.get
        return {one: outcome for one in ids if one[0] == KEYED and (outcome := get(one)) is not None}

    def _explain(self, waiter: Waiter, ids: list[str]) -> None:
        """Nothing was decided in time: a silent bus is an error, a slow queue is not."""
        if not waiter.stored:
            raise Refused(
                503, "bus_away", "the bus has not confirmed the command; it may be stored or not",
                hint=f"see GET /v1/commands/{ids[0]}, or send it again with an Idempotency-Key",
                retry_after_s=2, instance=f"/v1/commands/{ids[0]}",
            )  # fmt: skip
