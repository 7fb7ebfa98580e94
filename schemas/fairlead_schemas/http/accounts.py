"""Documents of the gateway about people, roles, tokens and sign-ins. Names are from outside the log, and may be missing."""

from typing import Literal

import msgspec

from fairlead_schemas.policies.rights import Role, Verb


class _Document(msgspec.Struct, kw_only=True, omit_defaults=True):
    pass


class RoleHeld(_Document, kw_only=True, omit_defaults=True):
    """One grant."""

    #: Principal's id, or "group:NAME".
    subject: str
    role: Role
    #: "cluster", "queue:research/vision" and so on, with everything below it.
    scope: str


class WhoAmI(_Document, kw_only=True, omit_defaults=False):
    """Sender of the request, as the gateway knows it."""

    principal: str
    login: str
    name: str
    #: "person", "service", or "" without sign-on.
    kind: str
    #: "token:ID", "session:ID", or "" without sign-on.
    via: str
    #: RFC 3339; None without sign-on.
    expires_at: str | None
    groups: list[str]
    roles: list[RoleHeld]
    sequence: int


class AccessGrant(_Document, kw_only=True, omit_defaults=False):
    """One grant with its sources: it holds while one of them states it."""

    subject: str
    #: Login name, or the subject itself.
    subject_name: str
    role: Role
    scope: str
    #: "person", or the name of the file or directory.
    sources: list[str]


class AccessAnswer(_Document, kw_only=True, omit_defaults=False):
    """Answer to "why may they", and "why may they not"."""

    allowed: bool
    sentence: str
    #: Grants that allow it.
    grants: list[RoleHeld]
    #: The missing verb; "" where it is allowed.
    missing: str
    #: Subjects who could grant what is missing.
    givers: list[str]
    sequence: int


class Person(_Document, kw_only=True, omit_defaults=False):
    """A person or a service account."""

    id: str
    login: str
    name: str
    email: str
    kind: Literal["person", "service"]
    state: Literal["active", "suspended"]
    #: How they came here: "local", "up", or a provider's name.
    source: str
    tokens: int
    sessions: int
    sequence: int


class Group(_Document, kw_only=True, omit_defaults=False):
    """A group, with the members that the caller may see."""

    name: str
    members: list[str]
    sources: list[str]


class TokenInfo(_Document, kw_only=True, omit_defaults=False):
    """A token in force. Its text is shown once, when it is made."""

    id: str
    name: str
    kind: str
    principal: str
    #: Limits; empty: all that its owner may.
    verbs: list[Verb]
    scopes: list[str]
    expires_at: str
    made_at: str | None
    #: To the hour; None: not used yet.
    used_at: str | None


class NewToken(_Document, kw_only=True, omit_defaults=False):
    """A token that was just made. `token` is its text, which is not shown again."""

    id: str
    token: str
    expires_at: str
    sequence: int


class SignedIn(_Document, kw_only=True, omit_defaults=False):
    """A sign-in by a browser: the session is in the cookie."""

    principal: str
    login: str
    expires_at: str
    sequence: int


class CliTokens(_Document, kw_only=True, omit_defaults=False):
    """A sign-in by a program, in the words of RFC 6749. Using a refresh token twice ends the sign-in."""

    access_token: str
    refresh_token: str
    #: Seconds.
    expires_in: int
    token_type: str = "Bearer"  # noqa: S105 -- RFC 6749 section 5.1


class SignInLink(_Document, kw_only=True, omit_defaults=False):
    """Link that signs in once."""

    #: To be appended to the gateway's address.
    path: str
    expires_at: str


class DeviceCode(_Document, kw_only=True, omit_defaults=False):
    """Sign-in of a command that a person allows in a browser (RFC 8628)."""

    device_code: str
    user_code: str
    verification_uri: str
    #: Seconds.
    expires_in: int
    interval: int
