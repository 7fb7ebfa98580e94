"""Named clusters of one person, in `~/.config/fairlead/contexts.toml` (XDG_CONFIG_HOME), and the sign-in of each in a file of its own.

    current = "prod"

    [contexts.prod]
    url = "https://fairlead.example.org"

A sign-in is `credentials/NAME.json` next to that file, of mode 0600. Start at `load`; `sign_in.py` makes and renews sign-ins.
"""

import json
import os
from pathlib import Path

import msgspec

from fairlead.errors import FairleadError, InputRefused, NotFound
from fairlead_schemas.units.ids import TOKEN_CHARS_MAX, is_token

FILE = "contexts.toml"
#: Modes of a sign-in's file: whoever can read it acts as its person.
OTHERS = 0o077


class Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster: its gateways' addresses, separated by commas."""

    url: str


class Contexts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All clusters by name, and the name of the current one ("": none)."""

    current: str = ""
    contexts: dict[str, Context] = {}

    def named(self, name: str) -> Context:
        """Return a cluster. Raises NotFound."""
        if name not in self.contexts:
            known = ", ".join(self.contexts) or "none"
            raise NotFound(f'there is no context "{name}"; there are: {known}', hint="fairlead context list")
        return self.contexts[name]

    def name_of(self, url: str) -> str:
        """Return the name of the cluster with an address; "" where there is none. Of several, the current one."""
        names = [name for name, context in self.contexts.items() if context.url == url]
        return self.current if self.current in names else names[0] if names else ""

    def adding(self, name: str, url: str) -> "Contexts":
        """Return all clusters with another one, which is the current one if it is the first. Raises InputRefused."""
        if not is_token(name):
            raise InputRefused(f'context: expected 1 to {TOKEN_CHARS_MAX} of a-z 0-9 _ -, found "{name}"')
        return Contexts(self.current or name, {**self.contexts, name: Context(url)})

    def without(self, name: str) -> "Contexts":
        """Return all clusters without one. Raises NotFound."""
        self.named(name)
        rest = {other: context for other, context in self.contexts.items() if other != name}
        return Contexts("" if self.current == name else self.current, rest)


class StoredTokens(msgspec.Struct, frozen=True):
    """Tokens of a sign-in."""

    access_token: str
    #: "" where the sign-in cannot be renewed.
    refresh_token: str = ""
    #: Unix s at which the access token expires; 0: unknown.
    expires_at: int = 0


def folder() -> Path:
    """Return the folder of the person's settings."""
    home = os.environ.get("XDG_CONFIG_HOME")
    return (Path(home) if home else Path.home() / ".config") / "fairlead"


def load() -> Contexts:
    """Return all clusters; none where there is no file. Raises InputRefused for a file that cannot be read."""
    path = folder() / FILE
    if not path.exists():
        return Contexts()
    import tomllib

    try:
        return msgspec.convert(tomllib.loads(path.read_text()), Contexts)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InputRefused(f"{path}: expected contexts with a url each, found: {error}") from error


def save(contexts: Contexts) -> None:
    """Replace the file in one step. Raises FairleadError."""
    # A JSON string without surrogates is a TOML basic string.
    lines = [f"current = {json.dumps(contexts.current)}"] if contexts.current else []
    for name, context in contexts.contexts.items():
        lines += ["", f"[contexts.{name}]", f"url = {json.dumps(context.url)}"]
    write_private(folder() / FILE, "\n".join([*lines, ""]).encode())


def sign_in_path(name: str) -> Path:
    """Return the path of a context's sign-in."""
    return folder() / "credentials" / f"{name}.json"


def read_sign_in(path: Path) -> StoredTokens | None:
    """Return a sign-in; None where there is none. Raises InputRefused for a file that others can read, or that is damaged."""
    try:
        if path.stat().st_mode & OTHERS:
            raise InputRefused(f"{path}: expected mode 0600, others can read it", hint=f"chmod 600 {path}")
        return msgspec.json.decode(path.read_bytes(), type=StoredTokens)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise InputRefused(f"{path}: expected a sign-in, found: {error}", hint="fairlead login") from error


def write_private(path: Path, content: bytes) -> None:
    """Write a file that its owner only can read, in one step. Raises FairleadError."""
    from fairlead.stack import state

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        state.write_private(path, content)
    except OSError as error:
        raise FairleadError(f"{error.filename}: {error.strerror}") from error
