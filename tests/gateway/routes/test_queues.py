"""Queues by HTTP: requests to the queue service, refusals before it, and the form of its answers."""

from typing import Any

import pytest

from fairlead_schemas.queuefile.settings import PoolEntry, PoolSettings, QueueEntry, QueueRemoval, QueueSettings
from fairlead_schemas.wire import commands as cmd
from tests.gateway.played_queue import QueueHouse, obliging, refusing
from tests.kit.eventually import eventually_async

GPU = "nvidia.com/gpu"
FILE = {"pools": {"a100": {}}, "queues": {"research": {"pool": "a100", "queues": {"vision": {"maximum": {GPU: 8}}}}}}


def errors(answer: Any) -> dict[str, str]:
    """{field: message} of a refusal."""
    return {error["field"]: error["message"] for error in answer.json()["errors"]}


async def test_a_file_is_one_command() -> None:
    """All entries in one; the answer counts what was changed and shows the queues that were named."""
    async with QueueHouse() as house:
        answer = await house.http.post(
            "/v1/queues:apply?prune=true&reclaim=true", json=FILE, headers={"x-fairlead-user": "ada"}
        )
        assert answer.status_code == 200, answer.text
        (command,) = house.asked
        assert command == cmd.ApplyQueues(
            id=command.id,
            user="ada",
            prune=True,
            reclaim=True,
            pools=(PoolEntry(pool="a100", settings=PoolSettings()),),
            queues=(
                QueueEntry(path="research", settings=QueueSettings(pool="a100")),
                QueueEntry(path="research/vision", settings=QueueSettings(maximum={"gpu": 8000})),
            ),
        )
        body = answer.json()
        assert (body["configured"], body["removed"], body["unchanged"]) == (3, 0, 0)
        assert [(item["path"], item["pool"]) for item in body["items"]] == [
            ("research", "a100"),
            ("research/vision", "a100"),
        ]
        assert body["sequence"] == house.gateway.views.sequence
        pools = (await house.http.get("/v1/pools")).json()["items"]
        assert [(pool["name"], pool["queues"]) for pool in pools] == [("a100", ["research"]), ("default", [])]


async def test_a_bad_file_names_all_its_mistakes_and_sends_nothing() -> None:
    """Every path; keys that stand twice; what is no JSON; too much of it."""
    async with QueueHouse() as house:
        bad = {"queues": {"a": {"weight": 0, "guaranteed": {"cpu": "x"}}, "B": {}}}
        answer = await house.http.post("/v1/queues:apply", json=bad)
        assert (answer.status_code, answer.json()["detail"]) == (422, "3 mistakes; nothing was changed")
        assert list(errors(answer)) == ["queues.a.guaranteed.cpu", "queues.a.weight", "queues.B"]
        twice = b'{"queues": {"a": {}, "a": {"weight": 2}}}'
        headers = {"content-type": "application/json"}
        assert errors(await house.http.post("/v1/queues:apply", content=twice, headers=headers)) == {
            "queues.a": "is given twice; keep one of them"
        }
        assert (await house.http.post("/v1/queues:apply", content=b"{", headers=headers)).status_code == 422
        huge = b'{"queues": {"a": {"maximum": {"cpu": 1e400}}}}'
        answer = await house.http.post("/v1/queues:apply", content=huge, headers=headers)
        assert (answer.status_code, errors(answer)) == (422, {"": "Number out of range"})
        assert (await house.http.post("/v1/queues:apply", json={})).json()[
            "detail"
        ] == "expected pools or queues, found neither"
        large = {
            "queues": {
                "a": {"users": {f"u{'x' * 50}{i}": {"cpu": 1} for i in range(1000)}},
                "b": {"users": {f"v{'x' * 50}{i}": {"cpu": 1} for i in range(999)}},
            }
        }
        assert (await house.http.post("/v1/queues:apply", json=large)).status_code == 413
        assert (await house.http.post("/v1/queues:apply?purge=true", json=FILE)).status_code == 422
        assert (
            await house.http.post("/v1/queues:apply", content=b"a: 1", headers={"content-type": "text/yaml"})
        ).status_code == 415
        assert house.asked == []


@pytest.mark.parametrize(
    ("code", "message", "status", "told"),
    [
        (
            "invalid",
            'queues.a.guaranteed.cpu: expected at most 8, found 9\npools.p.sequencer: there is no "x"',
            422,
            {"queues.a.guaranteed.cpu": "expected at most 8, found 9", "pools.p.sequencer": 'there is no "x"'},
        ),
        ("invalid", "queues.a/b: there is no a", 422, {"queues.a/b": "there is no a"}),
        (
            "invalid",
            "queues.a.guaranteed.nvidia.com/gpu: too much\nqueues.a.maximum.nvidia.com/gpu:L4: too little",
            422,
            {f"queues.a.guaranteed.{GPU}": "too much", f"queues.a.maximum.{GPU}:L4": "too little"},
        ),
        ("invalid", "something else: is wrong", 422, {"": "something else: is wrong"}),
        ("conflict", "queue a has 3 jobs; name where they go", 409, {}),
        ("not_found", "there is no queue a", 404, {}),
    ],
)
async def test_refusals_of_the_queue_service_are_returned(
    code: str, message: str, status: int, told: dict[str, str]
) -> None:
    """One error for each of its lines, at its path."""
    async with QueueHouse(refusing(code, message)) as house:
        answer = await house.http.post("/v1/queues:apply", json=FILE)
        assert (answer.status_code, errors(answer) if "errors" in answer.json() else {}) == (status, told)
        assert answer.json()["type"].endswith(code)


async def test_one_queue_is_put() -> None:
    """Its settings in the words of a file; the answer is the queue."""
    async with QueueHouse() as house:
        answer = await house.http.put("/v1/queues/research", json={"maximum": {GPU: 8}, "weight": 2})
        assert (answer.status_code, answer.json()["path"], answer.json()["maximum"]) == (200, "research", {"gpu": 8000})
        assert answer.json()["settings"] == {"maximum": {GPU: 8}, "weight": 2}
        assert house.asked[0].queues[0] == QueueEntry(
            path="research", settings=QueueSettings(maximum={"gpu": 8000}, weight=2)
        )
        for path, body, field in (
            ("A", {}, "path"),
            ("a", {"gpuQuota": 8}, "gpuQuota"),
            ("a", {"queues": {"b": {}}}, "queues"),
            ("a/b", {"pool": "x"}, "pool"),
            ("a", {"guaranteed": {GPU: -1}}, f"guaranteed.{GPU}"),
        ):
            refused = await house.http.put(f"/v1/queues/{path}", json=body)
            assert (refused.status_code, list(errors(refused))) == (422, [field])
        assert len(house.asked) == 1


async def test_a_queue_is_deleted() -> None:
    """With where its jobs go; then it is not found any more."""
    async with QueueHouse() as house:
        await house.http.post("/v1/queues:apply", json=FILE)
        answer = await house.http.delete("/v1/queues/research/vision?moveTo=research")
        assert (answer.status_code, answer.json()["path"], answer.json()["moved_to"]) == (
            200,
            "research/vision",
            "research",
        )
        assert house.asked[-1].remove == (QueueRemoval(path="research/vision", move_to="research"),)
        assert (await house.http.get("/v1/queues/research/vision")).status_code == 404
        assert [one["path"] for one in (await house.http.get("/v1/queues")).json()["items"]] == ["research"]
        assert (await house.http.delete("/v1/queues/Research")).status_code == 404
        assert errors(await house.http.delete("/v1/queues/research?moveTo=A")) == {
            "moveTo": 'expected a queue such as "research/vision", found "A"'
        }
        house.answer = refusing("invalid", "queues.research: 3 jobs wait in it; say where they go (--move-to QUEUE)")
        refused = await house.http.delete("/v1/queues/research")
        assert (refused.status_code, list(errors(refused))) == (422, ["queues.research"])
        assert (await house.http.delete("/v1/queues/research/vision")).status_code == 404


async def test_a_busy_queue_is_not_deleted() -> None:
    """The request is valid, but too early: 409, with the jobs that prevent it."""
    async with QueueHouse() as house:
        await house.http.post("/v1/queues:apply", json=FILE)
        told = "1 job of it is offered or runs; wait until all have ended, or cancel them"
        house.answer = refusing("conflict", f"queues.research/vision: {told}")
        refused = await house.http.delete("/v1/queues/research/vision")
        assert (refused.status_code, errors(refused)) == (409, {"queues.research/vision": told})
        assert (await house.http.get("/v1/queues/research/vision")).status_code == 200


async def test_a_queue_is_held_drained_and_released() -> None:
    """The answers are the queue as it is then; a release takes no reason; refusals are those of any verb."""
    async with QueueHouse() as house:
        await house.http.post("/v1/queues:apply", json=FILE)
        held = await house.http.post("/v1/queues/research/vision:hold", json={"reason": "storage moves"})
        assert (held.status_code, held.json()["held"]["reason"], held.json()["drained"]) == (200, "storage moves", None)
        drained = await house.http.post("/v1/queues/research/vision:drain")
        assert (drained.status_code, drained.json()["drained"]["by"]) == (200, "anonymous")
        released = await house.http.post("/v1/queues/research/vision:release", json={})
        assert (released.status_code, released.json()["held"]) == (200, None)
        assert [type(each).__name__ for each in house.asked[-3:]] == ["HoldQueue", "DrainQueue", "ReleaseQueue"]
        assert list(errors(await house.http.post("/v1/queues/research:release", json={"reason": "x"}))) == ["reason"]
        assert (await house.http.post("/v1/queues/R!:hold", json={})).status_code == 404
        for code, status in (("conflict", 409), ("not_found", 404), ("invalid", 422)):
            house.answer = refusing(code, "no")
            assert (await house.http.post("/v1/queues/research:hold", json={})).status_code == status


async def test_a_job_is_moved() -> None:
    """The answer is the job where it is then; an unknown queue is the body's mistake."""
    async with QueueHouse() as house:
        await house.http.post("/v1/jobs", json={"command": ["true"]})
        answer = await house.http.post("/v1/jobs/1:move", json={"queue": "research/vision"})
        assert (answer.status_code, answer.json()["queue"]) == (200, "research/vision")
        assert house.asked[-1] == cmd.MoveJob(id=house.asked[-1].id, user="anonymous", job="1", queue="research/vision")
        assert errors(await house.http.post("/v1/jobs/1:move", json={"queue": "R!"})) != {}
        assert errors(await house.http.post("/v1/jobs/1:move", json={})) == {
            "queue": "required field is missing; add it with a word"
        }
        assert (await house.http.post("/v1/jobs/x:move", json={"queue": "a"})).status_code == 404
        for code, status in (("unknown_queue", 422), ("not_a_leaf", 422), ("conflict", 409), ("not_found", 404)):
            house.answer = refusing(code, "no")
            assert (await house.http.post("/v1/jobs/1:move", json={"queue": "a"})).status_code == status


async def test_a_change_repeated_under_its_key_is_answered_again() -> None:
    """The same file under the same key is one change; another one under it is refused."""
    async with QueueHouse() as house:
        key = {"idempotency-key": "k"}
        first = await house.http.post("/v1/queues:apply", json=FILE, headers=key)
        again = await house.http.post("/v1/queues:apply", json=FILE, headers=key)
        assert (first.status_code, again.status_code, again.json()["configured"], len(house.asked)) == (200, 200, 3, 1)
        for path, body in (("/v1/queues:apply?prune=true", FILE), ("/v1/queues:apply", {"queues": {"b": {}}})):
            assert (await house.http.post(path, json=body, headers=key)).status_code == 409
        assert (await house.http.delete("/v1/queues/research", headers=key)).status_code == 409
        assert len(house.asked) == 1


async def test_a_slow_queue_service_is_a_202() -> None:
    """Stored, decided later; what became of it can be asked."""
    async with QueueHouse(lambda command: [], decision_wait_s=0.05) as house:
        for answer in (
            await house.http.post("/v1/queues:apply", json=FILE),
            await house.http.put("/v1/queues/a", json={}),
            await house.http.delete("/v1/queues/a"),
        ):
            assert (answer.status_code, answer.headers["location"]) == (202, f"/v1/commands/{answer.json()['command']}")


async def test_schemas_and_openapi_describe_queue_files() -> None:
    """For editors, and for authors of clients."""
    async with QueueHouse() as house:
        schema = (await house.http.get("/v1/schemas/queues")).json()
        assert set(schema["$defs"]["QueueFileWords"]["properties"]) == {"pools", "queues"}
        paths = (await house.http.get("/openapi.json")).json()["paths"]
        assert set(paths["/v1/queues/{path}"]) == {"get", "put", "delete"}
        assert {one["name"] for one in paths["/v1/queues:apply"]["post"]["parameters"]} == {
            "prune",
            "reclaim",
            "Idempotency-Key",
            "If-Match",
            "X-Fairlead-User",
        }
        assert {"/v1/pools", "/v1/jobs/{job}:move"} <= set(paths)


async def test_events_about_queues_and_pools_have_a_subject() -> None:
    """So that a listener can pick them."""
    async with QueueHouse(obliging) as house:
        await house.http.post("/v1/queues:apply", json=FILE)
        await eventually_async(lambda: house.gateway.views.sequence >= 1)
        events = (await house.http.get("/v1/events?from=1")).json()["items"]
        assert [event.get("subject", "") for event in events] == [
            "pool/a100",
            "queue/research",
            "queue/research/vision",
            "",
        ]
