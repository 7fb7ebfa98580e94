"""The permissions as nats-server reads them: the `accounts` block for a list of users. Pure; start at `accounts_block`."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from fairlead_bus import nkey, permissions
from fairlead_bus.permissions import EVERY_NODE, Grant
from fairlead_schemas.units.ids import is_token

SERVICES_ACCOUNT = "FAIRLEAD"
#: An answer may be given once, and so long after the question (people's SQL takes longest).
ANSWER_EXPIRES = "5m"
#: While a key is replaced, the old one and the new one are valid.
KEYS_MAX = 2

Kind = Literal["node", "service"]


class BadUser(ValueError):
    """A user cannot be; the message says what was expected and what was found."""


class User(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """User of the bus: a node by its id, or a service by its name. Has one public key, two while keys are changed."""

    name: str
    kind: Kind
    keys: tuple[str, ...]


def grant_of(user: User) -> Grant:
    """Return the permissions of a user. Raises BadUser."""
    if user.kind == "service" and user.name in permissions.SERVICES:
        return permissions.SERVICES[user.name]
    if user.kind == "node" and (is_token(user.name) or user.name == EVERY_NODE):
        return permissions.of_node(user.name)
    if user.kind == "service":
        raise BadUser(f'expected a service ({", ".join(permissions.SERVICES)}), found "{user.name}"')
    raise BadUser(f'expected a node\'s id, 1 to 63 of a-z 0-9 _ -, found "{user.name}"')


def check(users: Sequence[User]) -> None:
    """Check a list of users. Raises BadUser for an invalid or repeated name and for a repeated key, BadKey for an invalid key."""
    names: set[tuple[str, str]] = set()
    keys: set[str] = set()
    for user in users:
        grant_of(user)
        if (user.kind, user.name) in names:
            raise BadUser(f"{user.kind} {user.name} stands twice")
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
    check(users)
    ordered = sorted(users, key=lambda user: (user.kind, user.name))
    nodes = [user for user in ordered if user.kind == "node"]
    accounts: dict[str, object] = {
        SERVICES_ACCOUNT: {
            "jetstream": "enabled",
            "users": [_entry(user, key) for user in ordered if user.kind == "service" for key in user.keys],
            "exports": [{each.kind: each.subject} for each in permissions.crossings(EVERY_NODE)],
            "imports": [_import(account_of(node), "service", permissions.asked_of(node.name)) for node in nodes],
        }
    }
    for node in nodes:
        accounts[account_of(node)] = {
            "users": [_entry(node, key) for key in node.keys],
            "exports": [{"service": permissions.asked_of(node.name)}],
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
    grant = grant_of(user)
    inbox = f"{permissions.inbox(key)}.>"
    allowed: dict[str, object] = {
        "publish": {"allow": list(grant.publish)},
        "subscribe": {"allow": [inbox, *grant.subscribe]},
    }
    if grant.answers:
        allowed["allow_responses"] = {"max": 1, "expires": ANSWER_EXPIRES}
    return {"nkey": key, "permissions": allowed}
