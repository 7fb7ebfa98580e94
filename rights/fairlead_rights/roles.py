"""Table of roles: the verbs of each role, and those that the owner of a job or volume has without any grant.

A role in a scope above a job (cluster, pool, queue, project) reaches everything in that scope. A role at one job or volume reaches
only that one: this is how sessions and volumes are shared. No role above a single job lets anybody enter a session: an
admin who must do so grants it for that job, which is an event that the owner sees.
"""

from typing import NamedTuple

from fairlead_schemas.policies.rights import Role, ScopeKind, Verb


class RoleVerbs(NamedTuple):
    """Verbs of a role in a wide scope, at a single job, and at a single volume."""

    wide: frozenset[Verb]
    job: frozenset[Verb] = frozenset()
    volume: frozenset[Verb] = frozenset()


type _Verbs = frozenset[Verb]


def _verbs(*verbs: Verb) -> _Verbs:
    return frozenset(verbs)


_READ = _verbs("job:read", "queue:read", "node:read", "volume:read", "sql:read")
_WORK = _READ | _verbs("job:submit", "volume:write")
_OPERATE = _READ | _verbs("job:cancel", "node:operate")
_LEAD = _WORK | _verbs("job:cancel", "queue:set", "volume:manage", "rights:grant")
_AUDIT = _READ | _verbs("audit:read")
_ALL = _LEAD | _OPERATE | _AUDIT | _verbs("session:share")

#: The one table. A role that has no verbs at a kind of scope cannot be granted there.
ROLE_TABLE: dict[Role, RoleVerbs] = {
    "viewer": RoleVerbs(_READ, job=_verbs("job:read"), volume=_verbs("volume:read")),
    "member": RoleVerbs(_WORK, job=_verbs("job:read", "session:open"), volume=_verbs("volume:read", "volume:write")),
    "operator": RoleVerbs(_OPERATE, job=_verbs("job:read", "job:cancel", "session:open")),
    "queue-admin": RoleVerbs(_LEAD, volume=_verbs("volume:read", "volume:write", "volume:manage")),
    "auditor": RoleVerbs(_AUDIT),
    "admin": RoleVerbs(_ALL),
}

#: Verbs of the owner of a job or volume on it.
OWNER_VERBS = _verbs(
    "job:read", "job:cancel", "session:open", "session:share", "volume:read", "volume:write", "volume:manage"
)

#: Roles that can be granted in scopes of these kinds only.
_KINDS_OF_ROLES: dict[Role, frozenset[ScopeKind]] = {"admin": frozenset({"cluster"})}


def verbs_of(role: Role, kind: ScopeKind) -> frozenset[Verb]:
    """Return the verbs that a role gives in scopes of a kind; empty if it cannot be granted there."""
    if kind not in _KINDS_OF_ROLES.get(role, frozenset({kind})):
        return frozenset()
    verbs = ROLE_TABLE[role]
    if kind == "job":
        return verbs.job
    return verbs.volume if kind == "volume" else verbs.wide
