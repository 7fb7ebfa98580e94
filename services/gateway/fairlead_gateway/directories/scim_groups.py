"""SCIM's groups: a row with the name for each, and the members that the source "scim" gives the group in the log.

A group's id is the name that grants have, "group:<id>", made of the name in the directory when the group is made. It stays when the
directory renames the group, as the roles do. Start at `ScimGroups.create`.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import structs

from fairlead_bus.port import Bus, StaleWriter
from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.directory_people import DirectoryPeople
from fairlead_gateway.directories.group_names import group_name
from fairlead_gateway.directories.scim import SOURCE, FoundResources, gone, meta_of, page_of
from fairlead_gateway.directories.scim_errors import ScimError, bad_value
from fairlead_gateway.directories.scim_filter import Filter
from fairlead_gateway.directories.scim_patch import Operation, patched
from fairlead_gateway.directories.scim_schema import GROUP, GROUPS, Resource, read
from fairlead_gateway.http_messages import RequestHead
from fairlead_gateway.views.fold import Views
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.wire import subjects

KIND = "group"
GROUPS_MAX = 20_000
MEMBERS_MAX = 100_000


class GroupRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Row of a group."""

    name: str
    external_id: str = ""
    made_ns: int = 0
    changed_ns: int = 0


_encode = msgspec.json.Encoder(order="deterministic").encode
_rows = msgspec.json.Decoder(GroupRow)


class ScimGroups:
    """Groups of the directory."""

    def __init__(self, bus: Bus, views: Views, accounts: Accounts) -> None:
        self._bus = bus
        self._views = views
        self._operations = DirectoryPeople(views, accounts, SOURCE)

    # ------------------------------------------------------------------------------- reads

    async def _row(self, group: str) -> GroupRow:
        entry = await self._bus.get(subjects.PEOPLE, f"{KIND}.{group}") if is_token(group) else None
        if entry is None:
            raise gone("group", group)
        return _rows.decode(entry.value)

    async def _names(self) -> list[str]:
        return sorted(key.partition(".")[2] for key in await self._bus.keys(subjects.PEOPLE, KIND))

    async def get(self, group: str, base: str, *, members: bool = True) -> Resource:
        """Return a group's resource. Raise ScimError (404). `members`: False leaves them out."""
        row = await self._row(group)
        resource: Resource = {
            "schemas": [GROUP],
            "id": group,
            "displayName": row.name,
            "meta": meta_of("Group", f"{base}/Groups/{group}", row.made_ns, row.changed_ns),
        }
        if row.external_id:
            resource["externalId"] = row.external_id
        held = sorted(self._operations.members(group)) if members else []
        if held:
            resource["members"] = [{"value": each, "$ref": f"{base}/Users/{each}", "type": "User"} for each in held]
        return resource

    async def find(
        self, chosen: Filter | None, start: int, count: int | None, base: str, *, members: bool = True
    ) -> FoundResources:
        """Return the groups that a filter selects, by their ids. `members`: False leaves them out of the answer."""
        names = await self._names()
        if chosen is None:
            shown = [await self.get(each, base, members=members) for each in page_of(names, start, count)]
            return FoundResources(len(names), shown)
        by, name = chosen.equals or ("", "")
        if by == "displayName" and isinstance(name, str) and await self._is_called(group_name(name), name):
            names = [group_name(name)]  # no other group has that name
        found = [each for each in names if chosen.test(await self.get(each, base))]
        shown = [await self.get(each, base, members=members) for each in page_of(found, start, count)]
        return FoundResources(len(found), shown)

    async def _is_called(self, group: str, name: str) -> bool:
        """Return True if a group's name in the directory is this one, in whatever case."""
        try:
            return (await self._row(group)).name.lower() == name.lower()
        except ScimError:
            return False

    # ------------------------------------------------------------------------------- changes

    async def create(self, head: RequestHead, body: Any) -> str:
        """Return the id of a new group. Raise HttpError: 409 where there is one of that name."""
        wanted = read(body, GROUPS)
        await self._operations.catch_up()
        group = _group_of(wanted)
        members = await self._members(wanted)
        await self._require_free("", group, wanted["displayName"])
        row = GroupRow(
            name=wanted["displayName"],
            external_id=wanted.get("externalId", ""),
            made_ns=self._operations.now_ns(),
        )
        try:
            await self._bus.put(subjects.PEOPLE, f"{KIND}.{group}", _encode(row), expected=0)
        except StaleWriter:
            raise _exists(group) from None
        await self._operations.set_members(head, group, members)
        return group

    async def replace(self, head: RequestHead, group: str, body: Any) -> None:
        """Let a group have this name and these members by the directory. Raise HttpError."""
        await self._operations.catch_up()
        row, wanted = await self._row(group), read(body, GROUPS)
        await self._store(head, group, row, wanted, self._operations.members(group))

    async def patch(self, head: RequestHead, group: str, operations: list[Operation]) -> None:
        """Carry out all operations on a group, or none. Raise HttpError."""
        await self._operations.catch_up()
        row = await self._row(group)
        held: Resource = {"displayName": row.name}
        if row.external_id:
            held["externalId"] = row.external_id
        if members := self._operations.members(group):
            held["members"] = [{"value": each, "type": "User"} for each in sorted(members)]
        await self._store(head, group, row, patched(held, operations, GROUPS), members)

    async def remove(self, head: RequestHead, group: str) -> None:
        """Remove a group: the directory gives it no members any more. Grants and members of other sources stay. Raise HttpError."""
        await self._operations.catch_up()
        await self._row(group)
        await self._operations.set_members(head, group, ())
        await self._bus.delete(subjects.PEOPLE, f"{KIND}.{group}")

    async def _store(
        self, head: RequestHead, group: str, row: GroupRow, wanted: Resource, held: frozenset[str]
    ) -> None:
        """Change what differs from a group's row and from the members that it had when the request was read."""
        members = await self._members(wanted)
        await self._require_free(group, _group_of(wanted), wanted["displayName"])
        changed = structs.replace(row, name=wanted["displayName"], external_id=wanted.get("externalId", ""))
        if changed != row or members != held:
            await self._operations.change_members(head, group, held, members)
            stamped = structs.replace(changed, changed_ns=self._operations.now_ns())
            await self._bus.put(subjects.PEOPLE, f"{KIND}.{group}", _encode(stamped))

    async def _members(self, wanted: Resource) -> frozenset[str]:
        """Return the principals that a resource names as members. Raise ScimError (400) for one that is no person."""
        listed: Iterable[Resource] = wanted.get("members", ())
        members = frozenset(each.get("value", "") for each in listed)
        if len(members) > MEMBERS_MAX:
            raise ScimError(400, "tooMany", f"members: expected at most {MEMBERS_MAX}, found {len(members)}")
        for each in sorted(members):
            if self._views.access.kinds.get(each) != "person":
                raise bad_value(f"members: there is no user {each[:80]!r}")
        return members

    async def _require_free(self, group: str, wanted: str, name: str) -> None:
        """Raise ScimError (409) where another group has this name or had it when it was made: its roles are not those of the one
        that is meant.
        """
        names = await self._names()
        if len(names) >= GROUPS_MAX and not group:
            raise ScimError(400, "tooMany", f"expected at most {GROUPS_MAX} groups")
        if wanted != group and wanted in names:
            raise _exists(wanted)
        for each in names:
            if each != group and group_name((await self._row(each)).name) == wanted:
                raise ScimError(409, "uniqueness", f"group {each} is called {name[:80]!r} already")


def _group_of(wanted: Resource) -> str:
    group = group_name(wanted["displayName"])
    if not group:
        raise bad_value(
            "displayName: expected 1 to 63 letters, digits, spaces, dots and any of _ - /, of which the name in grants is made"
        )
    return group


def _exists(group: str) -> ScimError:
    return ScimError(409, "uniqueness", f"there is a group {group} already")
