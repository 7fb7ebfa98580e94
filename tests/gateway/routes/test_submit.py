"""POST /v1/jobs: what is accepted is decided in the log; what is wrong is named, and nothing is stored."""

import asyncio
from typing import Any

import pytest

from fairlead_gateway.routes.job_translator import JobTranslator
from tests.gateway.world import GatewayWorld, gpus
from tests.kit.eventually import eventually_async

GOOD = {"command": ["true"]}
HEADERS = {"content-type": "application/json"}


async def test_a_submit_answers_with_the_decision() -> None:
    """201, an id, a state of the lifecycle, and a sequence at which GET shows the job."""
    async with GatewayWorld() as world:
        answer = await world.http.post("/v1/jobs", json=GOOD)
        assert answer.status_code == 201
        body = answer.json()
        assert (body["id"], body["state"]) == ("1", "offered")
        assert answer.headers["location"] == "/v1/jobs/1"
        job = await world.job("1")
        assert (job["id"], job["name"], job["user"], job["queue"]) == ("1", "true", "anonymous", "default")
        assert job["sequence"] >= body["sequence"] > 0
        assert job["spec"] == GOOD


async def test_a_job_lives_and_ends() -> None:
    """Placed, run and ended on a node: every step shows where, and the exit code stays."""
    async with GatewayWorld() as world:
        node = await world.node("n1")
        job = await world.submit(resources=gpus(2))
        await world.in_state(job, "placed")
        await node.start(job)
        await world.in_state(job, "running")
        running = await world.job(job)
        assert running["nodes"] == ["n1"]
        assert len(running["gpus"]["n1"]) == 2
        assert (await world.http.get("/v1/nodes/n1")).json()["gpus_free"] == 6
        await node.exit(job, 3)
        await world.in_state(job, "failed")
        ended = await world.job(job)
        assert (ended["exit_code"], ended["reason"]["code"]) == (3, "failed")
        assert ended["ended_at"] and ended["started_at"]
        assert (await world.http.get("/v1/nodes/n1")).json()["gpus_free"] == 8


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"", 422, ""),
        (b"{", 422, ""),
        (b"null", 422, ""),
        (b"\xff\xfe", 422, ""),
        (b'"job"', 422, ""),
        (b'{"command":["true"],"x":' + b"[" * 5000 + b"]" * 5000 + b"}", 422, None),
        (b"[" * 200_000, 422, None),
        (b'{"command":["true"],"bogus":1}', 422, "bogus"),
        (b'{"command":["true"],"time":{"totel":"1h"}}', 422, "time.totel"),
        (b'{"command":"true"}', 422, "command"),
        (b"{}", 422, None),
        (b'{"command":[]}', 422, "command"),
        (b'{"command":["true"],"nodes":0}', 422, "nodes"),
        (b'{"command":["true"],"resources":{"nvidia.com/gpu":-1}}', 422, "resources.nvidia.com/gpu"),
        (b'{"command":["true"],"resources":{"tpu":1}}', 422, "resources.tpu"),
        (b'{"command":["true"],"env":{"NVIDIA_VISIBLE_DEVICES":"all"}}', 422, "env.NVIDIA_VISIBLE_DEVICES"),
        (b'{"command":["true"],"queue":"No Such"}', 422, "queue"),
        (b'[{"command":["true"]},{"command":["true"],"bogus":1}]', 422, "[1].bogus"),
        (b'[{"command":["true"]},7]', 422, "[1]"),
        (b"[]", 422, ""),
        (b'{"command":["' + b"x" * 70_000 + b'"]}', 422, ""),
        (b'{"command":["' + b"x" * 300_000 + b'"]}', 413, None),
    ],
)
async def test_mistakes_are_named_and_nothing_is_stored(body: bytes, status: int, field: str | None) -> None:
    """A problem document with the field, and no command on the bus."""
    async with GatewayWorld() as world:
        before = world.commands_stored()
        answer = await world.http.post("/v1/jobs", content=body, headers=HEADERS)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["status"] == status and problem["request_id"] and problem["detail"]
        if field is not None:
            assert problem["errors"][0]["field"] == field
        await asyncio.sleep(0.02)
        assert world.commands_stored() == before


async def test_a_list_over_the_limit_is_413_before_it_is_read() -> None:
    """8 MiB are taken, one byte more is not, by header or by counting."""
    async with GatewayWorld() as world:
        body = b"[" + b'{"command":["true"]},' * 420_000 + b"]"
        for headers in (HEADERS, {**HEADERS, "transfer-encoding": "chunked"}):

            async def chunks():
                for start in range(0, len(body), 65536):
                    yield body[start : start + 65536]

            content = body if headers is HEADERS else chunks()
            answer = await world.http.post("/v1/jobs", content=content, headers=headers)
            assert answer.status_code == 413
        assert world.commands_stored() == 0


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-yaml"])
async def test_another_content_type_is_415(content_type: str) -> None:
    """JSON only, and the error says so."""
    async with GatewayWorld() as world:
        answer = await world.http.post("/v1/jobs", content=b"{}", headers={"content-type": content_type})
        assert answer.status_code == 415
        assert answer.json()["errors"][0]["field"] == "Content-Type"
        assert answer.json()["hint"] == "with curl: -H 'Content-Type: application/json'"


async def test_refusals_of_the_queue_name_their_field() -> None:
    """Unknown queue, and more GPUs per node than any node has: 422 with the queue's own words and code."""
    async with GatewayWorld() as world:
        await world.node("n1", 8)
        unknown = await world.http.post("/v1/jobs", json={**GOOD, "queue": "nowhere"})
        assert (unknown.status_code, unknown.json()["errors"][0]["field"]) == (422, "queue")
        assert unknown.json()["type"].endswith("unknown_queue")
        large = await world.http.post("/v1/jobs", json={**GOOD, "resources": gpus(16)})
        assert large.status_code == 422
        assert large.json()["type"].endswith("larger_than_any_node")
        assert "8" in large.json()["detail"] and "16" in large.json()["detail"]
        assert not world.gateway.views.jobs.rows


async def test_a_list_is_answered_in_order() -> None:
    """Every element's own result, the queue's refusals included."""
    async with GatewayWorld() as world:
        jobs = [{**GOOD, "name": f"j{i}"} for i in range(50)]
        jobs[7]["queue"] = "nowhere"
        answer = await world.http.post("/v1/jobs", json=jobs)
        assert answer.status_code == 200
        results = answer.json()
        assert len(results) == 50
        assert results[7]["state"] == "rejected" and results[7]["reason"]["code"] == "unknown_queue"
        for index, result in enumerate(results):
            if index != 7:
                assert (await world.job(result["id"]))["name"] == f"j{index}"


async def test_one_key_makes_one_job() -> None:
    """The same key and body give the same id; another body under it is 409; another user's key is another key."""
    async with GatewayWorld() as world:
        key = {"idempotency-key": "k1", "x-fairlead-user": "ada"}
        first = await world.http.post("/v1/jobs", json=GOOD, headers=key)
        again = await world.http.post("/v1/jobs", json=GOOD, headers=key)
        assert (first.status_code, again.status_code) == (201, 200)
        assert first.json()["id"] == again.json()["id"]
        other = await world.http.post("/v1/jobs", json={"command": ["false"]}, headers=key)
        assert other.status_code == 409
        assert other.json()["type"].endswith("idempotency_conflict")
        bob = await world.http.post("/v1/jobs", json=GOOD, headers={**key, "x-fairlead-user": "bob"})
        assert bob.json()["id"] != first.json()["id"]
        assert len(world.gateway.views.jobs.rows) == 2


async def test_a_list_under_one_key_is_not_doubled() -> None:
    """Each element has its own key, made from the list's."""
    async with GatewayWorld() as world:
        key = {"idempotency-key": "morning"}
        first = await world.http.post("/v1/jobs", json=[GOOD] * 5, headers=key)
        again = await world.http.post("/v1/jobs", json=[GOOD] * 5, headers=key)
        assert [one["id"] for one in first.json()] == [one["id"] for one in again.json()]
        assert len(world.gateway.views.jobs.rows) == 5


async def test_without_a_queue_the_command_is_kept_and_decided_later() -> None:
    """202 with the command's id; once the queue is there, the command's page names the job."""
    async with GatewayWorld(queue=False, decision_wait_s=0.1) as world:
        answer = await world.http.post("/v1/jobs", json=GOOD)
        assert answer.status_code == 202
        command = answer.json()["command"]
        assert answer.headers["location"] == f"/v1/commands/{command}"
        assert (await world.http.get(f"/v1/commands/{command}")).status_code == 404
        await world.start_queue()
        await eventually_async(lambda: bool(world.gateway.views.jobs.rows))
        decided = (await world.http.get(f"/v1/commands/{command}")).json()
        assert (decided["outcome"], decided["job"]) == ("done", "1")


async def test_a_full_log_is_503_and_says_so() -> None:
    """Near its limit the log takes no new jobs; what is there can still be cancelled, and that is recorded."""
    async with GatewayWorld(log_bytes_max=3_000_000) as world:
        jobs = [{"command": ["true", "x" * 2000]}] * 20
        answer = await world.http.post("/v1/jobs", json=jobs)
        statuses = [answer.status_code]
        while statuses[-1] == 200 and len(statuses) < 80:
            answer = await world.http.post("/v1/jobs", json=jobs)
            statuses.append(answer.status_code)
        assert statuses[-1] == 503
        assert answer.json()["type"].endswith("log_full")
        assert "full" in answer.json()["detail"]
        assert len(statuses) > 10, "it was not full from the start"
        assert (await world.http.post("/v1/jobs/1:cancel")).status_code == 200
        await eventually_async(lambda: world.gateway.views.jobs.rows["1"].state == "cancelled")


async def test_an_unreachable_bus_is_503() -> None:
    """Nothing is reported as stored without the bus's confirmation."""
    async with GatewayWorld(decision_wait_s=0.2) as world:
        world.bus.unlink()
        answer = await world.http.post("/v1/jobs", json=GOOD)
        assert answer.status_code == 503
        assert answer.json()["type"].endswith("bus_away")
        assert (await world.http.get("/v1/jobs")).status_code == 200


@pytest.mark.parametrize(
    ("runtimes", "image", "status", "warned"),
    [
        (("docker", "docker"), "", 422, False),
        (("docker", "docker"), "busybox:1", 201, False),
        (("docker", "process"), "", 201, False),
        (("docker", "process"), "busybox:1", 201, False),
        (("process",), "busybox:1", 201, True),
        (("process",), "", 201, False),
        (("hollow",), "busybox:1", 201, False),
        ((), "", 201, False),
        ((), "busybox:1", 201, False),
    ],
)
async def test_an_image_is_judged_by_the_runtimes_there_are(
    runtimes: tuple[str, ...], image: str, status: int, warned: bool
) -> None:
    """A job that no node could begin is refused at once; an image that no node would use is warned of."""
    async with GatewayWorld() as world:
        for number, runtime in enumerate(runtimes):
            await world.node(f"n{number}", 8, runtime=runtime)
        job = {"command": ["true"], **({"image": image} if image else {})}
        answer = await world.http.post("/v1/jobs", json=job)
        assert answer.status_code == status, answer.text
        if status == 422:
            assert answer.json()["errors"][0]["field"] == "image"
            dry = await world.http.post("/v1/jobs:dryrun", json=job)
            assert dry.status_code == 422
            listed = await world.http.post("/v1/jobs", json=[job])
            assert listed.json()["errors"][0]["field"] == "[0].image"
        else:
            assert bool(answer.json().get("warnings")) is warned


@pytest.mark.parametrize("field", ["volumes", "secrets"])
@pytest.mark.parametrize(
    ("runtimes", "status"),
    [(("process", "process"), 422), (("process", "docker"), 201), (("docker",), 201), (("hollow",), 201), ((), 201)],
)
async def test_features_of_containers_are_refused_if_all_runtimes_lack_them(
    runtimes: tuple[str, ...], status: int, field: str
) -> None:
    """Volumes and secrets are refused by name if every node runs plain processes, and only then."""
    given = {"volumes": ["data:/data"], "secrets": ["token"]}[field]
    async with GatewayWorld() as world:
        for number, runtime in enumerate(runtimes):
            await world.node(f"n{number}", 8, runtime=runtime)
        job = {"command": ["true"], "image": "busybox:1", "project": "vision", field: given}
        answer = await world.http.post("/v1/jobs", json=job)
        assert answer.status_code == status, answer.text
        if status == 422:
            assert answer.json()["errors"][0]["field"] == field
            dry = await world.http.post("/v1/jobs:dryrun", json=job)
            assert dry.json()["errors"][0]["field"] == field
            listed = await world.http.post("/v1/jobs", json=[job])
            assert listed.json()["errors"][0]["field"] == f"[0].{field}"


async def test_a_list_of_wrong_jobs_is_read_as_far_as_its_errors_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred are; the rest of 20,000 would take seconds."""
    looked: list[bytes] = []
    real = JobTranslator.translate

    def counted(self: JobTranslator, user: str, body: bytes) -> Any:
        looked.append(body)
        return real(self, user, body)

    monkeypatch.setattr(JobTranslator, "translate", counted)
    async with GatewayWorld() as world:
        answer = await world.http.post("/v1/jobs", json=[{"comand": ["true"]}] * 20_000)
        assert answer.status_code == 422
        assert (len(answer.json()["errors"]), len(looked)) == (100, 100)
        assert answer.json()["detail"] == (
            "100 errors in a list of 20000, read as far as element 99; nothing was stored"
        )
        short = await world.http.post("/v1/jobs", json=[{"command": ["true"]}, {"command": []}])
        assert short.json()["detail"] == "1 error in a list of 2; nothing was stored"
        assert world.commands_stored() == 0
