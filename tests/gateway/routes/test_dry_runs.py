"""POST /v1/jobs:dryrun: what would become of a job, with the queue's own numbers, and nothing sent."""

from typing import Any

import pytest

from fairlead_gateway.why.preemption import might_yield
from fairlead_schemas.queries.explainer import COMMANDS_MAX
from fairlead_schemas.queuefile.settings import Preemption
from fairlead_schemas.wire.events import Victim
from tests.gateway.crowded_queue import VISION, crowded, kinds_of
from tests.gateway.dry_runs import GOOD, tried
from tests.gateway.logbook import Logbook, configured, joined, offered, placed, started, submitted
from tests.gateway.world import GatewayWorld, gpus


async def test_quota_position_and_what_would_hold_it_back() -> None:
    """Each queue on the way up, in integers and in the file's words; the reason and the changes as `why` has them."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        _, job = await crowded(world)
        await world.configure(research={"guaranteed": {"nvidia.com/gpu": 4}})
        found = await tried(world, queue=VISION, resources=gpus(3))
        assert (found["valid"], found["checked"], found["pool"]) == (True, "queue", "default")
        assert found["quota"] == [
            {
                "queue": VISION,
                "user": "",
                "resource": "gpu",
                "used": 6000,
                "after": 9000,
                "guaranteed": 0,
                "maximum": 8000,
                "words": {"resource": "nvidia.com/gpu", "used": 6, "after": 9, "guaranteed": 0, "maximum": 8},
            },
            {
                "queue": "research",
                "user": "",
                "resource": "gpu",
                "used": 6000,
                "after": 9000,
                "guaranteed": 4000,
                "maximum": None,
                "words": {"resource": "nvidia.com/gpu", "used": 6, "after": 9, "guaranteed": 4, "maximum": None},
            },
        ]
        assert found["reason"]["code"] == "maximum"
        assert found["message"] == f"would be accepted, but queue {VISION} is at 6 of 8 GPUs; this needs 3"
        assert "next" not in found["reason"]["detail"], "there is no job that could be moved"
        assert kinds_of(found)["wait"] == f"starts when 3 GPUs of {VISION} are left by the job before it"
        assert (found["ahead"], found["first_ahead"]) == (1, [job])
        assert found["command"]["request"]["gpu_milli"] == 3000
        assert job in world.gateway.views.jobs.rows and len(world.gateway.views.jobs.rows) == 2


async def test_a_dry_run_of_a_job_that_would_start_at_once() -> None:
    """No limit blocks it; its borrowing is reported; its start is now, an estimate with its basis."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await world.node("n1")
        await world.configure(a={"guaranteed": {"nvidia.com/gpu": 2}})
        found = await tried(world, queue="a", resources=gpus(3))
        assert (found["reason"], found["message"]) == (None, "would be accepted, and offered at once")
        assert (found["borrows"], found["borrows_words"]) == ({"gpu": 1000}, {"nvidia.com/gpu": 1})
        assert found["estimate"]["wait_seconds"] == 0
        assert found["estimate"]["start_at"].endswith("Z")
        assert "time limits" in found["estimate"]["basis"]
        several = await tried(world, queue="a", resources=gpus(3), array="0-9")
        assert several["message"] == "would be accepted, and its first element offered at once"


async def test_possible_victims_are_named() -> None:
    """By job and rule, in text that names no user; and that the job waits for a place until then."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        node = await world.node("n1")
        await world.configure(owner={"guaranteed": {"nvidia.com/gpu": 8}}, other={"preemption": {"protect": 0}})
        borrower = await world.run(node, queue="other", resources=gpus(8))
        found = await tried(world, queue="owner", resources=gpus(4))
        assert found["reason"]["code"] == "no_place"
        assert found["message"] == "would be accepted, but pool default has less left than it needs"
        (displaced,) = found["displaces"]
        assert (displaced["job"], displaced["rule"]) == (borrower, "over_guarantee")
        assert (
            displaced["message"]
            == f"job {borrower} of other: other uses 8 GPUs over its guarantee, which owner is owed"
        )
        assert "anonymous" not in str(found["displaces"])


async def test_start_times_and_dependencies_hold_it_back_too() -> None:
    """As `why` says it of a job that is there."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await world.node("n1")
        later = await tried(world, startAt="2099-01-01T00:00:00Z")
        assert (later["reason"]["code"], later["estimate"]["start_at"]) == ("scheduled", "2099-01-01T00:00:00.000Z")
        job = await world.submit(resources=gpus(1))
        await world.in_state(job, "placed")
        behind = await tried(world, dependsOn=[job])
        assert behind["reason"]["message"] == f"waits for job {job} to succeed"
        assert behind["estimate"] == {
            "start_at": None,
            "wait_seconds": None,
            "basis": "it waits for other jobs, whose end is unknown",
        }


@pytest.mark.parametrize("spec", [{"queue": "nowhere"}, {"resources": gpus(16)}, {"dependsOn": ["999"]}])
async def test_a_dry_run_of_a_refused_job_is_answered_as_the_submit(spec: dict[str, Any]) -> None:
    """The same status, code, field and message."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await world.node("n1")
        submit = await world.http.post("/v1/jobs", json={**GOOD, **spec})
        answer = await world.http.post("/v1/jobs:dryrun", json={**GOOD, **spec})
        told, expected = answer.json(), submit.json()
        assert (answer.status_code, told.pop("request_id")) == (
            submit.status_code,
            told and answer.json()["request_id"],
        )
        expected.pop("request_id")
        assert told == expected
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_list_is_answered_in_order() -> None:
    """Each job by itself; a refused one has its refusal in its place, and the others have their outcomes."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await world.node("n1")
        body = [{**GOOD, "resources": gpus(1)}, {**GOOD, "queue": "nowhere"}, {**GOOD, "resources": gpus(2)}]
        answer = await world.http.post("/v1/jobs:dryrun", json=body)
        first, refused, last = answer.json()
        assert answer.status_code == 200
        assert [one["valid"] for one in (first, refused, last)] == [True, False, True]
        assert (refused["code"], refused["errors"][0]["field"]) == ("unknown_queue", "queue")
        assert (first["quota"], last["command"]["request"]["gpu_milli"]) == ([], 2000)
        assert world.commands_stored() == 0


async def test_mistakes_of_the_file_are_found_without_asking() -> None:
    """One of a list at its place; too many at once."""
    async with GatewayWorld() as world:
        answer = await world.http.post("/v1/jobs:dryrun", json=[GOOD, {**GOOD, "nodse": 2}])
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "[1].nodse")
        assert (await world.http.post("/v1/jobs:dryrun", json=[])).status_code == 422
        many = await world.http.post("/v1/jobs:dryrun", json=[GOOD] * (COMMANDS_MAX + 1))
        assert f"expected 1 to {COMMANDS_MAX} elements" in many.json()["detail"]
        wrong = await world.http.post("/v1/jobs:dryrun", content=b"{}", headers={"content-type": "text/plain"})
        assert wrong.status_code == 415


async def test_large_job_files_fit_the_question() -> None:
    """A hundred of them, of 50 KB each: their specs are not sent along."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await world.node("n1")
        body = [{**GOOD, "env": {"A": "x" * 50_000}}] * COMMANDS_MAX
        answer = await world.http.post("/v1/jobs:dryrun", json=body)
        assert answer.status_code == 200
        assert {one["checked"] for one in answer.json()} == {"queue"}
        assert len(answer.json()[0]["command"]["spec"]["env"]["A"]) == 50_000


async def test_without_an_explainer_the_file_is_checked() -> None:
    """The answer states that more is unknown."""
    async with GatewayWorld() as world:
        found = await tried(world, resources=gpus(2))
        assert (found["valid"], found["checked"]) == (True, "file")
        assert found["message"] == "checked: file only; the queue could not be asked (the explainer does not answer)"
        assert found["command"]["request"]["gpu_milli"] == 2000
        assert (found["quota"], found["reason"], found["estimate"]) == ([], None, None)
        answer = await world.http.post("/v1/jobs:dryrun", json={**GOOD, "nodes": 0})
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "nodes")


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("lower_priority", "job 1 of a has a lower priority: 50 against 70"),
        ("over_slice", "job 1 of a has had its slice, and this would go before it"),
        ("over_guarantee", "job 1 of a: a uses 8 GPUs over its guarantee, which b is owed"),
        ("over_share", "job 1 of a: a has more than its share, b less than its own"),
    ],
)
def test_rules_are_readable(rule: Any, told: str) -> None:
    """For any user; also of a run that the views do not have (any more)."""
    book = Logbook()
    for event in (
        joined(),
        configured("a", preemption=Preemption(protect_ns=0)),
        configured("b", guaranteed={"gpu": 8000}),
        submitted(gpus=8, queue="a"),
        offered(),
        placed(gpus=8),
        started(),
    ):
        book.write(event)
    assert might_yield(book.views, Victim(job="1", attempt=1, rule=rule), "b", 70) == told
    assert "job 9" in might_yield(book.views, Victim(job="9", attempt=1, rule=rule), "b", 70)
