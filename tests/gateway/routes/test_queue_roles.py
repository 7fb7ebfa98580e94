"""Roles that queue files state: applied with the file, shown, taken back with it, never against what the sender holds."""

from typing import Any

from tests.gateway.access.accounts_world import AccountsWorld

FILE = {
    "queues": {
        "research": {
            "roles": {"lead": "queue-admin"},
            "queues": {"vision": {"roles": {"ann": "member"}}, "speech": {}},
        },
        "prod": {},
    }
}


async def applied(
    world: AccountsWorld, file: Any = FILE, *, token: str | None = None, status: int = 200, prune: bool = False
) -> Any:
    """Apply a queue file; the answer."""
    path = "/v1/queues:apply" + ("?prune=true" if prune else "")
    return await world.ask("POST", path, file, token=token, status=status)


async def stated(world: AccountsWorld) -> set[tuple[str, str, str]]:
    """(login, role, scope) of the grants that queue files state."""
    items = (await world.ask("GET", "/v1/access"))["items"]
    return {(each["subject_name"], each["role"], each["scope"]) for each in items if "queues" in each["sources"]}


BOTH = {("lead", "queue-admin", "queue:research"), ("ann", "member", "queue:research/vision")}


async def people(world: AccountsWorld) -> dict[str, str]:
    """The people of the file."""
    return {login: await world.person(login) for login in ("lead", "ann", "bob")}


async def test_a_file_gives_its_roles_and_a_later_one_takes_them_back() -> None:
    """Exactly those of the queues that it names; a file of other queues changes none of them. Documents show them as the file has them."""
    async with AccountsWorld(queue=True) as world:
        who = await people(world)
        await applied(world)
        assert await stated(world) == BOTH
        assert (await world.ask("GET", "/v1/queues/research"))["settings"]["roles"] == {"lead": "queue-admin"}
        sequence = world.gateway.views.sequence
        await applied(world)
        assert world.gateway.views.sequence - sequence == 1, "the same roles again are no command"
        await applied(
            world, {"queues": {"prod": {"roles": {who["bob"]: ["viewer", "member"], "group:ops": "operator"}}}}
        )
        assert len(await stated(world)) == 5
        await applied(world, {"queues": {"research/vision": {}}})
        assert await stated(world) & BOTH == {("lead", "queue-admin", "queue:research")}
        await world.ask("PUT", "/v1/queues/prod", {"weight": 2})
        assert await stated(world) == {("lead", "queue-admin", "queue:research")}


async def test_a_file_gives_nothing_that_its_sender_does_not_hold() -> None:
    """The lead of one queue applies files of it with roles up to their own; beyond these nothing changes, also no queue."""
    async with AccountsWorld(queue=True) as world:
        who = await people(world)
        await applied(world)
        _, text = await world.session(who["lead"])
        await applied(world, {"queues": {"research/speech": {"roles": {"bob": "member"}}}}, token=text)
        assert ("bob", "member", "queue:research/speech") in await stated(world)
        for roles in ({"bob": "operator"}, {"bob": "auditor"}):
            file = {"queues": {"research/speech": {"weight": 7, "roles": roles}}}
            refused = await applied(world, file, token=text, status=403)
            assert refused["why"]["verb"] in ("node:operate", "audit:read")
        assert "weight" not in (await world.ask("GET", "/v1/queues/research/speech"))["settings"]
        await applied(world, {"queues": {"prod": {"roles": {"bob": "member"}}}}, token=text, status=404)
        await applied(world, {"queues": {"prod": {"roles": {"nemo": "member"}}}}, status=404)


async def test_a_removed_queue_keeps_nobodys_rights_of_files() -> None:
    """By deletion and by a pruning file. A queue made again under the name has none of them; a role that a person gave is listed as left
    over."""
    async with AccountsWorld(queue=True) as world:
        await people(world)
        await applied(world)
        by_hand = {"subject": "bob", "role": "viewer", "scope": "queue:research/vision"}
        await world.ask("POST", "/v1/access:grant", by_hand)
        gone = await world.ask("DELETE", "/v1/queues/research/vision")
        assert [(each["role"], each["scope"]) for each in gone["left_over"]] == [("viewer", "queue:research/vision")]
        assert await stated(world) == BOTH - {("ann", "member", "queue:research/vision")}
        await world.ask("PUT", "/v1/queues/research/vision", {})
        assert ("ann", "member", "queue:research/vision") not in await stated(world)
        pruned = await applied(world, {"queues": {"prod": {}}}, prune=True)
        assert await stated(world) == set()
        assert [each["scope"] for each in pruned["left_over"]] == ["queue:research/vision"]
