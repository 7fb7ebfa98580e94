"""Table of event handlers for the access core's state. The only way in which the state changes. No rules, no refusals."""

from fairlead_access.state import AccessState, SignIn, Token
from fairlead_bus.core import EventHandlers, EventPosition, apply_events
from fairlead_rights.access_list import Grant
from fairlead_schemas.policies.rights import parse_scope
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit

WRITER = "access"


def fold(state: AccessState, seq: int, commit: Commit) -> None:
    """Fold one commit of any writer."""
    if commit.writer == WRITER:
        apply_events(HANDLERS, state, seq, commit)


def _admitted(state: AccessState, event: ev.PrincipalAdmitted, at: EventPosition) -> None:
    state.kinds[event.principal] = event.kind
    state.access.admit(event.principal)


def _suspended(state: AccessState, event: ev.PrincipalSuspended, at: EventPosition) -> None:
    state.access.suspend(event.principal)
    for token in list(state.tokens_of.get(event.principal, ())):
        state.drop_token(token)
    for session in list(state.sessions_of.get(event.principal, ())):
        state.drop_session(session)


def _granted(state: AccessState, event: ev.RoleGranted, at: EventPosition) -> None:
    grant = Grant(event.subject, event.role, parse_scope(event.scope))
    state.grant_count += (grant.role, grant.scope) not in state.access.grants.get(event.subject, {})
    state.access.grant(grant, event.source)


def _revoked(state: AccessState, event: ev.RoleRevoked, at: EventPosition) -> None:
    grant = Grant(event.subject, event.role, parse_scope(event.scope))
    held = (grant.role, grant.scope) in state.access.grants.get(event.subject, {})
    state.access.revoke(grant, event.source)
    state.grant_count -= held and (grant.role, grant.scope) not in state.access.grants.get(event.subject, {})


def _synced(state: AccessState, event: ev.GroupSynced, at: EventPosition) -> None:
    members = state.access.groups.get(event.group, {}).get(event.source, frozenset[str]())
    state.access.sync_group(event.group, event.source, (members - set(event.removed)) | set(event.added))


def _issued(state: AccessState, event: ev.TokenIssued, at: EventPosition) -> None:
    state.add_token(
        Token(event.token, event.principal, event.kind, event.expires_ns, tuple(event.verbs), tuple(event.scopes))
    )


def _token_revoked(state: AccessState, event: ev.TokenRevoked, at: EventPosition) -> None:
    state.drop_token(event.token)


def _opened(state: AccessState, event: ev.SessionOpened, at: EventPosition) -> None:
    state.add_session(SignIn(event.session, event.principal, event.provider, event.expires_ns))


def _session_ended(state: AccessState, event: ev.SessionEnded, at: EventPosition) -> None:
    state.drop_session(event.session)


HANDLERS: EventHandlers[AccessState] = {
    ev.PrincipalAdmitted: _admitted,
    ev.PrincipalSuspended: _suspended,
    ev.RoleGranted: _granted,
    ev.RoleRevoked: _revoked,
    ev.GroupSynced: _synced,
    ev.TokenIssued: _issued,
    ev.TokenRevoked: _token_revoked,
    ev.SessionOpened: _opened,
    ev.SessionEnded: _session_ended,
}
