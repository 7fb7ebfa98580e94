"""Documents of the HTTP API about the sign-in on another device, and the record of access. Times are RFC 3339, UTC."""

import msgspec


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

    #: Of the first of them.
    at: str
    #: signed_in | sign_in_failed | signed_out | password_set | notification_made | notification_removed | token_refused | denied | read | entered
    kind: str
    #: Who, by id and by name; "" for an unknown name.
    principal: str
    login: str
    via: str
    #: Of a denial or read: the verb, its target such as "job:812", and the principal to whom that belongs. A password has an owner, too.
    verb: str
    target: str
    owner: str
    address: str = ""
    count: int = 1


class RecordOfAccess(msgspec.Struct, kw_only=True):
    """Record of access of one principal, the newest first."""

    items: list[RecordedAccess]
    sequence: int
    #: Of the next page, with earlier entries; null for none.
    next: str | None = None
    #: Fault of the record, which was changed: it is read as far as it is whole. "" where it is whole.
    broken: str = ""
