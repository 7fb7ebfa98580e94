"""Short-lived rows of sign-ins in the bucket CREDENTIAL, seen by all gateways: used token ids, device codes, counts of tries."""

import contextlib
import time
from collections.abc import Callable

import msgspec

from fairlead_bus.port import Bus, Entry, StaleWriter
from fairlead_schemas.units.token_text import digest
from fairlead_schemas.wire import subjects

#: Prefixes of the keys, which `erase_old` looks through.
KINDS = (
    "once",
    "device",
    "user-code",
    "code",
    "tries",
    "attempts",
    "exchanges",
    "app-code",
    "app-entry",
    "service-key",
)
#: An attempt has drained after it, however full the count was.
MINUTE_S = 60.0


class _Level(msgspec.Struct, frozen=True):
    """Attempts as of a time (Unix s); they drain evenly."""

    count: float = 0.0
    at_s: float = 0.0


class _Row(msgspec.Struct, frozen=True):
    expires_s: float = 0.0
    value: msgspec.Raw = msgspec.Raw(b"null")


class ShortLived:
    """Rows by kind and name, of which only the digest is stored. `clock`: Unix s. Everything raises Unavailable."""

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self.clock = clock

    async def once(self, name: str, life_s: float) -> bool:
        """Return True for the first caller with this name, and False for the others while it lives."""
        key = _key("once", name)
        try:
            await self._bus.put(subjects.CREDENTIAL, key, self._encoded(None, life_s), expected=0)
        except StaleWriter:
            return False
        return True

    async def has(self, name: str) -> bool:
        """Return True while a name that `once` has noted lives."""
        return await self._entry("once", name, type(None)) is not None

    async def put(self, kind: str, name: str, value: msgspec.Struct, life_s: float) -> None:
        """Store a row, over an older one."""
        await self._bus.put(subjects.CREDENTIAL, _key(kind, name), self._encoded(value, life_s))

    async def begin(self, kind: str, name: str, value: msgspec.Struct, life_s: float) -> None:
        """Store a row where there is none."""
        with contextlib.suppress(StaleWriter):
            encoded = self._encoded(value, life_s)
            await self._bus.put(subjects.CREDENTIAL, _key(kind, name), encoded, expected=0)

    async def get[T](self, kind: str, name: str, type: type[T]) -> T | None:
        """Return a row that lives; None for none."""
        found = await self._entry(kind, name, type)
        return None if found is None else found[0]

    async def change[T: msgspec.Struct](
        self, kind: str, name: str, type: type[T], change: Callable[[T], T | None]
    ) -> T | None:
        """Return a row as it was, and store what `change` makes of it; None removes it. Of several that change the same row each sees
        the result of the one before. None: there is no row.
        """
        while True:
            found = await self._entry(kind, name, type)
            if found is None:
                return None
            value, expires_s, revision = found
            following = change(value)
            life_s = 0.0 if following is None else expires_s - self.clock()
            try:
                encoded = self._encoded(following, life_s)
                await self._bus.put(subjects.CREDENTIAL, _key(kind, name), encoded, expected=revision)
                return value
            except StaleWriter:
                continue

    async def attempt(self, name: str, per_minute: int) -> int:
        """Count an attempt and return 0; if there is no room, count nothing and return the seconds until there is. So many may come
        at once, and as many a minute.
        """
        key = _key("attempts", name)
        while True:
            entry, now_s = await self._bus.get(subjects.CREDENTIAL, key), self.clock()
            level = _Level() if entry is None else msgspec.json.decode(_read(entry).value, type=_Level)
            count = max(0.0, level.count - max(0.0, now_s - level.at_s) * per_minute / 60)
            if count > per_minute - 1:
                return int((count - per_minute + 1) * 60 / per_minute) + 1
            row = self._encoded(_Level(count + 1, now_s), MINUTE_S)
            try:
                await self._bus.put(subjects.CREDENTIAL, key, row, expected=entry.revision if entry else 0)
            except StaleWriter:
                continue
            return 0

    async def _entry[T](self, kind: str, name: str, type: type[T]) -> tuple[T, float, int] | None:
        entry = await self._bus.get(subjects.CREDENTIAL, _key(kind, name))
        if entry is None:
            return None
        row = _read(entry)
        if row.expires_s <= self.clock():
            return None
        return msgspec.json.decode(row.value, type=type), row.expires_s, entry.revision

    def _encoded(self, value: msgspec.Struct | None, life_s: float) -> bytes:
        return msgspec.json.encode(_Row(self.clock() + life_s, msgspec.Raw(msgspec.json.encode(value))))

    async def erase_old(self) -> int:
        """Erase rows that have expired. Return their number."""
        erased = 0
        for kind in KINDS:
            for key in await self._bus.keys(subjects.CREDENTIAL, kind):
                entry = await self._bus.get(subjects.CREDENTIAL, key)
                if entry and _read(entry).expires_s <= self.clock():
                    await self._bus.delete(subjects.CREDENTIAL, key)
                    erased += 1
        return erased


def _read(entry: Entry) -> _Row:
    return msgspec.json.decode(entry.value, type=_Row)


def _key(kind: str, name: str) -> str:
    return f"{kind}.{digest(name)}"
