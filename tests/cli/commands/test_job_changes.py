"""`fairlead update`: what it sends, and what it refuses before anything is sent."""

import pytest

from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, job_document


def test_an_update_sends_the_fields_of_a_job_file(gateway: GatewayStub, run: Run) -> None:
    """Only those that were given, for each job."""
    for job in ("1", "2"):
        gateway.on("PATCH", f"/v1/jobs/{job}", job_document(job))
    words = ("--time", "8h", "--priority", "70", "--name", "x", "--label", "team=vision=2", "--label", "old-")
    ran = run("update", "1-2", *words)
    assert (ran.code, ran.out) == (0, "1 updated\n2 updated\n")
    sent = {"time": {"total": "8h"}, "priority": 70, "name": "x", "labels": {"team": "vision=2", "old": None}}
    assert gateway.patches() == [sent, sent]
    assert not any("If-Match" in request.headers for request in gateway.requests)
    run("update", "1", "--time", "none", "--if-match", "40")
    assert gateway.requests[-1].headers["If-Match"] == 'W/"40"'
    assert gateway.patches()[-1] == {"time": {"total": None}}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "expected at least one of --time"),
        (("--time", "0"), "--time: expected more than 0"),
        (("--time", "soon"), "soon"),
        (("--label", "team"), "--label: expected NAME=VALUE"),
    ],
)
def test_a_change_that_means_nothing_is_refused(
    gateway: GatewayStub, run: Run, words: tuple[str, ...], message: str
) -> None:
    """By its option."""
    ran = run("update", "1", *words)
    assert (ran.code, gateway.requests) == (2, [])
    assert message in ran.err


def test_a_requeue_is_one_request_for_each_job(gateway: GatewayStub, run: Run) -> None:
    """It says what follows."""
    for job in ("812_3", "812_7"):
        gateway.on("POST", f"/v1/jobs/{job}:requeue", job_document(job))
    ran = run("requeue", "812[3,7]")
    assert (ran.code, ran.out) == (
        0,
        "".join(f"{job} is being stopped, and queued again\n" for job in ("812_3", "812_7")),
    )


def test_a_signal_is_sent_to_each_job_and_no_job_is_cancelled(gateway: GatewayStub, run: Run) -> None:
    """Its name is taken with and without SIG; one that ends a run, and --save with it, are refused in words."""
    for job in ("812_3", "812_7"):
        gateway.on("POST", f"/v1/jobs/{job}:signal", job_document(job))
    ran = run("cancel", "--signal", "usr1", "812[3,7]")
    assert (ran.code, ran.out) == (0, "812_3 gets SIGUSR1\n812_7 gets SIGUSR1\n")
    assert {request.read() for request in gateway.requests if request.method == "POST"} == {b'{"signal":"SIGUSR1"}'}
    before = len(gateway.requests)
    ended = run("cancel", "--signal", "KILL", "812")
    assert ended.code == 2 and "a cancel without a signal ends the run" in ended.err
    both = run("cancel", "--save", "--signal", "USR1", "812")
    assert both.code == 2 and "a signal ends no job" in both.err
    assert len(gateway.requests) == before


def test_a_job_is_submitted_again_under_other_options(gateway: GatewayStub, run: Run) -> None:
    """Its job file as a new job; a note names the fields that were for the time of its submit."""
    spec = {
        "command": ["python", "train.py"],
        "args": ["--epochs", "3"],
        "queue": "research",
        "env": {"A": "1"},
        "nodes": 2,
        "held": True,
        "startAt": "2026-01-01T00:00:00Z",
        "dependsOn": [7],
    }
    gateway.on("GET", "/v1/jobs/812", job_document(spec=spec))
    gateway.on("POST", "/v1/jobs", {"id": "900", "state": "queued", "sequence": 50}, 201)
    ran = run("submit", "--again", "812", "--time", "8h", "--env", "B=2")
    assert (ran.code, ran.out) == (0, "900\n")
    assert "held of job 812 was for its own time and is left out" in ran.err
    kept = {key: spec[key] for key in ("command", "args", "queue", "nodes")}
    assert gateway.bodies() == [{**kept, "env": {"A": "1", "B": "2"}, "time": {"total": "8h"}}]
    assert run("submit", "--again", "812", "--", "python", "other.py").code == 0
    assert gateway.bodies()[-1]["command"] == ["python", "other.py"] and not gateway.bodies()[-1].get("args")


def test_an_element_is_submitted_again_alone(gateway: GatewayStub, run: Run) -> None:
    """With its own index, so that the program does the same work."""
    gateway.on("GET", "/v1/jobs/812_3", job_document("812_3", spec={"command": ["true"], "array": "0-7%2"}))
    gateway.on("POST", "/v1/jobs", {"id": "900", "state": "queued", "sequence": 50}, 201)
    assert run("submit", "--again", "812_3").code == 0
    assert gateway.bodies() == [{"command": ["true"], "array": "3-3"}]


def test_again_takes_one_job_and_no_file(gateway: GatewayStub, run: Run) -> None:
    """Two sources of one job are refused, and nothing is sent."""
    for words in (("--again", "1-3"), ("--again", "812", "-f", "job.yaml"), ("--again", "812", "train.sh")):
        refused = run("submit", *words)
        assert refused.code == 2 and "--again" in refused.err
    assert not gateway.bodies()
