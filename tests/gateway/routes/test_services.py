"""Services over HTTP, with the real queue and access services: who may make, see, scale and stop them, and their keys; and what proxies are answered."""

from typing import Any

import httpx
import msgspec

from fairlead_gateway.routes.service_calls import KEY_KIND, KeptKey
from fairlead_schemas.policies.services import LOAD_AGAIN_NS
from fairlead_schemas.units import token_text
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.app_sessions import (
    AppQuestion,
    FindService,
    RenewServices,
    ServiceAnswer,
    ServicesRenewed,
)
from tests.gateway.access.signed_world import SignedWorld, body_of
from tests.kit.eventually import eventually_async

WORDS: dict[str, Any] = {
    "kind": "service",
    "name": "chat",
    "queue": "research",
    "command": ["serve"],
    "app": {"port": 8000},
}


async def ready(world: SignedWorld) -> None:
    """Queue research with a member ann, a lead, a viewer, and a person without roles."""
    await world.configure(research={}, sales={})
    await world.person("ann", member="queue:research")
    await world.person("bob", member="queue:research")
    await world.person("lead", queue_admin="queue:research")
    await world.person("eve", member="queue:sales")


async def put(world: SignedWorld, who: str, **words: Any) -> httpx.Response:
    """Submit the service."""
    return await world.ask(who, "POST", "/v1/services", json={**WORDS, **words})


async def asked[T](world: SignedWorld, question: AppQuestion, kind: type[T]) -> T:
    """Ask the gateway as an app proxy does."""
    subject = subjects.rpc("gateway", "apps")
    return msgspec.json.decode(await world.bus.request(subject, msgspec.json.encode(question), timeout_s=20), type=kind)


async def test_a_service_is_of_its_submitter_and_seen_by_readers_of_its_queue() -> None:
    """A member sees it and does not change it, a lead may, and who may not see it is answered as if it were not there."""
    async with SignedWorld() as world:
        await ready(world)
        made = (await put(world, "ann", service={"replicas": 2})).json()
        assert (made["user"], made["revision"], made["wanted"], made["serving"]) == ("ann", 1, 2, 0)
        assert made["may"] == ["job:read", "job:cancel", "session:share"]
        assert [each["state"] for each in made["replicas"]] in ([], ["waiting", "waiting"])
        jobs = lambda: world.gateway.views.services.rows["chat"].replicas  # noqa: E731 -- looked at again and again
        await eventually_async(lambda: len(jobs()) == 2)
        row = world.gateway.views.jobs.rows[next(iter(jobs()))]
        assert (row.name, row.user, row.kind, row.queue) == ("chat", "ann", "service", "research")
        assert (await world.get("bob", "/v1/services/chat"))["may"] == ["job:read"]
        assert (await world.get("eve", "/v1/services"))["items"] == []
        hidden = await world.ask("eve", "GET", "/v1/services/chat")
        absent = await world.ask("eve", "GET", "/v1/services/none")
        assert body_of(hidden)[0] == body_of(absent)[0] == 404
        for method, path, body in (
            ("POST", "/v1/services/chat:scale", {"replicas": 1}),
            ("DELETE", "/v1/services/chat", None),
            ("POST", "/v1/services/chat/keys", {}),
            ("GET", "/v1/services/chat/keys", None),
        ):
            for who, status in (("bob", 403), ("eve", 404)):
                answer = await world.ask(who, method, path, **({"json": body} if body is not None else {}))
                assert answer.status_code == status, (who, path, answer.text)
        assert (await put(world, "bob")).status_code == 403, "it would end ann's replicas"
        assert (await put(world, "eve", queue="sales")).status_code == 409, "the name is taken, and says no more"
        scaled = await world.ask("lead", "POST", "/v1/services/chat:scale", json={"replicas": 3})
        assert scaled.status_code == 200 and scaled.json()["wanted"] == 3
        assert (await world.ask("lead", "POST", "/v1/services/chat/keys", json={})).status_code == 403
        assert (await world.ask("lead", "DELETE", "/v1/services/chat")).status_code == 200
        await eventually_async(lambda: "chat" not in world.gateway.views.services.rows)


async def test_every_mistake_of_a_service_file_is_named() -> None:
    """With its field; and a service does not go through as a job."""
    async with SignedWorld() as world:
        await ready(world)
        answer = await put(world, "ann", name="Chat", retries={"max": 1}, service={"replicas": "2-x"})
        assert answer.status_code == 422
        assert {each["field"] for each in answer.json()["errors"]} == {"name", "retries", "service.replicas"}
        surge = await put(world, "ann", service={"surge": 0})
        assert [each["field"] for each in surge.json()["errors"]] == ["service.surge"]
        job = await world.ask("ann", "POST", "/v1/jobs", json={**WORDS, "service": {}})
        assert job.status_code == 422 and "fairlead service apply" in job.text
        ranged = await put(world, "ann", service={"replicas": 0})
        assert ranged.status_code == 200
        scaled = await world.ask("ann", "POST", "/v1/services/chat:scale", json={"replicas": "0-4"})
        assert scaled.status_code == 422 and "requests" in scaled.text


async def test_a_key_is_shown_once_and_kept_as_a_digest() -> None:
    """A proxy finds by it the service and the bounds; revoked it is none, and nothing of it is in the log."""
    async with SignedWorld() as world:
        await ready(world)
        await put(world, "ann", service={"replicas": 0})
        body = {"name": "shop", "per_minute": 60, "in_flight": 2, "expires": "1d"}
        made = (await world.ask("ann", "POST", "/v1/services/chat/keys", json=body)).json()
        digest = token_text.digest(made["token"])
        assert token_text.check(made["token"]) == "a" and made["expires_at"]
        (listed,) = (await world.get("ann", "/v1/services/chat/keys"))["items"]
        assert "token" not in listed and listed["key"] == made["key"] and listed["per_minute"] == 60
        found = (await asked(world, FindService(key=digest), ServiceAnswer)).entry
        assert found is not None and (found.service, found.per_minute, found.in_flight) == ("chat", 60, 2)
        label = world.gateway.views.services.rows["chat"].label
        assert (await asked(world, FindService(key=digest, label=label), ServiceAnswer)).entry is not None
        other = await asked(world, FindService(key=digest, label="svc-other-abcdefgh"), ServiceAnswer)
        assert other.status == 401
        log = b"".join(each.payload for each in world.hub.streams[subjects.LOG].messages)
        assert made["key"].encode() in log and made["token"].encode() not in log and digest.encode() not in log
        renewal = RenewServices(proxy="p1", loads={"chat": 0}, keys={digest: "chat"})
        assert (await asked(world, renewal, ServicesRenewed)).ended == {}
        revoked = await world.ask("ann", "DELETE", f"/v1/services/chat/keys/{made['key']}")
        assert revoked.status_code == 200
        assert (await asked(world, FindService(key=digest), ServiceAnswer)).status == 401
        assert [*(await asked(world, renewal, ServicesRenewed)).ended] == [digest]


async def test_a_row_without_an_event_is_no_key() -> None:
    """The log alone says which keys there are: a row that was written and refused, or forged, opens nothing."""
    async with SignedWorld() as world:
        await ready(world)
        await put(world, "ann", service={"replicas": 0})
        rows = world.gateway.apps._services._rows
        await rows.put(KEY_KIND, "digest", KeptKey(service="chat", key="k1"), 60)
        assert (await asked(world, FindService(key="digest"), ServiceAnswer)).status == 401


async def test_load_becomes_a_command_only_where_another_number_of_replicas_could_follow() -> None:
    """Of a service with a range; the queue then scales it."""
    async with SignedWorld() as world:
        await ready(world)
        await put(world, "ann", service={"replicas": "0-3", "requests": 2})
        rows = world.gateway.views.services.rows

        async def report(load: int) -> None:
            await asked(world, RenewServices(proxy="p1", loads={"chat": load}), ServicesRenewed)

        await report(1)
        await eventually_async(lambda: rows["chat"].loads.get("p1", (0, 0))[0] == 1 and rows["chat"].wanted == 1)
        before = world.gateway.queue.published
        await report(2)
        assert world.gateway.queue.published == before and not world.gateway.apps._services._reporting
        await report(5)
        await eventually_async(lambda: rows["chat"].wanted == 3)
        clock = world.gateway.apps._services._rows
        clock.clock = lambda now=clock.clock: now() + LOAD_AGAIN_NS / 1e9 + 1
        before = rows["chat"].loads["p1"][1]
        await report(5)
        await eventually_async(lambda: rows["chat"].loads["p1"][1] > before)
