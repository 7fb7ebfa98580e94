"""Carries a picture of the LDAP directory over to people and groups, now and then.

The directory owns the memberships of the source "ldap" and nothing else. What it does not have any more is only taken away
where the picture is whole, and people are suspended only where the settings demand it. All gateways may do the same at once.
Start at `LdapSync.apply`.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from itertools import batched
from typing import Any, NamedTuple

import structlog
from msgspec import structs

from fairlead_bus.port import BusError
from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.directory_people import DirectoryPeople
from fairlead_gateway.access.people import NAME_CHARS_MAX, DirectoryRow, Identity, PersonRow, identity_key
from fairlead_gateway.directories.group_names import login_name
from fairlead_gateway.directories.ldap import LdapFailed, LdapPerson, LdapPicture, LdapSettings, look_up
from fairlead_gateway.errors import EarlyAnswer, HttpError
from fairlead_gateway.views.fold import Views

log = structlog.get_logger()

SOURCE = "ldap"
#: Issuer of the identities by which a person is found again.
LDAP_ID = "urn:fairlead:ldap"
#: People who are admitted or changed at once.
AT_ONCE = 200
#: So many may leave at once, and beyond it this share of all: more is rather a mistake in a filter than a departure.
LEAVERS_FREE, LEAVERS_SHARE = 10, 0.2


class SyncReport(NamedTuple):
    """Outcome of one round."""

    people: int
    groups: int
    suspended: int
    #: Leavers who are too many to be suspended at once.
    held_back: int = 0
    #: People who would lose all groups of the directory and are too many for that at once.
    kept: int = 0


class LdapSync:
    """Sync of one gateway. `is_ready`: returns True while the views are at the log's end."""

    def __init__(
        self,
        views: Views,
        accounts: Accounts,
        settings: LdapSettings,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._views = views
        self._settings = settings
        self._is_ready = is_ready
        self._people = accounts.people
        self.operations = DirectoryPeople(views, accounts, SOURCE)

    async def run(self) -> None:
        """Sync without end. A directory that cannot be read changes nothing until the next round."""
        while True:
            if self._is_ready():
                try:
                    report = await self.apply(await asyncio.to_thread(look_up, self._settings))
                    log.info("directory synced", source=SOURCE, **report._asdict())
                except (LdapFailed, BusError, EarlyAnswer) as error:
                    log.warning("directory not synced", source=SOURCE, reason=str(error))
            await asyncio.sleep(self._settings.every_s if self._is_ready() else 1.0)

    async def apply(self, picture: LdapPicture) -> SyncReport:
        """Let people and groups be as in a picture. Raise HttpError, Unavailable: then the next round continues."""
        if picture.unusable:
            log.warning("groups of the directory are left out", source=SOURCE, names=list(picture.unusable[:20]))
        principals: dict[str, str] = {}
        await _in_batches(self._take(each, principals) for each in picture.people.values())
        wanted = {
            group: {principals[each] for each in members if each in principals}
            for group, members in picture.groups.items()
        }
        kept = await self._set_groups(wanted)
        report = await self._end(len(wanted), set(principals.values()))
        return report._replace(kept=kept)

    async def _set_groups(self, wanted: Mapping[str, set[str]]) -> int:
        """Let these be the members of all groups by the directory. Return how many people would lose all of their groups where that
        are too many, or where there is no group at all: then members are only added, since a search without the right to see groups
        or members has an empty answer as well.
        """
        held = {group: self.operations.members(group) for group in self.operations.groups()}
        everybody = frozenset[str]().union(*held.values())
        lost = everybody.difference(*wanted.values())
        keeps = bool(held) and (not wanted or _are_too_many(len(lost), len(everybody)))
        if keeps:
            log.error("too many people lose their groups at once; none is removed", source=SOURCE, people=len(lost))
        for group in sorted({*wanted, *held}):
            members = wanted.get(group, set[str]())
            await self.operations.set_members(None, group, members | held.get(group, set()) if keeps else members)
        return len(lost) if keeps else 0

    async def _take(self, person: LdapPerson, principals: dict[str, str]) -> None:
        """Admit a person or take changes over, and note the principal. One whose identity is another's already is left as it was: a
        person of before has not left the directory by that.
        """
        try:
            principals[person.id] = await self._principal(person)
        except HttpError as refused:
            if refused.status >= 500:
                raise
            log.warning("person of the directory is left out", source=SOURCE, reason=refused.code)
            if principal := await self._people.claimed(identity_key((LDAP_ID, person.id))):
                principals[person.id] = principal

    async def _principal(self, person: LdapPerson) -> str:
        identities: list[Identity] = [(LDAP_ID, person.id)]
        if self._settings.issuer and person.subject:
            identities.append((self._settings.issuer, person.subject))
        name, email = _line(person.name), _line(person.email)
        for identity in identities:
            if principal := await self._people.claimed(identity_key(identity)):
                await self._change(principal, identities, name, email)
                return principal
        row = PersonRow(identities=tuple(identities), directory=DirectoryRow(), name=name, email=email)
        return await self.operations.admit(None, row, login_name(person.login))

    async def _change(self, principal: str, identities: Collection[Identity], name: str, email: str) -> None:
        row = await self._people.find(principal) or PersonRow()
        if row.directory is not None and row.directory.suspended:
            await self.operations.set_active(None, principal, active=True)
            row = await self._people.find(principal) or row
        changed = structs.replace(
            row,
            identities=_linked(row.identities, identities),
            directory=row.directory or DirectoryRow(),
            name=name,
            email=email,
        )
        if changed != row:
            await self.operations.change(principal, changed)

    async def _end(self, groups: int, present: set[str]) -> SyncReport:
        """Suspend the directory's people who have left it, where the settings demand it."""
        leavers = [each for each in self._views.access.kinds if each not in present and await self._is_leaver(each)]
        if not self._settings.suspend_leavers:
            return SyncReport(len(present), groups, 0)
        if _are_too_many(len(leavers), len(present) + len(leavers)):
            log.error(
                "too many people have left the directory at once; none is suspended",
                source=SOURCE,
                leavers=len(leavers),
            )
            return SyncReport(len(present), groups, 0, len(leavers))
        suspended = 0
        for principal in leavers:
            try:
                await self.operations.set_active(None, principal, active=False)
                suspended += 1
            except HttpError as refused:
                if refused.status >= 500:
                    raise
                log.warning("person who left the directory is not suspended", source=SOURCE, reason=refused.code)
        return SyncReport(len(present), groups, suspended)

    async def _is_leaver(self, principal: str) -> bool:
        if not self.operations.is_active(principal):
            return False
        row = await self._people.find(principal)
        return row is not None and any(issuer == LDAP_ID for issuer, _ in row.identities)


def _are_too_many(gone: int, everybody: int) -> bool:
    """Return True where so many have gone at once that a mistake is more likely."""
    return gone > max(LEAVERS_FREE, LEAVERS_SHARE * everybody)


def _linked(held: Iterable[Identity], stated: Collection[Identity]) -> tuple[Identity, ...]:
    """Return a person's identities after the directory has stated some: of one issuer there is one, so an account that was stated by
    mistake does not go on to be this person.
    """
    issuers = {issuer for issuer, _ in stated}
    return tuple(dict.fromkeys((*(each for each in held if each[0] not in issuers), *stated)))


def _line(text: str) -> str:
    """Return text that is shown: one line, bounded."""
    return "".join(each for each in text if each.isprintable())[:NAME_CHARS_MAX]


async def _in_batches(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    for batch in batched(work, AT_ONCE):
        await asyncio.gather(*batch)
