"""Effects of events on the state of access: those of the access service, and those that make and remove queues and volumes. The only
way in which it changes. No rules, no refusals.
"""

from collections.abc import Callable
from typing import Any

from fairlead_rights.access_list import Grant
from fairlead_rights.state import AccessState, SignIn, Token
from fairlead_schemas.policies.rights import parse_scope
from fairlead_schemas.wire import events as ev


def _admitted(state: AccessState, event: ev.PrincipalAdmitted, at: object) -> None:
    state.kinds[event.principal] = event.kind
    state.access.admit(event.principal)


def _suspended(state: AccessState, event: ev.PrincipalSuspended, at: object) -> None:
    state.access.suspend(event.principal)
    for token in list(state.tokens_of.get(event.principal, ())):
        state.drop_token(token)
    for session in list(state.sessions_of.get(event.principal, ())):
        state.drop_session(session)
    if event.forgotten:
        state.grant_count -= state.access.forget(event.principal)


def _granted(state: AccessState, event: ev.RoleGranted, at: object) -> None:
    grant = Grant(event.subject, event.role, parse_scope(event.scope))
    state.grant_count += (grant.role, grant.scope) not in state.access.grants.get(event.subject, {})
    state.access.grant(grant, event.source)


def _revoked(state: AccessState, event: ev.RoleRevoked, at: object) -> None:
    grant = Grant(event.subject, event.role, parse_scope(event.scope))
    held = (grant.role, grant.scope) in state.access.grants.get(event.subject, {})
    state.access.revoke(grant, event.source)
    state.grant_count -= held and (grant.role, grant.scope) not in state.access.grants.get(event.subject, {})


def _synced(state: AccessState, event: ev.GroupSynced, at: object) -> None:
    members = state.access.groups.get(event.group, {}).get(event.source, frozenset[str]())
    state.access.sync_group(event.group, event.source, (members - set(event.removed)) | set(event.added))


def _issued(state: AccessState, event: ev.TokenIssued, at: object) -> None:
    state.add_token(
        Token(event.token, event.principal, event.kind, event.expires_ns, tuple(event.verbs), tuple(event.scopes))
    )


def _token_revoked(state: AccessState, event: ev.TokenRevoked, at: object) -> None:
    state.drop_token(event.token)


def _opened(state: AccessState, event: ev.SessionOpened, at: object) -> None:
    state.add_session(SignIn(event.session, event.principal, event.provider, event.expires_ns))


def _session_ended(state: AccessState, event: ev.SessionEnded, at: object) -> None:
    state.drop_session(event.session)


def _level_raised(state: AccessState, event: ev.LevelRaised, at: object) -> None:
    state.level = max(state.level, event.level)


def _queue_configured(state: AccessState, event: ev.QueueConfigured, at: object) -> None:
    state.add_queue(event.path)


def _queue_removed(state: AccessState, event: ev.QueueRemoved, at: object) -> None:
    state.drop_queue(event.path)


def _volume_made_or_gone(state: AccessState, event: ev.VolumeCreated | ev.VolumeDeleted, at: object) -> None:
    state.end_volume(event.volume)


type _Effect = Callable[[AccessState, Any, object], None]


def _new_epoch(effect: _Effect) -> _Effect:
    """Return an effect that also ends the state's epoch."""

    def applied(state: AccessState, event: Any, at: object) -> None:
        effect(state, event, at)
        state.epoch = object()

    return applied


#: {type of event: its effect on the state}. The place in the log, which cores pass, is not needed.
EFFECTS: dict[type, _Effect] = {
    ev.PrincipalAdmitted: _new_epoch(_admitted),
    ev.PrincipalSuspended: _new_epoch(_suspended),
    ev.RoleGranted: _new_epoch(_granted),
    ev.RoleRevoked: _new_epoch(_revoked),
    ev.GroupSynced: _new_epoch(_synced),
    ev.TokenIssued: _new_epoch(_issued),
    ev.TokenRevoked: _new_epoch(_token_revoked),
    ev.SessionOpened: _new_epoch(_opened),
    ev.SessionEnded: _new_epoch(_session_ended),
    ev.LevelRaised: _level_raised,
    ev.QueueConfigured: _new_epoch(_queue_configured),
    ev.QueueRemoved: _new_epoch(_queue_removed),
    ev.VolumeCreated: _new_epoch(_volume_made_or_gone),
    ev.VolumeDeleted: _new_epoch(_volume_made_or_gone),
}
