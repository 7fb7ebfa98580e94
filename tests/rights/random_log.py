"""Random logs of access and questions about them: also events that repeat, and that end what is not there."""

from random import Random
from typing import Any

from fairlead_rights.access_list import Target
from fairlead_rights.roles import verbs_of
from fairlead_schemas.policies.rights import ROLES, VERBS, parse_scope
from fairlead_schemas.wire import events as ev

PEOPLE = ("ann", "bob", "cyd", "dan")
GROUPS = ("group:vision", "group:all")
SOURCES = ("person", "file")
SCOPES = (
    "cluster", "pool:a100", "queue:research", "queue:research/vision", "queue:prod", "project:llm", "job:7", "job:7_1", "volume:data",
)  # fmt: skip
IDS = ("x1", "x2", "x3", "x4", "x5")
KINDS = (
    ev.PrincipalAdmitted, ev.PrincipalSuspended, ev.RoleGranted, ev.RoleGranted, ev.RoleGranted, ev.RoleRevoked,
    ev.GroupSynced, ev.GroupSynced, ev.TokenIssued, ev.TokenIssued, ev.SessionOpened, ev.TokenRevoked, ev.SessionEnded,
    ev.QueueConfigured, ev.QueueRemoved,
)  # fmt: skip
CAUSE: dict[str, Any] = {"cause": "clock"}


def grant_of(rng: Random) -> dict[str, Any]:
    """A grant that can be given."""
    while True:
        role, scope = rng.choice(ROLES), rng.choice(SCOPES)
        if verbs_of(role, parse_scope(scope).kind):
            return {"subject": rng.choice(PEOPLE + GROUPS), "role": role, "scope": scope, "source": rng.choice(SOURCES)}


def event_of(rng: Random) -> ev.Event:
    """Any event that access is folded from, also one that repeats or ends what is not there."""
    kind = rng.choice(KINDS)
    principal, id_ = rng.choice(PEOPLE), rng.choice(IDS)
    if kind is ev.PrincipalAdmitted:
        return ev.PrincipalAdmitted(**CAUSE, principal=principal, kind="person")
    if kind is ev.PrincipalSuspended:
        return ev.PrincipalSuspended(**CAUSE, principal=principal, forgotten=rng.random() < 0.5)
    if kind is ev.RoleGranted or kind is ev.RoleRevoked:
        return kind(**CAUSE, **grant_of(rng))
    if kind is ev.QueueConfigured or kind is ev.QueueRemoved:
        return kind(**CAUSE, path=rng.choice(("research", "research/vision", "prod")))
    if kind is ev.GroupSynced:
        added = tuple(rng.sample(PEOPLE, rng.choice((0, 1, 2))))
        removed = tuple(name for name in rng.sample(PEOPLE, rng.choice((0, 1, 2))) if name not in added)
        return ev.GroupSynced(
            **CAUSE, group=rng.choice(GROUPS), source=rng.choice(SOURCES), added=added, removed=removed
        )
    if kind is ev.TokenIssued:
        verbs = tuple(rng.sample(VERBS, rng.choice((0, 0, 3))))
        scopes = tuple(rng.sample(SCOPES, rng.choice((0, 0, 2))))
        return ev.TokenIssued(
            **CAUSE, token=id_, principal=principal, kind="person", expires_ns=1, verbs=verbs, scopes=scopes
        )
    if kind is ev.SessionOpened:
        return ev.SessionOpened(**CAUSE, session=id_, principal=principal, provider="local", expires_ns=1)
    if kind is ev.TokenRevoked:
        return ev.TokenRevoked(**CAUSE, token=id_, reason="revoked")
    return ev.SessionEnded(**CAUSE, session=id_, reason="signed_out")


def log_of(rng: Random, commits: int) -> list[tuple[int, ev.Event]]:
    """A log with the events of other writers left out: some sequences hold several events, most none."""
    log: list[tuple[int, ev.Event]] = [
        (1, ev.PrincipalAdmitted(**CAUSE, principal=person, kind="person")) for person in PEOPLE
    ]
    sequence = 1
    for _ in range(commits):
        sequence += rng.choice((1, 1, 7))
        log += [(sequence, event_of(rng)) for _ in range(rng.choice((1, 1, 2, 4)))]
    return log


def target_of(rng: Random) -> Target:
    """A job, a queue, a volume or a node."""
    queue = rng.choice(("", "research", "research/vision", "research/visionary", "prod/x"))
    return Target(
        queue,
        rng.choice(("", "a100")),
        rng.choice(("", "llm")),
        rng.choice(("", "7", "7_1", "7_12")),
        rng.choice(("", "data")),
        rng.choice(("", *PEOPLE)),
    )
