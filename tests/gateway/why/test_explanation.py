"""GET why with an explainer: its evidence and its remedies for the one dominant reason, of one sequence."""

import asyncio
from typing import Any

import pytest

from fairlead_bus.port import Message
from fairlead_gateway.sources import service_queries
from fairlead_gateway.sources.service_queries import ExplainerClient
from fairlead_schemas.queries.explainer import AskWhy, ExplainerAnswer, Explanation, decode_ask, encode
from fairlead_schemas.wire import subjects
from tests.gateway.crowded_queue import VISION, crowded, kinds_of
from tests.gateway.world import GatewayWorld, gpus
from tests.kit.eventually import eventually_async


async def test_changes_say_what_would_start_it() -> None:
    """Wait for so much, ask for less, go elsewhere, or raise the limit; the step to type; who is ahead."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        _, job = await crowded(world)
        answer = await world.why(job)
        reason = answer["reason"]
        assert (reason["code"], reason["message"]) == (
            "maximum",
            f"queue {VISION} is at 6 of 8 GPUs; this needs 4",
        )
        assert reason["detail"]["ahead"] == 0
        assert kinds_of(answer) == {
            "wait": f"starts when 2 GPUs of {VISION} are given back",
            "smaller": "could start now with 2 GPUs instead of 4",
            "other_queue": "could start now in queue default",
            "quota": f"could start now if {VISION} might hold 10 GPUs",
        }
        wait = next(change for change in answer["changes"] if change["kind"] == "wait")
        assert (wait["queue"], wait["resource"], wait["amount"]) == (VISION, "gpu", 2000)
        assert reason["detail"]["next"] == f"fairlead move {job} --queue default"
        assert answer["note"] == ""
        moved = await world.http.post(f"/v1/jobs/{job}:move", json={"queue": "default"})
        assert moved.status_code == 200
        await world.in_state(job, "placed")


async def test_the_past_is_explained_as_it_was() -> None:
    """Before the move and after: each as of its sequence, with the remedies of that time."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        _, job = await crowded(world)
        before = await world.why(job)
        await world.http.post(f"/v1/jobs/{job}:move", json={"queue": "default"})
        await world.in_state(job, "placed")
        again = await world.why(job, before["sequence"])
        assert again == before
        assert (await world.why(job))["changes"] == []
        assert (await world.http.get(f"/v1/jobs/{job}/why", params={"at": "1"})).status_code == 404


async def test_jobs_ahead_are_named() -> None:
    """By the queue's own order, not by the views' guess: open offers, and jobs before it at the same limit."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        _, job = await crowded(world)
        second = await world.submit(queue=VISION, resources=gpus(4))
        answer = await world.why(second)
        assert answer["reason"]["code"] == "maximum"
        last = await world.submit(queue=VISION, resources=gpus(8), priority=1)
        offered = [await world.submit(queue="shared", resources=gpus(8), nodes=2) for _ in range(2)]
        await eventually_async(lambda: all(world.gateway.views.jobs.rows[one].state == "offered" for one in offered))
        detail = (await world.why(last))["reason"]["detail"]
        assert detail["ahead"] == 4
        assert detail["first_ahead"] == ", ".join([*offered, job, second])


async def test_an_element_not_yet_created_waits_as_its_array_does() -> None:
    """Now and in the past; for an element outside of the array the valid ones are given."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await crowded(world)
        array = await world.submit(queue=VISION, resources=gpus(2), array="0-3")
        await world.in_state(f"{array}_0", "placed")
        told = await world.why(f"{array}_3")
        of_array = await world.why(array)
        assert told["reason"]["message"] == (
            f"comes into being when it is offered, by its array {array}; of that: {of_array['reason']['message']}"
        )
        assert (told["id"], told["state"], told["changes"]) == (f"{array}_3", "queued", of_array["changes"])
        assert (await world.why(f"{array}_0", told["sequence"] - 2))["reason"]["message"].startswith("comes into being")
        missing = await world.http.get(f"/v1/jobs/{array}_4/why")
        assert (missing.status_code, missing.json()["hint"]) == (
            404,
            f"array {array} has the elements {array}_0 to {array}_3",
        )
        await world.http.post(f"/v1/jobs/{array}:cancel", json={})
        await world.in_state(array, "stopping")
        assert (await world.http.get(f"/v1/jobs/{array}_3/why")).status_code == 404


async def test_without_an_explainer_the_views_answer() -> None:
    """The reason, its numbers and the smallest change that these know of; and that more is not known."""
    async with GatewayWorld() as world:
        _, job = await crowded(world)
        answer = await world.why(job)
        assert answer["reason"]["code"] == "maximum"
        assert answer["reason"]["detail"]["next"].startswith(f"starts when 2 GPUs of {VISION} are given back")
        assert answer["changes"] == []
        assert answer["note"] == "what would change it is not known: the explainer does not answer"
        assert (await world.why("1"))["note"] == "", "of a job that runs nothing is missing"


async def test_a_past_time_needs_the_explainer() -> None:
    """`at=` without one is refused, too."""
    async with GatewayWorld() as world:
        _, job = await crowded(world)
        now = await world.why(job)
        then = await world.why(job, now["sequence"])
        assert then["reason"] == now["reason"]


class Scripted:
    """An explainer that says what a test wants it to, and remembers what it was asked."""

    def __init__(self, *answers: ExplainerAnswer) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def __call__(self, message: Message) -> bytes:
        self.asked.append(decode_ask(message.payload))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return encode(answer)


async def scripted(world: GatewayWorld, *answers: ExplainerAnswer) -> Scripted:
    """In the place of the explainer."""
    explainer = Scripted(*answers)
    await world.hub.connect().serve(subjects.ASK, explainer, group="explainer")
    return explainer


async def test_the_explanation_precedes_older_reasons() -> None:
    """The views still have the queue's refusal; by now only the turn is missing."""
    async with GatewayWorld() as world:
        _, job = await crowded(world)
        sequence = world.gateway.views.sequence
        turn = Explanation(reason="turn", ahead=3, first_ahead=("1", "2", "3"))
        await scripted(world, ExplainerAnswer(sequence=sequence, why=turn))
        reason = (await world.why(job))["reason"]
        assert (reason["code"], reason["message"]) == ("waiting_turn", "waits for its turn; 3 jobs are ahead of it")
        assert reason["detail"]["first_ahead"] == "1, 2, 3"


async def test_an_explanation_of_an_earlier_state_is_not_used() -> None:
    """The job went on while the question was answered: it is asked about once more, then the views answer."""
    async with GatewayWorld() as world:
        _, job = await crowded(world)
        old = ExplainerAnswer(sequence=1, why=Explanation(reason="budget"))
        explainer = await scripted(world, old)
        answer = await world.why(job)
        assert answer["reason"]["code"] == "maximum"
        assert explainer.asked == [AskWhy(job=job)] * 2


async def test_a_busy_explainer_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """While there is time; then the answer states that it was busy."""
    monkeypatch.setattr(service_queries, "AGAIN_S", 0.01)
    async with GatewayWorld() as world:
        _, job = await crowded(world)
        busy = ExplainerAnswer(error="busy", message="many were asked before it; ask again")
        told = ExplainerAnswer(sequence=world.gateway.views.sequence, why=Explanation(reason="next"))
        explainer = await scripted(world, busy, busy, told)
        assert (await world.why(job))["reason"]["message"] == "waits for its turn; it is next"
        assert len(explainer.asked) == 3
        always = await ExplainerClient(world.bus, wait_s=0.1).ask(AskWhy(job=job))
        assert always == told
        explainer.answers = [busy]
        assert await ExplainerClient(world.bus, wait_s=0.1).ask(AskWhy(job=job)) == busy


async def test_an_unreadable_answer_is_ignored() -> None:
    """For any bytes in its place, the views answer."""
    async with GatewayWorld() as world:
        _, job = await crowded(world)

        async def nonsense(_message: Message) -> bytes:
            return b"{"

        await world.hub.connect().serve(subjects.ASK, nonsense, group="explainer")
        answer = await world.why(job)
        assert answer["reason"]["code"] == "maximum"
        assert "another release" in answer["note"]


async def test_many_questions_at_once_are_all_answered() -> None:
    """As a dashboard asks them; each with its own job's answer."""
    async with GatewayWorld() as world:
        await world.start_explainer()
        await crowded(world)
        jobs = [await world.submit(queue=VISION, resources=gpus(4)) for _ in range(20)]
        answers = await asyncio.gather(*(world.why(job) for job in jobs))
        assert [answer["id"] for answer in answers] == jobs
        assert all(answer["changes"] and answer["sequence"] for answer in answers)
