"""A real Prometheus over a real stack: it scrapes gateway and agents, the dashboards' queries find data, alerts are quiet."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.stack.nats_server import free_port
from tests.agent.node.metrics.promtool import needs_promtool
from tests.system.cluster import StackCluster
from tests.system.prometheus_server import PrometheusServer

BOARDS = sorted(Path("deploy/grafana").glob("*.json"))
pytestmark = [pytest.mark.nats, pytest.mark.slow, needs_promtool]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """One played node with a job that runs, one that waits and one that has ended, scraped for some seconds."""
    data, port = tmp_path_factory.mktemp("stack"), free_port()
    environment = {"FAIRLEAD_METRICS": f"127.0.0.1:{port}", "FAIRLEAD_SAMPLE_S": "0.5", "FAIRLEAD_PREFLIGHT_S": "0"}
    cluster = StackCluster(data, nodes=1, environment=environment)
    targets = {"fairlead-gateway": [f"127.0.0.1:{cluster.port}"], "fairlead-agents": [f"127.0.0.1:{port}"]}
    try:
        cluster.start()
        directory = tmp_path_factory.mktemp("prometheus")
        with PrometheusServer(directory, targets) as server:
            server.until(lambda: len(server.query("up == 1")) == 2, "both are scraped")
            submitted(cluster)
            server.until(lambda: bool(server.query('DCGM_FI_DEV_GPU_UTIL{hpc_job!="",user="tester"}')), "a held GPU")
            server.until(lambda: bool(server.query("increase(fairlead_ended_total[1m]) >= 0")), "an end is counted")
            server.until(lambda: bool(server.query("fairlead_pending_jobs > 0")), "a job waits")
            server.until(lambda: bool(server.query("rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[1m]) > 0")), "energy")
            at_quarters = 'count_over_time(DCGM_FI_DEV_GPU_UTIL{hpc_job!=""}[1h:15s])'
            server.until(lambda: bool(server.query(at_quarters)), "a GPU is held at a whole quarter of a minute")
            yield server
    finally:
        cluster.stop()


def submitted(cluster: StackCluster) -> None:
    """Submit a job on five GPUs, one that does not fit next to it, and two that end."""
    for command, gpus in ((["sleep", "600"], 5), (["sleep", "600"], 6), (["true"], 1), (["false"], 1)):
        cluster.client.submit({"command": command, "resources": {"nvidia.com/gpu": gpus}})


def queries() -> list[tuple[str, str, str]]:
    """(board, panel, PromQL with its variables filled in), of every panel."""
    return [
        (board.stem, panel["title"], filled(target["expr"]))
        for board in BOARDS
        for panel in json.loads(board.read_text())["panels"]
        for target in panel["targets"]
    ]


def filled(expression: str) -> str:
    """As Grafana does it: everything chosen, and intervals of a minute."""
    expression = expression.replace("$__rate_interval", "1m")
    return re.sub(r'"\$[a-z]+"', '".*"', expression)


def test_every_query_of_the_dashboards_finds_data(scraped: PrometheusServer) -> None:
    """From what this stack exports, at a moment when jobs run, wait and have ended."""
    found = {(board, title, query): scraped.query(query) for board, title, query in queries()}
    assert len(found) > 50
    assert not (empty := [place for place, series in found.items() if not series]), empty
    values = [float(each["value"][1]) for series in found.values() for each in series]
    assert any(value > 0 for value in values)


def test_a_job_is_found_by_its_user_and_queue(scraped: PrometheusServer) -> None:
    """Its five GPUs carry job, user and queue; Prometheus' own label `job` stays its own."""
    held = scraped.query('DCGM_FI_DEV_GPU_UTIL{user="tester", queue="default"}')
    assert len(held) == 5 and len({each["metric"]["hpc_job"] for each in held}) == 1
    assert {each["metric"]["job"] for each in held} == {"fairlead-agents"}
    assert not [name for each in held for name in each["metric"] if name.startswith("exported_")]
    assert [each["value"][1] for each in scraped.query("sum(fairlead_gpu_held)")] == ["5"]
    assert [each["value"][1] for each in scraped.query('sum(fairlead_gpus{state="held"})')] == ["5"]


def test_types_arrive_as_they_were_written(scraped: PrometheusServer) -> None:
    """Prometheus knows energy for a counter and power for a gauge, with their help."""
    known: dict[str, list[dict[str, Any]]] = scraped.get("/api/v1/metadata")
    assert known["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"][0]["type"] == "counter"
    assert known["DCGM_FI_DEV_POWER_USAGE"][0]["type"] == "gauge"
    assert all(each[0]["help"] for name, each in known.items() if name.startswith(("DCGM", "fairlead")))


def test_rules_are_loaded_and_healthy_and_nothing_is_wrong_here(scraped: PrometheusServer) -> None:
    """Each is evaluated without an error; a machine that is well fires none."""
    rules = [rule for group in scraped.get("/api/v1/rules")["groups"] for rule in group["rules"]]
    scraped.until(
        lambda: all(r["health"] == "ok" for g in scraped.get("/api/v1/rules")["groups"] for r in g["rules"]), "health"
    )
    assert len(rules) > 10
    assert scraped.query('ALERTS{alertstate="firing"}') == []


def test_every_metric_that_a_rule_speaks_of_is_there(scraped: PrometheusServer) -> None:
    """A misspelt one would never fire."""
    text = Path("deploy/prometheus/rules.yml").read_text()
    named = set(re.findall(r"\b((?:DCGM_FI|fairlead)_\w+)", text))
    assert {name for name in named if not scraped.query(name)} == set()
