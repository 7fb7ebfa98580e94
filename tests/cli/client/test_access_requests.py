"""The client's requests about access against the gateway's real routes and the real access core."""

import httpx
import pytest

from fairlead.client import AsyncClient, Denied, NotFound
from tests.gateway.access.accounts_world import PASSWORD, AccountsWorld

pytestmark = pytest.mark.connected


def client(world: AccountsWorld, token: str) -> AsyncClient:
    """A client of the world's gateway."""
    return AsyncClient("http://localhost", token, transport=httpx.ASGITransport(world.gateway.app))


async def test_people_roles_tokens_and_reasons() -> None:
    """An owner adds a person who may nothing, grants a role, and takes everything back; each answer has its type."""
    async with AccountsWorld() as world, client(world, world.owner) as owner:
        me = await owner.whoami()
        assert (me.login, await owner.me(), owner.server_version != "") == ("owner", "owner", True)
        ann = await owner.add_person("ann", name="Ann Lee", password=PASSWORD)
        assert (ann.login, ann.state) == ("ann", "active")
        why = await owner.access_why("ann", "node:read", "cluster")
        assert (why.allowed, why.missing) == (False, "node:read")
        _, session = await world.session(ann.id)
        async with client(world, session) as hers:
            with pytest.raises(Denied, match="node:read") as refused:
                await hers.nodes()
            assert refused.value.problem is not None
            assert refused.value.problem.why is not None
            assert refused.value.problem.why.verb == "node:read"
            granted = await owner.grant("ann", "viewer", "cluster")
            assert (granted.subject_name, granted.sources) == ("ann", ["person"])
            assert (await hers.nodes()).items == []
            made = await hers.make_token("laptop", verbs=["job:read"], expires_in="7d")
            assert [token.id for token in (await hers.tokens()).items] == [made.id]
            await hers.revoke_token(made.id)
            assert (await hers.tokens()).items == []
            await hers.sign_out()
            with pytest.raises(Denied):
                await hers.nodes()
        assert [g.subject_name for g in (await owner.grants(subject="ann")).items] == ["ann"]
        assert (await owner.revoke("ann", "viewer", "cluster")).sources == []
        assert (await owner.suspend_person("ann")).state == "suspended"
        assert (await owner.admit_person("ann")).state == "active"
        await owner.forget_person("ann")
        with pytest.raises(NotFound):
            await owner.suspend_person("ann")


async def test_service_accounts_and_groups() -> None:
    """Lists are pages of their types."""
    async with AccountsWorld() as world, client(world, world.owner) as owner:
        made = await owner.add_service_account("ci", name="Nightly")
        assert [each.id for each in (await owner.service_accounts()).items] == [made.id]
        assert "ci" not in [person.login for person in (await owner.people()).items]
        assert (await owner.groups()).items == []


async def test_the_record_of_access_is_read_page_by_page() -> None:
    """Pages that follow each other have each entry once, the newest first."""
    async with AccountsWorld() as world, client(world, world.owner) as owner:
        ann = await world.person("ann")
        for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
            world.gateway.accounts.note_failure("local", address, ann)
        await world.gateway.trail.flush()
        whole = await owner.record_of_access("ann")
        page = await owner.record_of_access("ann", limit=2)
        assert page.next and page.items == whole.items[:2]
        rest = await owner.record_of_access("ann", next=page.next)
        assert rest.items == whole.items[2:] and rest.next is None
