"""People and service accounts by their opaque ids: login names, e-mail, identities at providers. Outside the log, so erasable.

Rows are read from the bucket PEOPLE once and kept in bounded memory until somebody changes them; after a lost connection all are
read again. A login name and an identity each belong to the first who writes their key, whichever gateway that is. Nothing here
says what a principal may do. Start at `PeopleStore.find`.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable
from itertools import batched
from typing import Any

import msgspec
import structlog

from fairlead_bus.port import Bus, StaleWriter
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.events.access import PrincipalKind

log = structlog.get_logger()

#: Rows and claims that are kept in memory, each; beyond it the oldest are read again when they are needed.
CACHED_MAX = 20_000
#: Rows that are read at once.
READS_MAX = 50
#: Row of a principal that was erased, for as long as the other gateways need to read it.
_ERASED = b"{}"
#: Kind of the keys of those whom a directory has removed.
_LEFT_OUT = "removed"
#: Characters of a name and of an e-mail address.
NAME_CHARS_MAX = 200

type Identity = tuple[str, str]


class DirectoryRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts that a directory has sent about a person."""

    #: Attributes by the names of SCIM, as they are shown again.
    attributes: dict[str, Any] = {}
    #: True while the person is suspended by a directory. One who was suspended by hand is not admitted by it.
    suspended: bool = False
    #: Sources of the directories that want it. It ends when the last of them ends it; () of rows from before this was known.
    suspended_by: tuple[str, ...] = ()
    #: True once the directory has removed the person; the row stays until the person is forgotten.
    removed: bool = False
    changed_ns: int = 0


class PersonRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Row of a principal. Text of people and providers, so everything here is shown escaped."""

    login: str = ""
    name: str = ""
    email: str = ""
    kind: PrincipalKind = "person"
    #: (issuer, subject) of each provider's identity.
    identities: tuple[Identity, ...] = ()
    #: How it came here: "local", "up", or the name of a provider or directory.
    source: str = ""
    made_ns: int = 0
    directory: DirectoryRow | None = None


class _Claim(msgspec.Struct, frozen=True):
    principal: str = ""


_encode = msgspec.json.Encoder(order="deterministic").encode
_rows = msgspec.json.Decoder(PersonRow)
_claims = msgspec.json.Decoder(_Claim)


def login_key(login: str) -> str:
    """Return the key of a login name."""
    return f"login.{login}"


def identity_key(identity: Identity) -> str:
    """Return the key of a provider's identity. Its text is not in the key."""
    return "identity." + hashlib.sha256("\0".join(identity).encode()).hexdigest()


class PeopleStore:
    """Store over PEOPLE. `open` first."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._rows: dict[str, PersonRow] = {}
        self._claims: dict[str, str] = {}
        #: {principal: login name}, as it is shown. Kept while a changed row is not read yet: an id means nothing to people.
        self._names: dict[str, str] = {}
        #: Called with the id of a principal that is forgotten, at whichever gateway.
        self.on_forgotten: Callable[[str], None] = lambda _principal: None
        #: Increased whenever something in memory may have become old: a read that began before is not kept.
        self._changes = 0

    async def open(self) -> None:
        """Follow the changes of other gateways."""
        await self._bus.on_put(subjects.PEOPLE, "*.*", self._changed)
        self._bus.on_reconnect(self._drop_all)

    def _changed(self, key: str, value: bytes) -> None:
        self._drop(key)
        kind, _, principal = key.partition(".")
        if kind == "principal" and value == _ERASED:
            self.on_forgotten(principal)
        if kind == "principal" and self._names.pop(principal, ""):
            self._name(principal, _read_row(value))

    def _name(self, principal: str, row: PersonRow | None) -> None:
        if row is not None and row.login:
            _keep(self._names, principal, row.login)

    def _drop(self, key: str) -> None:
        self._changes += 1
        self._claims.pop(key, None)
        self._rows.pop(key.partition(".")[2], None)

    def _drop_all(self) -> None:
        self._changes += 1
        self._rows.clear()
        self._names.clear()
        self._claims.clear()

    # ------------------------------------------------------------------------------- reads

    async def find(self, principal: str) -> PersonRow | None:
        """Return the row of a principal; None if there is none, or it was forgotten. Raises Unavailable."""
        if (row := self._rows.get(principal)) is not None or not is_token(principal):
            return row
        changes = self._changes
        row = await self._read(principal)
        if row is not None and changes == self._changes:
            _keep(self._rows, principal, row)
            self._name(principal, row)
        return row

    async def _read(self, principal: str) -> PersonRow | None:
        """Return the stored row, also one that a crash left under its second key."""
        for kind in ("principal", "next"):
            if (entry := await self._bus.get(subjects.PEOPLE, f"{kind}.{principal}")) is not None:
                return _read_row(entry.value)
        return None

    async def claimed(self, key: str) -> str:
        """Return the principal to whom a login or an identity belongs; "" for none. Raises Unavailable."""
        if found := self._claims.get(key):
            return found
        changes = self._changes
        entry = await self._bus.get(subjects.PEOPLE, key)
        found = "" if entry is None else _claims.decode(entry.value).principal
        if found and changes == self._changes:
            _keep(self._claims, key, found)
        return found

    async def resolve(self, text: str) -> str:
        """Return the principal with a login name, or else the text itself, which may be an id. Raises Unavailable."""
        return (await self.claimed(login_key(text)) if is_token(text) else "") or text

    async def name_of(self, principal: str) -> str:
        """Return the login name of a principal; its id without one. Raises Unavailable."""
        row = await self.find(principal)
        return (row.login if row is not None else "") or principal

    async def logins(self, principals: Iterable[str]) -> dict[str, str]:
        """Return {principal: login name} of several, of those that have one. Raises Unavailable."""
        names: dict[str, str] = {}
        for part in batched(principals, READS_MAX):
            found = await asyncio.gather(*map(self.name_of, part))
            names |= {each: name for each, name in zip(part, found, strict=True) if name != each}
        return names

    def known_name(self, principal: str) -> str:
        """Return the login name of a principal that is in memory, else its id."""
        return self._names.get(principal, principal)

    # ------------------------------------------------------------------------------- changes

    async def write(self, principal: str, row: PersonRow) -> None:
        """Store a row, and shred the former one. Raises Unavailable.

        Bytes that are replaced cannot be shredded any more, so the new row is kept under a second key meanwhile.
        """
        value, key, meanwhile = _encode(row), f"principal.{principal}", f"next.{principal}"
        if await self._bus.get(subjects.PEOPLE, key) is None:
            await self._bus.put(subjects.PEOPLE, key, value)
        else:
            await self._bus.put(subjects.PEOPLE, meanwhile, value)
            await self._bus.shred(subjects.PEOPLE, key)
            await self._bus.put(subjects.PEOPLE, key, value)
            await self._bus.shred(subjects.PEOPLE, meanwhile)
        self._drop(key)

    async def claim(self, key: str, principal: str) -> str:
        """Return the owner of a login or an identity, after trying to make it this principal's. Raises Unavailable."""
        try:
            await self._bus.put(subjects.PEOPLE, key, _encode(_Claim(principal)), expected=0)
        except StaleWriter:
            self._drop(key)
            return await self.claimed(key)
        self._drop(key)
        return principal

    async def release(self, key: str, principal: str) -> None:
        """Erase a principal's claim of a login or an identity, so that another one can have it. Raises Unavailable."""
        if await self.claimed(key) == principal:
            await self._erase(key)

    async def erase(self, principal: str) -> None:
        """Erase everything about a principal, for ever. Safe to repeat after a crash. Raises Unavailable.

        A row goes after its claims, so what is still to be erased is known until the end.
        """
        row = await self._read(principal) or PersonRow()
        keys = [identity_key(each) for each in row.identities]
        if row.login:
            keys.append(login_key(row.login))
        for key in keys:
            await self.release(key, principal)
        await self._bus.shred(subjects.PEOPLE, f"next.{principal}")
        await self._bus.delete(subjects.PEOPLE, f"{_LEFT_OUT}.{principal}")
        await self._erase(f"principal.{principal}")

    async def _erase(self, key: str) -> None:
        """Shred a key, then write it once more, which drops it from the memory of other gateways."""
        await self._bus.shred(subjects.PEOPLE, key)
        await self._bus.put(subjects.PEOPLE, key, _ERASED)
        await self._bus.delete(subjects.PEOPLE, key)
        self._drop(key)

    async def leave_out(self, principal: str) -> None:
        """Leave a principal out of `listed`, until it is forgotten. Raises Unavailable."""
        await self._bus.put(subjects.PEOPLE, f"{_LEFT_OUT}.{principal}", _ERASED)

    async def listed(self) -> set[str]:
        """Return the ids of all rows but those that were left out; no row is read. Raises Unavailable."""
        left_out = await self._bus.keys(subjects.PEOPLE, _LEFT_OUT)
        return {*await self.principals()} - {key.partition(".")[2] for key in left_out}

    async def principals(self) -> list[str]:
        """Return the ids of all rows, admitted or not. Raises Unavailable."""
        keys = [key for kind in ("principal", "next") for key in await self._bus.keys(subjects.PEOPLE, kind)]
        return list(dict.fromkeys(key.partition(".")[2] for key in keys))


def _read_row(value: bytes) -> PersonRow | None:
    try:
        return _rows.decode(value)
    except msgspec.MsgspecError as error:
        log.warning("person not understood", reason=str(error))
        return None


def _keep[T](cache: dict[str, T], key: str, value: T) -> None:
    if len(cache) >= CACHED_MAX:
        del cache[next(iter(cache))]
    cache[key] = value
