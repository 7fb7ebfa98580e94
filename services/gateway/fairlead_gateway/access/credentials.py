"""Credentials by their digests: tokens, sessions, families of refresh tokens, passwords, links. Outside the log, so erasable.

A row here gives no right: a credential counts only while the log says that its token or session is in force. So rows are written
before the command, and a crash between the two leaves rows that mean nothing, which `leftovers` finds later. Each credential has
two rows: "<kind>.<id>" with its digest, and "digest.<digest>" with its id. The first is written first and erased last.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
import structlog
from msgspec import structs

from fairlead_bus.port import Bus, StaleWriter
from fairlead_gateway.access.caller import IDLE_NS
from fairlead_gateway.access.callers import CredentialRow
from fairlead_schemas.units.timestamps import MINUTE_NS
from fairlead_schemas.units.token_text import digest
from fairlead_schemas.wire import subjects

log = structlog.get_logger()

#: Rows whose token or session is not in force are left alone for so long: their command may be on its way.
SETTLED_NS = 10 * MINUTE_NS
#: Reads of rows that run at once.
READS_MAX = 50
#: Sessions (or families) of one session at a provider: from so many on those that have ended are left out, and most that are kept.
INDEX_SHORT, INDEX_MAX = 32, 256

#: Kind of the keys of sign-ins at providers.
_SIGN_IN = "provider"

type CredentialKind = Literal["token", "session"]


class CredentialNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Row of a token or session. `digest`: of its text; of a refresh token that of the newest of its family."""

    digest: str = ""
    principal: str = ""
    #: Digest of what a whole family of refresh tokens has in common; "" for other credentials.
    family: str = ""
    name: str = ""
    made_ns: int = 0
    #: Of a session and of a refresh token: when the person signed in.
    signed_in_ns: int = 0
    provider: str = ""
    #: Session at the provider.
    sid: str = ""
    #: Sign-in at the provider that it goes on (`ProviderSignIn`); "" where the provider cannot be asked again.
    sign_in: str = ""
    address: str = ""
    agent: str = ""
    #: Of a family of refresh tokens: the session that the newest of them opened.
    session: str = ""


class ProviderSignIn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sign-in at a provider that can be asked again. One for a session and the commands that it has allowed: providers that rotate
    refresh tokens end the whole sign-in when one is used twice.
    """

    principal: str = ""
    #: Refresh token of the provider, sealed, and when a gateway last tried it.
    refresh: str = ""
    refreshed_ns: int = 0
    made_ns: int = 0


class _Used(msgspec.Struct, frozen=True):
    at_ns: int = 0


class _Password(msgspec.Struct, frozen=True):
    phc: str = ""


class SignInCode(msgspec.Struct, frozen=True):
    """Sign-in link that was not used yet."""

    principal: str = ""
    expires_ns: int = 0
    #: Token or session that made it; a link ends with it.
    credential: str = ""


class _AtProvider(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sessions and families of refresh tokens that belong to one session at a provider, the oldest first."""

    ids: list[str] = []
    families: list[str] = []


_encode = msgspec.json.Encoder(order="deterministic").encode


class Credentials:
    """Store over CREDENTIAL, and the gateway's look-up of callers. `clock`: Unix ns."""

    def __init__(self, bus: Bus, clock: Callable[[], int]) -> None:
        self._bus = bus
        self._clock = clock
        #: Called with the id of a session that was found idle for too long.
        self.on_idle: Callable[[str], None] = lambda _session: None

    async def follow(self, forget: Callable[[str], None]) -> None:
        """Call `forget` with each digest (hex) whose row any gateway writes."""
        await self._bus.on_put(subjects.CREDENTIAL, "digest.*", lambda key, _value: forget(key.partition(".")[2]))

    # ------------------------------------------------------------------------------- reads

    async def find(self, digest: str) -> CredentialRow | None:
        """Return the token or session with a digest (hex); None for none, and for an idle session. Raises Unavailable."""
        row = await self._get(f"digest.{digest}", CredentialRow)
        if row is None or row.kind not in ("token", "session"):
            return None
        if row.kind == "session" and await self.last_use_ns(row.id) < self._clock() - IDLE_NS:
            self.on_idle(row.id)
            return None
        return row

    async def family(self, digest: str) -> CredentialRow | None:
        """Return the family of refresh tokens with a digest (hex). Raises Unavailable."""
        row = await self._get(f"digest.{digest}", CredentialRow)
        return row if row is not None and row.kind == "refresh" else None

    async def note(self, kind: CredentialKind, item: str) -> CredentialNote | None:
        """Return the row of a token or session. Raises Unavailable."""
        return await self._get(f"{kind}.{item}", CredentialNote)

    async def notes(self, kind: CredentialKind, items: Iterable[str]) -> dict[str, CredentialNote]:
        """Return the rows of several, of those that have one. Raises Unavailable."""
        turns = asyncio.Semaphore(READS_MAX)

        async def one(item: str) -> tuple[str, CredentialNote | None]:
            async with turns:
                return item, await self.note(kind, item)

        found = await asyncio.gather(*map(one, items))
        return {item: note for item, note in found if note is not None}

    async def last_use_ns(self, item: str) -> int:
        """Return when a token or session was last used (Unix ns): a token to the hour, a session to minutes. 0: never."""
        return (await self._get(f"used.{item}", _Used) or _Used()).at_ns

    async def _get[T](self, key: str, kind: type[T]) -> T | None:
        entry = await self._bus.get(subjects.CREDENTIAL, key)
        if entry is None:
            return None
        try:
            return msgspec.json.decode(entry.value, type=kind)
        except msgspec.MsgspecError as error:
            log.warning("credential not understood", kind=key.partition(".")[0], reason=str(error))
            return None

    # ------------------------------------------------------------------------------- changes

    async def write(self, kind: CredentialKind, item: str, note: CredentialNote) -> None:
        """Store both rows of a new credential. Raises Unavailable."""
        await self._put(f"{kind}.{item}", note)
        if kind == "session":
            await self.used(item, note.made_ns)
        if note.sid:
            await self._index(kind, note, item)
        row = CredentialRow("refresh" if note.family else kind, item, note.principal)
        await self._put(f"digest.{note.family or note.digest}", row)

    async def rotate(self, family: str, shown: str, following: CredentialNote) -> bool:
        """Replace the row of a family of refresh tokens if `shown` is the digest of its newest token. False: it is not, or
        another request was faster. Raises Unavailable.
        """
        key = f"token.{family}"
        entry = await self._bus.get(subjects.CREDENTIAL, key)
        if entry is None or msgspec.json.decode(entry.value, type=CredentialNote).digest != shown:
            return False
        try:
            await self._bus.put(subjects.CREDENTIAL, key, _encode(following), expected=entry.revision)
        except StaleWriter:
            return False
        return True

    async def amend(
        self, kind: CredentialKind, item: str, change: Callable[[CredentialNote], CredentialNote | None]
    ) -> bool:
        """Store what `change` makes of a row; None leaves it. Return False where it was left, is missing, or another gateway changed
        it at the same time. Raises Unavailable.
        """
        key = f"{kind}.{item}"
        entry = await self._bus.get(subjects.CREDENTIAL, key)
        before = None if entry is None else msgspec.json.decode(entry.value, type=CredentialNote)
        following = None if before is None or not before.principal else change(before)
        if entry is None or following is None:
            return False
        try:
            await self._bus.put(subjects.CREDENTIAL, key, _encode(following), expected=entry.revision)
        except StaleWriter:
            return False
        return True

    async def used(self, item: str, at_ns: int) -> None:
        """Note a use. Raises Unavailable."""
        await self._put(f"used.{item}", _Used(at_ns))

    async def erase(self, kind: CredentialKind, item: str) -> None:
        """Erase the rows of a credential. Safe to repeat after a crash. Raises Unavailable."""
        note = await self.note(kind, item)
        if note is not None:
            await self._erase(f"digest.{note.family or note.digest}")
        await self._erase(f"used.{item}")
        await self._erase(f"{kind}.{item}")

    async def set_password(self, principal: str, phc: str) -> None:
        """Store the hash of a password, and shred the former one. Raises Unavailable."""
        await self._bus.shred(subjects.CREDENTIAL, f"password.{principal}")
        await self._put(f"password.{principal}", _Password(phc))

    async def password(self, principal: str) -> str:
        """Return the hash of a password; "" for none. Raises Unavailable."""
        return (await self._get(f"password.{principal}", _Password) or _Password()).phc

    async def erase_password(self, principal: str) -> None:
        """Erase it. Raises Unavailable."""
        await self._erase(f"password.{principal}")

    async def add_link(self, digest: str, link: SignInCode) -> None:
        """Store a sign-in link by the digest of its code. Raises Unavailable."""
        await self._put(f"link.{digest}", link)

    async def take_link(self, digest: str) -> SignInCode | None:
        """Return a sign-in link and make it unusable: of several that take it one gets it. None otherwise. Raises Unavailable."""
        entry = await self._bus.get(subjects.CREDENTIAL, f"link.{digest}")
        if entry is None:
            return None
        link = msgspec.json.decode(entry.value, type=SignInCode)
        try:
            await self._bus.put(subjects.CREDENTIAL, f"link.{digest}", b"{}", expected=entry.revision)
        except StaleWriter:
            return None
        await self._bus.delete(subjects.CREDENTIAL, f"link.{digest}")
        return link if link.expires_ns > self._clock() else None

    async def _put(self, key: str, value: msgspec.Struct) -> None:
        await self._bus.put(subjects.CREDENTIAL, key, _encode(value))

    async def _erase(self, key: str) -> None:
        """Shred a key, then write it once more, which other gateways are notified of."""
        await self._bus.shred(subjects.CREDENTIAL, key)
        await self._bus.put(subjects.CREDENTIAL, key, b"{}")
        await self._bus.delete(subjects.CREDENTIAL, key)

    # ------------------------------------------------------------------------------- sessions of a provider

    async def write_sign_in(self, item: str, sign_in: ProviderSignIn) -> None:
        """Store a new sign-in at a provider. Raises Unavailable."""
        await self._put(f"{_SIGN_IN}.{item}", sign_in)

    async def sign_in(self, item: str) -> ProviderSignIn | None:
        """Return a sign-in at a provider. Raises Unavailable."""
        found = await self._get(f"{_SIGN_IN}.{item}", ProviderSignIn) if item else None
        return found if found is not None and found.refresh else None

    async def amend_sign_in(self, item: str, change: Callable[[ProviderSignIn], ProviderSignIn | None]) -> bool:
        """Store what `change` makes of a sign-in; None leaves it. Return False where it was left, is missing, or another gateway
        changed it at the same time. Raises Unavailable.
        """
        entry = await self._bus.get(subjects.CREDENTIAL, f"{_SIGN_IN}.{item}")
        before = None if entry is None else msgspec.json.decode(entry.value, type=ProviderSignIn)
        following = None if before is None or not before.refresh else change(before)
        if entry is None or following is None:
            return False
        try:
            value = _encode(following)
            await self._bus.put(subjects.CREDENTIAL, f"{_SIGN_IN}.{item}", value, expected=entry.revision)
        except StaleWriter:
            return False
        return True

    async def erase_sign_ins(self, in_use: frozenset[str], principal: str = "") -> None:
        """Erase sign-ins at providers: all of one principal, or those of everybody that nothing goes on. Raises Unavailable."""
        for key in await self._bus.keys(subjects.CREDENTIAL, _SIGN_IN):
            found = await self.sign_in(item := key.partition(".")[2])
            is_old = found is not None and found.made_ns < self._clock() - SETTLED_NS
            if found is not None and (found.principal == principal if principal else is_old and item not in in_use):
                await self._erase(key)

    async def items_of(self, index: str) -> list[tuple[CredentialKind, str]]:
        """Return the sessions and families that belong to one session of a provider. `index`: of `sid_index`. Raises Unavailable."""
        found = await self._get(f"sid.{index}", _AtProvider) or _AtProvider()
        return [*(("session", each) for each in found.ids), *(("token", each) for each in found.families)]

    async def _index(self, kind: CredentialKind, note: CredentialNote, item: str) -> None:
        key = f"sid.{sid_index(note.provider, note.sid)}"
        while True:
            entry = await self._bus.get(subjects.CREDENTIAL, key)
            held = _AtProvider() if entry is None else msgspec.json.decode(entry.value, type=_AtProvider)
            if kind == "session":
                held = structs.replace(held, ids=[*await self._still(kind, held.ids), item])
            else:
                held = structs.replace(held, families=[*await self._still(kind, held.families), item])
            value = _encode(held)
            try:
                await self._bus.put(subjects.CREDENTIAL, key, value, expected=0 if entry is None else entry.revision)
                return
            except StaleWriter:
                continue

    async def _still(self, kind: CredentialKind, items: list[str]) -> list[str]:
        """Return the items of an index that is short, else those that have a row. Each renewal of a command's sign-in opens a session,
        and must not push out others that are in force.
        """
        if len(items) < INDEX_SHORT:
            return items
        notes = await self.notes(kind, items)
        return [each for each in items if each in notes][-INDEX_MAX:]

    # ------------------------------------------------------------------------------- upkeep

    async def erase_not_in_force(
        self, kind: CredentialKind, in_force: Callable[[str], bool], principal: str = ""
    ) -> int:
        """Erase the rows of tokens or sessions that are not in force: all of one principal, or those of everybody that have had the
        time to be. Return their number. Raises Unavailable.
        """
        keys = await self._bus.keys(subjects.CREDENTIAL, kind)
        items = [item for key in keys if not in_force(item := key.partition(".")[2])]
        settled, erased = self._clock() - SETTLED_NS, 0
        for item, note in (await self.notes(kind, items)).items():
            if note.principal == principal if principal else note.made_ns < settled:
                await self.erase(kind, item)
                erased += 1
        return erased

    async def erase_old_links(self) -> None:
        """Erase links that have expired, and ends of sessions at providers that no session refers to. Raises Unavailable."""
        for key in await self._bus.keys(subjects.CREDENTIAL, "link"):
            if (link := await self._get(key, SignInCode)) is not None and link.expires_ns < self._clock():
                await self._bus.delete(subjects.CREDENTIAL, key)
        for key in await self._bus.keys(subjects.CREDENTIAL, "sid"):
            items = await self.items_of(key.partition(".")[2])
            if not [item for kind, item in items if await self.note(kind, item) is not None]:
                await self._bus.delete(subjects.CREDENTIAL, key)


def sid_index(provider: str, sid: str) -> str:
    """Return the name under which the sessions of one session at a provider are listed."""
    return digest(f"{provider}\0{sid}")
