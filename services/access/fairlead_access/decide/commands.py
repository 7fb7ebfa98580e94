"""Decisions on commands, one by one. Every command leads to at least one event that names it.

A command without a user is the service's own: a sign-in, a directory, the set-up of a cluster. Whoever publishes commands for
people must name the user in each: without one nothing is checked.
"""

from collections.abc import Callable, Iterable
from typing import Any

from fairlead_access.decide.draft import AccessDraft
from fairlead_access.limits import (
    GRANTS_MAX,
    GROUPS_MAX,
    MEMBERS_CHUNK,
    MEMBERS_MAX,
    PRINCIPALS_MAX,
    SESSION_LIFE_NS_MAX,
    SESSIONS_OF_PRINCIPAL_MAX,
    TOKEN_LIFE_NS_MAX,
    TOKEN_SCOPES_MAX,
    TOKENS_MAX,
    TOKENS_OF_PRINCIPAL_MAX,
)
from fairlead_bus.core import CommandRefusal, names_bytes, rejected, undecodable
from fairlead_rights.access_list import Grant, Target
from fairlead_rights.roles import verbs_of
from fairlead_schemas.policies.rights import GROUP, SUBJECT_CHARS_MAX, Scope, ScopeError, is_group, parse_scope
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.quantities import format_duration
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.levels import LEVEL

#: Source of grants and memberships that people give.
PERSON = "person"


def decide_command(draft: AccessDraft, command: cmd.AccessCommand | cmd.Undecodable) -> None:
    """Decide one command: carry it out, or record why not."""
    if isinstance(command, cmd.Undecodable):
        draft.emit(undecodable(ev.AccessCommandRejected, command))
        return
    draft.repeat(command.authority)
    refusal = HANDLERS[type(command)](draft, command, f"cmd:{command.id}")
    if refusal is not None:
        draft.emit(rejected(ev.AccessCommandRejected, command, refusal))
    draft.repeat(None)


# ------------------------------------------------------------------------------- principals


def _admit(draft: AccessDraft, command: cmd.AdmitPrincipal, cause: str) -> CommandRefusal | None:
    state, principal = draft.state, command.principal
    if not is_token(principal):
        return CommandRefusal("invalid", "principal: expected an opaque id of a-z 0-9 _ -", "principal")
    if refusal := _cluster_right(draft, command):
        return refusal
    known = state.kinds.get(principal)
    if known is None and len(state.kinds) + len(draft.admitted) >= PRINCIPALS_MAX:
        return CommandRefusal("too_many", f"expected at most {PRINCIPALS_MAX} principals")
    if known is not None and known != command.kind:
        return CommandRefusal("conflict", f"{principal} is a {known} already, not a {command.kind}")
    if command.first and known is not None and not draft.is_active(principal):
        return CommandRefusal("suspended", f"{principal} is suspended", "principal")
    if refusal := _beyond(draft, command, state.access.held(principal)):
        return refusal
    draft.admitted.add(principal)
    draft.suspended.discard(principal)
    draft.emit(ev.PrincipalAdmitted(cause=cause, principal=principal, kind=command.kind, by=command.user))
    return None


def _suspend(draft: AccessDraft, command: cmd.SuspendPrincipal, cause: str) -> CommandRefusal | None:
    state, principal = draft.state, command.principal
    if principal not in state.kinds and principal not in draft.admitted:
        return CommandRefusal("not_found", f"there is no principal {principal[:SUBJECT_CHARS_MAX]}", "principal")
    if refusal := _cluster_right(draft, command) or _beyond(draft, command, state.access.held(principal)):
        return refusal
    if draft.admins == {principal}:
        return CommandRefusal("last_admin", f"{principal} is the last admin; make another one first", "principal")
    draft.suspended.add(principal)
    draft.admins.discard(principal)
    draft.emit(ev.PrincipalSuspended(cause=cause, principal=principal, by=command.user, forgotten=command.forget))
    return None


def _cluster_right(draft: AccessDraft, command: cmd.CommandBase) -> CommandRefusal | None:
    """Principals belong to the cluster: whoever changes them may grant roles in all of it."""
    if command.user and not draft.state.may(command.user, "rights:grant", Target(), _token_of(command)):
        return CommandRefusal("denied", "rights:grant in the cluster is needed to admit or suspend principals")
    return None


def _beyond(draft: AccessDraft, command: cmd.CommandBase, grants: Iterable[Grant]) -> CommandRefusal | None:
    """Refuse a change that gives or takes what these grants give, unless the user may give each of them. Limits of the token do not
    count: that of a directory has the one verb `rights:grant`, and its account's roles say which groups it may fill.
    """
    for grant in grants if command.user else ():
        if not draft.state.may_grant(command.user, grant.role, grant.scope, target_of(grant.scope)):
            return CommandRefusal("denied", f"nobody gives or takes more than they hold: {grant}")
    return None


def _token_of(command: cmd.CommandBase) -> str:
    """Return the token by which a command was sent, whose limits hold for it; "" for a session, and without sign-on."""
    return command.authority.token if command.authority is not None else ""


# ------------------------------------------------------------------------------- roles


def _grant(draft: AccessDraft, command: cmd.GrantRole, cause: str) -> CommandRefusal | None:
    read = _readable(draft, command.grant, command)
    if isinstance(read, CommandRefusal):
        return read
    if draft.state.grant_count >= GRANTS_MAX:
        return CommandRefusal("too_many", f"expected at most {GRANTS_MAX} grants")
    _emit_grant(draft, read, PERSON, cause, command.user)
    return None


def _revoke(draft: AccessDraft, command: cmd.RevokeRole, cause: str) -> CommandRefusal | None:
    read = _readable(draft, command.grant, command)
    if isinstance(read, CommandRefusal):
        return read
    sources = draft.sources_of(read)
    if PERSON not in sources:
        where = f"; {', '.join(sorted(sources))} states it" if sources else ""
        return CommandRefusal("not_found", f"no person granted that {read}{where}", "grant")
    if _is_last_admin(draft, read):
        return CommandRefusal("last_admin", f"{read.subject} is the last admin; make another one first", "grant")
    _emit_revoke(draft, read, PERSON, cause, command.user)
    return None


def _apply(draft: AccessDraft, command: cmd.ApplyRoles, cause: str) -> CommandRefusal | None:
    """All grants of one source below a scope, or none of them."""
    if not is_token(command.source) or command.source == PERSON:
        return CommandRefusal("invalid", f'source: expected the name of a file or directory, not "{PERSON}"', "source")
    try:
        below = parse_scope(command.scope)
    except ScopeError as error:
        return CommandRefusal("invalid", f"scope: {error}", "scope")
    if command.user and not draft.state.may(command.user, "rights:grant", target_of(below), _token_of(command)):
        return CommandRefusal("denied", f"rights:grant in {below} is needed to apply roles there", "scope")
    wanted: set[Grant] = set()
    for at, entry in enumerate(command.grants):
        read = _readable(draft, entry, command)
        if isinstance(read, CommandRefusal):
            return read._replace(message=f"grants[{at}]: {read.message}", field=f"grants[{at}]")
        if not _is_below(read.scope, below):
            return CommandRefusal("invalid", f"grants[{at}].scope: expected a scope in {below}, found {read.scope}")
        wanted.add(read)
    held = {grant for grant in _grants_of(draft, command.source) if _is_below(grant.scope, below)}
    gone, new = sorted(held - wanted), sorted(wanted - held)
    for grant in gone:
        if command.user and not _may_give(draft, command, grant, target_of(grant.scope)):
            return CommandRefusal("denied", f"{command.user} may not take back that {grant}", "grants")
    if draft.state.grant_count + len(new) > GRANTS_MAX:
        return CommandRefusal("too_many", f"expected at most {GRANTS_MAX} grants")
    if not draft.fits(events=len(gone) + len(new) + 1):
        return CommandRefusal("too_many", f"expected at most a commit's changes at once, found {len(gone) + len(new)}")
    if any(_is_last_admin(draft, grant) for grant in gone):
        return CommandRefusal("last_admin", "this would remove the last admin; make another one first")
    for grant in gone:
        _emit_revoke(draft, grant, command.source, cause, command.user)
    for grant in new:
        _emit_grant(draft, grant, command.source, cause, command.user)
    draft.emit(
        ev.RolesApplied(
            cause=cause,
            source=command.source,
            scope=command.scope,
            configured=len(new),
            removed=len(gone),
            unchanged=len(wanted & held),
            by=command.user,
        )
    )
    return None


def _readable(draft: AccessDraft, entry: cmd.RoleEntry, command: cmd.CommandBase) -> Grant | CommandRefusal:
    """Return the grant of an entry that the user may give and take."""
    try:
        scope = parse_scope(entry.scope)
    except ScopeError as error:
        return CommandRefusal("invalid", f"scope: {error}", "scope")
    name = entry.subject.removeprefix(GROUP)
    if not is_token(name):
        return CommandRefusal("invalid", 'subject: expected a principal\'s id or "group:<name>"', "subject")
    if not is_group(entry.subject) and entry.subject not in draft.state.kinds and entry.subject not in draft.admitted:
        return CommandRefusal("not_found", f"there is no principal {entry.subject}", "subject")
    if not verbs_of(entry.role, scope.kind):
        return CommandRefusal("invalid", f"role: {entry.role} cannot be given in a {scope.kind}", "role")
    grant = Grant(entry.subject, entry.role, scope)
    target = target_of(scope, Target(entry.queue, entry.pool, entry.project, owner=entry.owner))
    if command.user and not _may_give(draft, command, grant, target):
        return CommandRefusal(
            "denied", f"nobody grants more than they hold: {command.user} may not give or take {entry.role} in {scope}"
        )
    return grant


def _may_give(draft: AccessDraft, command: cmd.CommandBase, grant: Grant, target: Target) -> bool:
    return draft.state.may_grant(command.user, grant.role, grant.scope, target, _token_of(command))


def target_of(scope: Scope, found: Target = Target()) -> Target:  # noqa: B008  # immutable
    """Return the thing that a scope names. A narrow one is in its queue, pool and project, as the gateway `found` them; a queue is
    in its pool.
    """
    kind, name = scope
    if kind == "job":
        return found._replace(job=name)
    if kind == "volume":
        return found._replace(volume=name)
    if kind == "queue":
        return Target(queue=name, pool=found.pool)
    return Target(pool=name if kind == "pool" else "", project=name if kind == "project" else "")


def _is_below(scope: Scope, outer: Scope) -> bool:
    if outer.kind == "cluster" or scope == outer:
        return True
    return scope.kind == outer.kind == "queue" and scope.name.startswith(outer.name + "/")


def _grants_of(draft: AccessDraft, source: str) -> Iterable[Grant]:
    for subject, held in draft.state.access.grants.items():
        for (role, scope), sources in held.items():
            if source in sources:
                yield Grant(subject, role, scope)


def _is_last_admin(draft: AccessDraft, grant: Grant) -> bool:
    return grant.role == "admin" and draft.admins == {grant.subject}


def _emit_grant(draft: AccessDraft, grant: Grant, source: str, cause: str, by: str) -> None:
    draft.emit(
        ev.RoleGranted(
            cause=cause, subject=grant.subject, role=grant.role, scope=str(grant.scope), source=source, by=by
        )
    )
    draft.sources_of(grant).add(source)
    if grant.role == "admin" and not is_group(grant.subject) and draft.is_active(grant.subject):
        draft.admins.add(grant.subject)


def _emit_revoke(draft: AccessDraft, grant: Grant, source: str, cause: str, by: str) -> None:
    draft.emit(
        ev.RoleRevoked(
            cause=cause, subject=grant.subject, role=grant.role, scope=str(grant.scope), source=source, by=by
        )
    )
    sources = draft.sources_of(grant)
    sources.discard(source)
    if grant.role == "admin" and not sources:
        draft.admins.discard(grant.subject)


# ------------------------------------------------------------------------------- groups


def _sync(draft: AccessDraft, command: cmd.SyncGroup, cause: str) -> CommandRefusal | None:
    state, group = draft.state, command.group
    if not is_group(group) or not is_token(group.removeprefix(GROUP)):
        return CommandRefusal("invalid", 'group: expected "group:" and 1 to 63 of a-z 0-9 _ -', "group")
    roles = (Grant(group, role, scope) for role, scope in state.access.grants.get(group, {}))
    if refusal := _cluster_right(draft, command) or _beyond(draft, command, roles):
        return refusal
    if not is_token(command.source):
        return CommandRefusal("invalid", "source: expected 1 to 63 of a-z 0-9 _ -", "source")
    if group not in state.access.groups and len(state.access.groups) >= GROUPS_MAX:
        return CommandRefusal("too_many", f"expected at most {GROUPS_MAX} groups")
    for field, names in (("added", command.added), ("removed", command.removed)):
        if len(names) > MEMBERS_CHUNK:
            return CommandRefusal("too_many", f"{field}: expected at most {MEMBERS_CHUNK} ids in a command", field)
    unknown = [name for name in command.added if name not in state.kinds and name not in draft.admitted]
    if unknown:
        return CommandRefusal("not_found", f"added: there is no principal {unknown[0][:SUBJECT_CHARS_MAX]}", "added")
    held = state.access.groups.get(group, {}).get(command.source, frozenset[str]())
    if len(held) + len(command.added) > MEMBERS_MAX:
        return CommandRefusal("too_many", f"expected at most {MEMBERS_MAX} members of a group from one source", "added")
    draft.emit(
        ev.GroupSynced(
            cause=cause,
            group=group,
            source=command.source,
            added=command.added,
            removed=command.removed,
            by=command.user,
        ),
        names_bytes(command.added) + names_bytes(command.removed),
    )
    return None


# ------------------------------------------------------------------------------- tokens and sessions


def _issue(draft: AccessDraft, command: cmd.IssueToken, cause: str) -> CommandRefusal | None:
    state, principal = draft.state, command.principal
    if refusal := _usable(draft, command.token, principal, command):
        return refusal
    if command.user and not state.may_issue(_token_of(command)):
        return CommandRefusal("denied", "a token never makes a token: sign in for that")
    if command.authority is not None and command.authority.act_as:
        return CommandRefusal("denied", "who acts for somebody makes no token of theirs")
    if command.user and command.kind in ("refresh", "owner"):
        return CommandRefusal(
            "denied", f"tokens of the kind {command.kind} are made by sign-in and set-up alone", "kind"
        )
    if command.token in state.tokens or command.token in draft.tokens:
        return CommandRefusal("conflict", "there is a token of this id already", "token")
    if command.user and not state.access.principals.get(command.user, False):
        return CommandRefusal("denied", f"{command.user} was not active before this commit")
    issued = draft.issued.get(principal, 0)
    of_principal = len(state.tokens_of.get(principal, {})) + issued
    if (
        of_principal >= TOKENS_OF_PRINCIPAL_MAX
        and command.kind == "refresh"
        and (oldest := _oldest_sign_in(draft, principal))
    ):
        draft.emit(ev.TokenRevoked(cause=cause, token=oldest, reason="replaced"))
        draft.replaced.add(oldest)
        of_principal, issued = of_principal - 1, issued - 1
    if of_principal >= TOKENS_OF_PRINCIPAL_MAX or len(state.tokens) + sum(draft.issued.values()) >= TOKENS_MAX:
        return CommandRefusal(
            "too_many", f"expected at most {TOKENS_OF_PRINCIPAL_MAX} tokens of a principal; revoke one"
        )
    if not 0 < command.expires_ns - draft.now_ns <= TOKEN_LIFE_NS_MAX:
        return CommandRefusal(
            "invalid", f"expires: expected a time within {format_duration(TOKEN_LIFE_NS_MAX)} from now", "expires"
        )
    if len(command.scopes) > TOKEN_SCOPES_MAX:
        return CommandRefusal("too_many", f"scopes: expected at most {TOKEN_SCOPES_MAX}", "scopes")
    for at, text in enumerate(command.scopes):
        try:
            parse_scope(text)
        except ScopeError as error:
            return CommandRefusal("invalid", f"scopes[{at}]: {error}", f"scopes[{at}]")
    draft.issued[principal] = issued + 1
    draft.tokens.add(command.token)
    draft.emit(
        ev.TokenIssued(
            cause=cause,
            token=command.token,
            principal=principal,
            kind=command.kind,
            expires_ns=command.expires_ns,
            verbs=tuple(dict.fromkeys(command.verbs)),
            scopes=tuple(dict.fromkeys(command.scopes)),
            by=command.user,
        )
    )
    return None


def _oldest_sign_in(draft: AccessDraft, principal: str) -> str:
    """Return the refresh token of the principal's oldest sign-in of a command; "" for none. It ends for a new one beyond the bound, as the
    oldest session does: a person with many machines must be able to sign in. Tokens that people made stay.
    """
    tokens = draft.state.tokens
    held = (token for token in draft.state.tokens_of.get(principal, ()) if token not in draft.replaced)
    return next((token for token in held if tokens[token].kind == "refresh"), "")


def _usable(draft: AccessDraft, item: str, principal: str, command: cmd.CommandBase) -> CommandRefusal | None:
    """Refuse ids that are none, and principals that may not have tokens or sessions."""
    if not is_token(item):
        return CommandRefusal("invalid", "expected an opaque id of a-z 0-9 _ -")
    if not draft.is_active(principal):
        return CommandRefusal("not_found", "there is no active principal of this id", "principal")
    if command.user in ("", principal):
        return None
    if draft.state.kinds.get(principal) != "service":
        return CommandRefusal("denied", "tokens of a person are issued by that person alone", "principal")
    for grant in draft.state.access.held(principal):  # who has its token has all of its roles
        if not _may_give(draft, command, grant, target_of(grant.scope)):
            return CommandRefusal("denied", f"nobody grants more than they hold: {grant}", "principal")
    return _cluster_right(draft, command)


def _revoke_token(draft: AccessDraft, command: cmd.RevokeToken, cause: str) -> CommandRefusal | None:
    token = draft.state.tokens.get(command.token)
    if token is None or (command.user not in ("", token.principal) and _cluster_right(draft, command)):
        return CommandRefusal("not_found", "there is no such token, or it is not yours", "token")
    if command.user and not draft.state.may_revoke(_token_of(command), token.id):
        return CommandRefusal("denied", "a token with limits revokes itself alone", "token")
    draft.emit(ev.TokenRevoked(cause=cause, token=token.id, reason="revoked", by=command.user))
    return None


def _open(draft: AccessDraft, command: cmd.OpenSession, cause: str) -> CommandRefusal | None:
    state, principal = draft.state, command.principal
    if command.user or not is_token(command.provider):
        return CommandRefusal("denied", "sessions are opened by a sign-in alone, at a named provider")
    if refusal := _usable(draft, command.session, principal, command):
        return refusal
    held = draft.sessions_of(principal)
    if command.session in state.sessions or command.session in held:
        return CommandRefusal("conflict", "there is a session of this id already", "session")
    if not 0 < command.expires_ns - draft.now_ns <= SESSION_LIFE_NS_MAX:
        return CommandRefusal("invalid", f"expires: expected a time within {format_duration(SESSION_LIFE_NS_MAX)}")
    while len(held) >= SESSIONS_OF_PRINCIPAL_MAX:
        draft.emit(ev.SessionEnded(cause=cause, session=held.pop(0), reason="replaced"))
    held.append(command.session)
    draft.emit(
        ev.SessionOpened(
            cause=cause,
            session=command.session,
            principal=principal,
            provider=command.provider,
            expires_ns=command.expires_ns,
        )
    )
    return None


def _end(draft: AccessDraft, command: cmd.EndSession, cause: str) -> CommandRefusal | None:
    session = draft.state.sessions.get(command.session)
    if session is None or (command.user not in ("", session.principal) and _cluster_right(draft, command)):
        return CommandRefusal("not_found", "there is no such session, or it is not yours", "session")
    if session.id in (held := draft.sessions_of(session.principal)):
        held.remove(session.id)
    draft.emit(ev.SessionEnded(cause=cause, session=session.id, reason=command.reason, by=command.user))
    return None


def _raise(draft: AccessDraft, command: cmd.RaiseLevel, cause: str) -> CommandRefusal | None:
    if command.user and not draft.state.may(command.user, "rights:grant", Target(), _token_of(command)):
        return CommandRefusal("denied", "rights:grant in the cluster is needed to raise the level of the log")
    level = max(draft.state.level, draft.level)
    if command.level <= level:
        return CommandRefusal("conflict", f"level: the log has level {level} already", "level")
    if command.level > LEVEL:
        return CommandRefusal(
            "invalid", f"level: expected at most {LEVEL}, which this version of the access service knows", "level"
        )
    draft.level = command.level
    draft.emit(ev.LevelRaised(cause=cause, level=command.level, by=command.user))
    return None


HANDLERS: dict[type, Callable[[AccessDraft, Any, str], CommandRefusal | None]] = {
    cmd.AdmitPrincipal: _admit,
    cmd.SuspendPrincipal: _suspend,
    cmd.GrantRole: _grant,
    cmd.RevokeRole: _revoke,
    cmd.ApplyRoles: _apply,
    cmd.SyncGroup: _sync,
    cmd.IssueToken: _issue,
    cmd.RevokeToken: _revoke_token,
    cmd.OpenSession: _open,
    cmd.EndSession: _end,
    cmd.RaiseLevel: _raise,
}
