"""Credentials of a client: a token as it was given, or a sign-in that is stored in a file and renewed.

An access token lives an hour, and a refresh token counts once: if one is sent twice, the gateway takes it for stolen and ends the
sign-in. Two commands at once must therefore not renew the same sign-in, so that is done under a lock, and the second one takes what the
first has stored. Start at `StoredSignIn.refresh`.
"""

import fcntl
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from fairlead.client import contexts
from fairlead.client.answers import TIMEOUT_S, Answer, LinkBroken, LinkRefused, addresses_of, decode, raise_for
from fairlead.client.contexts import StoredTokens
from fairlead.client.plain_link import PlainLink
from fairlead.errors import FairleadError, Unreachable

TOKEN_PATH = "/v1/token"  # noqa: S105  # a path
#: An access token that expires within so many seconds is renewed before it is sent.
DUE_S = 60
#: A renewal by another command takes at most a request's time; the wait for it ends a little later.
LOCK_WAIT_S, LOCK_LOOK_S = 2 * TIMEOUT_S, 0.05


class SentToken:
    """Token as it was given."""

    def __init__(self, token: str) -> None:
        self.token = token

    def is_due(self) -> bool:
        """Return True if the token should be renewed before it is sent."""
        return False

    def refresh(self) -> bool:
        """Replace the token by a new one; False where there is none."""
        return False


class StoredSignIn(SentToken):
    """Sign-in in a file. `url`: the gateway that renews it."""

    def __init__(self, path: Path, url: str, sign_in: StoredTokens) -> None:
        super().__init__(sign_in.access_token)
        self._path, self._url, self._sign_in = path, url, sign_in
        self._ended = not sign_in.refresh_token

    def is_due(self) -> bool:
        """Return True if the token should be renewed before it is sent."""
        return not self._ended and 0 < self._sign_in.expires_at < time.time() + DUE_S

    def refresh(self) -> bool:
        """Take the token that another command has stored meanwhile, or renew it; False where the sign-in has ended. Raises FairleadError."""
        with _locked(self._path):
            stored = contexts.read_sign_in(self._path)
            if stored is None:
                return False
            if stored.access_token == self.token:
                renewed = None if self._ended else renew(self._url, stored.refresh_token)
                if renewed is None:
                    self._ended = True
                    return False
                store(self._path, renewed)
                stored = renewed
        self._sign_in, self.token = stored, stored.access_token
        return True


def renew(url: str, refresh_token: str) -> StoredTokens | None:
    """Return new tokens for a refresh token; None where it does not count any more. Raises Unreachable."""
    answer = post_form(url, TOKEN_PATH, {"grant_type": "refresh_token", "refresh_token": refresh_token})
    if answer.status in (400, 401, 403):
        return None
    raise_for(answer.status, answer.content)
    return sign_in_of(answer.content)


def by_password(url: str, login: str, password: str) -> StoredTokens:
    """Sign in as a local user of the gateway. Raises Denied, and Conflict where sign-on is off."""
    answer = post_json(url, "/v1/sign-in/local", {"login": login, "password": password})
    raise_for(answer.status, answer.content)
    return sign_in_of(answer.content)


def sign_in_of(content: bytes) -> StoredTokens:
    """Return the tokens of an answer. Raises Unreachable."""
    from fairlead_schemas.http.accounts import CliTokens

    given = decode(content, CliTokens)
    return StoredTokens(given.access_token, given.refresh_token, int(time.time()) + given.expires_in)


def store(path: Path, sign_in: StoredTokens) -> None:
    """Write a sign-in, readable by its owner only. Raises FairleadError."""
    contexts.write_private(path, msgspec.json.encode(sign_in))


def post_form(url: str, path: str, fields: Mapping[str, str]) -> Answer:
    """Send a form to the first gateway that takes it, as OAuth's endpoints want it, once. Raises Unreachable."""
    return _post(url, path, urlencode(fields).encode(), "application/x-www-form-urlencoded")


def post_json(url: str, path: str, document: object) -> Answer:
    """Send a document without any credential, once. Raises Unreachable."""
    return _post(url, path, msgspec.json.encode(document), "application/json")


def _post(url: str, path: str, body: bytes, media_type: str) -> Answer:
    link = PlainLink()
    headers = {"Content-Type": media_type, "Accept": "application/json"}
    address = addresses_of(url)[0]
    try:
        return link.request("POST", address + path, headers, body, TIMEOUT_S)
    except (LinkBroken, LinkRefused) as error:
        raise Unreachable(f"{address} cannot be reached: {error}", hint="set FAIRLEAD_URL") from error
    finally:
        link.close()


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold the lock of a sign-in. Raises FairleadError where another command holds it for too long."""
    deadline = time.monotonic() + LOCK_WAIT_S
    try:
        with path.with_suffix(".lock").open("a") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise FairleadError(f"{path}: another command holds its lock since {LOCK_WAIT_S:g} s") from None
                    time.sleep(LOCK_LOOK_S)
            yield
    except OSError as error:
        raise FairleadError(f"{error.filename}: {error.strerror}") from error
