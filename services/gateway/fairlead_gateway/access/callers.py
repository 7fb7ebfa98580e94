"""Callers of requests, found by the token or the cookie that a request carries.

A credential is looked up by its SHA-256 digest: on the bus at its first use, in memory from then on. It counts only while the
log says so, which is looked at for every request; so a revoked token is refused once its revocation is folded, wherever
else it is remembered. Unknown credentials are remembered, too, in bounded number, and an address that sends many is answered
429 before anything is looked up. Start at `Callers.of`.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from fairlead_bus.port import Unavailable
from fairlead_gateway.access.caller import CLUSTER, OPEN_CALLER, Caller
from fairlead_gateway.access.passwords import client_network
from fairlead_gateway.errors import HttpError
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http.api import MissingRight
from fairlead_schemas.units.validation import FieldError
from fairlead_schemas.wire.access_records import AccessEntry

#: Key of the caller in the ASGI scope; absent where sign-on is off.
CALLER = "fairlead.caller"
#: Cookies that carry a session: over TLS, and over plain HTTP on loopback.
COOKIES = (b"__Host-fairlead", b"fairlead")
#: Digests that are known to belong to nothing, and how long that is believed: a token may be made meanwhile.
UNKNOWN_MAX = 10_000
UNKNOWN_S = 5.0
#: Unknown credentials of one address at once, and as many a minute.
UNKNOWN_PER_MINUTE = 60
ADDRESSES_MAX = 10_000
CREDENTIAL_BYTES_MAX = 512
#: Seconds after which a gateway that has not seen the log's end answers nothing new, and ends its streams.
BLIND_S = 10.0
BLIND_STREAMS_S = 60.0
ACT_AS = "X-Fairlead-Act-As"

#: Looked up once: it is called for every request.
_sha256 = hashlib.sha256

type Headers = Iterable[tuple[bytes, bytes]]


class CredentialRow(msgspec.Struct, frozen=True):
    """Row of a credential in the bucket CREDENTIAL: "token" or "session", its id and its principal."""

    kind: str
    id: str
    principal: str


class CredentialLookup(Protocol):
    """Store of credentials."""

    async def find(self, digest: str) -> CredentialRow | None:
        """Return the credential with a digest (hex); None for none. Raises Unavailable."""
        ...


class Callers:
    """Finds callers. `lookup` None: sign-on is off, and everybody is `OPEN_CALLER`."""

    def __init__(
        self,
        views: Views,
        lookup: CredentialLookup | None = None,
        *,
        blind_s: Callable[[], float] = lambda: 0.0,
        clock: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`blind_s`: returns the seconds for which the log's end has not been seen."""
        self._views = views
        self._lookup = lookup
        self.is_open = lookup is None
        self.blind_s = blind_s
        #: False where browsers reach the gateway over https, also if something in front of it ends the TLS.
        self.takes_plain_cookie = True
        self._clock = clock
        self._monotonic = monotonic
        #: Keeps an entry of the record of access.
        self.note: Callable[[AccessEntry], None] = lambda _entry: None
        #: Caller of a request without a credential.
        self.nobody = Caller(views)
        #: {SHA-256 digest: caller}, of credentials that were in force when they were last looked at.
        self._known: dict[bytes, Caller] = {}
        #: {digest: monotonic time until which it belongs to nothing}
        self._unknown: dict[bytes, float] = {}
        #: {address: (unknown credentials, as of a monotonic time)}; they decay evenly.
        self._floods: dict[str, tuple[float, float]] = {}

    def is_current(self) -> bool:
        """Return False while the log's end is out of sight for so long that a revocation could have been missed."""
        return self.blind_s() < BLIND_S

    def ended(self, caller: Caller) -> str:
        """Return the reason why a caller's credential does not count any more, "" while it does."""
        return caller.ended(self._clock())

    def renew(self, caller: Caller) -> bool:
        """Return True while a caller still counts that was found by the very bytes of a head, and note its use. For a connection whose
        requests have one head: the token is not hashed again, the log is looked at again. `RouteGuard` looks if the log can be seen.
        """
        now_ns, epoch = self._clock(), self._views.access.epoch
        if caller.counted_epoch is not epoch or not caller.is_token or now_ns >= caller.expires_ns:
            if caller.ended(now_ns):
                return False
            caller.counted_epoch = epoch
        caller.used_ns = now_ns
        return True

    def cached(self, headers: Headers) -> Caller | None:
        """Return the caller of a request whose token is in memory and in force; None where `of` must decide. Cookies are left to
        `of`, which also looks at the page that sent them.
        """
        if self._lookup is None:
            return OPEN_CALLER
        authorization = None
        for name, value in headers:
            if name == b"authorization":
                if authorization is not None:
                    return None
                authorization = value
            elif name == b"x-fairlead-user" or name == b"x-fairlead-act-as":
                return None
        if authorization is None or authorization[:7] != b"Bearer ":
            return None
        caller = self._known.get(_sha256(authorization[7:]).digest())
        if caller is None:
            return None
        now_ns = self._clock()  # `renew` in place: this is called for every request
        if caller.ended(now_ns) or self.blind_s() >= BLIND_S:
            return None
        caller.used_ns = now_ns
        return caller

    async def of(self, scope: Mapping[str, Any]) -> Caller:
        """Return the caller of a request, one without a principal where there is no credential, and for the cookie of a session that
        has ended: a browser goes on sending it, also to the page where its user signs in again. Raise HttpError: 400 for a header
        that has no meaning with sign-on, 401 for a token that does not count, 403 for a cookie sent by a page of others, 429 for
        an address that sends many unknown credentials, 503 where they cannot be looked up.
        """
        if self._lookup is None:
            return OPEN_CALLER
        carried = _read(scope["headers"], takes_plain=self.takes_plain_cookie and scope.get("scheme") != "https")
        if carried.user:
            raise _no_user_header()
        if carried.form == "none":
            return self.nobody
        if carried.form == "unreadable":
            raise unauthenticated("unknown", "expected Authorization: Bearer with one token")
        if carried.form == "cookie":
            check_page(scope)
        try:
            caller = await self._find(carried, scope)
        except HttpError as refused:
            if carried.form == "cookie" and refused.status == 401:
                return Caller(self._views, refused=refused)
            raise
        if carried.act_as:
            return self._acting(caller, carried.act_as)
        return caller

    async def _find(self, carried: "_Carried", scope: Mapping[str, Any]) -> Caller:
        digest = hashlib.sha256(carried.secret).digest()
        caller = self._known.get(digest)
        if caller is None or caller.ended(self._clock()) == "idle":  # it may be in use at another gateway
            caller = await self._look_up(digest, scope)
            if not caller.ended(self._clock()):
                self._known[digest] = caller
            else:
                self._count(_address(scope), caller)  # its row stays for a while, and every request would read it
        if carried.form == "cookie" and caller.is_token:
            raise unauthenticated("unknown", "a token is not accepted in a cookie")
        if reason := caller.ended(self._clock()):
            self._known.pop(digest, None)
            raise unauthenticated(reason, _ENDED[reason])
        caller.used_ns = self._clock()
        return caller

    async def _look_up(self, digest: bytes, scope: Mapping[str, Any]) -> Caller:
        """Return the caller of a digest that is not in memory. Raise HttpError (401, 429, 503)."""
        assert self._lookup is not None, "only where sign-on is on"
        address = _address(scope)
        self._require_calm(address)
        now = self._monotonic()
        if self._unknown.get(digest, 0.0) <= now:
            try:
                row = await self._lookup.find(digest.hex())
            except Unavailable:
                message = "credentials cannot be looked up: the bus does not answer"
                raise HttpError(503, "bus_away", message, retry_after_s=2) from None
            if row is not None:
                return self._caller(row)
            if len(self._unknown) >= UNKNOWN_MAX:
                self._unknown.clear()
            self._unknown[digest] = now + UNKNOWN_S
        self._count(address)
        raise unauthenticated("unknown", "the token or session is not one that the gateway knows")

    def _caller(self, row: CredentialRow) -> Caller:
        state, is_token = self._views.access, row.kind == "token"
        held = (state.tokens if is_token else state.sessions).get(row.id)
        return Caller(
            self._views,
            principal=held.principal if held else row.principal,
            credential=held.id
            if held
            else row.id,  # the folded text itself: it is found by identity, and not kept twice
            is_token=is_token,
            expires_ns=held.expires_ns if held else 0,
            used_ns=self._clock(),
        )

    def _acting(self, caller: Caller, principal: str) -> Caller:
        caller.require("rights:grant", CLUSTER)
        if all(grant.role != "admin" for grant in self._views.access.access.held(caller.principal)):
            raise caller.denial("rights:grant", CLUSTER)
        if principal not in self._views.access.kinds:
            message = f'there is no principal "{principal[:64]}"'
            raise HttpError(403, "bad_act_as", message, errors=[FieldError(field=ACT_AS, message=message)])
        return caller.acting_as(principal)

    def known(self) -> list[Caller]:
        """Return the callers in memory."""
        return list(self._known.values())

    def forget(self, digest: str) -> None:
        """Forget everything about a digest (hex): its row was written or removed."""
        key = bytes.fromhex(digest)
        self._known.pop(key, None)
        self._unknown.pop(key, None)

    def sweep(self) -> int:
        """Forget credentials that do not count any more. Return how many are left. For the gateway's housekeeping."""
        now_ns = self._clock()
        for digest in [digest for digest, caller in self._known.items() if caller.ended(now_ns)]:
            del self._known[digest]
        return len(self._known)

    # -- floods of unknown credentials

    def _require_calm(self, address: str) -> None:
        level = self._level(address)
        if level > UNKNOWN_PER_MINUTE - 1:
            wait_s = int((level - UNKNOWN_PER_MINUTE + 1) / UNKNOWN_PER_MINUTE * 60) + 1
            raise HttpError(
                429,
                "too_many_unknown_credentials",
                f"over {UNKNOWN_PER_MINUTE} unknown tokens or sessions came from this address within a minute",
                hint="known ones are served; correct the token, then wait",
                retry_after_s=wait_s,
            )

    def _count(self, address: str, ended: Caller | None = None) -> None:
        """Count and note a credential that does not count. `ended`: of whom it was."""
        principal, via = (ended.principal, ended.via) if ended is not None else ("", "")
        self.note(AccessEntry(kind="token_refused", at_ns=0, principal=principal, via=via, address=address))
        if len(self._floods) >= ADDRESSES_MAX:
            kept = sorted(self._floods, key=self._level)[ADDRESSES_MAX // 2 :]
            self._floods = {each: self._floods[each] for each in kept if self._level(each)}
        self._floods[address] = self._level(address) + 1, self._monotonic()

    def _level(self, address: str) -> float:
        found = self._floods.get(address)
        if found is None:
            return 0.0
        return max(0.0, found[0] - (self._monotonic() - found[1]) * UNKNOWN_PER_MINUTE / 60)


def _address(scope: Mapping[str, Any]) -> str:
    peer = scope.get("client")
    return client_network(peer[0]) if peer else ""


def caller_of(request: Any) -> Caller:
    """Return the caller of a request; `OPEN_CALLER` where sign-on is off."""
    return request.scope.get(CALLER, OPEN_CALLER)


class _Carried(NamedTuple):
    """Headers of a request that say who sends it."""

    #: "none", "bearer", "cookie" or "unreadable".
    form: str
    secret: bytes = b""
    #: True if X-Fairlead-User was sent.
    user: bool = False
    act_as: str = ""


_BARE = _Carried("none")


def _read(headers: Headers, *, takes_plain: bool) -> _Carried:
    """Read the headers in one pass. A bearer token counts before a cookie. `takes_plain`: as in `session_cookie`."""
    authorization = cookie = act_as = b""
    user = repeated = False
    for name, value in headers:
        if name == b"authorization":
            repeated = bool(authorization)
            authorization = value
        elif name == b"cookie":
            cookie = cookie + b";" + value if cookie else value
        elif name == b"x-fairlead-user":
            user = True
        elif name == b"x-fairlead-act-as":
            act_as = value
    acting = act_as.decode("latin-1")
    if authorization:
        scheme, _, secret = authorization.partition(b" ")
        secret = secret.strip()
        if repeated or scheme.lower() != b"bearer" or not 0 < len(secret) <= CREDENTIAL_BYTES_MAX:
            return _Carried("unreadable", user=user)
        return _Carried("bearer", secret, user, acting)
    if cookie and (secret := session_cookie(cookie, takes_plain=takes_plain)):
        return _Carried("cookie", secret, user, acting)
    return _Carried("none", user=user) if user else _BARE


def session_cookie(cookie: bytes, *, takes_plain: bool = True) -> bytes:
    """Return the session of a Cookie header; b"" for none, or for two. `takes_plain`: False where browsers come over https. A page of a
    sibling host can toss in the plain cookie there, with a session of its own, and never the one with the prefix, which counts first.
    """
    found: dict[bytes, list[bytes]] = {}
    for name, equals, value in (each.partition(b"=") for each in cookie.split(b";")):
        if equals and name.strip() in COOKIES:
            found.setdefault(name.strip(), []).append(value.strip())
    values = found.get(COOKIES[0]) or (found.get(COOKIES[1], []) if takes_plain else [])
    return values[0] if len(values) == 1 and len(values[0]) <= CREDENTIAL_BYTES_MAX else b""


def check_page(scope: Mapping[str, Any]) -> None:
    """Raise HttpError (403) for a change that a cookie carries, unless a page of this very origin sent it. A browser adds cookies to
    requests of any page, so the cookie proves nothing about who wanted the change.
    """
    if scope["method"] in ("GET", "HEAD", "OPTIONS"):
        return
    host, origins, sites = b"", [], []
    for name, value in scope["headers"]:
        if name == b"host":
            host = value.lower()
        elif name == b"origin":
            origins.append(value)
        elif name == b"sec-fetch-site":
            sites.append(value)
    ours = (b"http://" + host, b"https://" + host)
    same = all(origin.lower() in ours for origin in origins) if origins else sites == [b"same-origin"]
    if not same or any(site not in (b"same-origin", b"none") for site in sites):
        raise HttpError(
            403,
            "foreign_page",
            "a change with a cookie is taken from a page of this very origin only",
            hint="send Authorization: Bearer with a token; it needs no Origin",
        )


def unauthenticated(reason: str, detail: str) -> HttpError:
    """Return the 401: no credential, or one that does not count. `reason`: one of `MissingRight.reason`."""
    error = b"" if reason == "no_credential" else b' error="invalid_token"'
    return HttpError(
        401,
        "unauthenticated",
        detail,
        hint="fairlead login, or send Authorization: Bearer with a token",
        why=MissingRight(reason=reason),
        headers=((b"www-authenticate", b"Bearer" + error),),
    )


def _no_user_header() -> HttpError:
    message = "expected none: sign-on is on, and the credential says who sends the request"
    errors = [FieldError(field="X-Fairlead-User", message=message)]
    return HttpError(400, "user_header", f"X-Fairlead-User: {message}", errors=errors, hint=f"admins may send {ACT_AS}")


_ENDED = {
    "suspended": "this principal is suspended",
    "token_revoked": "this token was revoked",
    "session_ended": "this session has ended",
    "expired": "this token or session has expired",
    "idle": "this session was not used for an hour",
}
