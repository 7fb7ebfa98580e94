"""Printed output: byte for byte, for every format."""

import re

import msgspec
import pytest
import yaml

from fairlead.render.explanation import evidence
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, ended, job_document, node_document, page, problem

JOBS = page(
    ended("failed", job_id="3", name="broken", exit_code=3),
    ended(
        "succeeded",
        job_id="2",
        name="two\nlines\x1b[31m",
        array={"succeeded": 8, "failed": 0},
        nodes=[],
        gpus={},
        started_at=None,
    ),
    job_document(
        "1",
        name="eval",
        state="queued",
        nodes=[],
        gpus={},
        started_at=None,
        spec={"command": ["x"], "nodes": 2, "resources": {"nvidia.com/gpu": 8}},
        reason={
            "code": "maximum",
            "message": "queue research is at 2 of 8 GPUs; this needs 16",
            "detail": {"next": "wait"},
        },
    ),
)


@pytest.fixture
def jobs(gateway: GatewayStub) -> GatewayStub:
    """Three jobs: failed, an array that succeeded, one that waits."""
    gateway.on("GET", "/v1/jobs", JOBS)
    return gateway


def test_table(jobs: GatewayStub, run: Run) -> None:
    """Aligned columns, one line per job whatever its name holds, the reason last."""
    assert run("jobs").out == (
        "ID  NAME            QUEUE     USER  STATE      GPUS  NODES    TIME  WHY\n"
        "3   broken          research  ada   failed        2  n1     1m 30s  exit 3\n"
        "2   two lines [31m  research  ada   succeeded     0  -           -  8 succeeded\n"
        "1   eval            research  ada   queued      2x8  -           -  queue research is at 2 of 8 GPUs; this needs 16\n"
    )


def test_json_is_the_apis_shape(jobs: GatewayStub, run: Run) -> None:
    """`-o json` decodes to exactly what the API sent."""
    assert msgspec.json.decode(run("jobs", "-o", "json").out) == JOBS


def test_yaml_is_the_same_document(jobs: GatewayStub, run: Run) -> None:
    """`-o yaml` holds the same values."""
    assert yaml.safe_load(run("jobs", "-o", "yaml").out) == JOBS


def test_name_and_wide(jobs: GatewayStub, run: Run) -> None:
    """`-o name` feeds other commands; `-o wide` adds columns and drops none."""
    assert run("jobs", "-o", "name").out == "job/3\njob/2\njob/1\n"
    wide, narrow = run("jobs", "-o", "wide").out.splitlines()[0].split(), run("jobs").out.splitlines()[0].split()
    assert set(narrow) < set(wide)


def test_one_job_as_json_is_its_document(gateway: GatewayStub, run: Run) -> None:
    """`show ID -o json` is the job, not a list of one."""
    gateway.on("GET", "/v1/jobs/812", job_document())
    assert msgspec.json.decode(run("show", "812", "-o", "json").out) == job_document()


def test_why_is_readable(gateway: GatewayStub, run: Run) -> None:
    """The sentence, its evidence, the remedies, the next step, and the time of the answer."""
    detail = {
        "queue": "a",
        "resource": "gpu:NVIDIA-L40S",
        "held_gpu_milli": 2000,
        "ahead": 2,
        "first_ahead": "3, 4",
        "decided_at_sequence": 17,
        "next": "fairlead move 812 --queue b",
    }
    changes = [
        {"kind": "wait", "message": "starts when 1 GPU is given back"},
        {"kind": "other_queue", "message": "could go"},
    ]
    reason = {"code": "maximum", "message": "queue is full", "detail": detail}
    answer = {
        "id": "812",
        "state": "queued",
        "attempt": 1,
        "reason": reason,
        "changes": changes,
        "note": "",
        "at": "2026-01-01T00:00:00.000Z",
        "changed_at": 17,
        "sequence": 40,
    }
    gateway.on("GET", "/v1/jobs/812/why", answer)
    assert run("why", "812").out == (
        "job       812  queued\n"
        "why       queue is full\n"
        "evidence  queue a; held 2 NVIDIA-L40S GPUs; ahead 2; first ahead 3, 4; decided at sequence 17\n"
        "changes   starts when 1 GPU is given back\n"
        "          could go\n"
        "next      fairlead move 812 --queue b\n"
        "as of     sequence 40\n"
    )
    assert msgspec.json.decode(run("why", "812", "-o", "json").out) == answer


def test_show_and_why_list_the_attempts_before(gateway: GatewayStub, run: Run) -> None:
    """Each in a line: where it ran, when, and why there was another one; also one that never began."""
    attempts = [
        {
            "attempt": 1,
            "nodes": ["n1", "n2"],
            "started_at": "2026-01-01T00:00:00.000Z",
            "ended_at": "2026-01-01T00:05:00.000Z",
            "reason": "gpu_fault",
            "exit_code": 1,
            "gpu_fault": "xid79",
        },
        {
            "attempt": 2,
            "nodes": ["n3"],
            "ended_at": "2026-01-01T00:06:00.000Z",
            "reason": "start_failed",
            "message": "no disk",
        },
    ]
    lines = (
        "before *attempt 1 on n1, n2, 2026-01-01T00:00:00.000Z to 2026-01-01T00:05:00.000Z: gpu_fault \\(xid79\\)\n"
        " *attempt 2 on n3, never began, 2026-01-01T00:06:00.000Z: start_failed: no disk\n"
    )
    gateway.on("GET", "/v1/jobs/812", job_document() | {"attempts": attempts})
    gateway.on("GET", "/v1/nodes", page())
    assert re.search(lines, run("show", "812").out)
    answer = {
        "id": "812",
        "state": "queued",
        "attempt": 3,
        "reason": {"code": "x", "message": "waits"},
        "attempts": attempts,
        "at": "2026-01-01T00:00:00.000Z",
        "changed_at": 17,
        "sequence": 40,
    }
    gateway.on("GET", "/v1/jobs/812/why", answer)
    assert re.search(lines, run("why", "812").out)


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        (
            {"resource": "memory", "held_memory_mib": 65_536, "ceiling_memory_mib": 2**20},
            ["held 64Gi of memory", "ceiling 1Ti of memory"],
        ),
        ({"resource": "cpu", "needed_cpu_milli": 1000}, ["needed 1 CPU"]),
        ({"resource": "gpu:NVIDIA-L4", "held": 3}, ["resource nvidia.com/gpu:NVIDIA-L4", "held 3"]),
        ({"spent_gpu_milli_s": 1002 * 3_600_000, "queue": "a"}, ["spent 1002 GPU-hours", "queue a"]),
        (
            {"nodes.free_gpus": 3, "gpu_milli_free": 1000, "gpu_milli_total": 32_000},
            ["nodes.free_gpus 3", "free 1 GPU", "total 32 GPUs"],
        ),
        ({"preempted_for": "12", "rule": "over_guarantee"}, ["preempted for 12", "rule over_guarantee"]),
    ],
)
def test_evidence_has_no_raw_units(detail: dict[str, int | str], words: list[str]) -> None:
    """Amounts have their unit, and are never in thousandths."""
    assert evidence(detail) == words


def test_nothing_is_coloured_when_piped(jobs: GatewayStub, run: Run) -> None:
    """A pipe gets no escape sequence, of ours or from a job's name."""
    assert "\x1b" not in run("jobs").out


def test_events_are_lines(gateway: GatewayStub, run: Run) -> None:
    """Time, id, what happened to whom, and what caused it; JSON is one CloudEvent per line."""
    event = {
        "specversion": "1.0",
        "id": "7.1",
        "source": "/fairlead/log/queue",
        "type": "fairlead.job.offered.v1",
        "time": "2026-01-01T00:00:00.000Z",
        "datacontenttype": "application/json",
        "sequence": "7",
        "cause": "cmd:a",
        "data": {"type": "JobOffered", "cause": "cmd:a", "job": "812", "attempt": 1},
        "subject": "job/812",
    }
    gateway.on("GET", "/v1/events", page(event))
    assert run("events").out == "[2026-01-01T00:00:00.000Z] [7.1] job.offered job=812 attempt=1 <- cmd:a\n"
    assert msgspec.json.decode(run("events", "-o", "json").out) == event


def test_an_event_line_is_for_people(gateway: GatewayStub, run: Run) -> None:
    """Nanoseconds as a time or a duration, no ordering number; `-o wide` has every field as it is."""
    data = {
        "type": "JobOffered",
        "job": "812",
        "rank": 8196551321816662016,
        "grace_ns": 90 * 10**9,
        "deadline_ns": 1767225600 * 10**9,
    }
    event = {
        "specversion": "1.0",
        "id": "7.1",
        "source": "/fairlead/log/queue",
        "type": "fairlead.job.offered.v1",
        "time": "t",
        "datacontenttype": "application/json",
        "sequence": "7",
        "data": data,
        "subject": "job/812",
    }
    gateway.on("GET", "/v1/events", page(event))
    assert run("events").out == '[t] [7.1] job.offered job=812 grace="1m 30s" deadline=2026-01-01T00:00:00Z\n'
    assert "rank=8196551321816662016 grace_ns=90000000000" in run("events", "-o", "wide").out


@pytest.mark.parametrize(
    ("node", "where"),
    [
        ({}, "n1 2 GPUs"),
        ({"simulated": True}, "n1 2 GPUs (simulated)"),
        ({"simulated": True, "runtime": "hollow"}, "n1 2 GPUs (hollow: nothing really ran)"),
    ],
)
def test_show_marks_simulated_runs(gateway: GatewayStub, run: Run, node: dict[str, object], where: str) -> None:
    """Simulated GPUs are not shown as real ones, and hollow runs not as runs."""
    gateway.on("GET", "/v1/jobs/812", job_document())
    gateway.on("GET", "/v1/nodes", page(node_document(**node)))
    told = dict(line.split(maxsplit=1) for line in run("show", "812").out.splitlines() if " " in line.strip())
    assert where == told["where"].strip()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 40 columns."""
    monkeypatch.setattr("fairlead.render.terminal.is_terminal", lambda stream=None: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")


LONG = "a queue name that is longer than the terminal is wide"


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_terminal_gets_documents_whole(gateway: GatewayStub, run: Run, form: str) -> None:
    """They are not shortened or wrapped at the terminal's width: users copy them into files."""
    document = job_document(message=f"{LONG} \u2028 {LONG}")
    gateway.on("GET", "/v1/jobs/812", document)
    read = msgspec.json.decode if form == "json" else yaml.safe_load
    assert read(run("show", "812", "-o", form).out) == document


@pytest.mark.usefixtures("terminal")
def test_a_terminal_gets_whole_fields_and_truncated_tables(gateway: GatewayStub, run: Run) -> None:
    """One job's facts are all there; a list keeps one line per job."""
    long = job_document(message=LONG, name=LONG, nodes=[], gpus={})
    gateway.on("GET", "/v1/jobs/812", long)
    gateway.on("GET", "/v1/jobs", page(long))
    assert f"message         {LONG}\n" in run("show", "812").out
    lines = run("jobs").out.splitlines()
    assert [len(line) for line in lines] == [40, 40]
    assert lines[1].endswith("…")


def test_text_of_users_does_not_control_the_terminal(gateway: GatewayStub, run: Run) -> None:
    """Control characters are removed from facts of a job, remarks and errors; a value has one line."""
    gateway.on("GET", "/v1/jobs/812", job_document(project="\x1b[2J", message="a\nstate  succeeded", nodes=[], gpus={}))
    out = run("show", "812").out
    assert "project          [2J\n" in out
    assert "message         a state  succeeded\n" in out
    gateway.answers[("GET", "/v1/jobs/812")] = problem(404, "no \x1b]0;x\x07 here\nnor there")
    assert run("show", "812").err == "error: no  ]0;x  here\nnor there\n"
    assert msgspec.json.decode(run("show", "812", "-o", "json").err)["detail"] == "no \x1b]0;x\x07 here\nnor there"
