"""The gateway, the credential and the user's name that a client takes where its program names none.

The gateway is the first of: the argument, FAIRLEAD_URL, the context of FAIRLEAD_CONTEXT, the local stack of FAIRLEAD_DATA, the current
context, the local stack of `./.fairlead`, port 8080 of this machine. The credential is the first of: the argument, FAIRLEAD_TOKEN, the
sign-in of the context with that address, the owner's token of the local stack with that address. Start at `settings_of`.
"""

import getpass
import os
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from fairlead.client import contexts
from fairlead.client.answers import DEFAULT_URL, header
from fairlead.client.contexts import Contexts
from fairlead.client.sign_in import SentToken, StoredSignIn
from fairlead.errors import InputRefused, Unreachable
from fairlead.stack import state
from fairlead_schemas.units.ids import TOKEN_CHARS_MAX, is_token

USER_HINT = "name yourself with --as or FAIRLEAD_USER"
OWNER_TOKEN = "owner.token"  # noqa: S105  # the name of a file
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ClientSettings(NamedTuple):
    """Addresses of gateways (separated by commas), the credential (None: the user's name is sent), and that name."""

    url: str
    credential: SentToken | None
    user: str


def settings_of(url: str = "", token: str = "", user: str = "", context: str = "") -> ClientSettings:
    """Return the settings of a client. Raises InputRefused, NotFound for an unknown context, and Unreachable where FAIRLEAD_DATA
    names a stack that does not run: whatever answers at the default port then is another cluster.
    """
    user = user or os.environ.get("FAIRLEAD_USER") or _login()
    if not is_token(user):
        raise InputRefused(f'user: expected 1 to {TOKEN_CHARS_MAX} of a-z 0-9 _ -, found "{user}"', hint=USER_HINT)
    known = contexts.load()
    found = url or _url(known, context)
    token = header("FAIRLEAD_TOKEN", token or os.environ.get("FAIRLEAD_TOKEN", ""))
    # Several contexts may have one address, each with a sign-in of its own: the one that was named counts.
    elsewhere = url or os.environ.get("FAIRLEAD_URL")
    name = context or ("" if elsewhere else os.environ.get("FAIRLEAD_CONTEXT", "")) or known.name_of(found)
    return ClientSettings(found, SentToken(token) if token else _stored(found, name), user)


def _url(known: Contexts, context: str) -> str:
    if not context and (url := os.environ.get("FAIRLEAD_URL")):
        return url
    if name := context or os.environ.get("FAIRLEAD_CONTEXT"):
        return known.named(name).url
    if os.environ.get("FAIRLEAD_DATA"):
        return _stack_url() or _no_stack()
    return known.contexts[known.current].url if known.current in known.contexts else _stack_url() or DEFAULT_URL


def _stack_url() -> str:
    there = state.load(state.default_data())
    return there.url if there is not None and state.lives(there.supervisor) else ""


def _no_stack() -> str:
    raise Unreachable(
        f"the stack of {state.default_data()} does not run",
        hint="start it with `fairlead up`, unset FAIRLEAD_DATA, or name a gateway in FAIRLEAD_URL",
    )


def _stored(url: str, context: str) -> SentToken | None:
    """Return the credential that is stored for an address, None without any."""
    if context:
        path = contexts.sign_in_path(context)
        sign_in = contexts.read_sign_in(path)
        if sign_in is not None:
            return StoredSignIn(path, url, sign_in)
    token = owner_token(url)
    return SentToken(token) if token else None


def owner_token(url: str, data: Path | None = None) -> str:
    """Return the owner's token of the local stack if the address is its own, on this machine; "" otherwise."""
    data = data or state.default_data()
    path = data / OWNER_TOKEN
    if not path.is_file() or not is_loopback(url):
        return ""
    there = state.load(data)
    if there is None or there.url.rstrip("/") != url.rstrip("/"):
        return ""
    try:
        if path.stat().st_mode & contexts.OTHERS:
            hint = "restart the gateway, which replaces its token"
            raise InputRefused(f"{path}: expected mode 0600, others can read it", hint=hint)
        return header(str(path), path.read_text().strip())
    except (OSError, UnicodeDecodeError) as error:
        raise InputRefused(f"{path}: expected a token, found: {error}") from error


def is_loopback(url: str) -> bool:
    """Return True if an address is on this machine's loopback interface."""
    return urlsplit(url).hostname in _LOOPBACK


def _login() -> str:
    """Return the login name as a user name of Fairlead: lower case, other characters replaced by "-"."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # no passwd entry, as in many containers
        return "unknown"
    return re.sub(r"[^a-z0-9_-]", "-", name.lower()).strip("-_")[:TOKEN_CHARS_MAX] or "unknown"
