"""Sign-in of the command: by a code that a person types into a page (RFC 8628), or by a redirect to the person's own machine (RFC 8252).

Both give what a person in a browser session has allowed, once. Rows are in the bucket, so any gateway can answer.
"""

import base64
import hashlib
import re
import secrets

import msgspec
from msgspec import structs

from fairlead_gateway.access.accounts import Accounts, CliSignIn, SignInAt
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.passwords import Attempts, client_network
from fairlead_gateway.errors import HttpError
from fairlead_gateway.signon.short_lived import ShortLived
from fairlead_gateway.views.fold import Views
from fairlead_schemas.units.token_text import digest

#: Consonants: no words, and none that is easily taken for another (RFC 8628, section 6.1).
USER_CODE_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
USER_CODE_CHARS = 8
DEVICE_S = 600
INTERVAL_S = 5
TRIES_MAX = 5
TRIES_S = 600
CODE_S = 60
MACHINE_CHARS_MAX = 80
#: Device sign-ins that one address begins a minute.
BEGUN_PER_MINUTE = 20

_LOOPBACK = re.compile(r"http://(?:127\.0\.0\.1|\[::1\]):[1-9][0-9]{0,4}/[A-Za-z0-9/_-]{0,100}")
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")


class GrantError(Exception):
    """Refusal of a token request; the message is an error code of RFC 6749 or RFC 8628."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A command that waits. `principal`: of the person who allowed it; "" before. Times: Unix s."""

    machine: str
    address: str
    interval_s: int = INTERVAL_S
    polled_s: float = 0.0
    denied: bool = False
    principal: str = ""
    provider: str = ""
    sid: str = ""
    #: When that person signed in: a command is no younger than the session that allowed it.
    signed_in_ns: int = 0
    #: Sign-in at the provider that the command goes on.
    sign_in: str = ""
    #: That session: if it ends before the command has its tokens, there are none.
    session: str = ""


class _UserCode(msgspec.Struct, frozen=True):
    device: str


class _Tries(msgspec.Struct, frozen=True):
    count: int = 0


class _Code(msgspec.Struct, frozen=True):
    principal: str
    provider: str
    sid: str
    signed_in_ns: int
    sign_in: str
    session: str
    challenge: str
    redirect_uri: str


class CommandGrants:
    """Grants to commands, allowed in a browser session."""

    def __init__(self, views: Views, accounts: Accounts, short_lived: ShortLived) -> None:
        self._views = views
        self._accounts = accounts
        self._rows = short_lived
        self._begun = Attempts(BEGUN_PER_MINUTE)

    # ------------------------------------------------------------------------------- by a typed code

    async def begin(self, machine: str, address: str) -> tuple[str, str]:
        """Return a device code and a user code. Raise HttpError (429) for an address that begins many."""
        if wait_s := self._begun.take(self._rows.clock(), client_network(address)):
            raise HttpError(429, "too_many_sign_ins", "too many sign-ins were begun here", retry_after_s=wait_s)
        device_code = secrets.token_urlsafe(32)
        user_code = "".join(secrets.choice(USER_CODE_LETTERS) for _ in range(USER_CODE_CHARS))
        machine = "".join(each for each in machine if each.isprintable())[:MACHINE_CHARS_MAX]
        device = digest(device_code)
        await self._rows.put("device", device, Device(machine=machine, address=address), DEVICE_S)
        await self._rows.put("user-code", user_code, _UserCode(device), DEVICE_S)
        return device_code, f"{user_code[:4]}-{user_code[4:]}"

    async def waiting(self, typed: str, caller: Caller) -> Device:
        """Return the command that waits under a typed code. Raise HttpError: 404 for a wrong code, 429 after TRIES_MAX of them."""
        return (await self._find(typed, caller))[1]

    async def answer(self, typed: str, caller: Caller, *, allow: bool) -> Device:
        """Allow or deny a command. Raise HttpError as `waiting` does."""
        device, found = await self._find(typed, caller)
        provider, sid, signed_in_ns, sign_in = await self._origin(caller)

        def decide(row: Device) -> Device:
            if row.principal or row.denied:
                return row
            if not allow:
                return structs.replace(row, denied=True)
            return structs.replace(
                row,
                principal=caller.principal,
                provider=provider,
                sid=sid,
                signed_in_ns=signed_in_ns,
                sign_in=sign_in,
                session=caller.credential,
            )

        await self._rows.change("device", device, Device, decide)
        await self._rows.change("user-code", _plain(typed), _UserCode, lambda _: None)
        return found

    async def _find(self, typed: str, caller: Caller) -> tuple[str, Device]:
        tries = await self._rows.get("tries", caller.credential, _Tries) or _Tries()
        if tries.count >= TRIES_MAX:
            detail = f"{TRIES_MAX} wrong codes were typed in this session"
            raise HttpError(429, "too_many_codes", detail, retry_after_s=TRIES_S)
        code = await self._rows.get("user-code", _plain(typed), _UserCode)
        device = await self._rows.get("device", code.device, Device) if code else None
        if code is None or device is None:
            await self._count(caller.credential)
            raise HttpError(404, "no_code", "no command waits under this code", hint="codes live for ten minutes")
        return code.device, device

    async def _count(self, session: str) -> None:
        counted = await self._rows.change("tries", session, _Tries, lambda row: _Tries(row.count + 1))
        if counted is None:
            await self._rows.put("tries", session, _Tries(1), TRIES_S)

    async def poll(self, device_code: str) -> CliSignIn:
        """Return the tokens of an allowed command, once. Raise GrantError while it waits, and for any other code."""
        now_s = self._rows.clock()

        def polled(row: Device) -> Device | None:
            if row.principal or row.denied:
                return None
            slower = INTERVAL_S if now_s - row.polled_s < row.interval_s else 0
            return structs.replace(row, polled_s=now_s, interval_s=row.interval_s + slower)

        row = await self._rows.change("device", digest(device_code), Device, polled)
        if row is None:
            raise GrantError("expired_token")
        if row.denied:
            raise GrantError("access_denied")
        if row.principal:
            return await self._open(row, row.address, row.machine)
        raise GrantError("slow_down" if now_s - row.polled_s < row.interval_s else "authorization_pending")

    # ------------------------------------------------------------------------------- by a redirect

    async def allow(self, caller: Caller, redirect_uri: str, challenge: str) -> str:
        """Return a code for a command on the person's own machine. Raise HttpError (400)."""
        require_loopback(redirect_uri, challenge)
        code = secrets.token_urlsafe(32)
        row = _Code(caller.principal, *await self._origin(caller), caller.credential, challenge, redirect_uri)
        await self._rows.put("code", code, row, CODE_S)
        return code

    async def redeem(self, code: str, verifier: str, redirect_uri: str, address: str) -> CliSignIn:
        """Return the tokens for a code, which is used up whatever comes of it. Raise GrantError."""
        row = await self._rows.change("code", code, _Code, lambda _: None)
        given = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        if row is None or row.redirect_uri != redirect_uri or not secrets.compare_digest(given, row.challenge):
            raise GrantError("invalid_grant")
        return await self._open(row, address, "")

    async def _origin(self, caller: Caller) -> tuple[str, str, int, str]:
        """Return the provider of a caller's session, its session there, when the person signed in, and the sign-in by which the provider
        is asked again: what a session allows ends with it at the provider, and is as old as it.
        """
        note = await self._accounts.credentials.note("session", caller.credential)
        if note is None:
            return "local", "", 1, ""
        return note.provider or "local", note.sid, note.signed_in_ns or 1, note.sign_in

    async def _open(self, row: Device | _Code, address: str, machine: str) -> CliSignIn:
        if row.session not in self._views.access.sessions:  # those of a suspended principal have ended, too
            raise GrantError("access_denied")
        at = SignInAt(row.provider, row.sid, address=address, agent=machine, sign_in=row.sign_in)
        return await self._accounts.open_cli(row.principal, at, row.signed_in_ns)


def require_loopback(redirect_uri: str, challenge: str) -> None:
    """Raise HttpError (400) for an address that is not of the person's own machine, and for a challenge that is none."""
    if not _LOOPBACK.fullmatch(redirect_uri):
        raise HttpError(400, "bad_redirect", "redirect_uri: expected http://127.0.0.1:PORT/PATH")
    if not _CHALLENGE.fullmatch(challenge):
        raise HttpError(400, "bad_challenge", "code_challenge: expected 43 characters (S256)")


def _plain(typed: str) -> str:
    return "".join(each for each in typed.upper()[:40] if each in USER_CODE_LETTERS)
