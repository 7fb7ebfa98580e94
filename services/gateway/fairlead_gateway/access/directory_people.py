"""Operations of directories on people and groups: admit, change, suspend, memberships by a source. A provider whose tokens name
groups is a directory, too.

Each is sent by the right of the request that states it, or by none where the gateway reads a directory itself. A directory
suspends and admits only by a change of its own: who was suspended by hand stays so. Start at `DirectoryPeople.admit`.
"""

import time
from collections.abc import Callable, Iterable

from msgspec import structs

from fairlead_gateway.access.accounts import SET_UP, Accounts, new_id
from fairlead_gateway.access.people import DirectoryRow, Identity, PersonRow, identity_key, login_key
from fairlead_gateway.errors import HttpError
from fairlead_gateway.http_messages import RequestHead
from fairlead_gateway.views.fold import Views
from fairlead_schemas.policies.rights import GROUP
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.wire import commands as cmd

#: Members that one command adds or removes; the access service takes 1,000.
MEMBERS_CHUNK = 500


class DirectoryPeople:
    """Operations of one directory. `source`: its name in memberships and rows. `clock`: Unix ns."""

    def __init__(self, views: Views, accounts: Accounts, source: str, clock: Callable[[], int] = time.time_ns) -> None:
        self._views = views
        self._accounts = accounts
        self.people = accounts.people
        self.source = source
        self._clock = clock

    async def admit(self, head: RequestHead | None, row: PersonRow, login: str, *, active: bool = True) -> str:
        """Return a new principal with this row, its identities, and a login name like the wanted one. Raise HttpError: 409 where an
        identity belongs to another principal.
        """
        principal = new_id("p")
        row = structs.replace(row, source=self.source, made_ns=self._clock(), login=login)
        await self.people.write(principal, row)
        for identity in row.identities:
            if await self.people.claim(identity_key(identity), principal) != principal:
                await self.people.erase(principal)
                raise taken(identity)
        if not login or await self.people.claim(login_key(login), principal) != principal:
            row = structs.replace(row, login="")
            row = structs.replace(row, login=await self._accounts.claim_login(login, principal, row))
            await self.people.write(principal, row)
        try:
            await self._send(head, cmd.AdmitPrincipal, principal=principal, kind="person")
        except HttpError as refused:
            if refused.status < 500:
                await self._accounts.erase_principal(principal)
            raise
        if not active:
            await self.set_active(head, principal, active=False)
        return principal

    async def change(self, principal: str, row: PersonRow) -> None:
        """Replace a person's row, its identities included. Raise HttpError (409) where a new one belongs to another principal; then
        nothing is changed.
        """
        held = await self.people.find(principal) or PersonRow()
        new = [each for each in row.identities if each not in held.identities]
        old = [each for each in held.identities if each not in row.identities]
        if new:
            await self.people.write(principal, structs.replace(held, identities=(*held.identities, *new)))
            for identity in new:
                if await self.people.claim(identity_key(identity), principal) != principal:
                    await self._release(principal, new)
                    await self.people.write(principal, held)
                    raise taken(identity)
        await self._release(principal, old)
        if row != held or new:
            await self.people.write(principal, row)

    async def _release(self, principal: str, identities: Iterable[Identity]) -> None:
        for identity in identities:
            await self.people.release(identity_key(identity), principal)

    async def catch_up(self) -> None:
        """Wait for what other gateways have changed before: a directory sends each change to whichever gateway. Raise HttpError (503)."""
        await self._accounts.catch_up()

    def now_ns(self) -> int:
        """Return the time in Unix ns."""
        return self._clock()

    def is_active(self, principal: str) -> bool:
        """Return True if the principal is admitted and not suspended."""
        return self._views.access.access.principals.get(principal, False)

    async def set_active(self, head: RequestHead | None, principal: str, *, active: bool) -> None:
        """Suspend a person, or end the suspension by this directory. Raise HttpError: 409 for the cluster's last admin and for the
        owner whom the set-up has made.
        """
        row = await self.people.find(principal) or PersonRow()
        directory = row.directory or DirectoryRow()
        others = tuple(each for each in directory.suspended_by if each != self.source)
        if active:
            if not directory.suspended or (others and others == directory.suspended_by):
                return
            if not others and not self.is_active(principal):
                await self._send(head, cmd.AdmitPrincipal, principal=principal, kind="person")
            await self._note(principal, row, structs.replace(directory, suspended=bool(others), suspended_by=others))
            return
        suspended = structs.replace(directory, suspended=True, suspended_by=(*others, self.source))
        if not self.is_active(principal):
            if others and suspended != directory:  # another directory has suspended the person, and may end that
                await self._note(principal, row, suspended)
            return
        if row.source == SET_UP:
            raise HttpError(
                409,
                "owner",
                f"{row.login or principal} is the owner that the set-up has made; no directory suspends it",
            )
        # Noted first: a person who was suspended without the note could not come back by the directory.
        await self._note(principal, row, suspended)
        try:
            await self._send(head, cmd.SuspendPrincipal, principal=principal)
        except HttpError as refused:
            if refused.status < 500:
                await self.people.write(principal, row)
            raise

    async def _note(self, principal: str, row: PersonRow, directory: DirectoryRow) -> None:
        await self.people.write(principal, structs.replace(row, directory=directory))

    def members(self, group: str) -> frozenset[str]:
        """Return the members that this directory gives a group, which is named without "group:"."""
        return self._views.access.access.groups.get(GROUP + group, {}).get(self.source, frozenset())

    def groups(self) -> list[str]:
        """Return the groups that have members by this directory, without "group:", sorted."""
        groups = self._views.access.access.groups
        return sorted(name.removeprefix(GROUP) for name, sources in groups.items() if self.source in sources)

    async def set_members(self, head: RequestHead | None, group: str, members: Iterable[str]) -> None:
        """Let these be all members of a group by this directory; those of other sources stay. Raise HttpError."""
        await self.change_members(head, group, self.members(group), frozenset(members))

    async def change_members(
        self, head: RequestHead | None, group: str, before: frozenset[str], after: frozenset[str]
    ) -> None:
        """Add and remove the members that differ. Others stay as they are, also where another request has changed them since `before`
        was read: of two changes at once neither undoes the other. Raise HttpError.
        """
        added, removed = sorted(after - before), sorted(before - after)
        for at in range(0, max(len(added), len(removed)), MEMBERS_CHUNK):
            await self._sync(head, group, added[at : at + MEMBERS_CHUNK], removed[at : at + MEMBERS_CHUNK])

    async def set_groups(self, principal: str, groups: Iterable[str]) -> list[str]:
        """Let these be all groups of a principal by this directory; those of other sources stay. Return names that no group can have,
        sorted; they give nothing, since a name that is changed to fit could be that of another group. Raise HttpError.
        """
        wanted = frozenset(groups)
        fitting = {group for group in wanted if is_token(group)}
        held = {group for group in self.groups() if principal in self.members(group)}
        for group in sorted(fitting ^ held):
            await self._sync(None, group, *(([principal], []) if group in fitting else ([], [principal])))
        return sorted(wanted - fitting)

    async def _sync(self, head: RequestHead | None, group: str, added: list[str], removed: list[str]) -> None:
        fields = {"group": GROUP + group, "source": self.source, "added": tuple(added), "removed": tuple(removed)}
        await self._send(head, cmd.SyncGroup, **fields)

    async def _send(self, head: RequestHead | None, command: type[cmd.CommandBase], **fields: object) -> None:
        sent = {"user": head.user, "authority": head.authority} if head else {}
        await self._accounts.send(command(id=self._accounts.new_command_id(head), **sent, **fields))  # type: ignore[arg-type]


def taken(identity: Identity) -> HttpError:
    """Return the 409 of an identity that belongs to another principal."""
    return HttpError(409, "identity_taken", f"{identity[1][:80]!r} belongs to another person already")
