"""Simulated gateway's guard: people's commands are judged on a view of the log that lags behind, and carry the authority of it.

While the view lags, grants and revocations are in flight: a command may be accepted by rights that are gone by then, and its authority
names the sequence at which they held. What the view does not allow is not sent. The guard judges by the state of access as the
gateway does; the observer judges again by the history of access (invariant I13).

Everything is drawn from a seed of its own. A world without accounts has no guard.
"""

from collections import deque
from random import Random
from typing import Any

import msgspec

from fairlead_bus.log import Folded
from fairlead_replay.rights_books import RightsBooks
from fairlead_rights.command_rights import COMMAND_NEEDS, Need, targets_of
from fairlead_rights.effects import EFFECTS
from fairlead_rights.state import AccessState
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire.authority import Authority

#: Seconds by which the view is behind, drawn for each commit anew; later ones never overtake earlier ones.
LAGS_S = (0.0, 0.0, 0.5, 2.0, 8.0)
#: Part of the commands that are sent by a signed-in person; the others are a service's.
SIGNED = 0.85
ACTING = 0.1


class SimulatedGuard:
    """Signs commands in one world."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"guard {seed}")  # noqa: S311 -- repeatable is what it must be
        self.access = AccessState()
        self.books = RightsBooks()
        #: Sequence up to which the view is folded, and of the newest commit that is on its way into it.
        self.sequence = self.newest = 0
        self._coming: deque[tuple[float, Folded]] = deque()
        #: Commands signed and denied.
        self.signed = self.denied = 0

    def see(self, folded: Folded, now_s: float) -> None:
        """The next commit of the log is on its way into the view."""
        self.newest = folded.seq
        due_s = now_s + self.rng.choice(LAGS_S)
        self._coming.append((max(due_s, self._coming[-1][0]) if self._coming else due_s, folded))

    def signed_by_somebody(self, commands: list[Any], now_s: float) -> list[Any]:
        """Return the commands with the user and authority of somebody who is signed in, without those that are denied. Where
        nobody is signed in, or a service sends them, they stay as they are.
        """
        while self._coming and self._coming[0][0] <= now_s:
            self._fold(self._coming.popleft()[1])
        sender = self._sender() if self.rng.random() < SIGNED else None
        if sender is None:
            return commands
        user = sender.act_as or sender.principal
        changed = [msgspec.structs.replace(each, user=user, authority=sender) for each in commands]
        passed = [each for each in changed if self._allows(sender, each)]
        self.signed += len(passed)
        self.denied += len(changed) - len(passed)
        return passed

    def _fold(self, folded: Folded) -> None:
        for event in folded.commit.events:
            effect = EFFECTS.get(type(event))
            if effect is not None:
                effect(self.access, event, None)
            self.books.fold(folded.seq, event)
        self.sequence = folded.seq

    def _sender(self) -> Authority | None:
        """Draw a credential that counts in the view; an admin acts for another now and then."""
        state = self.access
        credentials = [(f"token:{each.id}", each.principal) for each in state.tokens.values()]
        credentials += [(f"session:{each.id}", each.principal) for each in state.sessions.values()]
        if not credentials:
            return None
        admins = state.access.admins()
        if self.rng.random() < 0.5:  # an admin who is signed in: else too few commands pass
            credentials = [each for each in credentials if each[1] in admins] or credentials
        via, principal = self.rng.choice(credentials)
        others = sorted(set(state.kinds) - {principal})
        acts = principal in admins and others and self.rng.random() < ACTING
        act_as = self.rng.choice(others) if acts else ""
        return Authority(principal=principal, via=via, rights=self._rights(), act_as=act_as)

    def _rights(self) -> int:
        """Return the sequence that an authority names: the one on which it is judged."""
        return self.sequence

    def _allows(self, sender: Authority, command: "cmd.QueueCommand | cmd.PlacerCommand") -> bool:
        token = sender.via.removeprefix("token:") if sender.via.startswith("token:") else ""
        things = self.books.at(self.sequence)
        return all(
            self.access.may(sender.principal, need.verb, target, token)
            for need in COMMAND_NEEDS[type(command)](command)
            if isinstance(need, Need)
            for target in targets_of(need, things, command.user)
        )
