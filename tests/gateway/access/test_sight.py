"""What a caller sees in lists, aggregates, the map, events, reasons and the past: only what it may see now (A17)."""

from typing import Any

import msgspec
import pytest

from fairlead_gateway.access.caller import Caller
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.world import gpus

#: Words that appear nowhere else.
MARKS = ("secretqueue", "secretjob", "secretproject", "nodehidden", "tokenofowner")
READS = (
    "/v1/jobs",
    "/v1/jobs?limit=1",
    "/v1/queues",
    "/v1/pools",
    "/v1/nodes",
    "/v1/cluster",
    "/v1/map",
    "/v1/map/columns",
    "/v1/idle",
    "/v1/events?from=1&limit=1000",
    "/v1/usage",
    "/v1/usage?by=queue",
    "/v1/usage?by=project",
    "/v1/rollouts",
    "/v1/maintenance",
    "/",
)


def _line(key: str) -> dict[str, Any]:
    return {
        "key": key, "model": "A100", "from_ns": 0, "runs": 1, "gpu_hours": 2.0, "charged": 7, "held": 7, "weighted": 7,
        "per_gpu_hour": "1", "currency": "EUR", "amount": "2.50", "measured": None, "used": None,
    }  # fmt: skip


def _statement(question: dict[str, Any]) -> bytes:
    keys = {"queue": ["secretqueue", "mine"], "project": ["secretproject"], "user": ["tokenofowner", "mia"]}
    lines = [_line(key) for key in keys[question["by"]]]
    return msgspec.json.encode(
        {
            "month": "2026-11", "by": question["by"], "sequence": 1, "as_of_ns": 1, "is_final": True, "lines": lines,
            "gpu_hours": 4.0, "charged": 14, "held": 14, "totals": {"EUR": "5.00"}, "unpriced": [], "estimate": None,
            "measured": None, "used": None,
        }
    )  # fmt: skip


async def _world(world: SignedWorld) -> tuple[str, str]:
    """A job of mia's, and one that she may not see, which holds the node that hers waits for."""
    await world.configure(mine={}, secretqueue={})
    await world.person("mia", member="queue:mine")
    node = await world.node("nodehidden", 1)
    hidden = await world.run(node, queue="secretqueue", name="secretjob", project="secretproject", resources=gpus(1))
    body = {"command": ["true"], "queue": "mine", "resources": gpus(1), "name": "own"}
    own = (await world.ask("mia", "POST", "/v1/jobs", json=body)).json()["id"]
    await world.play_telemetry("usage", _statement)
    return hidden, own


async def test_nothing_of_others_is_in_any_answer() -> None:
    """No list, total, page or event names another queue, job, project, node or person; and each shows what is the caller's."""
    async with SignedWorld() as world:
        hidden, own = await _world(world)
        for path in READS:
            answer = await world.ask("mia", "GET", path)
            assert answer.status_code in (200, 403), (path, answer.text)
            assert not [mark for mark in MARKS if mark in answer.text], (path, answer.text)
            for form in (f'"id":"{hidden}"', f'"job":"{hidden}"', f"job/{hidden}"):
                assert form not in answer.text, path
        assert [each["id"] for each in (await world.get("mia", "/v1/jobs"))["items"]] == [own]
        assert (await world.get("mia", "/v1/cluster"))["jobs"] == {"offered": 1}
        usage = await world.get("mia", "/v1/usage?by=queue")
        assert [line["key"] for line in usage["lines"]] == ["mine"]
        assert (usage["charged"], usage["totals"]) == (7, {"EUR": "2.50"})
        events = (await world.get("mia", "/v1/events?from=1&limit=1000"))["items"]
        assert {event.get("subject") for event in events} == {f"job/{own}", "queue/mine"}
        for path in ("/v1/jobs?queue=secretqueue", "/v1/jobs?queue=nosuchqueue"):
            assert (await world.ask("mia", "GET", path)).status_code == 422


async def test_a_refused_submit_is_no_event_of_its_queue() -> None:
    """The event names the queue; those who may read the queue do not see who wanted what of it."""
    async with SignedWorld() as world:
        await world.configure(mine={})
        await world.person("mia", viewer="queue:mine")
        body: dict[str, Any] = {"command": ["true"], "queue": "mine", "resources": gpus(1), "name": "own"}
        key = {"Idempotency-Key": "k1"}
        assert (await world.ask("owner", "POST", "/v1/jobs", json=body, headers=key)).status_code == 201
        refused = await world.ask("owner", "POST", "/v1/jobs", json=body | {"name": "secret"}, headers=key)
        assert refused.status_code == 409
        events = "/v1/events?from=1&limit=1000"
        assert "JobRejected" in (await world.ask("owner", "GET", events)).text
        assert "JobRejected" not in (await world.ask("mia", "GET", events)).text


async def test_reasons_name_no_other_user() -> None:
    """`why`, the job's document, a dry run and a submit's answer: others are hidden, and the past is seen with present rights."""
    async with SignedWorld() as world:
        await world.start_explainer()
        hidden, own = await _world(world)
        dry = {"command": ["true"], "queue": "mine", "resources": gpus(1)}
        for answer in (
            await world.ask("mia", "GET", f"/v1/jobs/{own}"),
            await world.ask("mia", "GET", f"/v1/jobs/{own}/why"),
            await world.ask("mia", "GET", f"/v1/jobs/{own}/why?at={world.gateway.views.sequence}"),
            await world.ask("mia", "POST", "/v1/jobs:dryrun", json=dry),
            await world.ask("mia", "GET", f"/v1/cluster?at={world.gateway.views.sequence}"),
        ):
            assert answer.status_code == 200, answer.text
            assert not [mark for mark in MARKS if mark in answer.text], answer.text
        then = world.gateway.views.sequence
        assert (await world.ask("mia", "GET", f"/v1/jobs/{hidden}/why?at={then}")).status_code == 404
        await world.revoke("mia", "member", "queue:mine")
        past = await world.get("mia", f"/v1/cluster?at={then}")
        assert not past["queues"] and not past["jobs"], "she had the right then, and has it no more"


async def test_with_the_guard_taken_out_others_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above notice it."""
    monkeypatch.setattr(Caller, "may", lambda *_: True)
    async with SignedWorld() as world:
        await _world(world)
        text = "".join([(await world.ask("mia", "GET", path)).text for path in READS])
        assert [mark for mark in MARKS if mark in text] == [*MARKS[:4], "tokenofowner"]
