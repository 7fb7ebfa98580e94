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
