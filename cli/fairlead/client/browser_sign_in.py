"""Sign-in of a command line by a browser: on this machine (RFC 8252: a loopback redirect with PKCE), or on another one by a code (RFC 8628).

The browser shows only pages of the gateway and of the site's provider. Start at `by_browser` and `by_device`; `sign_in.py` keeps
what they return.
"""

import base64
import hashlib
import secrets
import socket
import time
import webbrowser
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from fairlead.client.answers import Answer, addresses_of, decode, raise_for
from fairlead.client.contexts import StoredTokens
from fairlead.client.sign_in import TOKEN_PATH, post_form, sign_in_of
from fairlead.errors import Denied
from fairlead_schemas.http.access import DeviceSignIn

CLIENT = "fairlead-cli"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
#: A person signs in at a provider meanwhile.
BROWSER_WAIT_S = 300.0
SLOWER_S = 5
_DONE = b"<!doctype html><title>Fairlead</title><p>You are signed in. You can close this page.</p>"

type Note = Callable[[str], None]


def by_device(url: str, note: Note) -> StoredTokens:
    """Print a code that the person types on a page of the gateway, which shows them this machine's name, and wait until they have.

    Raises Denied.
    """
    answer = post_form(url, "/v1/device/code", {"client_id": CLIENT, "machine": socket.gethostname()})
    raise_for(answer.status, answer.content)
    code = decode(answer.content, DeviceSignIn)
    note(f"open {code.verification_uri} and type the code {code.user_code}")
    fields = {"grant_type": DEVICE_GRANT, "device_code": code.device_code, "client_id": CLIENT}
    deadline, interval = time.monotonic() + code.expires_in, code.interval
    while time.monotonic() < deadline:
        time.sleep(interval)
        answer = post_form(url, "/v1/device/token", fields)
        match _refusal(answer):
            case "authorization_pending":
                continue
            case "slow_down":
                interval += SLOWER_S
            case _:
                raise_for(answer.status, answer.content)
                return sign_in_of(answer.content)
    raise Denied("the code has expired", hint="fairlead login --device")


class _Refusal(msgspec.Struct):
    """Refusal of OAuth (RFC 6749, 5.2), or the gateway's own with the same word at the end of its type."""

    error: str = ""
    type: str = ""


def _refusal(answer: Answer) -> str:
    """Return the word of a refusal; "" for an answer that is none."""
    if answer.status < 400:
        return ""
    try:
        refusal = msgspec.json.decode(answer.content, type=_Refusal)
    except msgspec.MsgspecError:
        return "unknown"
    return refusal.error or refusal.type.rpartition(":")[2] or "unknown"


def by_browser(url: str, note: Note) -> StoredTokens:
    """Open the gateway's sign-in page in a browser on this machine, and wait for its answer on a loopback port. Raises Denied."""
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(16)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    with _Redirect(("127.0.0.1", 0), _Page) as redirect:
        redirect_uri = f"http://127.0.0.1:{redirect.server_address[1]}/"
        query = {
            "response_type": "code",
            "client_id": CLIENT,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        page = f"{addresses_of(url)[0]}/sign-in-command?{urlencode(query)}"
        note(f"continue in your browser: {page}")
        if not webbrowser.open(page):
            note("no browser starts here; without one: fairlead login --device")
        code = redirect.wait_for_code(state)
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "client_id": CLIENT,
        "code_verifier": verifier,
    }
    answer = post_form(url, TOKEN_PATH, fields)
    raise_for(answer.status, answer.content)
    return sign_in_of(answer.content)


class _Redirect(HTTPServer):
    """Loopback server that waits for one redirect. Other requests of the machine's programs are answered with 404."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]  # as HTTPServer takes them
        self.answer: dict[str, str] = {}
        self.state = ""

    def wait_for_code(self, state: str) -> str:
        """Return the code of the redirect with this state. Raises Denied."""
        self.state = state
        deadline = time.monotonic() + BROWSER_WAIT_S
        while not self.answer:
            self.timeout = max(0.0, deadline - time.monotonic())
            if self.timeout == 0.0:
                raise Denied(f"no sign-in within {BROWSER_WAIT_S:g} s", hint="fairlead login --device")
            self.handle_request()
        if "code" not in self.answer:
            raise Denied(f"the sign-in was refused: {self.answer.get('error', 'no code')[:200]}")
        return self.answer["code"]


class _Page(BaseHTTPRequestHandler):
    #: A program that connects and sends nothing must not keep the browser away.
    timeout = 10

    def do_GET(self) -> None:
        """Take the redirect; a request with another state is somebody else's."""
        redirect = self.server
        assert isinstance(redirect, _Redirect), "it serves no other"
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if not secrets.compare_digest(query.get("state", "").encode(), redirect.state.encode()):
            self.send_error(404)
            return
        redirect.answer = query
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Security-Policy", "default-src 'none'")
        self.send_header("Content-Length", str(len(_DONE)))
        self.end_headers()
        self.wfile.write(_DONE)

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing: the code is in the request line."""
