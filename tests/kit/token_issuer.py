"""An issuer of JSON Web Tokens under the test's control: keys, JWKS, discovery, tokens of any shape, over httpx's mock transport."""

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

ISSUER = "https://idp.example.org"
NOW_S = 1_800_000_000.0
CLIENT = "fairlead"


def private_key(alg: str) -> Any:
    """Return a new private key for an algorithm."""
    if alg in ("RS256", "PS256"):
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1()) if alg == "ES256" else ed25519.Ed25519PrivateKey.generate()


def public_jwk(key: Any, alg: str, kid: str) -> dict[str, Any]:
    """Return the entry of a key in a JWKS."""
    found = jwt.get_algorithm_by_name(alg).to_jwk(key.public_key(), as_dict=True)
    return {**{name: value for name, value in found.items() if name != "key_ops"}, "kid": kid, "use": "sig"}


def claims(**more: Any) -> dict[str, Any]:
    """Return the claims of a good ID token; `...` leaves one out."""
    base = {"iss": ISSUER, "aud": CLIENT, "sub": "248289761001", "iat": NOW_S - 5, "exp": NOW_S + 300, "nonce": "n-1"}
    return {name: value for name, value in {**base, **more}.items() if value is not ...}


def sign(key: Any, alg: str, body: dict[str, Any], **header: Any) -> str:
    """Return a token; `...` leaves a member of its header out."""
    headers = {"kid": "k1", "typ": "JWT", **header}
    # PyJWT leaves "typ" out for None.
    kept = {name: value for name, value in headers.items() if value is not ...}
    return jwt.encode(body, key, algorithm=alg, headers={"typ": None, **kept})


def part(value: Any) -> str:
    """Return a part of a token: JSON in base64url."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


class TokenIssuer:
    """Answers discovery, JWKS and the token endpoint. `answers`: {path: handler}, which a test replaces."""

    def __init__(self, issuer: str = ISSUER) -> None:
        self.issuer = issuer
        self.key = private_key("ES256")
        self.requests: list[httpx.Request] = []
        self.token_answer: dict[str, Any] = {}
        self.answers: dict[str, Callable[[httpx.Request], httpx.Response]] = {
            "/.well-known/openid-configuration": lambda _: httpx.Response(200, json=self.metadata()),
            "/jwks": lambda _: httpx.Response(200, json={"keys": [public_jwk(self.key, "ES256", "k1")]}),
            "/token": lambda _: httpx.Response(200, json=self.token_answer),
        }

    def metadata(self, **more: Any) -> dict[str, Any]:
        """Return the discovery document."""
        names = {"jwks_uri": "/jwks", "authorization_endpoint": "/auth", "token_endpoint": "/token"}
        names["end_session_endpoint"] = "/end"
        return {"issuer": self.issuer, **{name: ISSUER + path for name, path in names.items()}, **more}

    def client(self) -> httpx.AsyncClient:
        """Return a client that reaches this issuer and nothing else."""
        return httpx.AsyncClient(transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self.answers[request.url.path](request)

    def fetched(self, path: str) -> int:
        """Return the number of requests for a path."""
        return sum(request.url.path == path for request in self.requests)
