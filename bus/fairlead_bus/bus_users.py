"""List of bus users in a directory, and the two files made of it. Public keys only: nothing here is secret.

    users.json      the users and their keys; changed by the functions below, one change at a time
    accounts.conf   the same with permissions, for the server to include; always written from users.json

After a change, the caller signals the server (`nats-server --signal reload`). The server then closes the connections of
removed users.

`accounts_block` writes the permissions as nats-server reads them, and is pure.
"""

import fcntl
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from fairlead_bus import nkey, permissions
from fairlead_bus.permissions import EVERY_NODE, Permissions
from fairlead_schemas.units.ids import is_token

SERVICES_ACCOUNT = "FAIRLEAD"
#: An answer may be given once, and so long after the question (people's SQL takes longest).
ANSWER_EXPIRES = "5m"
#: While a key is replaced, the old one and the new one are valid.
KEYS_MAX = 2

UserKind = Literal["node", "service"]


class BadUser(ValueError):
    """A user cannot be; the message says what was expected and what was found."""


class User(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """User of the bus: a node by its id, or a service by its name. Has one public key, two while keys are changed."""

    name: str
    kind: UserKind
    keys: tuple[str, ...]


def permissions_of(user: User) -> Permissions:
    """Return the permissions of a user. Raises BadUser."""
    if user.kind == "service" and user.name in permissions.SERVICES:
        return permissions.SERVICES[user.name]
    if user.kind == "node" and (is_token(user.name) or user.name == EVERY_NODE):
        return permissions.of_node(user.name)
    if user.kind == "service":
        raise BadUser(f'expected a service ({", ".join(permissions.SERVICES)}), found "{user.name}"')
    raise BadUser(f'expected a node\'s id, 1 to 63 of a-z 0-9 _ -, found "{user.name}"')


def check_users(users: Sequence[User]) -> None:
    """Check a list of users. Raises BadUser for an invalid or repeated name and for a repeated key, BadKey for an invalid key."""
    names: set[tuple[str, str]] = set()
    keys: set[str] = set()
    for user in users:
        permissions_of(user)
        if (user.kind, user.name) in names:
            raise BadUser(f"{user.kind} {user.name} is listed twice")
        if not 1 <= len(user.keys) <= KEYS_MAX:
            raise BadUser(f"{user.kind} {user.name}: expected 1 to {KEYS_MAX} keys, found {len(user.keys)}")
        for key in user.keys:
            nkey.check_public(key)
            if key in keys:
                raise BadUser(f"key {key} has two users: each key is one user's")
            keys.add(key)
        names.add((user.kind, user.name))


def accounts_block(users: Sequence[User]) -> str:
    """The block, to be included in a server's configuration. Raises BadUser, BadKey."""
    check_users(users)
    ordered = sorted(users, key=lambda user: (user.kind, user.name))
    nodes = [user for user in ordered if user.kind == "node"]
    accounts: dict[str, object] = {
        SERVICES_ACCOUNT: {
            "jetstream": "enabled",
            "users": [_entry(user, key) for user in ordered if user.kind == "service" for key in user.keys],
            "exports": [{each.kind: each.subject} for each in permissions.crossings(EVERY_NODE)],
            "imports": [_import(account_of(node), "service", permissions.request_subject(node.name)) for node in nodes],
        }
    }
    for node in nodes:
        accounts[account_of(node)] = {
            "users": [_entry(node, key) for key in node.keys],
            "exports": [{"service": permissions.request_subject(node.name)}],
            "imports": [_import(SERVICES_ACCOUNT, *crossing) for crossing in permissions.crossings(node.name)],
        }
    # The server's language takes JSON, apart from the outermost braces.
    text = msgspec.json.format(msgspec.json.encode(accounts), indent=1).decode()
    return f"# Written by `fairlead credentials`; changes are overwritten.\naccounts {text}\n"


def account_of(node: User) -> str:
    """The account that this node is alone in."""
    return "NODES" if node.name == EVERY_NODE else f"NODE_{node.name}"


def _import(account: str, kind: str, subject: str) -> dict[str, object]:
    return {kind: {"account": account, "subject": subject}}


def _entry(user: User, key: str) -> dict[str, object]:
    grant = permissions_of(user)
    inbox = f"{permissions.inbox(key)}.>"
    allowed: dict[str, object] = {
        "publish": {"allow": list(grant.publish)},
        "subscribe": {"allow": [inbox, *grant.subscribe]},
    }
    if grant.answers:
        allowed["allow_responses"] = {"max": 1, "expires": ANSWER_EXPIRES}
    return {"nkey": key, "permissions": allowed}


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


def find(users: list[User], kind: UserKind, name: str) -> User | None:
    """The user, or None."""
    return next((user for user in users if (user.kind, user.name) == (kind, name)), None)


def with_key(users: list[User], kind: UserKind, name: str, key: str) -> list[User]:
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


def with_newest_only(users: list[User], kind: UserKind, name: str) -> list[User]:
    """The same with this user's newest key alone. Raises BadUser where there is no such user."""
    known = _known(users, kind, name)
    changed = msgspec.structs.replace(known, keys=known.keys[-1:])
    return [changed if user is known else user for user in users]


def without(users: list[User], kind: UserKind, name: str) -> list[User]:
    """The same without this user. Raises BadUser where there is none."""
    known = _known(users, kind, name)
    return [user for user in users if user is not known]


def _known(users: list[User], kind: UserKind, name: str) -> User:
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
