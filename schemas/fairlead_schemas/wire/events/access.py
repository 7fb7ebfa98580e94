"""Events of the access service: principals, roles, groups, tokens and sign-in sessions.

People are opaque ids here, and so are tokens and sessions. Names, addresses, digests and password hashes are in buckets outside
the log, where they can be erased: the log stays provable without the person.
"""

from typing import Literal

from fairlead_schemas.policies.rights import Role, Verb
from fairlead_schemas.wire.events.base import EventBase

type PrincipalKind = Literal["person", "service"]
#: "owner": of the file that the set-up writes; the one kind by which tokens are made.
type TokenKind = Literal["person", "service", "refresh", "app", "owner"]
#: Reasons for the end of a token or of a session.
type EndReason = Literal["revoked", "expired", "signed_out", "provider", "replaced"]


class PrincipalAdmitted(EventBase, tag=True, frozen=True, kw_only=True):
    """A principal is active from here on, new or back from a suspension."""

    principal: str
    kind: PrincipalKind  # a person, or a program
    by: str = ""


class PrincipalSuspended(EventBase, tag=True, frozen=True, kw_only=True):
    """A principal may do nothing from here on, and all of its tokens and sessions end here. Its grants are kept, unless it is forgotten."""

    principal: str
    by: str = ""
    #: True if it is to be forgotten: its memberships in groups and its own grants end here, too, whoever stated them.
    forgotten: bool = False


class RoleGranted(EventBase, tag=True, frozen=True, kw_only=True):
    """The subject is a role in a scope from here on."""

    subject: str
    role: Role
    #: "cluster", "queue:<path>" and so on, with everything below it.
    scope: str
    source: str  # "person", or the name of the file or directory that states it
    by: str = ""


class RoleRevoked(EventBase, tag=True, frozen=True, kw_only=True):
    """One source of a grant does not state it any more."""

    subject: str
    role: Role
    #: "cluster", "queue:<path>" and so on.
    scope: str
    source: str
    by: str = ""


class RolesApplied(EventBase, tag=True, frozen=True, kw_only=True):
    """The grants of one source below a scope are as it states them; the changes stand before this event."""

    source: str
    #: Part of the cluster for which the source speaks.
    scope: str
    configured: int
    removed: int
    unchanged: int
    by: str = ""


class GroupSynced(EventBase, tag=True, frozen=True, kw_only=True):
    """One source changed its members of a group; those of other sources stay."""

    group: str
    source: str
    #: Principals that are members from here on.
    added: tuple[str, ...] = ()
    #: Principals that this source does not count as members any more.
    removed: tuple[str, ...] = ()
    by: str = ""


class TokenIssued(EventBase, tag=True, frozen=True, kw_only=True):
    """A token acts for the principal, with at most these verbs in these scopes (none: all that the principal may)."""

    token: str
    principal: str
    kind: TokenKind  # of whom, or for what
    expires_ns: int
    #: The most that it may do; none: all that its principal may.
    verbs: tuple[Verb, ...] = ()
    #: The only scopes in which it acts; none: all of its principal's.
    scopes: tuple[str, ...] = ()
    by: str = ""


class TokenRevoked(EventBase, tag=True, frozen=True, kw_only=True):
    """A token is refused from here on."""

    token: str
    reason: EndReason
    by: str = ""


class SessionOpened(EventBase, tag=True, frozen=True, kw_only=True):
    """A principal signed in."""

    session: str
    principal: str
    provider: str  # name of the provider in the settings; "local" for a password
    expires_ns: int


class SessionEnded(EventBase, tag=True, frozen=True, kw_only=True):
    """A sign-in does not count any more."""

    session: str
    reason: EndReason
    by: str = ""


class LevelRaised(EventBase, tag=True, frozen=True, kw_only=True):
    """Events and fields of this level of the log's format may be written from here on (levels.py). Levels never fall."""

    level: int
    by: str = ""


class AccessCommandRejected(EventBase, tag=True, frozen=True, kw_only=True):
    """A command to the access service was not carried out (or could not be read; then `digest` names its bytes)."""

    command: str
    code: str
    message: str
    digest: str = ""
    #: As of CommandRejected.
    verb: str = ""
    #: The principal, group or token that it names; "" where it names none.
    about: str = ""
