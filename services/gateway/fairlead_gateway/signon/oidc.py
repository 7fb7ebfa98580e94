"""Sign-in at an identity provider: authorization code flow with PKCE, `state` and `nonce` (OpenID Connect Core 1.0, RFC 9700).

The gateway is a confidential client, so no token of the provider reaches the browser. What has to survive the trip to the provider is
in one sealed cookie, so any gateway can finish what another began. No rights here: `ProviderAccount` is what the provider says.
"""

import base64
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import msgspec

from fairlead_gateway.signon.jwt_check import BadToken, Expected, read_header, verify
from fairlead_gateway.signon.keys import Issuer, ProviderUnavailable, fetch
from fairlead_gateway.signon.sealing import Sealing
from fairlead_gateway.signon.settings import Provider
from fairlead_schemas.units.ids import TOKEN_CHARS_MAX, is_token

if TYPE_CHECKING:
    import httpx

#: A sign-in that was begun is forgotten after so long.
STATE_S = 600
TARGET_CHARS_MAX = 2000
GROUPS_MAX = 200
LABEL_CHARS_MAX = 200

_PURPOSE = "sign-in"
_NO_LOGIN_CHAR = re.compile(r"[^a-z0-9_-]+")


class SignInFailed(Exception):
    """A sign-in that is refused. `reason`: for the gateway's log. `hint`: for the person; "" where it would help an attacker."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


class GrantRefused(Exception):
    """The provider refuses a refresh token: the person is signed out there."""


class SignInState(msgspec.Struct, frozen=True):
    """A sign-in that was begun in one browser."""

    provider: str
    state: str
    nonce: str
    verifier: str
    target: str
    expires_s: float


class ProviderAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody as a provider describes them: (`issuer`, `subject`) is the person, all else are labels."""

    issuer: str
    subject: str
    login: str = ""
    name: str = ""
    email: str = ""
    groups: tuple[str, ...] = ()
    #: Session at the provider; "" where it does not say.
    sid: str = ""
    #: End of the ID token, Unix s.
    expires_s: float = 0.0
    refresh_token: str = ""


class _Tokens(msgspec.Struct, frozen=True):
    id_token: str = ""
    refresh_token: str = ""


class OidcProvider:
    """One configured provider. `clock`: Unix s."""

    def __init__(
        self,
        settings: Provider,
        public_url: str,
        http: "httpx.AsyncClient",
        sealing: Sealing,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.issuer = Issuer(settings.issuer, http)
        self.redirect_uri = f"{public_url}/sign-in/{settings.name}/callback"
        self._public_url = public_url
        self._sealing = sealing
        self._clock = clock

    # ------------------------------------------------------------------------------- sign-in

    async def begin(self, target: str) -> tuple[str, str]:
        """Return the address at the provider and the value of the state cookie. Raise ProviderUnavailable."""
        metadata = await self.issuer.metadata()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        begun = SignInState(self.settings.name, state, nonce, verifier, safe_target(target), self._clock() + STATE_S)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": " ".join(self.settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        if "offline_access" in self.settings.scopes:
            query["prompt"] = "consent"  # OpenID Connect Core 11: without it providers ignore the scope.
        mark = "&" if "?" in metadata.authorization_endpoint else "?"
        cookie = self._sealing.seal(msgspec.json.encode(begun), _PURPOSE)
        return f"{metadata.authorization_endpoint}{mark}{urlencode(query)}", cookie

    async def finish(self, answer: Mapping[str, str], cookie: str) -> tuple[ProviderAccount, str]:
        """Return the person and the path to continue at. `answer`: parameters of the provider's redirect. Raise SignInFailed and
        ProviderUnavailable.
        """
        begun = self._begun(answer, cookie)
        metadata = await self.issuer.metadata()
        # RFC 9207: an answer of one provider must not be taken for another's.
        named = answer.get("iss", "")
        if (named or metadata.authorization_response_iss_parameter_supported) and named != self.settings.issuer:
            raise SignInFailed(f"iss: the answer is of {named[:200]!r}")
        if error := answer.get("error"):
            raise SignInFailed(f"the provider refused: {error[:80]}", "the identity provider did not sign you in")
        if not answer.get("code"):
            raise SignInFailed("code: missing")
        fields = {
            "grant_type": "authorization_code",
            "code": answer["code"],
            "redirect_uri": self.redirect_uri,
            "code_verifier": begun.verifier,
        }
        try:
            tokens = await self._tokens(fields)
        except GrantRefused as error:
            raise SignInFailed(f"code: {error}") from None
        claims = await self._verified(tokens.id_token, begun.nonce)
        return self._person(claims, tokens), begun.target

    def _begun(self, answer: Mapping[str, str], cookie: str) -> SignInState:
        opened = self._sealing.open(cookie, _PURPOSE)
        hint = "begin the sign-in again, in this browser"
        if opened is None:
            raise SignInFailed("state: this browser began no sign-in", hint)
        begun = msgspec.json.decode(opened, type=SignInState)
        if begun.expires_s < self._clock():
            raise SignInFailed("state: the sign-in was begun too long ago", hint)
        if begun.provider != self.settings.name:
            raise SignInFailed(f"state: begun at {begun.provider}")
        if not secrets.compare_digest(begun.state.encode(), answer.get("state", "").encode()):
            raise SignInFailed("state: the answer is not for this browser's sign-in", hint)
        return begun

    async def _tokens(self, fields: dict[str, str]) -> _Tokens:
        metadata, settings = await self.issuer.metadata(), self.settings
        headers = {"accept": "application/json"}
        methods = metadata.token_endpoint_auth_methods_supported
        if "client_secret_basic" in methods or "client_secret_post" not in methods:
            pair = f"{quote(settings.client_id, safe='')}:{quote(settings.client_secret, safe='')}"
            headers["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            fields = {**fields, "client_id": settings.client_id, "client_secret": settings.client_secret}
        url = metadata.token_endpoint
        answer, body = await fetch(self.issuer.http, "POST", url, data=fields, headers=headers)
        if answer.status_code == 400:
            raise GrantRefused(_error_of(body))
        if answer.status_code != 200:
            raise ProviderUnavailable(f"{url}: expected status 200, found {answer.status_code}: {_error_of(body)}")
        try:
            return msgspec.json.decode(body, type=_Tokens)
        except msgspec.MsgspecError as error:
            raise ProviderUnavailable(f"{url}: {error}") from None

    async def _verified(self, token: str, nonce: str | None) -> dict[str, Any]:
        expected = Expected(
            use="id", issuer=self.settings.issuer, audience=self.settings.client_id, now_s=self._clock(), nonce=nonce
        )
        try:
            return verify(token, await self.issuer.key(read_header(token)), expected)
        except BadToken as error:
            late = str(error).startswith(("exp:", "iat:", "nbf:"))
            raise SignInFailed(
                f"ID token: {error}", "the clocks of the identity provider and of this server differ" if late else ""
            ) from None

    def _person(self, claims: dict[str, Any], tokens: _Tokens) -> ProviderAccount:
        groups = self._groups(claims)
        self._require_admitted(groups)
        return ProviderAccount(
            issuer=self.settings.issuer,
            subject=claims["sub"],
            login=login_of(_label(claims, "preferred_username") or _label(claims, "email").partition("@")[0]),
            name=_label(claims, "name"),
            email=_label(claims, "email"),
            groups=tuple(self.settings.group_prefix + group for group in groups),
            sid=_label(claims, "sid"),
            expires_s=float(claims["exp"]),
            refresh_token=tokens.refresh_token,
        )

    def _groups(self, claims: dict[str, Any]) -> list[str]:
        """Return the groups of an ID token, unprefixed. Raise SignInFailed where the provider left them out because there are many."""
        claim = self.settings.groups_claim
        if not claim:
            return []
        elsewhere = claims.get("_claim_names")
        if claims.get("hasgroups") or (isinstance(elsewhere, dict) and claim in elsewhere):
            hint = "your identity provider left out your groups, since there are too many: an admin can have it send only assigned ones"
            raise SignInFailed(f"{claim}: overage: the groups are not in the ID token", hint)
        found = claims.get(claim, [])
        several = [found] if isinstance(found, str) else found
        if not isinstance(several, list) or not all(isinstance(each, str) for each in several):
            raise SignInFailed(f"{claim}: expected a list of names")
        if len(several) > GROUPS_MAX:
            raise SignInFailed(f"{claim}: expected at most {GROUPS_MAX} groups, found {len(several)}")
        return sorted(set(several))

    def _require_admitted(self, groups: list[str]) -> None:
        admit = self.settings.admit
        if admit != "everyone" and not set(admit) & set(groups):
            raise SignInFailed("not admitted: in none of the groups of `admit`", "your account is not admitted here")

    # ------------------------------------------------------------------------------- life after it

    async def refresh(self, refresh_token: str, subject: str) -> tuple[ProviderAccount | None, str]:
        """Return what is new about the person (None: nothing), and the next refresh token. Raise GrantRefused where the provider
        ended the sign-in, and ProviderUnavailable.
        """
        tokens = await self._tokens({"grant_type": "refresh_token", "refresh_token": refresh_token})
        following = tokens.refresh_token or refresh_token
        if not tokens.id_token:
            return None, following
        try:
            claims = await self._verified(tokens.id_token, None)
            if claims["sub"] != subject:
                raise GrantRefused("sub: the provider answered for another person")
            return self._person(claims, tokens), following
        except SignInFailed as error:
            raise GrantRefused(error.reason) from None

    async def logout_url(self) -> str:
        """Return the address that ends the session at the provider; "" where it has none or does not answer."""
        try:
            address = (await self.issuer.metadata()).end_session_endpoint
        except ProviderUnavailable:
            return ""
        if not address:
            return ""
        back = {"client_id": self.settings.client_id, "post_logout_redirect_uri": f"{self._public_url}/sign-in"}
        return f"{address}{'&' if '?' in address else '?'}{urlencode(back)}"

    async def read_logout(self, token: str) -> dict[str, Any]:
        """Return the claims of a logout token (OpenID Connect Back-Channel Logout 1.0). Raise BadToken and ProviderUnavailable."""
        settings, now_s = self.settings, self._clock()
        expected = Expected(use="logout", issuer=settings.issuer, audience=settings.client_id, now_s=now_s)
        return verify(token, await self.issuer.key(read_header(token)), expected)


def safe_target(target: str) -> str:
    """Return a path of this server to continue at after a sign-in; "/" for everything that a browser could take for another host."""
    seen = target
    for _ in range(3):  # each way of reading it, since something on the way may decode it again
        parts = urlsplit(seen) if seen.isprintable() else None
        if parts is None or parts.scheme or parts.netloc or not seen.startswith("/") or seen.startswith("//"):
            return "/"
        if "\\" in seen or " " in target or len(seen) > TARGET_CHARS_MAX:
            return "/"
        seen = unquote(seen)
    return target


def login_of(wanted: str) -> str:
    """Return a login name made of a provider's label; "" where nothing is left of it."""
    login = _NO_LOGIN_CHAR.sub("-", wanted.partition("@")[0].lower()).strip("-_")[:TOKEN_CHARS_MAX]
    return login if is_token(login) else ""


def _label(claims: dict[str, Any], name: str) -> str:
    found = claims.get(name)
    return "".join(each for each in found if each.isprintable())[:LABEL_CHARS_MAX] if isinstance(found, str) else ""


def _error_of(body: bytes) -> str:
    """Return the error code of an OAuth answer, for the log."""
    try:
        found = msgspec.json.decode(body, type=dict[str, Any]).get("error")
    except msgspec.MsgspecError:
        return "no JSON"
    return found[:80] if isinstance(found, str) else "no error code"
