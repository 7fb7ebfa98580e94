"""`fairlead top`, one look: nodes with their GPUs, open jobs in the order that is wanted, and what those that run make of theirs."""

from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, job_document, page, problem

JOBS = (
    job_document("9", user="cleo", queue="b", state="queued", nodes=[], gpus={}, started_at=None),
    job_document("8", user="ada", queue="c", started_at="2026-01-01T00:00:09.000Z"),
    job_document("7", user="bob", queue="a", gpus={"n1": ["GPU-a"]}, started_at="2026-01-01T00:00:05.000Z"),
)


@pytest.mark.parametrize(
    ("sort", "ids"),
    [("", "987"), ("new", "987"), ("gpus", "879"), ("age", "789"), ("user", "879"), ("queue", "798")],
)
def test_jobs_in_order(gateway: GatewayStub, run: Run, sort: str, ids: str) -> None:
    """Those that are alike stay as they came."""
    gateway.on("GET", "/v1/nodes", page())
    gateway.on("GET", "/v1/jobs", page(*JOBS))
    ran = run("top", "--once", *(["--sort", sort] if sort else []))
    shown = [line.split()[0] for line in ran.out.splitlines() if line[:1].isdigit()][1:]
    assert "".join(shown) == ids
    assert run("top", "--once", "--sort", "colour").code == 2


def use(job: str, **changes: Any) -> dict[str, Any]:
    """Two GPUs at work, as the API tells it."""
    document: dict[str, Any] = {
        "job": job,
        "attempt": 1,
        "gpus": 2,
        "measured": 2,
        "utilization_pct": 87.5,
        "memory_used_mib": 98_304,
        "power_mw": 612_000,
        "at_ns": 10**18,
        "simulated": False,
    }
    return {**document, **changes}


def shown(run: Run, gateway: GatewayStub, *jobs: dict[str, Any]) -> tuple[dict[str, list[str]], str]:
    """{job: its GPU%, GPU-MEM and POWER}, and what is printed below."""
    gateway.on("GET", "/v1/nodes", page())
    gateway.on("GET", "/v1/jobs", page(*jobs))
    lines = run("top", "--once").out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("ID"))
    assert lines[at].split()[6:9] == ["GPU%", "GPU-MEM", "POWER"]
    rows = [line.split() for line in lines[at + 1 : at + 1 + len(jobs)]]
    return {row[0]: row[6:9] for row in rows}, "\n".join(lines[at + 1 + len(jobs) :]).strip()


def test_measurements_are_shown_with_each_job(gateway: GatewayStub, run: Run) -> None:
    """In readable units; "-" for unknown values, and for waiting jobs, which are not queried."""
    gateway.on(
        "GET",
        "/v1/use",
        {
            "sequence": 40,
            "items": [
                use("8"),
                use("7", memory_used_mib=700, power_mw=2_400_000, utilization_pct=None),
            ],
        },
    )
    rows, below = shown(run, gateway, *JOBS, job_document("6"))
    assert rows == {
        "9": ["-", "-", "-"],
        "8": ["88", "96Gi", "612W"],
        "7": ["-", "700Mi", "2.4kW"],
        "6": ["-", "-", "-"],
    }
    assert below == ""
    assert gateway.requests[-1].url.params["jobs"] == "8,7,6"


def test_incomplete_measurements_are_marked(gateway: GatewayStub, run: Run) -> None:
    """Of some of the GPUs; of none; of simulated ones."""
    gateway.on(
        "GET",
        "/v1/use",
        {
            "sequence": 40,
            "items": [
                use("8", measured=1, simulated=True),
                use("7", measured=0, utilization_pct=None, memory_used_mib=None, power_mw=None),
            ],
        },
    )
    rows, below = shown(run, gateway, *JOBS)
    assert (rows["8"], rows["7"]) == (["88*", "96Gi*", "612W*"], ["-", "-", "-"])
    assert below.splitlines() == [
        "* of job 8 only 1 of 2 GPUs were measured recently",
        "GPU%, GPU-MEM and POWER of simulated GPUs are played",
    ]


def test_without_telemetry_all_else_is_shown(gateway: GatewayStub, run: Run) -> None:
    """A line gives the reason; without running jobs nothing is queried."""
    status, told = problem(503, "the telemetry service does not answer")
    gateway.on("GET", "/v1/use", told, status)
    rows, below = shown(run, gateway, *JOBS)
    assert rows == {job: ["-", "-", "-"] for job in "987"}
    assert below == "GPU%, GPU-MEM and POWER are not known: the telemetry service does not answer"
    assert shown(run, gateway, JOBS[0])[1] == ""


def test_idle_jobs_are_marked(gateway: GatewayStub, run: Run) -> None:
    """With their idle time, and the next action."""
    idle = {
        "rule": "utilization",
        "scope": "global",
        "action": "stop",
        "mode": "on_demand",
        "since": "2026-01-01T00:00:00.000Z",
        "reclaim_at": "2026-01-01T00:10:00.000Z",
        "asked": True,
        "words": "GPU at most 0 % of 5 %",
        "evidence": [],
    }
    gateway.on("GET", "/v1/use", {"sequence": 40, "items": []})
    gateway.on("GET", "/v1/nodes", page())
    gateway.on("GET", "/v1/jobs", page(job_document("8", idle=idle)))
    assert "reclaimed as soon as a job waits for it" in run("top", "--once").out
