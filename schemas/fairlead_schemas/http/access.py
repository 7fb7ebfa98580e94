"""Documents of the HTTP API about access: people, grants, tokens, sign-in, and the record of access.

Fields that end in `_at` are times (RFC 3339, UTC). A subject is a principal's opaque id or "group:NAME"; the name of a subject is its
login where it has one, else its id.
"""

from typing import Literal

import msgspec

from fairlead_schemas.policies.rights import Role, Verb
from fairlead_schemas.wire.events.access import PrincipalKind, TokenKind

type PersonState = Literal["active", "suspended"]


class RoleHeld(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence of the list of access: the subject is a role in a scope. `subject` is a group where a group holds the role."""

    subject: str
    role: Role
    #: "cluster", "queue:research/vision" and so on.
    scope: str


class WhoAmI(msgspec.Struct, kw_only=True):
    """Principal of a request, and what it holds."""

    principal: str
    login: str
    name: str
    kind: PrincipalKind
    #: By "token:<id>" or "session:<id>"; "" where there is no sign-on.
    via: str
    #: Of the token or session; null: it does not expire.
    expires_at: str | None
    groups: list[str]
    roles: list[RoleHeld]
    sequence: int


class AccessGrant(msgspec.Struct, kw_only=True):
    """A grant with everything that states it."""

    subject: str
    subject_name: str
    role: Role
    scope: str
    #: "person" for a grant by hand, else the file or directory that states it. Empty in the answer to a revocation: it is gone.
    sources: list[str]
    sequence: int


class AccessWhy(msgspec.Struct, kw_only=True):
    """Reason why a subject may or may not use a verb on something, at a log sequence."""

    allowed: bool
    sentence: str
    #: Grants that allow it; of a denial, all grants that the subject holds.
    grants: list[RoleHeld]
    #: The verb that is missing; "" where it is allowed.
    missing: str
    #: Names of the subjects who could grant it.
    givers: list[str]
    sequence: int


class Person(msgspec.Struct, kw_only=True):
    """Principal: a person or a service account. After it is forgotten, only its id is left."""

    principal: str
    login: str
    name: str
    email: str
    kind: PrincipalKind
    state: PersonState
    sequence: int


class GroupMembers(msgspec.Struct, kw_only=True):
    """Group with its members by name."""

    name: str
    members: list[str]
    #: {source of the membership: members}; each source owns its memberships.
    sources: dict[str, list[str]]
    sequence: int


class ApiToken(msgspec.Struct, kw_only=True):
    """Token in force, without its text."""

    id: str
    name: str
    kind: TokenKind
    #: Principal for whom it acts, and their login.
    principal: str
    login: str
    #: The most that it may do, and where; empty: all that its principal may.
    verbs: list[Verb]
    scopes: list[str]
    made_at: str | None
    expires_at: str
    sequence: int
    #: By the hour; null: never, or unknown.
    used_at: str | None = None


class TokenMade(msgspec.Struct, kw_only=True):
    """New token. Its text is shown in this answer only."""

    id: str
    token: str
    expires_at: str
    sequence: int


class SignedIn(msgspec.Struct, kw_only=True):
    """Tokens of a sign-in by a command line (RFC 6749, 5.1)."""

    access_token: str
    refresh_token: str
    #: Seconds for which the access token counts.
    expires_in: int
    token_type: str = "Bearer"  # noqa: S105  # the kind of token, no secret


class DeviceSignIn(msgspec.Struct, kw_only=True):
    """Code of a sign-in on another device (RFC 8628, 3.2)."""

    device_code: str
    #: The code that the person types, and the page for it.
    user_code: str
    verification_uri: str
    expires_in: int
    #: Seconds between two requests for the tokens.
    interval: int = 5


class OAuthError(msgspec.Struct, kw_only=True):
    """Refusal of a sign-in by a command line (RFC 6749, 5.2; RFC 8628, 3.5)."""

    #: authorization_pending | slow_down | expired_token | access_denied | invalid_grant | …
    error: str
    error_description: str = ""


class RecordedAccess(msgspec.Struct, kw_only=True):
    """One access to something, or several equal ones within a while."""

    at: str
    #: signed_in | sign_in_failed | signed_out | denied | read | entered
    kind: str
    #: Who, by id and by name; "" for an unknown name.
    principal: str
    login: str
    via: str
    #: Of a denial or read: the verb, its target such as "job:812", and the principal to whom that belongs.
    verb: str
    target: str
    owner: str
    address: str = ""
    count: int = 1


class RecordOfAccess(msgspec.Struct, kw_only=True):
    """Record of access of one principal, the newest first."""

    items: list[RecordedAccess]
    sequence: int
    #: Fault of the record, which was changed: it is read as far as it is whole. "" where it is whole.
    broken: str = ""
