"""`fairlead whatif` without a log of one's own: the cluster plays, and the command line orders, watches and prints."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from fairlead_replay.whatif.documents import document
from fairlead_replay.whatif.overlay import read_overlay
from fairlead_replay.whatif.record import record_of
from fairlead_replay.whatif.study import run_study
from tests.cli.gateway_stub import GatewayStub, problem
from tests.cli.study_answers import about, events
from tests.replay.whatif.scenes import Scene, queues

CHANGE = {"queues": {"a": {"maximum": {"nvidia.com/gpu": 4}}}}


@pytest.fixture
def change(tmp_path: Path) -> str:
    """A file with a change."""
    (tmp_path / "change.yaml").write_text("queues: {a: {maximum: {nvidia.com/gpu: 4}}}\n")
    return str(tmp_path / "change.yaml")


def findings(**more: Any) -> dict[str, Any]:
    """Return what a study found."""
    scene = Scene(gpus=4)
    scene.command(-1, queues())
    for n in range(12):
        scene.submit(n * 10, 4, 30, queue="ab"[n % 2])
    recording = record_of(scene.play(400)[0])
    return {**document(run_study(recording, read_overlay(CHANGE), seeds=0)), **more}


def ordered(gateway: GatewayStub, last: dict[str, Any]) -> None:
    """Let the gateway play."""
    gateway.on("POST", "/v1/whatif", about("queued"), 202)
    gateway.on("GET", "/v1/whatif/0a1b2c3d-1/progress", events(about("playing", plays=4, plays_done=1), last))
    gateway.on("GET", "/v1/whatif/0a1b2c3d-1", last)


def test_the_cluster_plays_where_no_log_is_named(gateway: GatewayStub, run: Callable[..., Any], change: str) -> None:
    """The change as it is in the file, the window as RFC 3339, and the same report."""
    ordered(gateway, about("done", study=findings()))
    ran = run(
        "whatif", "-f", change, "--from", "2026-01-01T00:00:00Z", "--seeds", "1", "--users", "closed", "--grid", "1s"
    )
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("grade A: the control matches the record")
    body = gateway.bodies()[0]
    assert body == {"change": CHANGE, "from": "2026-01-01T00:00:00.000Z", "seeds": 1, "users": "closed", "grid": "1s"}


def test_withheld_effects_are_exit_code_7_there_too(gateway: GatewayStub, run: Callable[..., Any], change: str) -> None:
    """As on this machine; --even-so is asked of the gateway."""
    ordered(gateway, about("done", study=findings(grade="C", withheld=True)))
    assert run("whatif", "-f", change).code == 7
    run("whatif", "-f", change, "--even-so")
    assert gateway.requests[-1].url.query == b"even_so=true"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("queues.c: expected a queue of the window (a, b)", 2),
        ("from: expected a time from the log's first commit on", 2),
        ("cannot be played: the change was refused", 1),
        ("it takes longer than 900 s; choose a shorter window", 1),
    ],
)
def test_a_failed_study_is_an_error_with_its_message(
    gateway: GatewayStub, run: Callable[..., Any], change: str, message: str, code: int
) -> None:
    """2 where the change or the window is wrong."""
    ordered(gateway, about("failed", message=message))
    ran = run("whatif", "-f", change)
    assert (ran.code, ran.err) == (code, f"error: {message}\n")


def test_ctrl_c_ends_the_study_there(
    gateway: GatewayStub, run: Callable[..., Any], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would play on for a person who has gone."""
    ordered(gateway, about("done", study=findings()))
    gateway.on("DELETE", "/v1/whatif/0a1b2c3d-1", about("cancelled"))

    def interrupted(*_: object) -> httpx.Response:
        raise KeyboardInterrupt

    gateway.answers["GET", "/v1/whatif/0a1b2c3d-1/progress"] = interrupted  # type: ignore[assignment]
    assert run("whatif", "-f", change).code == 130
    assert gateway.requests[-1].method == "DELETE"


def test_the_message_of_a_refusal_is_printed(gateway: GatewayStub, run: Callable[..., Any], change: str) -> None:
    """A full line, and a cluster without the process."""
    gateway.answers["POST", "/v1/whatif"] = problem(503, "8 studies wait already; one runs at a time")
    ran = run("whatif", "-f", change)
    assert "8 studies wait already" in ran.err
