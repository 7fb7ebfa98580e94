"""`submit --dry-run`: what would become of a job, in lines for people and as the API's own document."""

from pathlib import Path

import httpx
import msgspec
import yaml

from tests.cli.conftest import Run
from tests.cli.gateway_stub import Answer, GatewayStub, problem, trial_document

QUOTA = {
    "queue": "research/vision",
    "resource": "gpu",
    "used": 6000,
    "after": 10_000,
    "guaranteed": 4000,
    "maximum": 8000,
    "words": {"resource": "nvidia.com/gpu", "used": 6, "after": 10, "guaranteed": 4, "maximum": 8},
    "user": "",
}
HELD = trial_document(
    message="would be accepted, but queue research/vision is at 6 of 8 GPUs; this needs 4",
    quota=[QUOTA, {**QUOTA, "queue": "research", "resource": "cpu", "used": 500, "after": 1500, "guaranteed": 0, "maximum": 64_000},
           {**QUOTA, "user": "ada", "guaranteed": 0}],
    borrows={"gpu": 4000}, ahead=12, first_ahead=["3", "4"],
    changes=[{"kind": "wait", "message": "starts when 2 GPUs of research/vision are given back"},
             {"kind": "smaller", "message": "could start now with 2 GPUs instead of 4"}],
    displaces=[{"job": "7", "rule": "over_slice", "message": "job 7 of a has had its slice", "gpu_seconds": 9}],
    displaces_hidden=2,
    estimate={"start_at": "2026-01-01T00:12:00.000Z", "wait_seconds": 720, "basis": "time limits of all that runs"},
)  # fmt: skip


def test_a_dry_run_is_printed_in_lines(gateway: GatewayStub, run: Run) -> None:
    """Quota afterwards, jobs ahead, blocking and passing limits, possible victims, and an estimate marked as such."""
    gateway.on("POST", "/v1/jobs:dryrun", HELD)
    ran = run("submit", "--dry-run", "--queue", "research/vision", "--gpus", "4", "--workdir", "/", "--", "train")
    assert ran.code == 0
    assert ran.out == (
        "job        train: 4 GPUs, in queue research/vision\n"
        "result     would be accepted, but queue research/vision is at 6 of 8 GPUs; this needs 4\n"
        "quota      research/vision: 6 -> 10 GPUs (4 guaranteed, 8 at most)\n"
        "           research: 0.500 -> 1.500 CPUs (64 at most)\n"
        "           ada in research/vision: 6 -> 10 GPUs (8 at most)\n"
        "borrows    4 GPUs beyond what is guaranteed to research/vision\n"
        "ahead      12 jobs: 3, 4, …\n"
        "changes    starts when 2 GPUs of research/vision are given back\n"
        "           could start now with 2 GPUs instead of 4\n"
        "may yield  job 7 of a has had its slice\n"
        "           2 jobs that you may not see\n"
        "estimate   starts at 2026-01-01T00:12:00.000Z, in 12m, going by: time limits of all that runs\n"
        "as of      sequence 40\n"
    )
    assert "nothing was sent" in ran.err
    assert [request.url.path for request in gateway.requests] == ["/v1/jobs:dryrun"]
    assert gateway.bodies()[0]["resources"] == {"nvidia.com/gpu": 4}


def test_json_and_yaml_are_the_documents(gateway: GatewayStub, run: Run) -> None:
    """The API's own shape, with the job file in it."""
    gateway.on("POST", "/v1/jobs:dryrun", HELD)
    assert msgspec.json.decode(run("submit", "--dry-run", "-o", "json", "--", "x").out) == HELD
    found = yaml.safe_load(run("submit", "--dry-run", "-o", "yaml", "--", "x").out)
    assert found["command"]["spec"] == {"command": ["x"]}


def test_a_dry_run_of_a_refused_job_ends_as_the_submit_would(gateway: GatewayStub, run: Run) -> None:
    """Exit code, message and hint."""
    told = 'no queue "x"; expected one of: default'
    code, document = problem(422, told, errors=[{"field": "queue", "message": told}])
    gateway.on("POST", "/v1/jobs:dryrun", {**document, "type": "urn:fairlead:problem:unknown_queue"}, code)
    ran = run("submit", "--dry-run", "--queue", "x", "--", "true")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {told}\nhint: `fairlead queues` lists them")


def test_several_jobs_are_reported_one_by_one(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """A refused one sets the exit code, and the others are reported all the same."""
    refused = trial_document(valid=False, message="would be refused: too large", code="larger_than_any_node")
    gateway.on("POST", "/v1/jobs:dryrun", [trial_document(), refused])
    (tmp_path / "two.yaml").write_text("command: [a]\n---\ncommand: [b]\n")
    ran = run("submit", "--dry-run", "-f", str(tmp_path / "two.yaml"))
    assert ran.code == 2
    assert ran.out.split("\n\n")[0].splitlines()[1] == "result  would be accepted, and offered at once"
    assert "result  would be refused: too large" in ran.out
    assert "error: would be refused: too large" in ran.err
    assert len(gateway.bodies()[0]) == 2


def test_without_a_gateway_the_file_is_checked(gateway: GatewayStub, run: Run) -> None:
    """Its mistakes are named, or the output states that more is unknown; without an exit code of its own."""

    def away(_request: httpx.Request) -> Answer:
        raise httpx.ConnectError("refused")

    gateway.answers[("POST", "/v1/jobs:dryrun")] = away
    ran = run("submit", "--dry-run", "--gpus", "2", "--nodes", "3", "--array", "4", "--", "true")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == "job     true: 3 nodes x 2 GPUs, 4 times, in queue default"
    assert ran.out.splitlines()[1].startswith("result  checked: file only; the cluster could not be asked (")
    assert len(ran.out.splitlines()) == 2
    found = msgspec.json.decode(run("submit", "--dry-run", "-o", "json", "--", "true").out)
    assert (found["checked"], found["command"]["user"], found["command"]["spec"]["command"]) == (
        "file",
        "ada",
        ["true"],
    )
    assert run("submit", "--dry-run", "--nodes", "0", "--", "true").code == 2
