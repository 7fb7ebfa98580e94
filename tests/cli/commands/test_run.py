"""`fairlead run`: a job in the foreground. What it sends, shows and ends with; and Ctrl-C."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import typer

from fairlead.commands import foreground
from fairlead.commands.foreground import INTERRUPTED, WaitingReasons, attended
from fairlead_schemas.http.api import Job
from tests.cli.conftest import Run
from tests.cli.gateway_stub import Answer, GatewayStub, ended, job_document

pytestmark = pytest.mark.usefixtures("gateway")
SUBMITTED = {"id": "812", "state": "queued", "sequence": 40}


def played(gateway: GatewayStub, *looks: dict[str, Any], output: dict[int, bytes] | None = None) -> None:
    """Submit job 812; each look at it finds the next of these documents. `output`: {attempt: its text}."""
    left: Iterator[dict[str, Any]] = iter(looks)
    texts = output or {}

    def text(request: httpx.Request) -> Answer:
        assert request.url.params["follow"] == "true"
        return 200, httpx.Response(200, content=texts.get(int(request.url.params["attempt"]), b""))

    gateway.on("POST", "/v1/jobs", SUBMITTED, 201)
    gateway.answers["GET", "/v1/jobs/812"] = lambda _: (200, next(left))
    gateway.answers["GET", "/v1/jobs/812/logs"] = text


def test_a_job_is_submitted_followed_and_ended_with_its_code(gateway: GatewayStub, run: Run) -> None:
    """Output is on stdout alone. The job is looked at until it has started, and until it has ended."""
    played(gateway, job_document(), ended("failed", exit_code=7), output={1: b"out\nerr\n"})
    ran = run("run", "--gpus", "2", "--queue", "research", "--", "python", "train.py", "--epochs", "3")
    assert (ran.code, ran.out) == (7, "out\nerr\n")
    assert "see: fairlead logs 812" in ran.err
    job = gateway.bodies()[0]
    assert job["command"] == ["python", "train.py", "--epochs", "3"]
    assert (job["queue"], job["resources"], job["workdir"]) == ("research", {"nvidia.com/gpu": 2}, str(Path.cwd()))
    looks = [dict(each.url.params) for each in gateway.requests if each.url.path == "/v1/jobs/812"]
    assert looks == [{"until": "started", "wait_s": "1"}, {"until": "ended", "wait_s": "1"}]


def test_reasons_are_shown_while_the_job_waits(gateway: GatewayStub, run: Run) -> None:
    """Each once; nothing is said of a job that succeeded."""
    waiting = job_document(state="queued", reason={"code": "limit", "message": "research is at 8 of 8 GPUs"})
    placed = job_document(state="placed", reason={"code": "starting", "message": "pulls its image"})
    played(gateway, waiting, waiting, placed, job_document(), ended("succeeded", exit_code=0), output={1: b"hi\n"})
    ran = run("run", "--", "true")
    assert (ran.code, ran.out) == (0, "hi\n")
    assert ran.err == "job 812 waits: research is at 8 of 8 GPUs\njob 812 waits: pulls its image\n"


def test_submit_wait_shows_the_same_reasons(gateway: GatewayStub, run: Run) -> None:
    """On stderr, and the id on stdout."""
    waiting = job_document(state="queued", reason={"code": "limit", "message": "research is at 8 of 8 GPUs"})
    played(gateway, waiting, waiting, ended("succeeded", exit_code=0))
    ran = run("submit", "--wait", "--", "true")
    assert (ran.code, ran.out, ran.err) == (0, "812\n", "job 812 waits: research is at 8 of 8 GPUs\n")


def test_every_attempt_is_shown(gateway: GatewayStub, run: Run) -> None:
    """A preempted job waits again, and its next attempt continues the output, also one that was never seen running."""
    waits = {"code": "limit", "message": "others are first"}
    played(
        gateway,
        job_document(),
        job_document(state="queued", attempt=2, reason=waits),
        job_document(state="queued", attempt=2, reason=waits),
        ended("succeeded", attempt=3, exit_code=0),
        ended("succeeded", attempt=3, exit_code=0),
        ended("succeeded", attempt=3, exit_code=0),
        output={1: b"one\n", 2: b"two\n", 3: b"three\n"},
    )
    assert run("run", "--", "true").out == "one\ntwo\nthree\n"


def test_output_continues_behind_a_broken_answer(gateway: GatewayStub, run: Run) -> None:
    """A gateway restarts: nothing is lost, and nothing comes twice."""
    played(gateway, job_document(), job_document(), ended("succeeded", exit_code=0))
    answers = iter([_broken(b"one\ntw"), httpx.Response(200, content=b"one\ntwo\nthree\n")])
    gateway.answers["GET", "/v1/jobs/812/logs"] = lambda _: (200, next(answers))
    ran = run("run", "--", "true")
    assert (ran.code, ran.out) == (0, "one\ntwo\nthree\n")


def _broken(text: bytes) -> httpx.Response:
    class Breaks(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield text
            raise httpx.ReadError("reset")

    return httpx.Response(200, stream=Breaks())


@pytest.mark.parametrize(
    ("text", "found"), [("command: [a]\n---\ncommand: [b]\n", "2 jobs"), ("command: [a]\narray: 4\n", "an array")]
)
def test_what_has_no_single_output_is_refused(
    gateway: GatewayStub, run: Run, tmp_path: Path, text: str, found: str
) -> None:
    """Before anything is sent, with the verb that takes it."""
    (tmp_path / "jobs.yaml").write_text(text)
    ran = run("run", "-f", str(tmp_path / "jobs.yaml"))
    assert (ran.code, gateway.requests) == (2, [])
    assert ran.err == (
        f"error: expected one job, whose output can be shown, found {found}\nhint: fairlead submit --wait takes several\n"
    )


def test_a_refused_job_is_not_followed(gateway: GatewayStub, run: Run) -> None:
    """It ends as its submit does."""
    reason = {"code": "larger_than_any_node", "message": "asks for 9 GPUs; the largest node has 8"}
    gateway.on("POST", "/v1/jobs", {"state": "rejected", "sequence": 40, "reason": reason}, 201)
    ran = run("run", "--gpus", "9", "--", "true")
    assert (ran.code, ran.err) == (2, "error: asks for 9 GPUs; the largest node has 8\n")


def test_srun_has_sruns_options(gateway: GatewayStub, run: Run) -> None:
    """Options end at the command; what cannot be kept is refused by name."""
    played(gateway, ended("succeeded", exit_code=0), ended("succeeded", exit_code=0), output={1: b"hi\n"})
    ran = run("srun", "-N2", "--gres=gpu:8", "-p", "research", "-l", "hostname", "-f")
    assert (ran.code, ran.out) == (0, "hi\n")
    job = gateway.bodies()[0]
    tasks = ["/bin/sh", "-c", 'exec srun "$@"', "srun", "hostname", "-f"]  # one on each of its nodes
    assert (job["command"], job["nodes"], job["queue"]) == (tasks, 2, "research")
    assert job["resources"] == {"nvidia.com/gpu": 8}
    refused = run("srun", "--pty", "bash")
    assert refused.code == 2 and "pty: a job has no terminal" in refused.err
    assert run("srun", "-N2").code == 2


def _interrupted(ask: Any) -> None:
    with attended(["812", "813"], ask=ask):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(("answer", "ends"), [("c\n", False), ("\n", True), ("d\n", True), ("", True)])
def test_ctrl_c_asks_whether_to_detach_or_to_cancel(
    gateway: GatewayStub, capfd: pytest.CaptureFixture[str], answer: str, ends: bool
) -> None:
    """Jobs that continue are named, with what ends them; cancelled ones are followed to their end."""
    questions: list[str] = []
    for job in ("812", "813"):
        gateway.on("POST", f"/v1/jobs/{job}:cancel", job_document(job, state="stopping"))

    def ask(question: str) -> str:
        questions.append(question)
        return answer

    before = signal.getsignal(signal.SIGINT)
    if ends:
        with pytest.raises(typer.Exit) as exit_:
            _interrupted(ask)
        assert exit_.value.exit_code == INTERRUPTED == 130
        assert "to end them: fairlead cancel 812,813\n" in capfd.readouterr().err
        assert gateway.requests == []
    else:
        _interrupted(ask)
        assert [each.url.path for each in gateway.requests] == ["/v1/jobs/812:cancel", "/v1/jobs/813:cancel"]
    assert len(questions) == 1 and "[d]etach or [c]ancel?" in questions[0]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_detaches(gateway: GatewayStub) -> None:
    """While the question is open."""

    def ask(question: str) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "c"

    with pytest.raises(typer.Exit):
        _interrupted(ask)
    assert gateway.requests == []


def test_without_a_terminal_nothing_is_asked(
    gateway: GatewayStub, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job continues, and a script's log says so."""
    monkeypatch.setattr(foreground, "_ask", pytest.fail)
    with pytest.raises(typer.Exit):
        _interrupted(None)
    assert "2 jobs continue: fairlead logs -f 812" in capfd.readouterr().err


def test_of_several_jobs_the_first_that_waits_has_reasons(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred jobs do not print a hundred lines; changed numbers alone are shown after a while."""
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    reasons = WaitingReasons()

    def see(job: str, state: str, code: str = "turn", message: str = "") -> str:
        document = job_document(job, state=state, reason={"code": code, "message": message or f"{code} of {job}"})
        reasons.see(msgspec.json.decode(msgspec.json.encode(document), type=Job))
        return capfd.readouterr().err

    assert see("1", "queued") == "job 1 waits: turn of 1\n"
    assert see("2", "queued") == ""
    assert see("1", "queued", message="1 is ahead") == ""
    now = 11.0
    assert see("1", "queued", message="1 is ahead") == "job 1 waits: 1 is ahead\n"
    assert see("1", "running") == ""
    assert see("2", "queued") == "job 2 waits: turn of 2\n"
