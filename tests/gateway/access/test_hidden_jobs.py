"""Refusals, dry runs, reasons and planned moves for a user who may see one job of several: the others are counted, and named nowhere (A17)."""

import re
from typing import Any

import pytest

from fairlead_gateway.access import redaction
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.redaction import scrub, shown_retired_job
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.errors import HttpError
from fairlead_placer.scheduling import defragment
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.world import fragmented, gpus


async def _two(world: SignedWorld) -> tuple[str, str]:
    """A job of mia's, whose number is 1, and one that is hidden from her."""
    await world.configure(mine={}, secretqueue={})
    await world.person("mia", member="queue:mine")
    own = (await world.ask("mia", "POST", "/v1/jobs", json={"command": ["true"], "queue": "mine"})).json()["id"]
    return own, await world.submit(queue="secretqueue")


def _sight(world: SignedWorld) -> Sight:
    return Sight(world.gateway.views, Caller(world.gateway.views, principal="mia", credential="mia", is_token=True))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("behind job OWN", "behind job OWN"),
        ("behind job HID (lower priority: 5 against 7)", "behind 1 hidden job (lower priority: 5 against 7)"),
        ("the limits of jobs OWN, HID and 3 more", "the limits of jobs OWN and 4 more"),
        ("jobs HID, 998, 999 and 3 more run", "6 hidden jobs run"),
        ("jobs HID and OWN", "jobs OWN and 1 more"),
        ("fairlead why HID, or use it", "fairlead why (hidden), or use it"),
        ("OWN, HID", "OWN and 1 more"),
        ("HID, 998", "2 hidden"),
        ("HID", "(hidden)"),
        ("8 GPUs of 16 are free; 12 jobs are ahead", "8 GPUs of 16 are free; 12 jobs are ahead"),
    ],
)
async def test_mentions_of_hidden_jobs_become_numbers(text: str, shown: str) -> None:
    """In sentences and in lists of ids. Amounts stay as they are."""
    async with SignedWorld() as world:
        own, hidden = await _two(world)
        expected = shown.replace("OWN", own)
        assert scrub(_sight(world), text.replace("OWN", own).replace("HID", hidden)) == expected


async def test_a_dry_run_counts_jobs_that_might_yield() -> None:
    """One that its caller may see is named, with the rule; of the others there is the number alone, also of those ahead of it."""
    async with SignedWorld() as world:
        await world.start_explainer()
        file: dict[str, Any] = {
            "secretqueue": {"preemption": {"protect": 0}},
            "mine": {"guaranteed": {"nvidia.com/gpu": 2}},
        }
        await world.configure(**file)
        await world.person("mia", member="queue:mine")
        node = await world.node("n1", 2)
        hidden = [await world.run(node, queue="secretqueue", resources=gpus(1)) for _ in range(2)]
        dry = {"command": ["true"], "queue": "mine", "resources": gpus(1)}
        found = (await world.ask("mia", "POST", "/v1/jobs:dryrun", json=dry)).json()
        assert (found["displaces"], found["displaces_hidden"]) == ([], 2), found
        assert "secretqueue" not in str(found) and not _names(found, hidden)
        whole = (await world.ask("owner", "POST", "/v1/jobs:dryrun", json=dry)).json()
        assert {each["job"] for each in whole["displaces"]} == set(hidden) and not whole["displaces_hidden"]
        own = (await world.ask("mia", "POST", "/v1/jobs", json={**dry, "priority": 5})).json()["id"]
        for path in (f"/v1/jobs/{own}", f"/v1/jobs/{own}/why"):
            answer = (await world.ask("mia", "GET", path)).json()
            assert not _names(answer, hidden), answer


def _names(document: Any, jobs: list[str]) -> list[str]:
    """Jobs that a document names: "job 7" in its texts, and fields of their own."""
    text = str(document)
    return [job for job in jobs if re.search(rf"jobs? [0-9, ]*\\b{job}\\b|'job': '{job}'", text)]


async def test_a_dry_run_is_refused_in_the_words_of_its_caller() -> None:
    """By the same cleaned sentence as its submit: the queue above, whose limit it is, is not the caller's to see."""
    async with SignedWorld() as world:
        await world.start_explainer()
        await world.configure(secretqueue={"maximum": {"nvidia.com/gpu:A100": 1}}, secretqueue__mine={})
        await world.person("mia", member="queue:secretqueue/mine")
        await world.node("n1", 8)
        job = {"command": ["true"], "queue": "secretqueue/mine", "resources": gpus(1)}
        dry = await world.ask("mia", "POST", "/v1/jobs:dryrun", json=job)
        submitted = await world.ask("mia", "POST", "/v1/jobs", json=job)
        assert dry.status_code == submitted.status_code == 422
        for answer in (dry, submitted):
            assert "secretqueue " not in answer.text and "(hidden)" in answer.text, answer.text
        assert dry.json()["detail"] == submitted.json()["detail"]
        (listed,) = (await world.ask("mia", "POST", "/v1/jobs:dryrun", json=[job])).json()
        assert not listed["valid"] and "secretqueue " not in str(listed["errors"]) + listed["message"], listed


async def test_planned_moves_name_no_hidden_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that may read nodes and no jobs sees that there is a plan; one of everything sees it whole."""
    monkeypatch.setattr(defragment, "AFTER_NS", 0)
    async with SignedWorld() as world:
        await world.start_explainer()
        _, _, big = await fragmented(world)
        await world.person("mia", viewer="cluster")
        await world.token("narrow", "mia", verbs=("node:read",))
        whole = await world.get("mia", "/v1/pools/default/defrag")
        assert [plan["job"] for plan in whole["plans"]] == [big] and not whole.get("plans_hidden")
        found = await world.get("narrow", "/v1/pools/default/defrag")
        assert not found.get("plans") and found["plans_hidden"] == 1
        await world.grant("mia", "viewer", "queue:default")
        await world.token("of-a-job", "mia", scopes=(f"job:{big}", "pool:other"))
        sight = Sight(
            world.gateway.views, Caller(world.gateway.views, principal="mia", credential="of-a-job", is_token=True)
        )
        moved = await _planned(world)
        shown = redaction.shown_defrag(sight, moved)
        (plan,) = shown.plans
        assert plan.job == big and not plan.moves and plan.moves_hidden == len(moved.plans[0].moves)


async def _planned(world: SignedWorld) -> Any:
    """A plan with moves, of the form that the explainer sends."""
    from fairlead_schemas.queries.explainer import Defrag, DefragMove, DefragPlan

    jobs = sorted(world.gateway.views.jobs.rows, key=int)
    moves = tuple(
        DefragMove(job=job, attempt=1, gpu_milli=1000, sources=("n1",), targets=("n2",), cost_gpu_s=9)
        for job in jobs[:-1]
    )
    plan = DefragPlan(job=jobs[-1], attempt=1, gpu_milli=2000, moves=moves, nodes=("n1",))
    return Defrag(pool="default", on=True, plans=(plan,), sequence=1)


async def test_a_retired_job_names_no_others() -> None:
    """Its document comes from telemetry, which knows no rights: who it yielded to, what it waited for, and the words about its attempts."""
    async with SignedWorld() as world:
        own, hidden = await _two(world)
        document = {
            "id": "5",
            "user": "bob",
            "nodes": [],
            "reason": {"code": "ended", "message": f"yielded to job {hidden}", "detail": {}},
            "preempted_for": {"job": hidden, "rule": "lower_priority"},
            "after": [{"job": hidden, "state": "ended"}],
            "attempts": [{"attempt": 1, "message": f"yielded to job {hidden}"}],
        }
        raw = redaction.msgspec.json.encode(document)
        shown = shown_retired_job(_sight(world), raw)
        assert hidden not in str({key: value for key, value in shown.items() if key != "id"}), shown
        assert shown["reason"]["message"] == "yielded to 1 hidden job"
        mine = shown_retired_job(_sight(world), raw.replace(b"bob", b"mia"))
        assert mine["after"] == document["after"], "its owner has named it"
        owners = Sight(
            world.gateway.views, Caller(world.gateway.views, principal="owner", credential="owner", is_token=True)
        )
        assert bytes(shown_retired_job(owners, raw)) == raw and own


async def test_refusals_of_verbs_are_cleaned_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue service names what is in the way of a move, a hold or a change; the answer counts it."""
    async with SignedWorld() as world:
        own, hidden = await _two(world)

        async def refuses(_gate: object, _command: object, refusal: Any = None) -> Any:
            assert refusal is not None, "every verb passes its caller's sight"
            raise refusal(_Outcome(f"jobs {hidden} and 3 more of secretqueue are in the way"))

        monkeypatch.setattr(world.gateway.waiter, "carry_out", refuses)
        await world.person("noa", operator="queue:mine", viewer="pool:nosuch")
        for verb, body in (("cancel", {}), ("hold", {}), ("move", {"queue": "mine"}), ("extend", {})):
            answer = await world.ask("mia", "POST", f"/v1/jobs/{own}:{verb}", json=body)
            assert "4 hidden jobs of (hidden) are in the way" in answer.text, (verb, answer.text)
        answer = await world.ask("mia", "PATCH", f"/v1/jobs/{own}", json={"priority": 1})
        assert "4 hidden jobs of (hidden) are in the way" in answer.text, answer.text


class _Outcome:
    """Refusal of a service, with the fields that its answer reads."""

    code, field, applied, job, repeated, sequence = "conflict", "", None, "", False, 1

    def __init__(self, message: str) -> None:
        self.message = message


@pytest.mark.parametrize(
    ("attack", "guard", "without"),
    [
        (
            test_a_dry_run_counts_jobs_that_might_yield,
            "fairlead_gateway.routes.submit.shown_dry_run",
            lambda _, found: found,
        ),
        (
            test_a_dry_run_is_refused_in_the_words_of_its_caller,
            "fairlead_gateway.routes.submit.shown_refusal",
            lambda _, found: found,
        ),
        (test_a_retired_job_names_no_others, "fairlead_gateway.access.targets.Sight.job_id", lambda *_: True),
    ],
)
async def test_without_the_guard_others_are_named(
    attack: Any, guard: str, without: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each test above fails on a gateway that leaves the cleaning out."""
    monkeypatch.setattr(guard, without)
    with pytest.raises((AssertionError, HttpError)):
        await attack()


async def test_without_the_guard_plans_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is the test of planned moves seen to fail."""
    monkeypatch.setattr("fairlead_gateway.routes.queues.shown_defrag", lambda _, found: found)
    with pytest.MonkeyPatch.context() as patch, pytest.raises((AssertionError, KeyError)):
        await test_planned_moves_name_no_hidden_jobs(patch)
