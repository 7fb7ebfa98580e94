"""The list of grants and memberships, folded from the access service's events, and its answers.

`AccessList.may` is the one rule of the product: a principal may use a verb on a target if one of its grants, or of its groups'
grants, has the verb in a scope that covers the target, or if the verb is one of an owner's and the target is its own. There
are no negative rules, so the order of grants never matters. An unknown or suspended principal may do nothing.

Answers are looked up per principal in tables that are built when a principal first asks and dropped when something changes that concerns
it, because requests are a thousand times as frequent as grants. Start at `AccessList.may`.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from fairlead_rights.roles import OWNER_VERBS, verbs_of
from fairlead_schemas.policies.rights import Role, Scope, ScopeKind, Verb
from fairlead_schemas.units.ids import array_of

#: Tables of different sets of roles that principals share.
TABLES_KEPT = 4096
#: Kinds of things with whose end the grants at them end, so that a new one of the name gives nobody rights by accident.
ENDING_KINDS: frozenset[ScopeKind] = frozenset({"queue", "volume"})


class Target(NamedTuple):
    """Thing that a verb is used on, with everything that a scope can be compared with; "" where it does not apply.

    A job has its queue, pool, project and owner; a queue has its pool; a node only a pool; the cluster nothing.
    """

    queue: str = ""
    pool: str = ""
    project: str = ""
    job: str = ""
    volume: str = ""
    #: Principal to whom a job or volume belongs.
    owner: str = ""


class Grant(NamedTuple):
    """One sentence of the list: the subject is a role in a scope."""

    subject: str
    role: Role
    scope: Scope

    def __str__(self) -> str:
        return f"{self.subject} is {self.role} in {self.scope}"


type PrincipalState = Literal["unknown", "suspended", "active"]


class Denial(NamedTuple):
    """Answer to "why may I not": the missing verb, the roles that the principal holds, and the subjects who could grant it."""

    verb: Verb
    target: Target
    principal: PrincipalState
    holds: tuple[Grant, ...]
    #: Subjects with `rights:grant` over the target who hold the verb themselves, sorted.
    givers: tuple[str, ...]


class Reach(NamedTuple):
    """Parts of the cluster in which something holds, ready to be compared with targets."""

    cluster: bool
    queues: frozenset[str]
    #: Scopes of the other kinds.
    others: frozenset[tuple[str, str]]


class AccessList:
    """Principals, memberships and grants. Only the methods of the first part change it; those of the second only read."""

    def __init__(self) -> None:
        #: {principal: True if it is active, False if it is suspended}
        self.principals: dict[str, bool] = {}
        #: {group: {source of the membership: members}}; each source owns its memberships.
        self.groups: dict[str, dict[str, frozenset[str]]] = {}
        #: {subject: {(role, scope): sources that granted it}}; what was granted by hand stays when a file takes its own back.
        self.grants: dict[str, dict[tuple[Role, Scope], frozenset[str]]] = {}
        #: Derived: {queue or volume: (subject, role) of the grants at exactly this one}
        self._at: dict[Scope, set[tuple[str, Role]]] = {}
        self._groups_of: dict[str, set[str]] = {}
        self._reach: dict[str, dict[Verb, Reach]] = {}

    # ------------------------------------------------------------------------------- changes

    def admit(self, principal: str) -> None:
        """Make a principal active, whether it is new or was suspended."""
        self.principals[principal] = True
        self._reach.pop(principal, None)

    def suspend(self, principal: str) -> None:
        """Take all rights from a principal, and keep its grants for its return."""
        self.principals[principal] = False
        self._reach.pop(principal, None)

    def forget(self, principal: str) -> int:
        """End all memberships and grants of a principal itself, whoever states them; return the number of grants."""
        for group in list(self._groups_of.get(principal, ())):
            for source, members in list(self.groups[group].items()):
                if principal in members:
                    self.sync_group(group, source, members - {principal})
        ended = [Grant(principal, role, scope) for role, scope in self.grants.get(principal, ())]
        for grant in ended:
            self._drop(grant)
        self._reach.pop(principal, None)
        return len(ended)

    def sync_group(self, group: str, source: str, members: Iterable[str]) -> None:
        """Replace the members that one source gives a group. An empty list removes them."""
        sources = self.groups.setdefault(group, {})
        before, after = sources.pop(source, frozenset[str]()), frozenset(members)
        if after:
            sources[source] = after
        if not sources:
            del self.groups[group]
        for member in before ^ after:
            of = self._groups_of.setdefault(member, set())
            if any(member in each for each in sources.values()):
                of.add(group)
            else:
                of.discard(group)
            if not of:
                del self._groups_of[member]
            self._reach.pop(member, None)

    def grant(self, grant: Grant, source: str) -> None:
        """Add a grant. A second source of the same grant keeps it until both take it back."""
        held = self.grants.setdefault(grant.subject, {})
        key = (grant.role, grant.scope)
        held[key] = held.get(key, frozenset[str]()) | {source}
        if grant.scope.kind in ENDING_KINDS:
            self._at.setdefault(grant.scope, set()).add((grant.subject, grant.role))
        self._forget(grant.subject)

    def revoke(self, grant: Grant, source: str) -> None:
        """Remove a source's grant; no effect if there is none."""
        held = self.grants.get(grant.subject, {})
        key = (grant.role, grant.scope)
        if key not in held:
            return
        held[key] -= {source}
        if not held[key]:
            self._drop(grant)
        self._forget(grant.subject)

    def end_scope(self, scope: Scope) -> int:
        """End all grants at exactly this queue or volume, whoever states them; return their number. Those at queues above and below
        stay.
        """
        ended = [Grant(subject, role, scope) for subject, role in self._at.get(scope, ())]
        for grant in ended:
            self._drop(grant)
            self._forget(grant.subject)
        return len(ended)

    def _drop(self, grant: Grant) -> None:
        held = self.grants[grant.subject]
        del held[grant.role, grant.scope]
        if not held:
            del self.grants[grant.subject]
        if grant.scope.kind in ENDING_KINDS:
            of = self._at[grant.scope]
            of.discard((grant.subject, grant.role))
            if not of:
                del self._at[grant.scope]

    def _forget(self, subject: str) -> None:
        self._reach.pop(subject, None)
        for members in self.groups.get(subject, {}).values():
            for member in members:
                self._reach.pop(member, None)

    # ------------------------------------------------------------------------------- answers

    def may(self, principal: str, verb: Verb, target: Target) -> bool:
        """Return True if the principal may use the verb on the target now."""
        reaches = self._reach.get(principal)
        if reaches is None:
            reaches = self._build(principal)
        reach = reaches.get(verb)
        if reach is not None and (target.queue in reach.queues or covers(reach, target)):
            return True  # the first is the most frequent way through `covers`, and this is called for every request
        return target.owner == principal != "" and verb in OWNER_VERBS and self.principals.get(principal, False)

    def may_anywhere(self, principal: str, verb: Verb) -> bool:
        """Return True if there is a scope in which the principal holds the verb; a list then shows what is in it."""
        reaches = self._reach.get(principal)
        return verb in (self._build(principal) if reaches is None else reaches)

    def reach(self, principal: str, verb: Verb) -> Reach | None:
        """Return the part of the cluster in which the principal holds the verb; None if it holds it nowhere."""
        reaches = self._reach.get(principal)
        return (self._build(principal) if reaches is None else reaches).get(verb)

    def may_grant(self, principal: str, role: Role, scope: Scope, target: Target) -> bool:
        """Return True if the principal may give or take this role. Nobody grants more than they hold: besides the right to
        grant, every verb of the role is needed there.

        `target`: the thing that the scope names, with its queue, pool, project and owner.
        """
        verbs = verbs_of(role, scope.kind)
        if not verbs or not (
            self.may(principal, right_to_grant(scope), target) or self.may(principal, "rights:grant", target)
        ):
            return False
        return all(
            (verb == "session:open" and scope.kind == "job") or self.may(principal, verb, target) for verb in verbs
        )

    def why(self, principal: str, verb: Verb, target: Target) -> tuple[Grant, ...]:
        """Return the grants that allow it, sorted; empty if none does (the owner's right needs none)."""
        if not self.principals.get(principal, False):
            return ()
        return tuple(grant for grant in self.held(principal) if _allows(grant, verb, target))

    def why_not(self, principal: str, verb: Verb, target: Target) -> Denial:
        """Return the facts for a refusal."""
        state = self.principals.get(principal)
        known: PrincipalState = "unknown" if state is None else "active" if state else "suspended"
        return Denial(verb, target, known, tuple(self.held(principal)), self._givers(verb, target))

    def held(self, principal: str) -> Iterator[Grant]:
        """Yield the grants of a principal and of its groups, sorted."""
        for subject in sorted({principal, *self._groups_of.get(principal, ())}):
            for role, scope in sorted(self.grants.get(subject, {})):
                yield Grant(subject, role, scope)

    def groups_of(self, principal: str) -> tuple[str, ...]:
        """Return the groups of a principal, sorted."""
        return tuple(sorted(self._groups_of.get(principal, ())))

    def admins(self) -> set[str]:
        """Return the active principals that are an admin of the cluster by a grant of their own."""
        return {
            subject
            for subject, held in self.grants.items()
            if self.principals.get(subject, False) and any(role == "admin" for role, _ in held)
        }

    def _givers(self, verb: Verb, target: Target) -> tuple[str, ...]:
        found: set[str] = set()
        for subject, held in self.grants.items():
            grants = [Grant(subject, role, scope) for role, scope in held]
            if all(any(_allows(grant, each, target) for grant in grants) for each in ("rights:grant", verb)):
                found.add(subject)
        return tuple(sorted(found))

    def _build(self, principal: str) -> dict[Verb, Reach]:
        """Build and keep the table of a principal: {verb: where it holds}; empty if it is not active."""
        if not self.principals.get(principal, False):
            return {}  # not kept: anybody can send any number of unknown names
        reaches = self._reach[principal] = _reaches_of(
            tuple((grant.role, grant.scope) for grant in self.held(principal))
        )
        return reaches


#: {kind of scope: the verb by which one who has the thing shares it}
_RIGHTS_TO_GRANT: dict[ScopeKind, Verb] = {"job": "session:share", "volume": "volume:manage"}


def right_to_grant(scope: Scope) -> Verb:
    """Return the verb by which roles in a scope are given and taken; `rights:grant` is as good everywhere."""
    return _RIGHTS_TO_GRANT.get(scope.kind, "rights:grant")


@lru_cache(TABLES_KEPT)
def _reaches_of(grants: tuple[tuple[Role, Scope], ...]) -> dict[Verb, Reach]:
    """Return {verb: where it holds} for some roles. Principals with equal roles share one table, which is never changed: a table of
    its own for each would take kilobytes.
    """
    scopes: dict[Verb, set[Scope]] = {}
    for role, scope in grants:
        for verb in verbs_of(role, scope.kind):
            scopes.setdefault(verb, set()).add(scope)
    return {verb: reach_of(held) for verb, held in scopes.items()}


def reach_of(scopes: Iterable[Scope]) -> Reach:
    """Return the part of the cluster that some scopes cover together."""
    held = frozenset(scopes)
    return Reach(
        any(scope.kind == "cluster" for scope in held),
        frozenset(scope.name for scope in held if scope.kind == "queue"),
        frozenset((scope.kind, scope.name) for scope in held if scope.kind not in ("cluster", "queue")),
    )


def covers(reach: Reach, target: Target) -> bool:
    """Return True if a target is in one of the scopes. Queues are compared by whole path segments."""
    if reach.cluster:
        return True
    if reach.queues and (path := target.queue):
        while path:
            if path in reach.queues:
                return True
            path = path.rpartition("/")[0]
    if not reach.others:
        return False
    return any(
        (kind, name) in reach.others
        for kind, name in (
            ("pool", target.pool),
            ("project", target.project),
            ("job", target.job),
            ("job", (target.job and array_of(target.job)) or ""),
            ("volume", target.volume),
        )
        if name
    )


def _allows(grant: Grant, verb: Verb, target: Target) -> bool:
    return verb in verbs_of(grant.role, grant.scope.kind) and covers(reach_of((grant.scope,)), target)
