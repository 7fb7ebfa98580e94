"""The access core's state as canonical bytes, and back: equal states have equal bytes."""

import msgspec

from fairlead_access.state import AccessState, SignIn, Token
from fairlead_bus.snapshot_codec import SnapshotCodec
from fairlead_rights.access_list import Grant
from fairlead_schemas.policies.rights import Role, parse_scope
from fairlead_schemas.wire.events.access import PrincipalKind

#: Increase when the meaning of a field changes.
VERSION = 1


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


class AccessSnapshot(msgspec.Struct, frozen=True):
    """All of it. Tokens and sessions keep their order: of a principal's sessions the oldest ends first."""

    v: int
    principals: list[PrincipalRow]
    groups: list[MembersRow]
    grants: list[GrantRow]
    tokens: list[Token]
    sessions: list[SignIn]


_CODEC = SnapshotCodec(AccessSnapshot, VERSION)
SCHEMA = _CODEC.schema


def dump(state: AccessState) -> bytes:
    """Canonical bytes of the state."""
    access = state.access
    return _CODEC.encode(
        AccessSnapshot(
            VERSION,
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
        )
    )


def load(data: bytes) -> AccessState:
    """The state that was dumped. Raises msgspec.MsgspecError."""
    document = _CODEC.decode(data)
    if document.v != VERSION:
        raise msgspec.ValidationError(f"access snapshot has version {document.v}, this reader knows {VERSION}")
    state = AccessState()
    for row in document.principals:
        state.kinds[row.id] = row.kind
        (state.access.admit if row.active else state.access.suspend)(row.id)
    for row in document.groups:
        state.access.sync_group(row.group, row.source, row.members)
    for row in document.grants:
        for source in row.sources:
            state.access.grant(Grant(row.subject, row.role, parse_scope(row.scope)), source)
    state.grant_count = len(document.grants)
    for token in document.tokens:
        state.add_token(token)
    for session in document.sessions:
        state.add_session(session)
    return state
