"""Idle jobs at the command line: who, until when, on what evidence; extended, and policies set from a file."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from fairlead.render import columns
from fairlead_schemas.http.api import IdleStatus
from fairlead_schemas.units.timestamps import parse_rfc3339
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, job_document, page, problem

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
POLICY = {
    "rule": "utilization",
    "action": "stop",
    "mode": "on_demand",
    "below": {"gpu": "5%", "network": "10KiB/s"},
    "after": "20m",
    "notice": "5m",
    "extend": "2h",
    "extensions": 2,
    "kinds": ["session"],
}
LIFETIME = {"rule": "lifetime", "action": "warn", "mode": "always", "after": "7d", "notice": "1h"}


def standing(now: datetime, **changes: Any) -> dict[str, Any]:
    """Idle for 14 minutes, reclaimed in 6."""
    document = {
        "rule": "utilization",
        "scope": "global",
        "action": "stop",
        "mode": "always",
        "since": (now - timedelta(minutes=14, seconds=20)).isoformat(),
        "reclaim_at": (now + timedelta(minutes=6, seconds=30)).isoformat(),
        "asked": False,
        "words": "GPU at most 1.2 % of 5 % for 14m, 840 samples",
        "evidence": [],
        "extended_until": None,
    }
    return {**document, **changes}


def idle_document(**changes: Any) -> dict[str, Any]:
    """Build the document of GET /v1/idle."""
    run = {
        "job": "812",
        "name": "notebook",
        "kind": "session",
        "queue": "research",
        "user": "ada",
        "project": "",
        "gpu_milli": 2000,
        "nodes": ["n1"],
        "idle": standing(datetime.now(UTC)),
    }
    scopes = [
        {"scope": scope, "policies": policies, "by": "ops", "set_at": None, "sequence": 40}
        for scope, policies in (("global", [POLICY]), ("project:llm", [LIFETIME]))
    ]
    saving = {"scope": "global", "rule": "lifetime", "action": "stop", "runs": 3, "gpu_hours": 41.25, "came_alive": 1}
    return {"policies": scopes, "items": [run], "savings": [saving], "sequence": 40} | changes


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "idle 14m 20s, will be reclaimed in 6m 30s"),
        ({"mode": "on_demand"}, "idle 14m 20s, may be reclaimed in 6m 30s"),
        ({"mode": "on_demand", "asked": True}, "idle 14m 20s, reclaimed as soon as a job waits for it"),
        ({"asked": True}, "idle 14m 20s, being reclaimed"),
        ({"reclaim_at": NOW.isoformat()}, "idle 14m 20s, will be reclaimed now"),
        ({"reclaim_at": None}, "idle 14m 20s"),
        ({"reclaim_at": None, "mode": "dry_run"}, "idle 14m 20s, on trial: nothing follows"),
        ({"rule": "lifetime"}, "runs for 14m 20s, will be reclaimed in 6m 30s"),
        ({"since": (NOW + timedelta(seconds=2)).isoformat()}, "idle 0s, will be reclaimed in 6m 30s"),
    ],
)
def test_the_countdown_is_readable(changes: dict[str, Any], told: str) -> None:
    """The idle time, and the next action; a clock that is behind the log's counts from 0."""
    assert (
        columns.standing(msgspec.convert(standing(NOW, **changes), IdleStatus), parse_rfc3339(NOW.isoformat())) == told
    )


def test_jobs_and_show_have_the_countdown(gateway: GatewayStub, run: Run) -> None:
    """In the last column; `show` has the evidence with it, and until when a job was extended."""
    job = job_document("812", idle=standing(datetime.now(UTC)), extended_until=None)
    gateway.on("GET", "/v1/jobs", page(job))
    assert "idle 14m 2" in run("jobs").out and ", will be reclaimed in 6m" in run("jobs").out
    gateway.on("GET", "/v1/jobs/812", {**job, "extended_until": "2026-01-01T14:00:00.000Z"})
    gateway.on("GET", "/v1/nodes", page())
    lines = run("show", "812").out.splitlines()
    (told,) = [line for line in lines if line.startswith("idle ")]
    assert "will be reclaimed in 6m" in told and told.endswith(": GPU at most 1.2 % of 5 % for 14m, 840 samples")
    assert any(line.split() == ["extended", "until", "2026-01-01T14:00:00.000Z"] for line in lines)


def test_jobs_are_extended(gateway: GatewayStub, run: Run) -> None:
    """For as long as is asked, or as the policy allows; a refusal of one does not keep the others."""
    gateway.on("POST", "/v1/jobs/1:extend", job_document("1"))
    gateway.answers[("POST", "/v1/jobs/2:extend")] = problem(409, "job 2 was asked back already; its notice is over")
    ran = run("extend", "1-2", "--for", "2h")
    assert (ran.code, ran.out, ran.err) == (
        5,
        "1 extended for 2h\n",
        "error: job 2 was asked back already; its notice is over\n",
    )
    assert gateway.bodies()[0] == {"for": "2h"}
    assert run("extend", "1").out == "1 extended\n"
    assert gateway.bodies()[-1] == {}
    assert run("extend", "1", "--for", "soon").code == 2
    assert msgspec.json.decode(run("extend", "1", "-o", "json").out)["id"] == "1"


def test_idle_jobs_are_listed_with_countdown_and_evidence(gateway: GatewayStub, run: Run) -> None:
    """As a table, by name, and as the API's document."""
    document = idle_document()
    gateway.on("GET", "/v1/idle", document)
    head, line = run("idle").out.splitlines()
    assert head.split() == ["JOB", "NAME", "USER", "GPUS", "IDLE", "THEN", "POLICY", "EVIDENCE"]
    assert line.split()[:4] == ["812", "notebook", "ada", "2"]
    assert "will be reclaimed in 6m" in line and "utilization of global" in line and line.endswith("840 samples")
    assert run("idle", "-o", "name").out == "job/812\n"
    assert msgspec.json.decode(run("idle", "-o", "json").out) == document
    gateway.on("GET", "/v1/idle", idle_document(items=[]))
    assert run("idle").out == "no idle runs\n"


def test_policies_are_printed_as_a_file_that_changes_nothing(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """And as a table in words."""
    gateway.on("GET", "/v1/idle", idle_document())
    lines = run("idle", "policies").out.splitlines()
    assert lines[1].startswith("global       utilization  gpu below 5%, network below 10KiB/s for 20m  5m")
    assert lines[1].split()[-5:] == ["on_demand", "2", "x", "2h", "session"]
    assert "has run for 7d" in lines[2]
    file = tmp_path / "idle.yaml"
    file.write_text(run("idle", "policies", "-o", "yaml").out)
    assert yaml.safe_load(file.read_text()) == {"scopes": {"global": [POLICY], "project:llm": [LIFETIME]}}
    gateway.on("POST", "/v1/idle:apply", {"items": idle_document()["policies"], "sequence": 40})
    ran = run("idle", "apply", "-f", str(file))
    assert (ran.code, ran.out, ran.err) == (0, "", "global: 1 policy\nproject:llm: 1 policy\n")
    assert gateway.bodies() == [{"scopes": {"global": [POLICY], "project:llm": [LIFETIME]}}]
    gateway.on("GET", "/v1/idle", idle_document(policies=[]))
    assert run("idle", "policies").out.startswith("no policies: nothing ever counts as idle")


def test_a_file_that_is_wrong_sends_nothing(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """Every mistake, with its path; what is refused names each problem, and nothing is set."""
    file = tmp_path / "idle.yaml"
    file.write_text("scopes: {global: [{rule: utilization, after: soon, action: kill}], everybody: []}")
    ran = run("idle", "apply", "-f", str(file))
    assert (ran.code, gateway.requests) == (2, [])
    assert "scopes.global[0].action: expected one of note, warn, stop, requeue, shrink" in ran.err
    assert "scopes.everybody: expected" in ran.err
    file.write_text("scopes: {global: [], 'user:ada': []}")
    errors = [{"field": f"scopes.{scope}[0].mode", "message": "beyond"} for scope in ("global", "user:ada")]
    gateway.answers[("POST", "/v1/idle:apply")] = problem(422, "2 problems; nothing was changed", errors=errors)
    ran = run("idle", "apply", "-f", str(file))
    assert ran.code == 2
    assert "scopes.global[0].mode: beyond" in ran.err and "scopes.user:ada[0].mode: beyond" in ran.err
    gateway.on("POST", "/v1/idle:apply", {"command": "k1", "sequence": 40}, 202)
    assert run("idle", "apply", "-f", str(file)).err == (
        "kept as command k1: telemetry does not answer now and decides later\n"
    )
    scope = {"scope": "user:ada", "policies": [], "by": "", "set_at": None, "sequence": 40}
    gateway.on("POST", "/v1/idle:apply", {"items": [scope], "sequence": 40})
    assert run("idle", "apply", "-f", str(file)).err == "user:ada: no policies any more\n"


def test_the_savings_of_dry_runs(gateway: GatewayStub, run: Run) -> None:
    """By policy."""
    gateway.on("GET", "/v1/idle", idle_document())
    assert run("idle", "report").out == (
        "SCOPE   RULE      ACTION  RUNS  GPU-HOURS  CAME ALIVE\nglobal  lifetime  stop       3       41.2           1\n"
    )
    gateway.on("GET", "/v1/idle", idle_document(savings=[]))
    assert run("idle", "report").out == "no policy on trial has found anything yet\n"
