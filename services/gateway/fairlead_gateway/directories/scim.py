"""People and groups as SCIM's resources: read, made, changed and removed, over the accounts and the folded log.

A person is a row of PEOPLE with what the directory sent. `userName` and `externalId` are claimed as identities, so two people
never have the same. A group's row has its name alone; its members are those that the source "scim" gives the group in the
log. Start at `ScimUsers.create` and `ScimGroups.create`.
"""

from collections.abc import Awaitable, Iterable
from typing import Any, NamedTuple

from msgspec import structs

from fairlead_gateway.access.accounts import Accounts
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.directory_people import DirectoryPeople
from fairlead_gateway.access.people import DirectoryRow, Identity, PersonRow, identity_key
from fairlead_gateway.directories.group_names import login_name
from fairlead_gateway.directories.scim_errors import ScimError
from fairlead_gateway.directories.scim_filter import Filter
from fairlead_gateway.directories.scim_patch import Operation, patched
from fairlead_gateway.directories.scim_schema import PAGE_MAX, USER, USERS, Resource, read
from fairlead_gateway.errors import HttpError
from fairlead_gateway.http_messages import RequestHead
from fairlead_gateway.views.fold import Views
from fairlead_rights.access_list import Target
from fairlead_schemas.units.timestamps import rfc3339

SOURCE = "scim"
#: Issuers of the identities by which a person is found again. No provider has such an address.
USER_NAME, EXTERNAL_ID = "urn:fairlead:scim:userName", "urn:fairlead:scim:externalId"


class FoundResources(NamedTuple):
    """Part of the resources that a query finds."""

    total: int
    items: list[Resource]


def page_of(items: list[Any], start: int, count: int | None) -> list[Any]:
    """Return the items from the 1-based index `start` on, at most `count` and PAGE_MAX of them."""
    first = max(start, 1) - 1
    return items[first : first + max(0, min(PAGE_MAX if count is None else count, PAGE_MAX))]


def gone(what: str, name: str) -> ScimError:
    """Return the 404 of a resource."""
    return ScimError(404, "", f"there is no {what} {name[:80]!r}")


class ScimUsers:
    """People. `issuer`: provider whose subjects are the values of `externalId`; "" for none."""

    def __init__(self, views: Views, accounts: Accounts, issuer: str = "") -> None:
        self._views = views
        self._issuer = issuer
        self.operations = DirectoryPeople(views, accounts, SOURCE)
        self._people = accounts.people

    # ------------------------------------------------------------------------------- reads

    async def row(self, principal: str) -> PersonRow:
        """Return the row of a person. Raise ScimError (404) for service accounts and for those whom the directory has removed."""
        row = await self._people.find(principal) if self._views.access.kinds.get(principal) == "person" else None
        if row is None or (row.directory is not None and row.directory.removed):
            raise gone("user", principal)
        return row

    async def get(self, principal: str, base: str) -> Resource:
        """Return a person's resource. Raise ScimError (404)."""
        return self._resource(principal, await self.row(principal), base)

    def _resource(self, principal: str, row: PersonRow, base: str) -> Resource:
        access, directory = self._views.access.access, row.directory or DirectoryRow()
        resource = _attributes(principal, row) | {
            "schemas": [USER],
            "id": principal,
            "meta": meta_of("User", f"{base}/Users/{principal}", row.made_ns, directory.changed_ns),
        }
        if "active" in resource:
            resource["active"] = access.principals.get(principal, False)
        groups = [
            each.removeprefix("group:")
            for each in access.groups_of(principal)
            if principal in access.groups[each].get(SOURCE, ())
        ]
        if groups:
            resource["groups"] = [{"value": each, "display": each, "$ref": f"{base}/Groups/{each}"} for each in groups]
        return resource

    async def find(self, chosen: Filter | None, start: int, count: int | None, base: str) -> FoundResources:
        """Return the people whom a filter selects, by their ids."""
        candidates = await self._candidates(chosen)
        if chosen is None:
            page = [await self._shown(each, base) for each in page_of(candidates, start, count)]
            return FoundResources(len(candidates), [each for each in page if each is not None])
        found = [one for each in candidates if (one := await self._shown(each, base)) is not None and chosen.test(one)]
        return FoundResources(len(found), page_of(found, start, count))

    async def _shown(self, principal: str, base: str) -> Resource | None:
        """Return a person's resource; None for one whom another request removed meanwhile."""
        try:
            return await self.get(principal, base)
        except ScimError:
            return None

    async def _candidates(self, chosen: Filter | None) -> list[str]:
        """Return the ids of people among whom all are that a filter selects: what it looks up is not searched, and of a page no other
        rows are read.
        """
        name, value = chosen.equals if chosen is not None and chosen.equals is not None else ("", "")
        match name:
            case "userName":
                by_login = await self._people.resolve(value.lower())
                found = {await self._people.claimed(identity_key((USER_NAME, value.lower()))), by_login, value}
            case "externalId":
                found = {await self._people.claimed(identity_key((EXTERNAL_ID, value)))}
            case "id":
                found = {value}
            case _:
                kinds = self._views.access.kinds
                return sorted(each for each in await self._people.listed() if kinds.get(each) == "person")
        return [each for each in sorted(found) if await self._is_shown(each)]

    async def _is_shown(self, principal: str) -> bool:
        try:
            await self.row(principal)
        except ScimError:
            return False
        return True

    # ------------------------------------------------------------------------------- changes

    async def create(self, head: RequestHead, body: Any) -> str:
        """Return the principal of a new person, or of one who is known by the issuer's subject and not by SCIM yet. Raise HttpError:
        409 where the person is there already.
        """
        attributes = read(body, USERS)
        await self.operations.catch_up()
        known = await self._known_by_subject(attributes)
        if known:
            await self._store(head, known, attributes, attributes.get("active"))
            return known
        await self._require_free("", attributes)
        active = attributes.setdefault("active", True)
        row = self._row_of(PersonRow(), attributes)
        return await _unique(self.operations.admit(head, row, login_name(attributes["userName"]), active=active))

    async def _known_by_subject(self, attributes: Resource) -> str:
        """Return the person who has signed in at the issuer before the directory named it, else ""."""
        if not self._issuer or not (subject := attributes.get("externalId")):
            return ""
        principal = await self._people.claimed(identity_key((self._issuer, subject)))
        row = await self._people.find(principal) if principal else None
        return principal if row is not None and row.directory is None else ""

    async def replace(self, head: RequestHead, principal: str, body: Any) -> None:
        """Let a person have these attributes and no others. Raise HttpError."""
        await self.operations.catch_up()
        await self.row(principal)
        attributes = read(body, USERS)
        active = attributes.get("active")
        attributes.setdefault("active", self.operations.is_active(principal))
        await self._store(head, principal, attributes, active)

    async def patch(self, head: RequestHead, principal: str, operations: list[Operation]) -> None:
        """Carry out all operations on a person, or none. Raise HttpError."""
        await self.operations.catch_up()
        attributes = _attributes(principal, await self.row(principal))
        if (
            "active" in attributes
        ):  # the state, not what was sent: an admin may have changed it, and only a change counts
            attributes["active"] = self.operations.is_active(principal)
        changed = patched(attributes, operations, USERS)
        # A change of other attributes alone must not undo a suspension that comes while it is carried out.
        active = changed.get("active") if changed.get("active") != attributes.get("active") else None
        await self._store(head, principal, changed, active)

    async def remove(self, head: RequestHead, principal: str) -> None:
        """Suspend a person and take it out of the directory's groups. Its row stays for the record, without the identities by which
        the directory or its provider would find it: who comes back is a new person, without the roles of before. Raise HttpError.
        """
        await self.operations.catch_up()
        await self.row(principal)
        await self.operations.set_active(head, principal, active=False)
        for group in self.operations.groups():
            members = self.operations.members(group)
            if principal in members:
                await self.operations.set_members(head, group, members - {principal})
        row = await self.row(principal)
        directory = structs.replace(row.directory or DirectoryRow(), removed=True, attributes={})
        kept = tuple(each for each in row.identities if each[0] not in (USER_NAME, EXTERNAL_ID, self._issuer))
        await self.operations.change(principal, structs.replace(row, directory=directory, identities=kept))
        await self._people.leave_out(principal)

    async def _store(self, head: RequestHead, principal: str, attributes: Resource, active: bool | None) -> None:
        """Let a person have these attributes. `active`: the wanted state; None leaves it as it is."""
        row = await self._people.find(principal) or PersonRow()
        await self._require_free(principal, attributes)
        self._require_may_link(head.caller, principal, row, attributes)
        if active is not None:
            await self.operations.set_active(head, principal, active=active)
        row = await self._people.find(principal) or row
        changed = self._row_of(row, attributes)
        if changed != row:
            assert changed.directory is not None, "a row that is made of attributes has them"
            stamped = structs.replace(changed.directory, changed_ns=self.operations.now_ns())
            await _unique(self.operations.change(principal, structs.replace(changed, directory=stamped)))

    def _row_of(self, row: PersonRow, attributes: Resource) -> PersonRow:
        """Return a row with the attributes, and with the identities that follow from them."""
        directory = structs.replace(row.directory or DirectoryRow(), attributes=attributes)
        former = {*_identities((row.directory or DirectoryRow()).attributes, self._issuer)}
        kept = [each for each in row.identities if each not in former]
        new = [each for each in _identities(attributes, self._issuer) if each not in kept]
        name, emails = attributes.get("name", {}), attributes.get("emails", [])
        whole = " ".join(name[part] for part in ("givenName", "familyName") if part in name)
        main = next((each for each in emails if each.get("primary")), emails[0] if emails else {})
        return structs.replace(
            row,
            directory=directory,
            identities=(*kept, *new),
            name=name.get("formatted") or attributes.get("displayName") or whole,
            email=main.get("value", ""),
        )

    async def _require_free(self, principal: str, attributes: Resource) -> None:
        """Raise ScimError (409) where a name belongs to another person: also a login name, by which a person without SCIM's
        attributes is found.
        """
        for identity in _identities(attributes, self._issuer):
            if await self._people.claimed(identity_key(identity)) not in ("", principal):
                raise ScimError(409, "uniqueness", f"there is a user with {identity[1][:80]!r} already")
        name = attributes["userName"].lower()
        other = await self._people.resolve(name)
        row = await self._people.find(other) if other != principal else None
        if row is not None and row.directory is None and await self._is_shown(other):
            raise ScimError(409, "uniqueness", f"there is a user with the login name {name[:80]!r} already")

    def _require_may_link(self, caller: Caller, principal: str, row: PersonRow, attributes: Resource) -> None:
        """Raise ScimError (403) unless the caller may give all roles of a person who gets another subject at the issuer: whoever
        signs in there as this subject has these roles.
        """
        subject = (self._issuer, attributes.get("externalId", ""))
        if not all(subject) or subject in row.identities or caller.is_open:
            return
        access, token = self._views.access, caller.credential if caller.is_token else ""
        for grant in access.access.held(principal):
            if not access.may_grant(caller.principal, grant.role, grant.scope, Target(), token):
                detail = f"externalId: this would let another account act as {grant}, which this token may not grant"
                raise ScimError(403, "", detail)


def _attributes(principal: str, row: PersonRow) -> Resource:
    """Return the attributes of a person, made up for one whom no directory has described."""
    if row.directory is not None and row.directory.attributes:
        return dict(row.directory.attributes)
    found: Resource = {"userName": row.login or principal, "active": True}
    if row.name:
        found["displayName"] = row.name
    if row.email:
        found["emails"] = [{"value": row.email, "primary": True}]
    return found


def _identities(attributes: Resource, issuer: str) -> Iterable[Identity]:
    if name := attributes.get("userName"):
        yield USER_NAME, name.lower()
    if external := attributes.get("externalId"):
        yield EXTERNAL_ID, external
        if issuer:
            yield issuer, external


def meta_of(kind: str, location: str, made_ns: int, changed_ns: int) -> Resource:
    """Return the facts about a resource."""
    return {
        "resourceType": kind,
        "created": rfc3339(made_ns),
        "lastModified": rfc3339(changed_ns or made_ns),
        "location": location,
    }


async def _unique[T](change: Awaitable[T]) -> T:
    """Wait for a change, and raise its conflict about an identity in SCIM's words."""
    try:
        return await change
    except HttpError as refused:
        if refused.code == "identity_taken":
            raise ScimError(409, "uniqueness", refused.detail) from None
        raise
