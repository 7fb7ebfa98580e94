"""Tokens of providers: what is accepted, and every known way to forge one. joserfc judges the accepted ones a second time."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc import jwt as joserfc_jwt
from joserfc.jwk import import_key

from fairlead_gateway.signon import jwt_check
from fairlead_gateway.signon.jwt_check import (
    ALGORITHMS,
    LOGOUT_EVENT,
    TOKEN_BYTES_MAX,
    BadToken,
    Expected,
    TokenUse,
    read_header,
    read_key,
    verify,
)
from tests.kit.token_issuer import CLIENT, ISSUER, NOW_S, claims, part, private_key, public_jwk, sign

KEYS = {alg: private_key(alg) for alg in ALGORITHMS}
RSA = KEYS["RS256"]
EVENTS = {LOGOUT_EVENT: {}}
LOGOUT = {"nonce": ..., "exp": ..., "jti": "j1", "sid": "s1", "events": EVENTS}


def check(token: str, use: TokenUse = "id", nonce: str | None = "n-1", alg: str = "RS256") -> dict[str, Any]:
    """Verify a token as the gateway does, with the issuer's key of `alg`."""
    header = read_header(token)
    key = read_key(public_jwk(KEYS[alg], alg, header.kid), header.alg)
    return verify(token, key, Expected(use=use, issuer=ISSUER, audience=CLIENT, now_s=NOW_S, nonce=nonce))


@pytest.mark.parametrize("alg", ALGORITHMS)
def test_a_good_token_of_each_algorithm_is_accepted_by_two_libraries(alg: str) -> None:
    """Both read the same claims out of it."""
    token = sign(KEYS[alg], alg, claims())
    assert check(token, alg=alg) == claims()
    key = import_key(public_jwk(KEYS[alg], alg, "k1"))
    assert joserfc_jwt.decode(token, key, algorithms=[alg]).claims == claims()


GOOD = {
    "one audience in a list": claims(aud=[CLIENT]),
    "several audiences with azp": claims(aud=["other", CLIENT], azp=CLIENT),
    "expired within the skew": claims(exp=NOW_S - 59),
    "issued by a clock ahead": claims(iat=NOW_S + 59),
}


@pytest.mark.parametrize("body", GOOD.values(), ids=GOOD)
def test_variants_of_good_tokens_are_accepted(body: dict[str, Any]) -> None:
    """Two libraries agree."""
    token = sign(RSA, "RS256", body)
    assert check(token) == body
    assert joserfc_jwt.decode(token, import_key(public_jwk(RSA, "RS256", "k1")), algorithms=["RS256"]).claims == body


BAD_CLAIMS = {
    "another issuer": (claims(iss=ISSUER + "/"), "iss"),
    "issuer missing": (claims(iss=...), "iss"),
    "another audience": (claims(aud="other"), "aud"),
    "audience missing": (claims(aud=...), "aud"),
    "audience as a prefix": (claims(aud=CLIENT + "2"), "aud"),
    "several audiences without azp": (claims(aud=["other", CLIENT]), "azp"),
    "issued to another party": (claims(azp="other"), "azp"),
    "expired": (claims(exp=NOW_S - 61), "exp"),
    "expiry missing": (claims(exp=...), "exp"),
    "expiry as text": (claims(exp="never"), "exp"),
    "issued two minutes ahead": (claims(iat=NOW_S + 120), "iat"),
    "time of issue missing": (claims(iat=...), "iat"),
    "not valid yet": (claims(nbf=NOW_S + 120), "nbf"),
    "another nonce": (claims(nonce="n-2"), "nonce"),
    "nonce missing": (claims(nonce=...), "nonce"),
    "subject missing": (claims(sub=...), "sub"),
    "subject as a number": (claims(sub=7), "sub"),
    "subject empty": (claims(sub=""), "sub"),
    "events of a logout token": (claims(events=EVENTS), "events"),
}


@pytest.mark.parametrize(("body", "named"), BAD_CLAIMS.values(), ids=BAD_CLAIMS)
def test_a_token_with_one_wrong_claim_is_refused(body: dict[str, Any], named: str) -> None:
    """The reason names the claim."""
    with pytest.raises(BadToken, match=f"^{named}:"):
        check(sign(RSA, "RS256", body))


def forged_by_public_key() -> str:
    """Return a token signed by HMAC with the RSA public key as its secret."""
    secret = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = part({"alg": "HS256", "kid": "k1"}) + "." + part(claims())
    signature = hmac.new(secret, text.encode(), hashlib.sha256).digest()
    return text + "." + json_base64(signature)


def json_base64(value: bytes) -> str:
    """Return bytes in base64url."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


OTHER = private_key("RS256")
SOUND = sign(RSA, "RS256", claims())
FORGED = {
    "alg none": (part({"alg": "none", "kid": "k1"}) + "." + part(claims()) + ".", "form"),
    "alg none with a signature": (part({"alg": "none", "kid": "k1"}) + "." + part(claims()) + ".AA", "alg"),
    "alg None in other case": (part({"alg": "nOnE", "kid": "k1"}) + "." + part(claims()) + ".AA", "alg"),
    "HS256 with the public key": (forged_by_public_key(), "alg"),
    "RS384, which is not listed": (sign(RSA, "RS384", claims()), "alg"),
    "alg as a list": (part({"alg": ["RS256"], "kid": "k1"}) + ".e30.AA", "alg"),
    "key in the header": (sign(OTHER, "RS256", claims(), jwk=public_jwk(OTHER, "RS256", "k1")), "header"),
    "address of keys in the header": (sign(OTHER, "RS256", claims(), jku="https://evil.example/jwks"), "header"),
    "certificate in the header": (sign(OTHER, "RS256", claims(), x5c=["MII"]), "header"),
    "address of a certificate": (sign(OTHER, "RS256", claims(), x5u="https://evil.example/c"), "header"),
    "crit": (sign(RSA, "RS256", claims(), crit=["b64"], b64=True), "header"),
    "empty crit": (part({"alg": "RS256", "kid": "k1", "crit": []}) + ".e30.AA", "header"),
    "no kid": (sign(RSA, "RS256", claims(), kid=...), "kid"),
    "another key under our kid": (sign(OTHER, "RS256", claims()), "signature"),
    "signature cut": (SOUND[:-8], "signature"),
    "signature of nothing": (SOUND.rpartition(".")[0] + ".", "form"),
    "claims replaced": (SOUND.split(".")[0] + "." + part(claims(sub="admin")) + "." + SOUND.split(".")[2], "signature"),
    "two tokens nested": (sign(RSA, "RS256", claims(), cty="JWT", typ="JWE"), "typ"),
    "five parts": (SOUND + ".AA.AA", "form"),
    "JSON serialization": (json.dumps({"payload": "e30", "signatures": []}), "form"),
    "space around it": (SOUND + "\n", "form"),
    "over 16 KiB": (sign(RSA, "RS256", claims(pad="x" * TOKEN_BYTES_MAX)), "size"),
    "1 MiB": ("A" * 1024 * 1024, "size"),
    "empty": ("", "form"),
    "header is a list": ("W10.e30.AA", "header"),
    "header is no JSON": ("AAAA.e30.AA", "header"),
}


@pytest.mark.parametrize(("token", "named"), FORGED.values(), ids=FORGED)
def test_a_forged_token_is_refused(token: str, named: str) -> None:
    """The first check that it fails is named."""
    with pytest.raises(BadToken, match=f"^{named}:"):
        check(token)


def test_a_key_serves_its_own_algorithm_alone() -> None:
    """An elliptic key is no RSA key, one for encryption signs nothing, a short one is refused."""
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    for document, alg in (
        (public_jwk(KEYS["ES256"], "ES256", "k"), "RS256"),
        (public_jwk(RSA, "RS256", "k"), "ES256"),
        ({**public_jwk(RSA, "RS256", "k"), "use": "enc"}, "RS256"),
        ({**public_jwk(RSA, "RS256", "k"), "alg": "PS256"}, "RS256"),
        ({"kty": "oct", "k": "c2VjcmV0"}, "RS256"),
        ({"kty": "RSA", "n": "AQ"}, "RS256"),
        (public_jwk(short, "RS256", "k"), "RS256"),
    ):
        with pytest.raises(BadToken, match=r"^key:"):
            read_key(document, alg)


TOKENS: dict[TokenUse, str] = {
    "id": SOUND,
    "logout": sign(RSA, "RS256", claims(**LOGOUT), typ="logout+jwt"),
    "access": sign(RSA, "RS256", claims(nonce=...), typ="at+jwt"),
}


@pytest.mark.parametrize("made_for", TOKENS)
@pytest.mark.parametrize("used_as", TOKENS)
def test_a_token_serves_its_own_use_alone(made_for: TokenUse, used_as: TokenUse) -> None:
    """An ID token ends no session, a logout token signs no person in, neither is an access token."""
    if made_for == used_as:
        assert check(TOKENS[made_for], used_as)["sub"] == "248289761001"
    else:
        with pytest.raises(BadToken):
            check(TOKENS[made_for], used_as, nonce=None)


BAD_LOGOUTS = {
    "nonce": {"nonce": "n"},
    "no events": {"events": ...},
    "another event": {"events": {"http://example.org/event": {}}},
    "events as a list": {"events": [LOGOUT_EVENT]},
    "no jti": {"jti": ...},
    "neither sub nor sid": {"sub": ..., "sid": ...},
    "of two minutes ahead": {"iat": NOW_S + 120},
    "for another client": {"aud": "other"},
}


@pytest.mark.parametrize("more", BAD_LOGOUTS.values(), ids=BAD_LOGOUTS)
def test_a_logout_token_that_is_not_whole_is_refused(more: dict[str, Any]) -> None:
    """OpenID Connect Back-Channel Logout 1.0, section 2.6. Untyped ones are as good as typed ones."""
    check(sign(RSA, "RS256", claims(**LOGOUT), typ=...), "logout")
    with pytest.raises(BadToken):
        check(sign(RSA, "RS256", claims(**{**LOGOUT, **more}), typ="logout+jwt"), "logout")


#: {part of the checks: what takes it out, and a token that is accepted then}
OUT: dict[str, tuple[Any, str]] = {
    "_check_issuer": (lambda *_: None, sign(RSA, "RS256", claims(iss=ISSUER + "/", aud="other"))),
    "_check_times": (lambda *_: None, sign(RSA, "RS256", claims(exp=NOW_S - 61))),
    "_require_subject": (lambda *_: None, sign(RSA, "RS256", claims(sub=...))),
    "_BY_USE": ({"id": lambda *_: None}, sign(RSA, "RS256", claims(nonce="n-2", events=EVENTS))),
    "_TYPES": ({"id": ("at+jwt",)}, sign(RSA, "RS256", claims(), typ="at+jwt")),
    "TOKEN_BYTES_MAX": (10**6, sign(RSA, "RS256", claims(pad="x" * TOKEN_BYTES_MAX))),
    "REFUSED_HEADERS": ((), sign(RSA, "RS256", claims(), jku="https://evil.example/jwks")),
    "_SIGNATURE_ALONE": ({"verify_signature": False}, FORGED["another key under our kid"][0]),
}


@pytest.mark.parametrize("part", OUT)
def test_without_one_check_its_attack_succeeds(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So each check has a test that can fail."""
    out, token = OUT[part]
    with pytest.raises(BadToken):
        check(token)
    monkeypatch.setattr(jwt_check, part, out)
    assert check(token)
