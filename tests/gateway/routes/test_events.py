"""GET /v1/events: pages and watches of the log, as CloudEvents, resumed without a gap."""

import asyncio
import json
from typing import Any

import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from fairlead_gateway.routes import events
from fairlead_gateway.routes.event_filter import EventConditions
from fairlead_gateway.routes.events import LogPosition
from fairlead_gateway.service import Gateway
from fairlead_schemas.wire import subjects
from tests.gateway.world import GatewayWorld
from tests.kit.eventually import eventually_async


async def watched(gateway: Gateway, place: LogPosition, until_id: str, job: str = "") -> list[str]:
    """Ids that a watch behind a place sends, up to one."""
    ids: list[str] = []
    async with asyncio.timeout(60):
        async for chunk in gateway.feed.watch(place, EventConditions(job=job)):
            ids += [line[4:] for line in chunk.decode().split("\n") if line.startswith("id: ")]
            if until_id in ids:
                return ids
    return ids


async def all_ids(world: GatewayWorld) -> list[str]:
    """Ids of all events in the log, by page."""
    page = (await world.http.get("/v1/events?limit=1000")).json()
    assert page["next"] is None
    return [item["id"] for item in page["items"]]


async def test_events_are_cloudevents() -> None:
    """Every item is read by the public SDK; ids, types, sequence and cause are the log's."""
    async with GatewayWorld() as world:
        await world.submit(name="x")
        items = (await world.http.get("/v1/events")).json()["items"]
        for item in items:
            event = JSONFormat().read(CloudEvent, json.dumps(item))
            assert event.get_source().startswith("/fairlead/log/")
            assert event.get_id().split(".")[0] == item["sequence"]
        submitted = next(item for item in items if item["type"] == "fairlead.job.submitted.v1")
        assert submitted["data"]["name"] == "x" and submitted["cause"].startswith("cmd:")
        assert submitted["subject"] == "job/1"


async def test_pages_join() -> None:
    """Pages of three hold every event once, in order, in the middle of commits too; from= starts at a commit."""
    async with GatewayWorld() as world:
        await world.http.post("/v1/jobs", json=[{"command": ["true"]}] * 5)
        everything = await all_ids(world)
        seen: list[str] = []
        token = ""
        while True:
            page = (await world.http.get(f"/v1/events?limit=3&continue={token}")).json()
            seen += [item["id"] for item in page["items"]]
            if not (token := page["next"]):
                break
        assert seen == everything
        last = everything[-1].split(".")[0]
        tail = (await world.http.get(f"/v1/events?from={last}")).json()["items"]
        assert [item["id"] for item in tail] == [one for one in everything if one.split(".")[0] == last]


@pytest.mark.parametrize("ring", [8192, 3])
async def test_a_watch_resumes_at_any_event(ring: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From every id, the rest follows once and in order: from the ring, and from the log where the ring is short."""
    monkeypatch.setattr(events, "RING_COMMITS", ring)
    async with GatewayWorld() as world:
        for _ in range(4):
            await world.http.post("/v1/jobs", json=[{"command": ["true"]}] * 3)
        everything = await all_ids(world)
        assert len(everything) > 12
        for index, one in enumerate(everything[:-1]):
            place = events.parse_place(one, "Last-Event-ID")
            assert await watched(world.gateway, place, everything[-1]) == everything[index + 1 :]
        assert await watched(world.gateway, LogPosition(0), everything[-1]) == everything


async def test_a_watch_sees_what_comes_and_only_its_job() -> None:
    """Events after its start, of the one job and, for an array, of its elements."""
    async with GatewayWorld() as world:
        array = await world.submit(array=3)
        watch = asyncio.create_task(watched(world.gateway, LogPosition(0), "none", array))
        other = await world.submit()
        await world.http.post(f"/v1/jobs/{array}:cancel")
        await world.in_state(array, "cancelled")
        everything = (await world.http.get(f"/v1/events?limit=1000&job={array}")).json()["items"]
        jobs = {item["data"]["job"] for item in everything}
        assert jobs == {array, f"{array}_0", f"{array}_1", f"{array}_2"} and other not in jobs
        await asyncio.sleep(0.05)
        watch.cancel()
        assert await watched(world.gateway, LogPosition(0), everything[-1]["id"], array) == [
            item["id"] for item in everything
        ]


async def test_a_slow_watch_is_ended_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch whose position has left the ring reports this and ends; nothing is skipped."""
    monkeypatch.setattr(events, "RING_COMMITS", 3)
    async with GatewayWorld() as world:
        watch = world.gateway.feed.watch(LogPosition(world.gateway.views.sequence))
        assert b"behind" in await anext(watch)
        following = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0.01)
        await world.submit()
        await following
        for _ in range(6):
            await world.submit()
        rest = [chunk async for chunk in watch]
        assert b"too slow" in rest[-1]
        assert world.gateway.feed.watches == 0


async def test_a_watch_takes_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is bounded by bytes, not by commits: from the log and from the ring."""
    monkeypatch.setattr(events, "STEP_BYTES", 4000)
    async with GatewayWorld() as world:
        for _ in range(6):
            await world.http.post("/v1/jobs", json=[{"command": ["true"]}] * 4)
        feed = world.gateway.feed
        assert 1 <= len(feed.since(LogPosition(0))) < feed.last
        feed._ring.clear()  # as after a restart: only the log has it
        steps = [step async for step in feed.history(LogPosition(0))]
        assert len(steps) > 1 and [sequence for step in steps for sequence, _ in step] == list(range(1, feed.last + 1))


async def test_a_client_that_reads_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stalled client releases its tail and its place among the watches."""
    monkeypatch.setattr(events, "SEND_S", 0.05)
    monkeypatch.setattr(events, "TAILS_MAX", 1)
    async with GatewayWorld() as world:
        await world.submit()
        feed, sent = world.gateway.feed, 0
        feed._ring.clear()

        async def send(_message: object) -> None:
            nonlocal sent
            sent += 1
            if sent > 2:
                await asyncio.Event().wait()

        await asyncio.wait_for(events.WatchResponse(feed.watch(LogPosition(0))).stream_response(send), 60)
        assert feed.watches == 0 and not feed._tails.locked()


async def test_pages_of_the_past_wait_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """If all tails are in use a page is refused, but a page in memory is not."""
    monkeypatch.setattr(events, "TAIL_WAIT_S", 0.05)
    monkeypatch.setattr(events, "TAILS_MAX", 1)
    async with GatewayWorld() as world:
        await world.submit()
        feed = world.gateway.feed
        async with feed._tails:
            assert (await world.http.get("/v1/events")).status_code == 200
            feed._ring.clear()
            busy = await world.http.get("/v1/events")
            assert busy.status_code == 503 and busy.headers["retry-after"]
        assert (await world.http.get("/v1/events")).status_code == 200


async def test_a_forged_past_is_not_shown() -> None:
    """Commits from before this gateway's start are checked when they are read."""
    async with GatewayWorld() as world:
        for _ in range(3):
            await world.submit(name="honest")
        world.gateway.feed._ring.clear()
        stored = world.hub.streams[subjects.LOG].messages
        told = next(message.sequence for message in stored if b"honest" in message.payload)
        world.hub.damage(subjects.LOG, told, lambda payload: payload.replace(b"honest", b"forged"))
        assert (await world.http.get("/v1/events")).json()["type"].endswith("log_damaged")
        chunks = [chunk async for chunk in world.gateway.feed.watch(LogPosition(1))]
        assert b"the log is damaged" in chunks[-1]


async def test_the_http_watch_is_an_event_stream() -> None:
    """Content type, first comment, Last-Event-ID over from; a place ahead of the log is refused."""
    async with GatewayWorld() as world:
        job = await world.submit()
        await eventually_async(
            lambda: len(world.gateway.views.waiting.refusals) == 1
        )  # the placer has spoken: the log is at rest
        assert job == "1"
        last = (await all_ids(world))[-1]
        headers = {"last-event-id": "1.0"}
        world.gateway.feed.close()  # the watch ends after what is there: this client reads whole answers
        answer = await world.http.get("/v1/events?follow=1&from=1", headers=headers)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "id: 1.0\n" not in answer.text
        assert f"id: {last}\nevent: fairlead\ndata: {{" in answer.text
        assert (await world.http.get("/v1/events?from=99")).status_code == 422
        assert (await world.http.get("/v1/events?from=x")).json()["errors"][0]["field"] == "from"


async def test_a_thousand_watches_open_no_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watches at the live end read no stream of their own, and all see the same event."""
    opened: list[Any] = []
    async with GatewayWorld() as world:
        tail = world.bus.tail

        async def counted(*args: Any, **named: Any) -> Any:
            opened.append(args)
            return await tail(*args, **named)

        monkeypatch.setattr(world.bus, "tail", counted)
        place = LogPosition(world.gateway.views.sequence)
        target = f"{place.sequence + 1}.0"
        watches = [asyncio.create_task(watched(world.gateway, place, target)) for _ in range(1000)]
        await eventually_async(lambda: world.gateway.feed.watches == 1000)
        await world.submit()
        for ids in await asyncio.gather(*watches):
            assert target in ids
        assert opened == []


async def types_of(world: GatewayWorld, query: str) -> list[str]:
    """Types of the events of a query, without their frame."""
    items = (await world.http.get(f"/v1/events?limit=1000&{query}")).json()["items"]
    return [item["type"].removeprefix("fairlead.").removesuffix(".v1") for item in items]


async def test_events_are_filtered_by_what_people_know() -> None:
    """Type in any spelling, node also in parts, the user and queue of a job also where the event names none, and all of them at once."""
    async with GatewayWorld() as world:
        await world.configure(a={}, a__b={}, c={})
        node, _ = await world.node("n1"), await world.node("n2")
        head = {"x-fairlead-user": "ada"}
        job = (await world.http.post("/v1/jobs", json={"command": ["true"], "queue": "a/b"}, headers=head)).json()["id"]
        await world.in_state(job, "placed")
        other = await world.submit(queue="c")
        await world.in_state(other, "placed")
        await node.start(job)
        placed = (await world.http.get(f"/v1/events?type=job.placed&job={job}")).json()["items"]
        where = placed[0]["data"]["parts"][0]["node"]
        assert await types_of(world, "type=JobPlaced") == ["job.placed"] * 2
        assert await types_of(world, "type=fairlead.job.placed.v1") == ["job.placed"] * 2
        assert set(await types_of(world, "type=node.*,queue.configured")) == {"node.joined", "queue.configured"}
        assert "job.placed" in await types_of(world, f"node={where}")
        of_ada = await types_of(world, "user=ada")
        assert {"job.submitted", "job.offered", "job.placed"} <= set(of_ada) and "queue.configured" not in of_ada
        of_a = await types_of(world, "queue=a")
        assert of_a.count("queue.configured") == 2 and of_a.count("job.placed") == 1
        assert await types_of(world, "queue=a,c&type=job.submitted&user=ada") == ["job.submitted"]


@pytest.mark.parametrize("ring", [8192, 3])
async def test_events_since_and_until_a_time(ring: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly those of the time, whatever the ring holds; a small skew of writers' clocks loses none."""
    monkeypatch.setattr(events, "RING_COMMITS", ring)
    monkeypatch.setattr(events, "SKEW_NS", 1_000_000)
    async with GatewayWorld() as world:
        for _ in range(5):
            await world.submit()
            await asyncio.sleep(0.005)
        items = (await world.http.get("/v1/events?limit=1000")).json()["items"]
        times = sorted({item["time"] for item in items})
        begin, end = times[2], times[-2]
        found = (await world.http.get(f"/v1/events?limit=1000&since={begin}&until={end}")).json()
        ids = [item["id"] for item in items if begin <= item["time"] < end]
        assert found["next"] is None and ids
        assert set(ids) <= {item["id"] for item in found["items"]}
        assert all(begin <= item["time"] <= end for item in found["items"])
        assert (await world.http.get("/v1/events?since=2999-01-01T00:00:00Z")).json()["items"] == []
        assert len((await world.http.get("/v1/events?limit=1000&since=1h")).json()["items"]) == len(items)


async def test_the_last_events_of_a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tail` counts wanted events only, for a page and for a watch; where there are fewer, all of them."""
    monkeypatch.setattr(events, "TAIL_COMMITS", 1)
    async with GatewayWorld() as world:
        jobs = [await world.submit(name=f"j{index}") for index in range(6)]
        submitted = await types_of(world, "type=job.submitted")
        last = (await world.http.get("/v1/events?type=job.submitted&tail=2")).json()["items"]
        assert [item["data"]["job"] for item in last] == jobs[-2:]
        assert await types_of(world, "type=job.submitted&tail=99") == submitted
        assert await types_of(world, "type=job.cancelled&tail=5") == []
        conditions = EventConditions(types=frozenset({"JobSubmitted"}))
        place = await world.gateway.feed.place_of_last(2, LogPosition(0), conditions)
        chunks = world.gateway.feed.watch(place, conditions)
        assert b"retry" in await anext(chunks)
        assert (await anext(chunks)).count(b"id: ") == 2
        await chunks.aclose()


@pytest.mark.parametrize(
    ("query", "field", "word"),
    [
        ("type=job.plced", "type", "did you mean job.placed"),
        ("type=zzz", "type", "GET /v1/schemas/events"),
        ("node=N_1!", "node", "the name of a node"),
        ("user=A b", "user", "the name of a user"),
        ("queue=/a", "queue", "the name of a queue"),
        ("since=soon", "since", "expected how long ago"),
        ("until=soon", "until", "expected how long ago"),
        ("since=1h&until=2h", "until", "not before that of since"),
        ("follow=1&until=1h", "until", "a watch has no end"),
        ("tail=0", "tail", "greater than or equal to 1"),
    ],
)
async def test_a_filter_that_cannot_be_is_refused_by_its_name(query: str, field: str, word: str) -> None:
    """With what was expected."""
    async with GatewayWorld() as world:
        answer = await world.http.get(f"/v1/events?{query}")
        assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == field and word in answer.text
