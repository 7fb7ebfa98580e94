"""Roles that queue files state: applied with the file, shown, taken back with it, never against what the sender holds."""

from typing import Any

import msgspec

from tests.gateway.access.accounts_world import AccountsWorld
from tests.kit.eventually import eventually_async

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
        ops = {"subject": "group:ops", "role": "viewer", "scope": "pool:default"}
        await world.ask("POST", "/v1/access:grant", ops)
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


async def test_unknown_names_in_roles_are_refused_by_field() -> None:
    """All of them at once, each with the name that was probably meant; no queue and no role changes."""
    async with AccountsWorld(queue=True) as world:
        who = await people(world)
        await applied(world)
        by_hand = {"subject": "group:vision", "role": "viewer", "scope": "queue:research"}
        await world.ask("POST", "/v1/access:grant", by_hand)
        wrong = {"leed": "queue-admin", "group:visoin": "member", "bob": "member"}
        file = {"queues": {"research": {"weight": 7, "roles": wrong}, "new": {"roles": {"nobody-like-it": "viewer"}}}}
        sequence = world.gateway.views.sequence
        refused = await applied(world, file, status=422)
        assert {each["field"]: each["message"] for each in refused["errors"]} == {
            "queues.research.roles.leed": 'nobody has the login name "leed"; did you mean lead?',
            "queues.research.roles.group:visoin": 'there is no group "visoin"; did you mean group:vision?',
            "queues.new.roles.nobody-like-it": 'nobody has the login name "nobody-like-it"',
        }
        refused = await world.ask("PUT", "/v1/queues/prod", {"weight": 3, "roles": {"bbo": "member"}}, status=422)
        assert "did you mean bob?" in refused["detail"]
        assert world.gateway.views.sequence == sequence and await stated(world) == BOTH
        # A lead is not shown the names of people whose roles they do not see.
        _, text = await world.session(who["lead"])
        refused = await applied(world, {"queues": {"research": {"roles": {"bbo": "member"}}}}, token=text, status=422)
        assert "bob" not in str(refused)
        await applied(world, {"queues": {"research": {"roles": {"group:vision": "member"}}}})


async def test_a_removed_queue_keeps_nobodys_rights() -> None:
    """By deletion and by a pruning file, of files and by hand. A queue made again under the name has none of them."""
    async with AccountsWorld(queue=True) as world:
        await people(world)
        await applied(world)
        by_hand = {"subject": "bob", "role": "viewer", "scope": "queue:research/vision"}
        await world.ask("POST", "/v1/access:grant", by_hand)
        await world.ask("DELETE", "/v1/queues/research/vision")
        assert await stated(world) == BOTH - {("ann", "member", "queue:research/vision")}
        await world.ask("PUT", "/v1/queues/research/vision", {})
        assert (await world.ask("GET", "/v1/access?scope=queue:research/vision"))["items"] == []
        await world.ask("POST", "/v1/access:grant", by_hand)
        await applied(world, {"queues": {"prod": {}}}, prune=True)
        await applied(world, {"queues": {"research": {"queues": {"vision": {}}}}})
        assert {each["scope"] for each in (await world.ask("GET", "/v1/access"))["items"]} == {"cluster"}
        why = await world.ask("GET", "/v1/access/why?verb=queue:read&on=queue:research/vision&subject=bob")
        assert not why["allowed"]


GPU = {"nvidia.com/gpu": 4}


async def test_limits_of_users_are_by_login_names_and_stay_when_a_person_is_renamed() -> None:
    """In queues and in lists of pools: ids in the log, names in documents. The same file again changes nothing."""
    async with AccountsWorld(queue=True) as world:
        who = await people(world)
        file = {
            "pools": {"lab": {"users": ["ann", "bob"]}},
            "queues": {"vision": {"pool": "lab", "users": {"ann": GPU, "default": {"nvidia.com/gpu": 1}}}},
        }
        await applied(world, file)
        views = world.gateway.views
        settings = views.queues.rows["vision"].settings
        assert settings is not None and set(settings.users) == {who["ann"], "*"}
        assert set(views.queues.pools["lab"].settings.users) == {who["ann"], who["bob"]}
        document = await world.ask("GET", "/v1/queues/vision")
        assert document["settings"]["users"] == {"ann": GPU, "default": {"nvidia.com/gpu": 1}}
        (pool,) = [each for each in (await world.ask("GET", "/v1/pools"))["items"] if each["name"] == "lab"]
        assert pool["settings"]["users"] == ["ann", "bob"]
        assert (await applied(world, file))["unchanged"] == 2
        row = await world.gateway.accounts.people.find(who["ann"])
        assert row is not None
        await world.gateway.accounts.people.write(who["ann"], msgspec.structs.replace(row, login="anna"))
        assert views.queues.rows["vision"].settings == settings
        await eventually_async(lambda: world.gateway.accounts.people.known_name(who["ann"]) == "anna")
        assert set((await world.ask("GET", "/v1/queues/vision"))["settings"]["users"]) == {"anna", "default"}


async def test_refusals_name_people_by_their_logins() -> None:
    """The queue service knows ids alone: of a pool that is for others, and of a limit that cannot be."""
    async with AccountsWorld(queue=True) as world:
        await people(world)
        await applied(world, {"pools": {"lab": {"users": ["bob"]}}, "queues": {"vision": {"pool": "lab"}}})
        ann = await world.gateway.accounts.people.resolve("ann")
        await world.ask("POST", "/v1/access:grant", {"subject": "ann", "role": "member", "scope": "cluster"})
        _, text = await world.session(ann)
        job = {"command": ["true"], "queue": "vision"}
        refused = await world.ask("POST", "/v1/jobs", job, token=text, status=422)
        assert "user ann may not use pool lab" in refused["detail"] and ann not in str(refused)
        limits = {"queues": {"x": {"users": {"ann": GPU}, "queues": {"y": {}}}}}
        refused = await applied(world, limits, status=422)
        assert ann not in str(refused), refused


async def test_a_limit_of_nobody_names_its_field() -> None:
    """Also in PUT, and in a pool's list; nothing changes then. A person named twice is refused, too."""
    async with AccountsWorld(queue=True) as world:
        who = await people(world)
        for file, field in (
            (
                {"queues": {"research": {"queues": {"vision": {"users": {"nemo": GPU}}}}}},
                "queues.research/vision.users.nemo",
            ),
            ({"pools": {"lab": {"users": ["ann", "nemo"]}}, "queues": {"x": {"pool": "lab"}}}, "pools.lab.users.nemo"),
            ({"queues": {"x": {"users": {"ann": GPU, who["ann"]: GPU}}}}, f"queues.x.users.{who['ann']}"),
        ):
            refused = await applied(world, file, status=422)
            assert [each["field"] for each in refused["errors"]] == [field]
        refused = await world.ask("PUT", "/v1/queues/vision", {"users": {"nemo": GPU}}, status=422)
        assert "nemo" in refused["detail"]
        assert [row.path for row in world.gateway.views.queues.existing()] == ["default"]
