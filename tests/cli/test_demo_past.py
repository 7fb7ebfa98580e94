"""The demo's scene with its own log: what it says, and that it notices what is not as it must be."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fairlead.client import Client
from fairlead.demo_past import play
from fairlead.demo_session import STORY, PartResult
from fairlead_schemas.http.api import Job
from tests.cli.gateway_stub import GatewayStub, ended
from tests.cli.study_answers import about, events

CLUSTER = {"sequence": 15, "at": "2026-01-01T10:15:00.000Z", "jobs": {"queued": 1, "running": 2, "failed": 0}}
EVENT = {
    "specversion": "1.0",
    "id": "15.0",
    "source": "/fairlead/queue",
    "type": "fairlead.JobSubmitted",
    "time": "2026-01-01T10:15:00Z",
    "datacontenttype": "application/json",
    "sequence": "15",
    "data": {},
    "cause": "cmd:x",
    "subject": "job/3",
}
STUDY = {"grade": "A", "seeds": 3, "withheld": False, "because": []}
WAIT = {"name": "research/vision", "measure": "wait_mean", "control": 1.1, "variant": 0.0, "verdict": "better"}


@pytest.fixture
def client(gateway: GatewayStub) -> Client:
    """A client of a gateway that has had the morning."""
    gateway.foreign = True
    gateway.on("GET", "/v1/events", {"items": [EVENT], "next": None, "sequence": 40})
    gateway.on("GET", "/v1/cluster", {**CLUSTER, "gpus": 32, "gpus_free": 14, "nodes": [], "queues": []})
    gateway.on(
        "GET", "/v1/jobs/3/why", {"reason": {"code": "maximum", "message": "queue research/vision is at 2 of 8 GPUs"}}
    )
    gateway.on("POST", "/v1/whatif", about("queued"), 202)
    gateway.on("GET", "/v1/whatif/0a1b2c3d-1/progress", events(about("done")))
    gateway.on("GET", "/v1/whatif/0a1b2c3d-1", about("done", study={**STUDY, "effects": [WAIT]}))
    return Client()


def told(client: Client) -> tuple[dict[str, str], list[str]]:
    """Return what the scene says, and what it found wrong."""
    part = next(each for each in STORY if each.waits == "maximum")
    job = msgspec.json.decode(msgspec.json.encode(ended("succeeded", job_id="3")), type=Job)
    said: dict[str, str] = {}
    say: Callable[[str, str], None] = said.__setitem__
    return said, play(client, {"eval": PartResult(part, job)}, say)


def test_the_scene_prints_moment_reason_and_study(client: Client) -> None:
    """The moment, the reason of then, and the change with its grade and pairs."""
    said, wrong = told(client)
    assert wrong == []
    assert said == {
        "then": "at 10:15:00 (sequence 15) 18 of 32 GPUs were held; jobs: 1 queued, 2 running",
        "why then": "job 3 eval: queue research/vision is at 2 of 8 GPUs",
        "what if": "grade A, 3 pairs: with 16 GPUs instead of 8 for research/vision its jobs wait 0.0 s instead of 1.1 s: better",
    }


def test_a_withheld_answer_is_printed_with_its_reason(client: Client, gateway: GatewayStub) -> None:
    """Nothing is made up."""
    study: dict[str, Any] = {**STUDY, "grade": "C", "withheld": True, "because": ["too far"], "effects": []}
    gateway.on("GET", "/v1/whatif/0a1b2c3d-1", about("done", study=study))
    said, wrong = told(client)
    assert (said["what if"].endswith("nothing can be said; too far"), wrong) == (True, [])


def test_a_study_that_fails_and_another_reason_are_found(client: Client, gateway: GatewayStub) -> None:
    """The demo's exit code is 1 then."""
    gateway.on("GET", "/v1/whatif/0a1b2c3d-1", about("failed", message="DAMAGED: sequence 3"))
    gateway.on("GET", "/v1/jobs/3/why", {"reason": {"code": "no_room", "message": "m"}})
    _, wrong = told(client)
    assert wrong == ["why at 15: expected maximum, found no_room", "what if: DAMAGED: sequence 3"]
