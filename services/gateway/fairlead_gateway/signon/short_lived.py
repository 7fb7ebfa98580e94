"""Short-lived rows of sign-ins in the bucket CREDENTIAL, seen by all gateways: used token ids, device codes, counts of tries."""

import time
from collections.abc import Callable

import msgspec

from fairlead_bus.port import Bus, StaleWriter
from fairlead_schemas.units.token_text import digest
from fairlead_schemas.wire import subjects

#: Prefixes of the keys, which `erase_old` looks through.
KINDS = ("once", "device", "user-code", "code", "tries")


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

    async def put(self, kind: str, name: str, value: msgspec.Struct, life_s: float) -> None:
        """Store a row, over an older one."""
        await self._bus.put(subjects.CREDENTIAL, _key(kind, name), self._encoded(value, life_s))

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

    async def _entry[T](self, kind: str, name: str, type: type[T]) -> tuple[T, float, int] | None:
        entry = await self._bus.get(subjects.CREDENTIAL, _key(kind, name))
        if entry is None:
            return None
        row = msgspec.json.decode(entry.value, type=_Row)
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
                if entry and msgspec.json.decode(entry.value, type=_Row).expires_s <= self.clock():
                    await self._bus.delete(subjects.CREDENTIAL, key)
                    erased += 1
        return erased


def _key(kind: str, name: str) -> str:
    return f"{kind}.{digest(name)}"
