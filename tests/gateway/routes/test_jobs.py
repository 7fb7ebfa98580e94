"""Verbs on jobs, nodes and queues, SQL, retired jobs: one command each, answered when it is decided."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.world import GatewayWorld, gpus
from tests.kit.eventually import eventually_async


async def test_cancel_hold_and_release() -> None:
    """A job without a place is held, released and cancelled; each answer is the job as it is then."""
    async with GatewayWorld() as world:
        job = await world.submit()
        assert (await world.http.post(f"/v1/jobs/{job}:hold")).status_code == 200
        await world.in_state(job, "held")
        why = (await world.http.get(f"/v1/jobs/{job}/why")).json()
        assert (why["reason"]["code"], why["reason"]["detail"]["by"]) == ("held", "anonymous")
        assert (await world.http.post(f"/v1/jobs/{job}:release")).status_code == 200
        assert (await world.http.post(f"/v1/jobs/{job}:cancel", headers={"x-fairlead-user": "ada"})).status_code == 200
        await world.in_state(job, "cancelled")
        assert (await world.job(job))["reason"]["message"].startswith("was cancelled by ada at ")


async def test_requeue_stops_a_run_and_says_so() -> None:
    """A job that waits is refused; one that runs is being stopped, and why says what follows."""
    async with GatewayWorld() as world:
        job = await world.submit()
        refused = await world.http.post(f"/v1/jobs/{job}:requeue")
        assert refused.status_code == 409 and "only a job that runs" in refused.json()["detail"]
        node = await world.node("n1")
        await world.in_state(job, "placed")
        await node.start(job)
        await world.in_state(job, "running")
        assert (await world.http.post(f"/v1/jobs/{job}:requeue")).json()["state"] == "stopping"
        why = (await world.http.get(f"/v1/jobs/{job}/why")).json()["reason"]
        assert "queued again" in why["message"] and why["detail"]["reason"] == "requeued"


async def test_a_signal_is_an_event_and_leaves_the_job_running() -> None:
    """A job that waits is refused, and so is a word that is no signal, with the words; a repeated key is one event."""
    async with GatewayWorld() as world:
        job = await world.submit()
        path = f"/v1/jobs/{job}:signal"
        refused = await world.http.post(path, json={"signal": "USR1"})
        assert refused.status_code == 409 and "only a job that runs gets a signal" in refused.json()["detail"]
        node = await world.node("n1")
        await world.in_state(job, "placed")
        await node.start(job)
        await world.in_state(job, "running")
        for word in ("KILL", "usr3", ""):
            wrong = await world.http.post(path, json={"signal": word})
            assert wrong.status_code == 422 and wrong.json()["errors"][0]["field"] == "signal"
        for _ in range(2):
            headers = {"Idempotency-Key": "once"}
            assert (await world.http.post(path, json={"signal": "10"}, headers=headers)).json()["state"] == "running"
        found = (await world.http.get(f"/v1/events?job={job}&type=JobSignalRequested")).json()["items"]
        assert [each["data"]["signal"] for each in found] == ["SIGUSR1"]


async def test_a_verb_that_the_state_does_not_allow_is_409() -> None:
    """Released though not held; unknown job: 404; not an id at all: 404 without a command."""
    async with GatewayWorld() as world:
        job = await world.submit()
        conflict = await world.http.post(f"/v1/jobs/{job}:release")
        assert (conflict.status_code, conflict.json()["type"].rpartition(":")[2]) == (409, "conflict")
        assert (await world.http.post("/v1/jobs/999:cancel")).status_code == 404
        before = world.commands_stored()
        assert (await world.http.post("/v1/jobs/abc:cancel")).status_code == 404
        assert world.commands_stored() == before


async def test_a_verb_repeated_under_its_key_is_answered_again() -> None:
    """The second cancel under one key is the first one's answer, not a conflict; without a key it is one."""
    async with GatewayWorld() as world:
        job = await world.submit()
        key = {"idempotency-key": "stop-it"}
        assert (await world.http.post(f"/v1/jobs/{job}:cancel", headers=key)).status_code == 200
        await world.in_state(job, "cancelled")
        before = world.commands_stored()
        assert (await world.http.post(f"/v1/jobs/{job}:cancel", headers=key)).status_code == 200
        assert world.commands_stored() == before
        assert (await world.http.post(f"/v1/jobs/{job}:cancel")).status_code == 409


async def test_an_idempotency_key_identifies_one_request() -> None:
    """Another request under a key is refused, not answered with the first one's outcome."""
    async with GatewayWorld() as world:
        await world.node("n1")
        one, other = await world.submit(resources=gpus(8)), await world.submit()
        key = {"idempotency-key": "k"}
        assert (await world.http.post(f"/v1/jobs/{one}:cancel", headers=key)).status_code == 200
        for path, body in ((f"/v1/jobs/{other}:cancel", {}), (f"/v1/jobs/{one}:hold", {}), ("/v1/nodes/n1:cordon", {})):
            conflict = await world.http.post(path, headers=key, json=body)
            assert conflict.status_code == 409 and conflict.json()["type"].endswith("idempotency_conflict")
        assert (await world.job(other))["state"] != "cancelled"
        event = {"specversion": "1.0", "source": "/t", "id": "e", "type": "fairlead.job.cancel.v1"}
        media = {"content-type": "application/cloudevents+json"}
        for job, status in ((other, 200), (other, 200), (one, 409)):
            answer = await world.http.post(
                "/v1/events", content=msgspec.json.encode({**event, "data": {"job": job}}), headers=media
            )
            assert answer.status_code == status


async def test_simultaneous_requests_with_one_key_are_all_answered() -> None:
    """Several wait for one command: each gets its outcome, and none times out."""
    async with GatewayWorld(decision_wait_s=90.0) as world:
        job = await world.submit()
        key = {"idempotency-key": "stop-it"}
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*(world.http.post(f"/v1/jobs/{job}:cancel", headers=key) for _ in range(8)))
        assert [answer.status_code for answer in answers] == [200] * 8


async def test_a_visited_page_changes_nothing() -> None:
    """Browsers say where a page comes from; a verb takes no body but {}."""
    async with GatewayWorld() as world:
        job = await world.submit()
        for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
            for path in (f"/v1/jobs/{job}:cancel", "/v1/jobs", "/v1/nodes/n1:drain"):
                answer = await world.http.post(path, headers=headers, json={})
                assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (403, "foreign_page")
        assert (await world.http.post(f"/v1/jobs/{job}:cancel", json={"force": True})).json()["errors"][0][
            "field"
        ] == "force"
        plain = await world.http.post(f"/v1/jobs/{job}:cancel", content=b"a=b", headers={"content-type": "text/plain"})
        assert plain.status_code == 415
        assert (await world.job(job))["state"] != "cancelled"
        assert (
            await world.http.post(f"/v1/jobs/{job}:cancel", headers={"origin": "http://localhost"})
        ).status_code == 200


async def test_nodes_are_cordoned_drained_and_given_back() -> None:
    """Through the placer; the answer is the node; an unknown node is 404."""
    async with GatewayWorld() as world:
        await world.node("n1")
        cordoned = await world.http.post("/v1/nodes/n1:cordon", json={"reason": "fan"})
        assert (cordoned.status_code, cordoned.json()["state"], cordoned.json()["reason"]) == (200, "cordoned", "fan")
        drained = await world.http.post("/v1/nodes/n1:drain", json={"reason": "bios", "deadline": "10m"})
        assert drained.json()["state"] in ("draining", "drained")
        ready = await world.http.post("/v1/nodes/n1:uncordon")
        assert (ready.json()["state"], ready.json()["reason"]) == ("ready", "")
        assert (await world.http.post("/v1/nodes/nope:cordon")).status_code == 404
        early = await world.http.post("/v1/nodes/n1:cordon", json={"deadline": "10m"})
        assert early.json()["errors"][0]["field"] == "deadline"
        bad = await world.http.post("/v1/nodes/n1:drain", json={"deadline": "soon"})
        assert (bad.status_code, bad.json()["errors"][0]["field"]) == (422, "deadline")
        unknown = await world.http.post("/v1/nodes/n1:drain", json={"why": "x"})
        assert (unknown.status_code, unknown.json()["errors"][0]["field"]) == (422, "why")


async def test_queues_are_put() -> None:
    """Created and changed as a whole: what is left out is at its default again; a bad path or number is named."""
    async with GatewayWorld() as world:
        assert (await world.http.put("/v1/queues/research", json={})).status_code == 200
        made = await world.http.put("/v1/queues/research/vision", json={"maximum": {"nvidia.com/gpu": 8}})
        assert (made.status_code, made.json()["gpu_quota_milli"]) == (200, 8000)
        assert made.json()["settings"] == {"maximum": {"nvidia.com/gpu": 8}}
        freed = await world.http.put("/v1/queues/research/vision", json={"weight": 2})
        assert (freed.json()["gpu_quota_milli"], freed.json()["settings"]) == (None, {"weight": 2})
        assert (await world.http.get("/v1/queues/research/vision")).status_code == 200
        paths = [queue["path"] for queue in (await world.http.get("/v1/queues")).json()["items"]]
        assert paths == ["default", "research", "research/vision"]


async def test_a_job_that_left_the_views_is_asked_from_telemetry() -> None:
    """Its document as the warehouse has it; an error of the warehouse is a 404."""
    async with GatewayWorld() as world:

        def answer(request: dict[str, str]) -> bytes:
            return (
                b'{"id":"77","state":"succeeded","attempt":1,"reason":null,"sequence":5}'
                if request["id"] == "77"
                else b'{"error":{"code":"not_found"}}'
            )

        await world.play_telemetry("job", answer)
        assert (await world.job("77"))["state"] == "succeeded"
        assert (await world.http.get("/v1/jobs/78")).status_code == 404
        assert (await world.http.get("/v1/jobs/77/why")).json()["state"] == "succeeded"


async def test_lists_filter_and_continue() -> None:
    """Newest first; pages join without a gap or a repetition while jobs are added; filters combine."""
    async with GatewayWorld() as world:
        node = await world.node("n1", 8)
        ids = [await world.submit(name=f"j{i}", resources=gpus(8)) for i in range(25)]
        seen: list[str] = []
        token = ""
        while True:
            page = (await world.http.get(f"/v1/jobs?limit=10&continue={token}")).json()
            seen += [job["id"] for job in page["items"]]
            await world.submit()
            if not (token := page["next"]):
                break
        assert seen == ids[::-1]
        await node.start(ids[0])
        await world.in_state(ids[0], "running")
        running = (await world.http.get("/v1/jobs?state=running,placed&user=anonymous")).json()["items"]
        assert ids[0] in [job["id"] for job in running]
        assert (await world.http.get("/v1/jobs?queue=other")).status_code == 422
        assert (await world.http.get("/v1/jobs?state=asleep")).status_code == 422
        assert (await world.http.get("/v1/jobs?continue=x")).status_code == 422


async def test_named_lists_continue() -> None:
    """Nodes and queues come in pages where asked, behind the last name, and whole otherwise."""
    async with GatewayWorld() as world:
        for name in ("n1", "n2", "n3"):
            await world.node(name)
        assert [item["id"] for item in (await world.http.get("/v1/nodes")).json()["items"]] == ["n1", "n2", "n3"]
        first = (await world.http.get("/v1/nodes?limit=2")).json()
        assert [item["id"] for item in first["items"]] == ["n1", "n2"]
        rest = (await world.http.get(f"/v1/nodes?limit=2&continue={first['next']}")).json()
        assert [item["id"] for item in rest["items"]] == ["n3"] and rest["next"] is None
        assert (await world.http.get("/v1/queues?limit=1")).json()["next"] is None
        assert (await world.http.get("/v1/queues?continue=x")).status_code == 422
        assert (await world.http.get("/v1/jobs?limit=5000")).json()["errors"][0]["field"] == "limit"


async def test_the_past_can_be_asked() -> None:
    """Cluster and why as of a sequence and as of a time; the future and nonsense are 400, before the log is 410."""
    async with GatewayWorld() as world:
        job = await world.submit(resources=gpus(4))
        born = (await world.job(job))["sequence"]
        node = await world.node("n1")
        await world.in_state(job, "placed")
        await node.start(job)
        await world.in_state(job, "running")
        then = (await world.http.get(f"/v1/cluster?at={born}")).json()
        assert (then["sequence"], then["nodes"]) == (born, [])
        assert sum(then["jobs"].values()) == 1
        assert (await world.http.get("/v1/cluster")).json()["jobs"] == {"running": 1}
        why = (await world.http.get(f"/v1/jobs/{job}/why?at={born}")).json()
        assert why["state"] in ("queued", "offered") and why["sequence"] == born
        assert (await world.http.get("/v1/cluster", params={"at": "2020-01-01T00:00:00Z"})).status_code == 410
        now = datetime.now(UTC).isoformat()
        assert (await world.http.get("/v1/cluster", params={"at": now})).json()["jobs"] == {"running": 1}
        for at in ("٣", "0", "99999", "yesterday", "2199-01-01T00:00:00+01:00"):
            assert (await world.http.get("/v1/cluster", params={"at": at})).status_code == 400


async def test_an_array_shows_its_elements() -> None:
    """Counts by state on the array; an element is a job of its own with the array's spec."""
    async with GatewayWorld() as world:
        node = await world.node("n1", 2)
        array = await world.submit(array=4, resources=gpus(1))
        await eventually_async(
            lambda: world.gateway.views.jobs.rows[array].elements == {"waiting": 0, "offered": 2, "placed": 2}
        )
        element = await world.job(f"{array}_0")
        assert element["spec"]["array"] == 4 and element["state"] == "placed"
        for index in range(4):
            await world.in_state(f"{array}_{index}", "placed")
            await node.start(f"{array}_{index}")
            await node.exit(f"{array}_{index}")
        await world.in_state(array, "succeeded")
        assert {k: v for k, v in (await world.job(array))["array"].items() if v} == {"succeeded": 4}


async def test_an_unknown_field_is_named_with_the_known_ones() -> None:
    """An error outside of a job file does not point to the job file's schema; nothing is sent."""
    async with GatewayWorld() as world:
        before = world.commands_stored()
        for method, path, body, known in (
            ("POST", "/v1/jobs/1:move", {"qeue": "x"}, "queue; did you mean queue?"),
            ("POST", "/v1/nodes/n1:drain", {"resaon": "x"}, "reason, deadline; did you mean reason?"),
            ("POST", "/v1/sql", {"sql": "x"}, "query, limit, timeout_s, id"),
        ):
            answer = await world.http.request(method, path, json=body)
            assert (422, f"unknown field; expected {known}") == (
                answer.status_code,
                answer.json()["errors"][0]["message"],
            )
        assert world.commands_stored() == before


async def test_a_job_is_changed_by_fields_of_its_file() -> None:
    """A waiting one: what is not named stays, a label that is null goes, and the job file is that of the changed job."""
    async with GatewayWorld() as world:
        job = await world.submit(name="old", labels={"a": "1", "b": "2"}, time={"total": "1h", "grace": "1m"})
        change = {"name": "new", "priority": 80, "time": {"total": "2h"}, "labels": {"a": None, "c": "3"}}
        answer = await world.http.patch(f"/v1/jobs/{job}", json=change)
        found = answer.json()
        assert (answer.status_code, found["name"], found["priority"], found["left_seconds"]) == (200, "new", 80, 7200)
        assert found["spec"]["labels"] == {"b": "2", "c": "3"}
        assert found["spec"]["time"] == {"total": "7200s", "grace": "1m"}
        assert found["spec"]["command"] == ["true"]
        answer = await world.http.patch(f"/v1/jobs/{job}", json={"time": {"total": None}})
        assert (answer.json()["left_seconds"], answer.json()["name"]) == (None, "new")


async def test_a_changed_array_shows_in_its_elements() -> None:
    """In those that live; their array has the file."""
    async with GatewayWorld() as world:
        await world.node("n1", 1)
        array = await world.submit(array=2, resources=gpus(1), time={"total": "1h"})
        await world.in_state(f"{array}_0", "placed")
        answer = await world.http.patch(f"/v1/jobs/{array}", json={"priority": 70, "time": {"total": "30m"}})
        assert answer.status_code == 200
        element = await world.job(f"{array}_0")
        assert (element["priority"], element["left_seconds"], element["spec"]["priority"]) == (70, 1800, 70)
        alone = await world.http.patch(f"/v1/jobs/{array}_0", json={"priority": 1})
        assert (alone.status_code, f"change array {array}" in alone.json()["detail"]) == (409, True)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({}, ""),
        ({"priority": 1001}, "priority"),
        ({"name": "x" * 300}, "name"),
        ({"time": {"total": "soon"}}, "time.total"),
        ({"time": {"total": 0}}, "time.total"),
        ({"labels": {"a": "\0"}}, "labels.a"),
        ({"queue": "x"}, "queue"),
    ],
)
async def test_a_change_that_cannot_be_names_its_field(change: dict[str, Any], field: str) -> None:
    """And sends no command."""
    async with GatewayWorld() as world:
        job = await world.submit()
        before = world.commands_stored()
        answer = await world.http.patch(f"/v1/jobs/{job}", json=change)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
        assert world.commands_stored() == before


async def test_a_change_may_ask_that_nothing_else_has_changed() -> None:
    """By the entity tag of the answer that its sender has seen."""
    async with GatewayWorld() as world:
        job = await world.submit()
        tag = (await world.http.get(f"/v1/jobs/{job}")).headers["etag"]
        path, first, second = f"/v1/jobs/{job}", {"priority": 60}, {"priority": 70}
        assert (await world.http.patch(path, json=first, headers={"if-match": tag})).status_code == 200
        late = await world.http.patch(path, json=second, headers={"if-match": tag})
        assert (late.status_code, late.json()["type"].rpartition(":")[2]) == (412, "changed_since")
        assert (await world.job(job))["priority"] == 60
        assert (await world.http.patch(path, json=second, headers={"if-match": "*"})).status_code == 200
        wrong = await world.http.patch(path, json=first, headers={"if-match": "mine"})
        assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "If-Match")


async def test_who_may_extend_a_job_that_others_wait_for() -> None:
    """Its owner lowers the limit; a queue-admin of its queue also raises it. Others may do neither."""
    async with SignedWorld() as world:
        await world.node("n1")
        await world.configure(lab={})
        await world.person("mia", member="queue:lab")
        await world.person("sue", queue_admin="queue:lab")
        await world.person("eve", viewer="queue:lab")
        file = {"command": ["true"], "queue": "lab", "time": {"total": "1h"}}
        job = (await world.ask("mia", "POST", "/v1/jobs", json=file)).json()["id"]
        await world.in_state(job, "placed")
        longer, shorter = {"time": {"total": "2h"}}, {"time": {"total": "30m"}}
        refused = await world.ask("mia", "PATCH", f"/v1/jobs/{job}", json=longer)
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (409, "time.total")
        assert "queue-admin" in refused.json()["hint"]
        assert (await world.ask("eve", "PATCH", f"/v1/jobs/{job}", json=shorter)).status_code == 403
        assert (await world.ask("mia", "PATCH", f"/v1/jobs/{job}", json=shorter)).status_code == 200
        assert (await world.ask("sue", "PATCH", f"/v1/jobs/{job}", json=longer)).status_code == 200
