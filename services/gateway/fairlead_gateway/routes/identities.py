"""Callers, for the routes whose rows depend on them: a file of identities, each with a token's digest, a role and
projects.

Without the file every caller that reaches the port is `anonymous-admin`, as everywhere else in the gateway today.
With it, the routes that show rows of the warehouse (/v1/sql, /v1/jobs/{id}/metrics) require a token; they ignore
X-Fairlead-User. Start at `Identities.caller`.
"""

import hashlib
import re
from pathlib import Path
from typing import Self

import msgspec

from fairlead_bus.environment_settings import BadSetting
from fairlead_gateway.errors import HttpError
from fairlead_schemas.queries.telemetry import ANONYMOUS_ADMIN, Caller, Role
from fairlead_schemas.units.ids import is_token

SETTING = "FAIRLEAD_IDENTITIES"
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")


class UserIdentity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Permitted caller. The token itself is not stored: `printf %s "$TOKEN" | sha256sum` gives its digest."""

    user: str
    token_sha256: str
    role: Role = "member"
    projects: tuple[str, ...] = ()


class Identities:
    """{digest of a token: its caller}; None: there is no file."""

    def __init__(self, callers: dict[str, Caller] | None = None) -> None:
        self._callers = callers

    @classmethod
    def read(cls, setting: str) -> Self:
        """Read FAIRLEAD_IDENTITIES: a JSON list of identities in a file that only its owner can read. Raise BadSetting."""
        if not setting:
            return cls()
        path = Path(setting)
        try:
            others = path.stat().st_mode & 0o077
            found = msgspec.json.decode(path.read_bytes(), type=list[UserIdentity])
        except (OSError, msgspec.MsgspecError) as error:
            raise BadSetting(f"{SETTING}: {setting}: {error}") from error
        if others:
            raise BadSetting(
                f"{SETTING}: {setting}: expected a file of mode 0600, found {others:o} for others: chmod 600"
            )
        return cls({each.token_sha256: _checked(setting, each) for each in found})

    @property
    def are_known(self) -> bool:
        """True where tokens are asked for."""
        return self._callers is not None

    def caller(self, authorization: str) -> Caller:
        """Return the caller that sends this Authorization header. Raise HttpError (401)."""
        if self._callers is None:
            return ANONYMOUS_ADMIN
        scheme, _, token = authorization.strip().partition(" ")
        digest = hashlib.sha256(token.strip().encode()).hexdigest()
        found = self._callers.get(digest) if scheme.lower() == "bearer" else None
        if found is None:
            told = "a token is needed here" if not authorization else "the token is not one that the gateway knows"
            raise HttpError(401, "unauthenticated", told, hint="set FAIRLEAD_TOKEN, or send Authorization: Bearer …")
        return found


def _checked(setting: str, each: UserIdentity) -> Caller:
    if not is_token(each.user):
        raise BadSetting(f'{SETTING}: {setting}: user: expected 1 to 63 of a-z 0-9 _ -, found "{each.user[:80]}"')
    if not _DIGEST.match(each.token_sha256):
        raise BadSetting(f"{SETTING}: {setting}: token_sha256 of {each.user}: expected 64 hex digits in lower case")
    return Caller(user=each.user, role=each.role, projects=each.projects)
