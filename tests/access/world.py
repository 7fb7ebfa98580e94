"""A world of the access core: commands go in, events come out and are folded, and every state is held against the invariants, a
snapshot and a twin that only folds.
"""

from typing import Any

from fairlead_access.core import AccessCore
from fairlead_access.invariants import broken
from fairlead_bus.core import Input
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit, decode_commit, encode_commit


class AccessWorld:
    """One core, its log, and its clock in seconds."""

    def __init__(self) -> None:
        self.core, self.twin = AccessCore(), AccessCore()
        self.sequence, self.now_ns = 0, 1_000 * SECOND_NS
        self.events: list[Any] = []
        self._commands = 0

    def send(self, *commands: Any) -> list[Any]:
        """Decide these commands in one message, fold the commit, and return its events."""
        return self._commit([Input("CMD", self.sequence + 1, list(commands))])

    def wait(self, seconds: int) -> list[Any]:
        """Let time pass, and return the events that the clock leads to."""
        self.now_ns += seconds * SECOND_NS
        found: list[Any] = []
        while (at_ns := self.core.wake_at()) is not None and at_ns <= self.now_ns:
            found += self._commit([])
        return found

    def id(self) -> str:
        """A new id for a command."""
        self._commands += 1
        return f"c{self._commands}"

    def admit(self, *principals: str) -> None:
        """Admit people."""
        for principal in principals:
            self.send(cmd.AdmitPrincipal(id=self.id(), principal=principal))

    def grant(self, subject: str, role: Any, scope: str, user: str = "", **of: str) -> Any:
        """Grant a role; the one event."""
        entry = cmd.RoleEntry(subject=subject, role=role, scope=scope, **of)
        (event,) = self.send(cmd.GrantRole(id=self.id(), user=user, grant=entry))
        return event

    def revoke(self, subject: str, role: Any, scope: str, user: str = "") -> Any:
        """Take a role back; the one event."""
        entry = cmd.RoleEntry(subject=subject, role=role, scope=scope)
        (event,) = self.send(cmd.RevokeRole(id=self.id(), user=user, grant=entry))
        return event

    def _commit(self, inputs: list[Input]) -> list[Any]:
        before = self.core.snapshot()
        decision = self.core.decide(inputs, self.now_ns)
        assert self.core.snapshot() == before, "a decision changed the state"
        if not decision.events:
            return []
        self.sequence += 1
        commit = Commit(
            v=VERSION,
            writer="access",
            n=self.sequence,
            basis=self.sequence - 1,
            at_ns=self.now_ns,
            cursors=decision.cursors,
            prev=GENESIS,
            events=decision.events,
        )
        stored = decode_commit(encode_commit(commit))
        for core in (self.core, self.twin):
            core.evolve(self.sequence, stored)
        self.check()
        self.events += decision.events
        return decision.events

    def check(self) -> None:
        """Hold the state against the invariants, its snapshot, and the twin."""
        assert list(broken(self.core.state)) == []
        data = self.core.snapshot()
        assert data == self.twin.snapshot()
        restored = AccessCore.restore(data)
        assert restored.snapshot() == data
        assert list(broken(restored.state)) == []


def refused(event: Any, code: str) -> bool:
    """True for the refusal of a command by this code."""
    return isinstance(event, ev.AccessCommandRejected) and event.code == code
