"""Checks of JSON Web Tokens of others: ID tokens, logout tokens, access tokens and job tokens.

Everything that is not allowed here is refused. The key is always one of the issuer's JWKS, found by `kid`; nothing in the token can
name another. PyJWT verifies the signature, and no claim is left to its defaults. Start at `verify`.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from jwt.types import Options

#: Signature algorithms that are accepted, with the type of key of each.
ALGORITHMS = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
TOKEN_BYTES_MAX = 16 * 1024
SKEW_S = 60
RSA_BITS_MIN = 2048
KID_CHARS_MAX = 256
#: Header members by which a token would choose its own key, or demand what is not implemented here.
REFUSED_HEADERS = ("jku", "jwk", "x5u", "x5c", "crit")
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"

type TokenUse = Literal["id", "logout", "access", "job"]

#: Values of `typ` by use, in lower case and without "application/"; "" where it may be missing.
_TYPES: dict[TokenUse, tuple[str, ...]] = {
    "id": ("", "jwt"),
    "logout": ("", "jwt", "logout+jwt"),
    "access": ("at+jwt",),
    "job": ("", "jwt"),
}
#: Claims are checked here, by a clock that is given.
_SIGNATURE_ALONE: "Options" = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


class BadToken(ValueError):
    """A token that is refused; the message says why, for the gateway's log, and never for the sender."""


class TokenHeader(msgspec.Struct, frozen=True):
    """Header of a token that may be looked at further."""

    alg: str
    kid: str
    typ: str


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Claims that a token must have. `nonce`: of an ID token that a sign-in asked for; None where none was sent."""

    use: TokenUse
    issuer: str
    audience: str
    now_s: float
    nonce: str | None = None


def read_header(token: str) -> TokenHeader:
    """Return the header of a token, unverified. Raise BadToken for one that no key could make good."""
    if len(token) > TOKEN_BYTES_MAX:
        raise BadToken(f"size: expected at most {TOKEN_BYTES_MAX} bytes, found {len(token)}")
    if not _FORM.fullmatch(token):
        raise BadToken("form: expected three parts in base64url")
    part = token.partition(".")[0]
    try:
        found: Any = msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (msgspec.DecodeError, binascii.Error, ValueError):
        raise BadToken("header: expected JSON") from None
    if not isinstance(found, dict):
        raise BadToken("header: expected a JSON object")
    for name in REFUSED_HEADERS:
        if name in found:
            raise BadToken(f'header: "{name}" is not accepted')
    alg, kid, typ = found.get("alg"), found.get("kid"), found.get("typ", "")
    if not isinstance(alg, str) or alg not in ALGORITHMS:
        raise BadToken(f"alg: expected one of {', '.join(ALGORITHMS)}, found {str(alg)[:40]!r}")
    if not isinstance(kid, str) or not 0 < len(kid) <= KID_CHARS_MAX:
        raise BadToken("kid: expected the name of one of the issuer's keys")
    if not isinstance(typ, str):
        raise BadToken("typ: expected text")
    return TokenHeader(alg, kid, typ.lower().removeprefix("application/"))


def read_key(document: Mapping[str, Any], alg: str) -> Any:
    """Return the public key of one entry of a JWKS, for use with one algorithm. Raise BadToken where it does not serve."""
    if document.get("kty") != ALGORITHMS[alg]:
        raise BadToken(f"key: expected kty {ALGORITHMS[alg]} for {alg}, found {str(document.get('kty'))[:20]!r}")
    if document.get("use", "sig") != "sig" or document.get("alg", alg) != alg:
        raise BadToken(f"key: it is not for signatures with {alg}")
    if alg == "EdDSA" and document.get("crv") != "Ed25519":
        raise BadToken("key: expected the curve Ed25519")
    import jwt  # with all of its parts as large as the rest of sign-on, which most clusters use without a provider
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    public = {name: value for name, value in document.items() if name in ("kty", "crv", "n", "e", "x", "y")}
    try:
        key = jwt.PyJWK(public, algorithm=alg).key
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise BadToken(f"key: cannot be read: {error}") from None
    if isinstance(key, RSAPublicKey) and key.key_size < RSA_BITS_MIN:
        raise BadToken(f"key: expected at least {RSA_BITS_MIN} bits, found {key.key_size}")
    return key


def verify(token: str, key: Any, expected: Expected) -> dict[str, Any]:
    """Return the claims of a token. `key`: of `read_key`, for the token's `kid` and `alg`. Raise BadToken for anything else."""
    import jwt

    header = read_header(token)
    if header.typ not in _TYPES[expected.use]:
        raise BadToken(f"typ: {header.typ[:40]!r} is not that of {expected.use} tokens")
    try:
        claims = jwt.decode(token, key, algorithms=[header.alg], options=_SIGNATURE_ALONE)
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise BadToken(f"signature: {error}") from None
    _check_issuer(claims, expected)
    _check_times(claims, expected)
    _BY_USE[expected.use](claims, expected)
    return claims


def _check_issuer(claims: dict[str, Any], expected: Expected) -> None:
    if claims.get("iss") != expected.issuer:
        raise BadToken(f"iss: expected {expected.issuer!r}, found {str(claims.get('iss'))[:200]!r}")
    audience = claims.get("aud")
    several = [audience] if isinstance(audience, str) else audience
    if not isinstance(several, list) or expected.audience not in several:
        raise BadToken(f"aud: expected {expected.audience!r}, found {str(audience)[:200]!r}")
    if expected.use in ("id", "logout"):
        # A token for several parties counts for the one that it was issued to.
        if len(several) > 1 and "azp" not in claims and expected.use == "id":
            raise BadToken("azp: expected one, since aud names several")
        if claims.get("azp", expected.audience) != expected.audience:
            raise BadToken(f"azp: expected {expected.audience!r}, found {str(claims['azp'])[:200]!r}")


def _check_times(claims: dict[str, Any], expected: Expected) -> None:
    expires, issued, begins = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
    if expires is None and expected.use != "logout":
        raise BadToken("exp: expected a time")
    if issued is None:
        raise BadToken("iat: expected a time")
    now_s = expected.now_s
    if expires is not None and expires <= now_s - SKEW_S:
        raise BadToken(f"exp: expired {now_s - expires:.0f} s ago; clocks may differ by {SKEW_S} s")
    for name, time in (("iat", issued), ("nbf", begins)):
        if time is not None and time > now_s + SKEW_S:
            raise BadToken(f"{name}: {time - now_s:.0f} s in the future; clocks may differ by {SKEW_S} s")


def _seconds(claims: dict[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise BadToken(f"{name}: expected a number of seconds")
    return float(found)


def _check_id(claims: dict[str, Any], expected: Expected) -> None:
    _require_subject(claims)
    if "events" in claims:
        raise BadToken("events: this is a logout token")
    if expected.nonce is not None and claims.get("nonce") != expected.nonce:
        raise BadToken("nonce: it is not that of this sign-in")


def _check_logout(claims: dict[str, Any], _: Expected) -> None:
    events = claims.get("events")
    if not isinstance(events, dict) or not isinstance(events.get(LOGOUT_EVENT), dict):
        raise BadToken(f"events: expected the member {LOGOUT_EVENT}")
    if "nonce" in claims:
        raise BadToken("nonce: a logout token has none")
    if not _is_text(claims.get("jti")):
        raise BadToken("jti: expected text")
    if not _is_text(claims.get("sub")) and not _is_text(claims.get("sid")):
        raise BadToken("expected sub or sid")


def _check_access(claims: dict[str, Any], _: Expected) -> None:
    _require_subject(claims)
    if "events" in claims or "nonce" in claims:
        raise BadToken("this is a logout token or an ID token")


def _require_subject(claims: dict[str, Any]) -> None:
    if not _is_text(claims.get("sub")):
        raise BadToken("sub: expected 1 to 255 characters")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 255


_BY_USE: dict[TokenUse, Callable[[dict[str, Any], Expected], None]] = {
    "id": _check_id,
    "logout": _check_logout,
    "access": _check_access,
    "job": _check_access,
}
