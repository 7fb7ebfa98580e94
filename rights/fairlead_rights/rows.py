"""The state of access as rows for snapshots, and back: equal states have equal rows."""

import msgspec

from fairlead_rights.access_list import Grant
from fairlead_rights.state import AccessState, SignIn, Token
from fairlead_schemas.policies.rights import Role, parse_scope
from fairlead_schemas.wire.events.access import PrincipalKind
from fairlead_schemas.wire.levels import FIRST


class PrincipalRow(msgspec.Struct, frozen=True):
    """Principal, and if it is active."""

    id: str
    kind: PrincipalKind
    active: bool


class MembersRow(msgspec.Struct, frozen=True):
    """Members that one source gives a group, sorted."""

    group: str
    source: str
    members: tuple[str, ...]


class GrantRow(msgspec.Struct, frozen=True):
    """Grant with the sources that state it, sorted."""

    subject: str
    role: Role
    scope: str
    sources: tuple[str, ...]


class AccessRows(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of it. Tokens and sessions keep their order: of a principal's sessions the oldest ends first."""

    principals: list[PrincipalRow]
    groups: list[MembersRow]
    grants: list[GrantRow]
    tokens: list[Token]
    sessions: list[SignIn]
    #: Paths of the queues that exist, sorted.
    queues: list[str]
    #: Level of the log's format.
    level: int = FIRST


def rows_of(state: AccessState) -> AccessRows:
    """Return the rows of a state, in their one order."""
    access = state.access
    return AccessRows(
        [PrincipalRow(each, kind, access.principals[each]) for each, kind in sorted(state.kinds.items())],
        [
            MembersRow(group, source, tuple(sorted(members)))
            for group, sources in sorted(access.groups.items())
            for source, members in sorted(sources.items())
        ],
        [
            GrantRow(subject, role, str(scope), tuple(sorted(sources)))
            for subject, held in sorted(access.grants.items())
            for (role, scope), sources in sorted(held.items())
        ],
        list(state.tokens.values()),
        list(state.sessions.values()),
        sorted(state.queues),
        state.level,
    )


def state_of(rows: AccessRows) -> AccessState:
    """Return the state with these rows. Raise ScopeError for a scope that cannot be read."""
    state = AccessState()
    state.queues.update(rows.queues)
    state.level = rows.level
    for row in rows.principals:
        state.kinds[row.id] = row.kind
        (state.access.admit if row.active else state.access.suspend)(row.id)
    for row in rows.groups:
        state.access.sync_group(row.group, row.source, row.members)
    for row in rows.grants:
        for source in row.sources:
            state.access.grant(Grant(row.subject, row.role, parse_scope(row.scope)), source)
    state.grant_count = len(rows.grants)
    for token in rows.tokens:
        state.add_token(token)
    for session in rows.sessions:
        state.add_session(session)
    return state
