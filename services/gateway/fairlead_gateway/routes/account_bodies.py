"""Bodies of requests about people, roles, tokens and sign-ins, and checks of their text. Decoded strictly, like all others."""

from typing import Literal

import msgspec

from fairlead_gateway.access.people import NAME_CHARS_MAX
from fairlead_gateway.errors import bad_field
from fairlead_schemas.policies.rights import Role, Verb
from fairlead_schemas.units.ids import is_token


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class GrantRequest(_Strict, frozen=True, kw_only=True):
    """Body of a grant and of its revocation. `subject`: a login name, a principal's id, or group:NAME."""

    subject: str
    role: Role
    scope: str


class PersonRequest(_Strict, frozen=True, kw_only=True):
    """Body of POST /v1/people. With a password the person is a local user, who signs in without a provider."""

    login: str
    name: str = ""
    email: str = ""
    password: str = ""


class ServiceRequest(_Strict, frozen=True, kw_only=True):
    """Body of POST /v1/service-accounts."""

    login: str
    name: str = ""


class PasswordRequest(_Strict, frozen=True, kw_only=True):
    """Body of a change of password. `current` is needed for one's own."""

    password: str
    current: str = ""


class TokenRequest(_Strict, frozen=True, kw_only=True, rename={"for_": "for"}):
    """Body of POST /v1/tokens. `for`: a service account; without it the token is the caller's own."""

    name: str
    for_: str = ""
    kind: Literal["person", "service", "app"] | None = None
    #: Limits; empty: all that the owner may.
    verbs: list[Verb] = []
    scopes: list[str] = []
    expires_in: str | int = "30d"


class LocalSignInRequest(_Strict, frozen=True, kw_only=True):
    """Body of POST /v1/sign-in/local."""

    login: str
    password: str


class LinkRequest(_Strict, frozen=True, kw_only=True):
    """Body of POST /v1/sign-in/link."""

    code: str


def require_login(login: str) -> None:
    """Raise HttpError (422) unless the text can be a login name."""
    if not is_token(login):
        raise bad_field("login", f'expected 1 to 63 of a-z 0-9 _ -, such as "ada", found "{login[:80]}"')


def require_text(field: str, text: str) -> None:
    """Raise HttpError (422) for text that is too long for a name, or has line breaks or other control characters."""
    if len(text) > NAME_CHARS_MAX or not text.isprintable():
        raise bad_field(field, f"expected one line of at most {NAME_CHARS_MAX} characters")
