"""`fairlead top`, one look: nodes with their GPUs, and open jobs in the order that is wanted."""

import pytest

from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, job_document, page

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
