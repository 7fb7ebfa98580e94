"""The demo's scene with its own log: what it says, and that it notices what is not as it must be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead import demo_past
from fairlead.client import Client
from fairlead.demo_past import play, play_estimate, play_policy_test
from fairlead.demo_session import STORY, PartResult
from fairlead_replay.export import write_export
from fairlead_replay.whatif import sources
from fairlead_replay.whatif.sources import LoadExport, SavedLoad, save_load_of_directory
from fairlead_schemas.http.api import Job, StartForecast
from fairlead_schemas.queuefile.settings import QueueSettings
from tests.cli.gateway_stub import GatewayStub, ended, job_document, trial_document
from tests.cli.study_answers import about, events
from tests.replay.whatif.scenes import Scene, queues

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


def estimated(gateway: GatewayStub, forecast: StartForecast | None, *nodes: str) -> tuple[dict[str, str], list[str]]:
    """What the scene says where this was estimated and these nodes were got, and what it found wrong."""
    answer = {**trial_document(), "forecast": None if forecast is None else msgspec.to_builtins(forecast)}
    gateway.on("POST", "/v1/jobs:dryrun", answer)
    gateway.on("POST", "/v1/jobs", {"id": "11", "state": "queued", "sequence": 60}, 201)
    gateway.on("GET", "/v1/jobs/11", job_document("11", nodes=list(nodes)))
    said: dict[str, str] = {}
    return said, play_estimate(Client(), said.__setitem__)


AT_ONCE = StartForecast(at_once=True, nodes=["sim-1"], from_at="2026-01-01T00:00:00Z", to_at="2026-01-01T00:00:01Z")


def test_the_estimate_is_compared_with_the_start(client: Client, gateway: GatewayStub) -> None:
    """The nodes that were named, and those that the job got; other ones are an error."""
    said, wrong = estimated(gateway, AT_ONCE, "sim-1")
    assert said["estimate"].startswith(
        "job 11 estimated: estimated to start at once, on sim-1; it started within 0."
    ) and said["estimate"].endswith(" s, on sim-1")
    assert wrong == []
    _, wrong = estimated(gateway, AT_ONCE, "sim-2")
    assert wrong == ["estimate: expected sim-1, found sim-2"]


def test_an_estimate_that_is_not_given_is_reported(
    client: Client, gateway: GatewayStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason, and nothing is submitted."""
    monkeypatch.setattr(demo_past, "ESTIMATE_S", 0.2)
    for forecast, reason in ((StartForecast(note="the log is read"), "the log is read"), (None, "no process")):
        gateway.requests.clear()
        said, wrong = estimated(gateway, forecast)
        assert said["estimate"].startswith(f"no start was estimated: {reason}")
        assert wrong == [] and all(request.url.path != "/v1/jobs" for request in gateway.requests)


@pytest.mark.parametrize(("limit", "broken"), [(8, True), (80, False)])
def test_a_policy_test_fails_and_names_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, broken: bool
) -> None:
    """Jobs of the queue need more than the tested limit; a limit that hurts nobody is what the demo must not show."""
    scene = Scene(gpus=8)
    scene.command(-1, queues(**{"research/vision": QueueSettings(), "research": QueueSettings()}))
    for n in range(12):
        scene.submit(n * 20, 8, 15, queue="research/vision")
    write_export(tmp_path / "export", scene.play(400)[0])

    def saved(_url: str, export: LoadExport, path: Path) -> SavedLoad:
        return save_load_of_directory(tmp_path / "export", export, path)

    monkeypatch.setattr(sources, "save_load_of_url", saved)
    if not broken:
        change = {"change": {"queues": {"research/vision": {"maximum": {"nvidia.com/gpu": limit}}}}}
        monkeypatch.setitem(demo_past.POLICY_TEST, "policy", change)
    said: dict[str, str] = {}
    wrong = play_policy_test("nats://none", tmp_path, said.__setitem__)
    assert said["policy"].startswith("its test with 4 GPUs for research/vision: ")
    assert "wait_mean of queue research/vision, worse by at most 10%" in said["policy"]
    assert ("BROKEN" in said["policy"]) is broken
    assert wrong == ([] if broken else ["policy test: expected broken, found met"])
