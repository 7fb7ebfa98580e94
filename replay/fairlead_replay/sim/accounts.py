"""People's accounts in one simulated world, drawn from a seed of their own; half of all seeds have no access service.

Somebody sets the cluster up with one admin. From then on principals, directories and sign-ins send commands at random: admit and
suspend, grant and revoke, apply a file's grants, sync groups, issue and revoke tokens, open and end sessions. Two
thirds of the commands are by a principal who may lack the right, and many name things that do not exist. Tokens and sessions expire within seconds.
"""

import asyncio
from random import Random
from typing import NamedTuple

from fairlead_replay.sim.context import EPOCH_NS, SimContext
from fairlead_replay.sim.workload import LEAVES, People
from fairlead_schemas.policies.rights import ROLES
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import commands as cmd

OWNER = "p0"
PROGRAM = "s1"
PRINCIPALS = (OWNER, "p1", "p2", "p3", PROGRAM)
GROUPS = ("group:lab", "group:ops")
SCOPES = ("cluster", "pool:default", *(f"queue:{leaf}" for leaf in (*LEAVES, "lab")))
SOURCES = ("directory", "queues")
#: Seconds until a token or a session expires.
LIVES_S = (1, 3, 10, 40, 3600)


class AccountsPlan(NamedTuple):
    """Habits of one world: seconds at which a message of commands is sent, and the commands of each."""

    moments: list[float]
    at_once: tuple[int, ...]


def plan(seed: int, until_s: float) -> AccountsPlan | None:
    """Return the plan of this seed; None: there is no access service."""
    rng = Random(f"access {seed}")  # noqa: S311 -- repeatable is what it must be
    if rng.random() < 0.5:
        return None
    count = rng.choice((8, 20, 50))
    moments = sorted(rng.uniform(0.5, until_s) for _ in range(count))
    return AccountsPlan(moments, rng.choice(((1,), (1, 1, 3), (2, 5, 12))))


class SimulatedAccounts:
    """Carries out the plan of one world."""

    def __init__(self, context: SimContext, planned: AccountsPlan) -> None:
        self.context, self.planned = context, planned
        self.rng = Random(f"access commands {context.seed}")  # noqa: S311 -- as all of a seed
        self._commands = 0
        #: Ids of the tokens and sessions that were asked for.
        self._tokens: list[str] = []
        self._sessions: list[str] = []

    async def carry_out(self, people: People) -> None:
        """Set the cluster up, then send the planned messages until the world's faults are over."""
        await people.send("access", self._set_up())
        loop = asyncio.get_running_loop()
        for moment in self.planned.moments:
            await asyncio.sleep(max(0.0, moment - loop.time()))
            if self.context.faults.quiet:
                return
            await people.send("access", [self._draw() for _ in range(self.rng.choice(self.planned.at_once))])

    def _set_up(self) -> list[cmd.AccessCommand]:
        role = cmd.RoleEntry(subject=OWNER, role="admin", scope="cluster")
        owner = cmd.AdmitPrincipal(id=self._id(), principal=OWNER)
        program = cmd.AdmitPrincipal(id=self._id(), principal=PROGRAM, kind="service")
        return [owner, program, cmd.GrantRole(id=self._id(), grant=role)]

    def _draw(self) -> cmd.AccessCommand:
        draw = self.rng.random()
        if draw < 0.25:
            return self._on_principal()
        if draw < 0.55:
            return self._on_roles()
        if draw < 0.65:
            return self._on_group()
        return self._on_token() if draw < 0.85 else self._on_session()

    def _on_principal(self) -> cmd.AccessCommand:
        principal, user = self.rng.choice(PRINCIPALS), self._user()
        if self.rng.random() < 0.3:
            return cmd.SuspendPrincipal(id=self._id(), user=user, principal=principal)
        kind = "service" if principal == PROGRAM else "person"
        return cmd.AdmitPrincipal(id=self._id(), user=user, principal=principal, kind=kind)

    def _on_roles(self) -> cmd.AccessCommand:
        draw, user = self.rng.random(), self._user()
        if draw < 0.5:
            return cmd.GrantRole(id=self._id(), user=user, grant=self._entry())
        if draw < 0.75:
            return cmd.RevokeRole(id=self._id(), user=user, grant=self._entry())
        grants = tuple(self._entry() for _ in range(self.rng.choice((0, 1, 3))))
        scope = self.rng.choice(("cluster", "queue:lab"))
        return cmd.ApplyRoles(id=self._id(), user=user, source=self.rng.choice(SOURCES), scope=scope, grants=grants)

    def _entry(self) -> cmd.RoleEntry:
        rng = self.rng
        role = rng.choice(ROLES)
        scope = "cluster" if role == "admin" else rng.choice(SCOPES)
        return cmd.RoleEntry(subject=rng.choice((*PRINCIPALS, *GROUPS)), role=role, scope=scope)

    def _on_group(self) -> cmd.AccessCommand:
        rng = self.rng
        added, removed = (tuple(rng.sample(PRINCIPALS, rng.choice((0, 1, 2)))) for _ in range(2))
        group, source, user = rng.choice(GROUPS), rng.choice(SOURCES), self._user()
        return cmd.SyncGroup(id=self._id(), user=user, group=group, source=source, added=added, removed=removed)

    def _on_token(self) -> cmd.AccessCommand:
        if self._tokens and self.rng.random() < 0.35:
            return cmd.RevokeToken(id=self._id(), user=self._user(), token=self.rng.choice(self._tokens))
        principal = self.rng.choice(PRINCIPALS)
        user = self.rng.choice((principal, principal, self._user()))
        kind = "service" if principal == PROGRAM else "person"
        name = self.rng.choice(self._tokens) if self._tokens and self.rng.random() < 0.05 else f"t{len(self._tokens)}"
        self._tokens.append(name)
        return cmd.IssueToken(
            id=self._id(), user=user, token=name, principal=principal, kind=kind, expires_ns=self._expires_ns()
        )

    def _on_session(self) -> cmd.AccessCommand:
        if self._sessions and self.rng.random() < 0.35:
            return cmd.EndSession(id=self._id(), user=self._user(), session=self.rng.choice(self._sessions))
        name = f"i{len(self._sessions)}"
        self._sessions.append(name)
        principal = self.rng.choice(PRINCIPALS)
        return cmd.OpenSession(
            id=self._id(), session=name, principal=principal, provider="local", expires_ns=self._expires_ns()
        )

    def _user(self) -> str:
        """Draw who sends a command: the service itself, the first admin, or anybody."""
        return self.rng.choice(("", OWNER, self.rng.choice(PRINCIPALS)))

    def _expires_ns(self) -> int:
        now_s = asyncio.get_running_loop().time()
        return EPOCH_NS + int((now_s + self.rng.choice(LIVES_S)) * SECOND_NS)

    def _id(self) -> str:
        self._commands += 1
        return f"a{self._commands}"
