"""Estimates of starts by HTTP: what a caller may see of them, and a process that is away, busy, or not understood."""

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead_bus.port import Message
from fairlead_gateway.sources import estimates_client
from fairlead_schemas.queries import estimates as q
from fairlead_schemas.wire import subjects
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.world import GatewayWorld, gpus

AT_NS = 1_800_000_000 * 10**9
DRY = {"command": ["true"], "resources": gpus(1)}


async def answering(world: GatewayWorld, answer: q.EstimatesAnswer | bytes) -> list[q.AskEstimates]:
    """Let an estimator answer this; what it is asked."""
    asked: list[q.AskEstimates] = []

    async def take(message: Message) -> bytes:
        asked.append(q.decode_ask(message.payload))
        return answer if isinstance(answer, bytes) else q.encode(answer)

    await world.hub.connect().serve(subjects.ESTIMATES, take, group="past")
    return asked


def start(**more: Any) -> q.EstimatesAnswer:
    """Return an answer about a start."""
    said = q.StartAnswer(
        low_ns=AT_NS,
        middle_ns=AT_NS + 60 * 10**9,
        high_ns=AT_NS + 120 * 10**9,
        futures=32,
        basis="played",
        like_it=10,
        held=8,
    )
    return q.EstimatesAnswer(sequence=7, start=replace(said, **more))


async def test_a_dry_run_and_why_say_when_it_starts() -> None:
    async with GatewayWorld() as world:
        await world.start_explainer()
        await world.node("n1", 4)
        sooner = (
            q.SoonerStart(kind="smaller", start_ns=AT_NS, gpu_milli=4000, nodes=1),
            q.SoonerStart(kind="time_limit", start_ns=AT_NS, total_ns=3600 * 10**9),
        )
        asked = await answering(world, start(sooner=sooner))
        found = (await world.http.post("/v1/jobs:dryrun", json=DRY)).json()["forecast"]
        assert found["from_at"] == "2027-01-15T08:00:00.000Z"
        assert found["to_at"] == "2027-01-15T08:02:00.000Z"
        assert (found["futures"], found["like_it"], found["held"]) == (32, 10, 8)
        assert [each["message"] for each in found["sooner"]] == ["with 4 GPUs", "with a time limit of 1h"]
        first = asked[0]
        assert isinstance(first, q.AskStart)
        assert first.submit is not None
        assert first.submit.request.gpu_milli == 1000
        await world.submit(resources=gpus(1))
        waiting = await world.submit(resources=gpus(4))
        plain = (await world.http.get(f"/v1/jobs/{waiting}/why")).json()
        assert plain["forecast"] is None
        why = (await world.http.get(f"/v1/jobs/{waiting}/why?estimate=true")).json()
        assert why["forecast"]["middle_at"] == "2027-01-15T08:01:00.000Z"
        last = asked[-1]
        assert isinstance(last, q.AskStart)
        assert last.job == waiting


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (None, "the process that estimates starts does not answer"),
        (b"no answer", "the process that estimates starts does not answer in a form that can be read"),
        (q.EstimatesAnswer(error="slow", message="the answer took more than 4 s; ask again"), "took more than 4 s"),
        (start(unknown="held"), "it waits until a person releases it"),
        (start(unknown="queue_held"), "its queue is held"),
        (start(unknown="no_node"), "no node of its pool has joined yet"),
    ],
)
async def test_without_an_interval_everything_else_is_answered_and_it_says_why(
    answer: q.EstimatesAnswer | bytes | None, note: str
) -> None:
    async with GatewayWorld() as world:
        await world.start_explainer()
        await world.node("n1", 1)
        if answer is not None:
            await answering(world, answer)
        found = (await world.http.post("/v1/jobs:dryrun", json=DRY)).json()
        assert found["valid"]
        assert found["message"].startswith("would be accepted")
        assert found["forecast"]["from_at"] is None
        assert note in found["forecast"]["note"]


@pytest.mark.parametrize("known", sorted(estimates_client.UNKNOWN))
def test_every_reason_without_an_interval_is_a_sentence(known: str) -> None:
    assert " " in estimates_client.UNKNOWN[known]


async def test_displaced_jobs_and_nodes_of_others_are_counted() -> None:
    async with SignedWorld() as world:
        await world.start_explainer()
        await world.configure(mine={}, secretqueue={})
        await world.person("mia", member="queue:mine")
        node = await world.node("n1", 2)
        hidden = [await world.run(node, queue="secretqueue", resources=gpus(1)) for _ in range(2)]
        displaced = tuple([q.Yielder(job=job, rule="reclaim", futures=3) for job in hidden])
        asked = await answering(world, start(displaced=displaced, nodes=(node.name,), at_once=True))
        dry = {**DRY, "queue": "mine"}
        seen = (await world.ask("mia", "POST", "/v1/jobs:dryrun", json=dry)).json()["forecast"]
        assert (seen["displaces"], seen["displaces_hidden"]) == ([], 2)
        first = asked[0]
        assert isinstance(first, q.AskStart)
        assert first.queues == ()  # she may submit to no other one
        whole = (await world.ask("owner", "POST", "/v1/jobs:dryrun", json=dry)).json()["forecast"]
        assert {each["job"] for each in whole["displaces"]} == set(hidden)
        assert whole["nodes"] == [node.name]
        last = asked[-1]
        assert isinstance(last, q.AskStart)
        assert "secretqueue" in last.queues


async def test_the_ledger_shows_a_caller_its_queues_and_jobs() -> None:
    async with SignedWorld() as world:
        await world.configure(mine={}, secretqueue={})
        await world.person("mia", member="queue:mine")
        own = (await world.ask("mia", "POST", "/v1/jobs", json={"command": ["true"], "queue": "mine"})).json()["id"]
        other = await world.submit(queue="secretqueue")
        queues = tuple(
            [
                q.QueueCalibration(queue=each, estimates=4, coverage=0.75, pinball=0.2, width=1.5)
                for each in ("mine", "secretqueue")
            ]
        )
        entry = q.LedgerEntry(
            job=own,
            user="",
            queue="mine",
            pool="",
            sequence=1,
            at_ns=AT_NS,
            basis="played",
            futures=8,
            at_once=False,
            low_ns=AT_NS,
            high_ns=AT_NS,
            over_ns=AT_NS,
            held=True,
            loss=0.1,
        )
        ledger = q.LedgerAnswer(queues=queues, worst=(entry, replace(entry, job=other, queue="secretqueue")))
        await answering(world, q.EstimatesAnswer(sequence=9, ledger=ledger))
        seen = (await world.ask("mia", "GET", "/v1/estimates")).json()
        assert [each["queue"] for each in seen["queues"]] == ["mine"]
        assert [each["job"] for each in seen["worst"]] == [own]
        whole = (await world.ask("owner", "GET", "/v1/estimates")).json()
        assert [each["queue"] for each in whole["queues"]] == ["mine", "secretqueue"]
        assert len(whole["worst"]) == 2


async def test_the_ledger_is_unavailable_without_its_process() -> None:
    async with GatewayWorld() as world:
        answer = await world.http.get("/v1/estimates")
        assert answer.status_code == 503
        assert answer.json()["detail"] == "the process that estimates starts does not answer"


async def test_sql_about_estimates_needs_their_process_and_other_sql_does_not() -> None:
    async with GatewayWorld() as world:
        refused = await world.http.post("/v1/sql", json={"query": "FROM Start_Estimates"})
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:fairlead:problem:estimates_away")
        other = await world.http.post("/v1/sql", json={"query": "FROM jobs"})
        assert "estimates" not in other.json()["type"]
