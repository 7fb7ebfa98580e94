"""Access at every past sequence: intervals of grants, memberships, principals, tokens and sessions, folded from the access
service's events.

The state of access (`state.py`) answers for now. This answers for any sequence, from one pass over the log: every fact is kept with the
sequences at which it began and ended, so memory grows with the number of changes, not with the length of the log. A commit's
events count together: "at 4711" is after all events of commit 4711. Start at `AccessHistory.may_at`.
"""

from bisect import bisect_right
from collections.abc import Iterator

from fairlead_rights.access_list import ENDING_KINDS, Grant, Target, covers, reach_of, right_to_grant
from fairlead_rights.roles import OWNER_VERBS, verbs_of
from fairlead_schemas.policies.rights import Role, Scope, Verb, parse_scope
from fairlead_schemas.wire import events as ev

#: Forms of a credential in an authority: "token:<id>" and "session:<id>".
TOKEN, SESSION = "token:", "session:"


class Intervals:
    """Sequences at which something holds: half-open intervals, in order. False before the first."""

    __slots__ = ("turns",)

    def __init__(self) -> None:
        #: Sequences at which it began and ended, in turn.
        self.turns: list[int] = []

    def set(self, sequence: int, holds: bool) -> None:
        """Let it hold, or not, from a sequence on. Sequences never fall."""
        turns = self.turns
        if len(turns) % 2 == holds:
            return
        if turns and turns[-1] == sequence:  # the commit takes back what it did before
            turns.pop()
        else:
            turns.append(sequence)

    def at(self, sequence: int) -> bool:
        """Return True if it holds at a sequence."""
        return bisect_right(self.turns, sequence) % 2 == 1


class Credential:
    """Token or session: its principal, its limits, and when it counts. An id that is given again is another credential."""

    __slots__ = ("counts", "principal", "scopes", "verbs")

    def __init__(self, principal: str, verbs: frozenset[Verb] = frozenset(), scopes: tuple[Scope, ...] = ()) -> None:
        self.principal = principal
        #: The most that it may do, and the only scopes in which it acts; empty: all.
        self.verbs = verbs
        self.scopes = scopes
        self.counts = Intervals()

    def allows(self, verb: Verb, target: Target) -> bool:
        """Return True if its own limits let it use the verb on the target."""
        return (not self.verbs or verb in self.verbs) and (not self.scopes or covers(reach_of(self.scopes), target))


class AccessHistory:
    """Everything about access, at every sequence up to the newest that was folded. Only `fold` changes it."""

    def __init__(self) -> None:
        #: Sequences at which anything changed, rising. Between two of them all answers are equal.
        self.changes: list[int] = []
        self._active: dict[str, Intervals] = {}
        #: {member: {(group, source): when}}
        self._memberships: dict[str, dict[tuple[str, str], Intervals]] = {}
        #: {subject: {(role, scope): {source: when}}}
        self._grants: dict[str, dict[tuple[Role, Scope], dict[str, Intervals]]] = {}
        #: {"token:<id>" or "session:<id>": those that had this id, the newest last}
        self._credentials: dict[str, list[Credential]] = {}
        #: {principal: credentials that count now}, which a suspension ends.
        self._counting: dict[str, set[str]] = {}
        #: True once a token of a person was issued: people sign on since then, and their commands carry an authority.
        self.has_tokens_of_people = False
        self._queues: set[str] = set()
        #: {queue or volume: all that was ever granted at exactly this one}
        self._at: dict[Scope, list[Intervals]] = {}

    # ------------------------------------------------------------------------------- changes

    def fold(self, sequence: int, event: ev.Event) -> None:
        """Take the next event of the log with the sequence of its commit. Of other services' events only those on queues and
        volumes count."""
        match event:
            case ev.PrincipalAdmitted():
                self._active.setdefault(event.principal, Intervals()).set(sequence, True)
            case ev.PrincipalSuspended():
                self._suspend(sequence, event)
            case ev.RoleGranted():
                self._grant(event).set(sequence, True)
            case ev.RoleRevoked():
                self._grant(event).set(sequence, False)
            case ev.GroupSynced():
                self._sync(sequence, event)
            case ev.TokenIssued():
                scopes = tuple(map(parse_scope, event.scopes))
                self._begin(sequence, TOKEN + event.token, Credential(event.principal, frozenset(event.verbs), scopes))
                self.has_tokens_of_people = self.has_tokens_of_people or event.kind == "person"
            case ev.SessionOpened():
                self._begin(sequence, SESSION + event.session, Credential(event.principal))
            case ev.TokenRevoked():
                self._end(sequence, TOKEN + event.token)
            case ev.SessionEnded():
                self._end(sequence, SESSION + event.session)
            case ev.QueueConfigured() if event.path not in self._queues:
                self._queues.add(event.path)
                self._end_scope(sequence, Scope("queue", event.path))
            case ev.QueueRemoved():
                self._queues.discard(event.path)
                self._end_scope(sequence, Scope("queue", event.path))
            case ev.VolumeCreated() | ev.VolumeDeleted():
                self._end_scope(sequence, Scope("volume", event.volume))
            case _:
                return
        if not self.changes or self.changes[-1] != sequence:
            self.changes.append(sequence)

    def _suspend(self, sequence: int, event: ev.PrincipalSuspended) -> None:
        principal = event.principal
        self._active.setdefault(principal, Intervals()).set(sequence, False)
        for via in sorted(self._counting.get(principal, ())):
            self._end(sequence, via)
        if event.forgotten:
            ended = [*self._memberships.get(principal, {}).values()]
            ended += [when for of in self._grants.get(principal, {}).values() for when in of.values()]
            for when in ended:
                when.set(sequence, False)

    def _grant(self, event: ev.RoleGranted | ev.RoleRevoked) -> Intervals:
        scope = parse_scope(event.scope)
        held = self._grants.setdefault(event.subject, {}).setdefault((event.role, scope), {})
        if event.source not in held:
            held[event.source] = Intervals()
            if scope.kind in ENDING_KINDS:
                self._at.setdefault(scope, []).append(held[event.source])
        return held[event.source]

    def _end_scope(self, sequence: int, scope: Scope) -> None:
        """End the grants at a queue or volume that is gone, or new: as `AccessState.drop_queue` and `add_queue` do."""
        for each in self._at.get(scope, ()):
            each.set(sequence, False)

    def _sync(self, sequence: int, event: ev.GroupSynced) -> None:
        for members, holds in ((event.removed, False), (event.added, True)):
            for member in members:
                of = self._memberships.setdefault(member, {})
                of.setdefault((event.group, event.source), Intervals()).set(sequence, holds)

    def _begin(self, sequence: int, via: str, credential: Credential) -> None:
        self._end(sequence, via)
        credential.counts.set(sequence, True)
        self._credentials.setdefault(via, []).append(credential)
        self._counting.setdefault(credential.principal, set()).add(via)

    def _end(self, sequence: int, via: str) -> None:
        held = self._credentials.get(via)
        if not held:
            return
        held[-1].counts.set(sequence, False)
        self._counting.get(held[-1].principal, set()).discard(via)

    # ------------------------------------------------------------------------------- answers

    def may_at(self, sequence: int, principal: str, verb: Verb, target: Target, via: str = "") -> bool:
        """Return True if the principal could use the verb on the target at a sequence. `via`: the credential that it sent, which
        must have counted then and can only take rights away; "" to leave it out.
        """
        if via:
            credential = self.credential_at(sequence, via)
            if credential is None or credential.principal != principal or not credential.allows(verb, target):
                return False
        if not self.is_active_at(sequence, principal):
            return False
        if target.owner == principal and verb in OWNER_VERBS:
            return True
        return any(_allows(grant, verb, target) for grant in self.held_at(sequence, principal))

    def why_at(self, sequence: int, principal: str, verb: Verb, target: Target) -> tuple[Grant, ...]:
        """Return the grants that allowed it at a sequence, sorted; empty if none did (the owner's right needs none)."""
        if not self.is_active_at(sequence, principal):
            return ()
        return tuple(sorted(grant for grant in self.held_at(sequence, principal) if _allows(grant, verb, target)))

    def may_grant_at(self, sequence: int, principal: str, role: Role, scope: Scope, target: Target) -> bool:
        """Return True if the principal could give or take a role at a sequence, as `AccessList.may_grant` does for now."""
        verbs = verbs_of(role, scope.kind)
        rights: tuple[Verb, ...] = ("rights:grant", right_to_grant(scope))
        if not verbs or not any(self.may_at(sequence, principal, right, target) for right in rights):
            return False
        return all(
            (verb == "session:open" and scope.kind == "job") or self.may_at(sequence, principal, verb, target)
            for verb in verbs
        )

    def is_active_at(self, sequence: int, principal: str) -> bool:
        """Return True if the principal was admitted and not suspended at a sequence."""
        active = self._active.get(principal)
        return active is not None and active.at(sequence)

    def credential_at(self, sequence: int, via: str) -> Credential | None:
        """Return the token or session in force under an id at a sequence; None for none."""
        return next((each for each in reversed(self._credentials.get(via, ())) if each.counts.at(sequence)), None)

    def held_at(self, sequence: int, principal: str) -> Iterator[Grant]:
        """Yield the grants of a principal and of its groups at a sequence."""
        memberships = self._memberships.get(principal, {})
        groups = {group for (group, _), when in memberships.items() if when.at(sequence)}
        for subject in (principal, *sorted(groups)):
            for (role, scope), sources in self._grants.get(subject, {}).items():
                if any(when.at(sequence) for when in sources.values()):
                    yield Grant(subject, role, scope)

    def statistics(self) -> dict[str, int]:
        """Sizes, for reports: intervals are what memory grows with."""
        lines = [*self._active.values()]
        lines += [when for of in self._memberships.values() for when in of.values()]
        lines += [when for held in self._grants.values() for of in held.values() for when in of.values()]
        lines += [each.counts for held in self._credentials.values() for each in held]
        return {"facts": len(lines), "turns": sum(len(each.turns) for each in lines)}


def _allows(grant: Grant, verb: Verb, target: Target) -> bool:
    return verb in verbs_of(grant.role, grant.scope.kind) and covers(reach_of((grant.scope,)), target)
