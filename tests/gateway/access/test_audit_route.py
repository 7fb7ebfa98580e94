"""The record of access over HTTP: who looked into whose job, who was refused, who signed in."""

import asyncio
from typing import Any

from fairlead_schemas.wire.access_records import AccessEntry
from tests.gateway.access.accounts_world import PASSWORD, AccountsWorld
from tests.kit.eventually import eventually_async

JOB = {"name": "a", "queue": "default", "command": ["true"]}


async def of(world: AccountsWorld, token: str, about: str = "me") -> list[dict[str, Any]]:
    """What is noted of a principal by now, the newest first."""
    await world.gateway.trail.flush()
    return (await world.ask("GET", f"/v1/audit/access?about={about}", token=token))["items"]


async def test_the_owner_of_a_job_sees_who_looked_into_it() -> None:
    """By name and verb, without the address; one's own looks are no entry. An admin's look counts."""
    async with AccountsWorld(queue=True) as world:
        ann = await world.person("ann", member="cluster")
        _, mine = await world.session(ann)
        job = (await world.ask("POST", "/v1/jobs", JOB, token=mine, status=201))["id"]
        for path in (f"/v1/jobs/{job}", f"/v1/jobs/{job}/why", f"/v1/jobs/{job}"):
            await world.ask("GET", path, token=mine)
            await world.ask("GET", path)
        (read,) = [each for each in await of(world, mine) if each["kind"] == "read"]
        assert (read["login"], read["verb"], read["target"], read["owner"]) == ("owner", "job:read", f"job:{job}", ann)
        assert read["address"] == "" and read["count"] == 3
        (own,) = [each for each in await of(world, world.owner) if each["kind"] == "read"]
        assert own["address"] and own["target"] == f"job:{job}"


async def test_refusals_are_noted_on_both_paths() -> None:
    """Of a route of its own, and of a submit, which is answered past the framework; by the verb that was missing."""
    async with AccountsWorld(queue=True) as world:
        bob = await world.person("bob", viewer="queue:default")
        _, token = await world.session(bob)
        job = (await world.ask("POST", "/v1/jobs", JOB, status=201))["id"]
        await world.ask("POST", f"/v1/jobs/{job}:cancel", {}, token=token, status=403)
        await world.ask("POST", "/v1/jobs", JOB, token=token, status=403)
        denied = [each for each in await of(world, token) if each["kind"] == "denied"]
        assert {(each["verb"], each["target"]) for each in denied} == {
            ("job:cancel", f"job:{job}"),
            ("job:submit", "queue:default"),
        }


async def test_sign_ins_are_noted_and_those_of_unknown_names_stand_apart() -> None:
    """Nothing of what was typed is kept."""
    async with AccountsWorld() as world:
        await world.person("ann")
        answer = await world.ask(
            "POST", "/v1/sign-in/local", {"login": "ann", "password": PASSWORD}, token="", accept="application/json"
        )
        wrong = {"login": "ann", "password": "a wrong password"}
        await world.ask("POST", "/v1/sign-in/local", wrong, token="", status=401)
        nobody = {"login": "hunter2", "password": "a wrong password"}
        await world.ask("POST", "/v1/sign-in/local", nobody, token="", status=401)
        mine = await of(world, answer["access_token"])
        assert [each["kind"] for each in mine] == ["sign_in_failed", "signed_in"]
        unknown = await of(world, world.owner, "unknown")
        assert [each["kind"] for each in unknown] == ["sign_in_failed"]
        stored = b"".join(each.payload for each in world.hub.streams["AUDIT"].messages)
        assert b"hunter2" not in stored and b"wrong password" not in stored and PASSWORD.encode() not in stored


async def test_the_record_of_others_needs_a_right() -> None:
    """An admin or auditor of the cluster; everybody has their own."""
    async with AccountsWorld() as world:
        ann, _ = await world.person("ann"), await world.person("eve", auditor="cluster")
        _, mine = await world.session(ann)
        refused = await world.ask("GET", "/v1/audit/access?about=owner", token=mine, status=403)
        assert refused["why"]["verb"] == "audit:read"
        assert await of(world, world.owner, "ann") != []
        bad = await world.ask("GET", "/v1/audit/access?from=noon", token=mine, status=422)
        assert bad["errors"][0]["field"] == "from"


async def test_the_last_entries_survive_a_stop() -> None:
    """They are written at once; a bus that is away does not hold the stop."""
    async with AccountsWorld() as world:
        trail = world.gateway.trail
        trail.note(AccessEntry(kind="signed_in", at_ns=0, principal="p1", via="local"))
        await world.gateway.save()
        assert b"p1" in b"".join(each.payload for each in world.hub.streams["AUDIT"].messages)
        world.hub.stop()
        trail.note(AccessEntry(kind="signed_in", at_ns=0, principal="p2", via="local"))
        async with asyncio.timeout(60):
            await world.gateway.save()
        world.hub.start()


async def test_the_gateway_writes_by_itself() -> None:
    """Once a second, without a reader."""
    async with AccountsWorld() as world:
        await world.person("ann")
        await world.session(await world.gateway.accounts.people.resolve("ann"))
        await eventually_async(lambda: bool(world.hub.streams["AUDIT"].messages))
