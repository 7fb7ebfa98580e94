"""SCIM where two requests, two directories or an odd client meet: no change undoes another one that takes something away."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead_gateway.access.directory_people import DirectoryPeople
from fairlead_gateway.directories.scim import ScimUsers
from fairlead_gateway.directories.scim_groups import ScimGroups
from fairlead_gateway.directories.scim_patch import Operation
from fairlead_gateway.http_messages import RequestHead
from fairlead_gateway.service import build
from tests.gateway.directories.scim_world import GROUP, PATCH, USER, ScimWorld
from tests.kit.eventually import eventually_async

SUSPEND = {"op": "replace", "path": "active", "value": False}


def during_next_check(patch: pytest.MonkeyPatch, kind: type, other: Callable[[], Awaitable[Any]]) -> None:
    """Let `other` happen while the next change is between its reads and its writes."""
    plain, waiting = kind._require_free, [other]  # type: ignore[attr-defined]

    async def checked(self: Any, *arguments: Any) -> None:
        await plain(self, *arguments)
        if waiting:
            await waiting.pop()()

    patch.setattr(kind, "_require_free", checked)


async def test_a_changed_name_does_not_undo_a_suspension(monkeypatch: pytest.MonkeyPatch) -> None:
    """The person is suspended while another request that says nothing of it is carried out."""
    async with ScimWorld() as world:
        for send in (
            lambda one: world.patch(f"/Users/{one}", {"op": "replace", "path": "displayName", "value": "Ada"}),
            lambda one: world.scim("PUT", f"/Users/{one}", {"schemas": [USER], "userName": "ada", "displayName": "A"}),
        ):
            ada = await world.user("ada")
            during_next_check(monkeypatch, ScimUsers, lambda one=ada: world.patch(f"/Users/{one}", SUSPEND))
            await send(ada)
            assert not world.is_active(ada)
            await world.scim("DELETE", f"/Users/{ada}", status=204)


async def test_an_added_member_brings_no_removed_one_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both changes of the group count, whichever is carried out first."""
    async with ScimWorld() as world:
        ada, bob, cleo = [await world.user(name) for name in ("ada", "bob", "cleo")]
        vision = await world.group("vision", ada, bob)
        removal = {"op": "remove", "path": f'members[value eq "{ada}"]'}
        during_next_check(monkeypatch, ScimGroups, lambda: world.patch(f"/Groups/{vision}", removal))
        await world.patch(f"/Groups/{vision}", {"op": "add", "path": "members", "value": [{"value": cleo}]})
        assert world.members(vision) == {bob, cleo}


async def test_a_removal_right_after_an_addition_at_another_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    """A balancer sends the second request to a gateway that has not folded the first one's event yet."""
    async with ScimWorld() as world:
        ada, bob = [await world.user(name) for name in ("ada", "bob")]
        vision = await world.group("vision", bob)
        late, removal = (
            await build(world.hub.connect(), world.settings),
            Operation("remove", f'members[value eq "{ada}"]'),
        )
        background = asyncio.create_task(late.background())
        await eventually_async(lambda: late.views.sequence == world.gateway.views.sequence)
        held: list[tuple[Any, ...]] = []
        with monkeypatch.context() as patch:
            patch.setattr(late.views, "fold", lambda *commit: held.append(commit))
            await world.patch(f"/Groups/{vision}", {"op": "add", "path": "members", "value": [{"value": ada}]})
            groups = ScimGroups(world.bus, late.views, late.accounts)
            removing = asyncio.create_task(groups.patch(RequestHead(user=""), vision, [removal]))
            await eventually_async(lambda: held)
        for commit in held:
            late.views.fold(*commit)
        await removing
        assert world.members(vision) == {bob}
        background.cancel()


async def test_a_directory_ends_no_suspension_of_another_one() -> None:
    """Each of two has said that the person has left; the last one that says the reverse brings the person back."""
    async with ScimWorld() as world:
        ada = await world.user("ada")
        other = DirectoryPeople(world.gateway.views, world.gateway.accounts, "ldap")
        await world.patch(f"/Users/{ada}", SUSPEND)
        await other.set_active(None, ada, active=True)
        assert not world.is_active(ada)
        await other.set_active(None, ada, active=False)
        await world.patch(f"/Users/{ada}", SUSPEND | {"value": True})
        assert not world.is_active(ada)
        await other.set_active(None, ada, active=True)
        assert world.is_active(ada)


async def test_an_account_without_all_roles_of_a_group_changes_no_member() -> None:
    """A queue admin of the whole cluster may use SCIM, and does not become an admin by it."""
    async with ScimWorld() as world:
        lead = await world.person("lead", "", queue_admin="cluster")
        _, text = await world.session(lead)
        await world.ask("POST", "/v1/access:grant", {"subject": "group:admins", "role": "admin", "scope": "cluster"})
        body = {"schemas": [GROUP], "displayName": "admins", "members": [{"value": lead}]}
        refused = await world.scim("POST", "/Groups", body, token=text, status=403)
        assert "more than they hold" in refused["detail"]
        assert (await world.ask("GET", "/v1/whoami", token=text))["groups"] == []
        boss = await world.person("boss", "", admin="cluster")
        await world.ask("POST", f"/v1/people/{boss}:forget", {}, token=text, status=403)
        assert world.is_active(boss) and await world.gateway.accounts.people.find(boss) is not None


async def test_a_message_of_an_odd_type_is_refused() -> None:
    """A 400 in SCIM's words, never a failure of the gateway."""
    async with ScimWorld() as world:
        ada = await world.user("ada")
        for schemas in (True, 5, None, {PATCH: 1}, [[PATCH]]):
            await world.scim("PATCH", f"/Users/{ada}", {"schemas": schemas, "Operations": [SUSPEND]}, status=400)
            await world.scim("POST", "/.search", {"schemas": schemas}, status=400)
        assert world.is_active(ada)
