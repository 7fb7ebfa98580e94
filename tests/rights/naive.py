"""A second, slow reading of the rules of rights, against which the list is held: every grant is tried, nothing is kept."""

from collections.abc import Iterable
from typing import NamedTuple

from fairlead_rights.access_list import Grant, Target
from fairlead_rights.roles import ROLE_TABLE
from fairlead_schemas.policies.rights import Scope, Verb, parse_scope
from fairlead_schemas.wire import events as ev

OWN = {"job:read", "job:cancel", "session:open", "session:share", "volume:read", "volume:write", "volume:manage"}


def may(
    active: Iterable[str],
    memberships: Iterable[tuple[str, str]],
    grants: Iterable[Grant],
    principal: str,
    verb: Verb,
    target: Target,
) -> bool:
    """Answer from plain lists: active principals, (group, member) pairs, and grants."""
    if principal not in set(active):
        return False
    if target.owner == principal and verb in OWN:
        return True
    subjects = {principal} | {group for group, member in memberships if member == principal}
    return any(grant.subject in subjects and _reaches(grant, verb, target) for grant in grants)


def _reaches(grant: Grant, verb: Verb, target: Target) -> bool:
    row = ROLE_TABLE[grant.role]
    kind, name = grant.scope
    if grant.role == "admin" and kind != "cluster":
        return False
    if kind == "job":
        return verb in row.job and target.job.split("_")[0 if "_" not in name else slice(None)] == (
            name if "_" not in name else name.split("_")
        )
    if kind == "volume":
        return verb in row.volume and target.volume == name
    if verb not in row.wide:
        return False
    if kind == "queue":
        parts, wanted = target.queue.split("/"), name.split("/")
        return parts[: len(wanted)] == wanted
    return kind == "cluster" or getattr(target, kind) == name


class State(NamedTuple):
    """Plain lists, as of a sequence."""

    active: set[str]
    memberships: list[tuple[str, str]]
    grants: list[Grant]
    credentials: dict[str, ev.TokenIssued | ev.SessionOpened]

    def may(self, principal: str, verb: Verb, target: Target, via: str = "") -> bool:
        """Answer a question. `via`: the credential that it comes by."""
        if via and not _is_within(self.credentials.get(via), principal, verb, target):
            return False
        return may(self.active, self.memberships, self.grants, principal, verb, target)

    def why(self, principal: str, verb: Verb, target: Target) -> list[Grant]:
        """Return the grants that allow it, sorted."""
        subjects = {principal} | {group for group, member in self.memberships if member == principal}
        held = {grant for grant in self.grants if grant.subject in subjects and _reaches(grant, verb, target)}
        return sorted(held) if principal in self.active else []


def state_at(log: Iterable[tuple[int, ev.Event]], sequence: int) -> State:
    """Return the state at a sequence from the whole log: plain sets, filled from the start up to that sequence."""
    active: set[str] = set()
    members: set[tuple[str, str, str]] = set()  # (source, group, member)
    grants: set[tuple[str, Grant]] = set()  # (source, grant)
    credentials: dict[str, ev.TokenIssued | ev.SessionOpened] = {}
    queues: set[str] = set()
    for at, event in log:
        if at > sequence:
            break
        match event:
            case ev.PrincipalAdmitted():
                active.add(event.principal)
            case ev.PrincipalSuspended():
                active.discard(event.principal)
                credentials = {via: each for via, each in credentials.items() if each.principal != event.principal}
                if event.forgotten:
                    members = {each for each in members if each[2] != event.principal}
                    grants = {each for each in grants if each[1].subject != event.principal}
            case ev.RoleGranted():
                grants.add((event.source, Grant(event.subject, event.role, parse_scope(event.scope))))
            case ev.RoleRevoked():
                grants.discard((event.source, Grant(event.subject, event.role, parse_scope(event.scope))))
            case ev.QueueConfigured() if event.path not in queues:
                queues.add(event.path)
                grants = _without(grants, Scope("queue", event.path))
            case ev.QueueRemoved():
                queues.discard(event.path)
                grants = _without(grants, Scope("queue", event.path))
            case ev.VolumeCreated() | ev.VolumeDeleted():
                grants = _without(grants, Scope("volume", event.volume))
            case ev.GroupSynced():
                members -= {(event.source, event.group, member) for member in event.removed}
                members |= {(event.source, event.group, member) for member in event.added}
            case ev.TokenIssued():
                credentials[f"token:{event.token}"] = event
            case ev.SessionOpened():
                credentials[f"session:{event.session}"] = event
            case ev.TokenRevoked():
                credentials.pop(f"token:{event.token}", None)
            case ev.SessionEnded():
                credentials.pop(f"session:{event.session}", None)
            case _:
                pass
    pairs = [(group, member) for _, group, member in members]
    return State(active, pairs, [grant for _, grant in grants], credentials)


def _without(grants: set[tuple[str, Grant]], scope: Scope) -> set[tuple[str, Grant]]:
    return {(source, grant) for source, grant in grants if grant.scope != scope}


def _is_within(
    credential: ev.TokenIssued | ev.SessionOpened | None, principal: str, verb: Verb, target: Target
) -> bool:
    if credential is None or credential.principal != principal:
        return False
    if isinstance(credential, ev.SessionOpened):
        return True
    if credential.verbs and verb not in credential.verbs:
        return False
    return not credential.scopes or any(_covers(parse_scope(scope), target) for scope in credential.scopes)


def _covers(scope: Scope, target: Target) -> bool:
    kind, name = scope
    if kind == "cluster":
        return True
    if kind == "queue":
        return f"{target.queue}/".startswith(f"{name}/")
    if kind == "job":
        return target.job == name or target.job.startswith(f"{name}_")
    return getattr(target, kind) == name
