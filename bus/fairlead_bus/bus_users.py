"""List of bus users in a directory, and the two files made of it. Public keys only: nothing here is secret.

    users.json      the users and their keys; changed by the functions below, one change at a time
    accounts.conf   the same with permissions, for the server to include; always written from users.json

After a change, the caller signals the server (`nats-server --signal reload`). The server then closes the connections of
removed users.
"""

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from fairlead_bus.nats_accounts import KEYS_MAX, BadUser, Kind, User, accounts_block

USERS, ACCOUNTS = "users.json", "accounts.conf"
_decoder = msgspec.json.Decoder(list[User])


def load(directory: Path) -> list[User]:
    """The users; none where there is no list yet. Raises BadUser for one that cannot be read."""
    path = directory / USERS
    try:
        return _decoder.decode(path.read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadUser(f"{path}: expected a list of users, found something else ({error})") from error


def change(directory: Path, how: Callable[[list[User]], list[User]]) -> list[User]:
    """Replace the list by what `how` makes of it, and write both files. Raises BadUser, BadKey, OSError; then nothing
    has changed."""
    directory.mkdir(parents=True, exist_ok=True)
    with _alone(directory):
        users = sorted(how(load(directory)), key=lambda user: (user.kind, user.name))
        block = accounts_block(users)
        _replace(directory / USERS, msgspec.json.format(msgspec.json.encode(users), indent=1))
        _replace(directory / ACCOUNTS, block.encode())
    return users


def find(users: list[User], kind: Kind, name: str) -> User | None:
    """The user, or None."""
    return next((user for user in users if (user.kind, user.name) == (kind, name)), None)


def with_key(users: list[User], kind: Kind, name: str, key: str) -> list[User]:
    """The same with a further key for this user, who may be new. A key that it has already is fine. Raises BadUser."""
    known = find(users, kind, name)
    if known is None:
        return [*users, User(kind=kind, name=name, keys=(key,))]
    if key in known.keys:
        return users
    if len(known.keys) >= KEYS_MAX:
        raise BadUser(
            f"{kind} {name} has {KEYS_MAX} keys already: retire the old one first (fairlead credentials retire {name})"
        )
    changed = msgspec.structs.replace(known, keys=(*known.keys, key))
    return [changed if user is known else user for user in users]


def with_newest_only(users: list[User], kind: Kind, name: str) -> list[User]:
    """The same with this user's newest key alone. Raises BadUser where there is no such user."""
    known = _known(users, kind, name)
    changed = msgspec.structs.replace(known, keys=known.keys[-1:])
    return [changed if user is known else user for user in users]


def without(users: list[User], kind: Kind, name: str) -> list[User]:
    """The same without this user. Raises BadUser where there is none."""
    known = _known(users, kind, name)
    return [user for user in users if user is not known]


def _known(users: list[User], kind: Kind, name: str) -> User:
    known = find(users, kind, name)
    if known is None:
        raise BadUser(f"there is no {kind} {name} among the bus users")
    return known


@contextmanager
def _alone(directory: Path) -> Generator[None]:
    with (directory / f".{USERS}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _replace(path: Path, payload: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
