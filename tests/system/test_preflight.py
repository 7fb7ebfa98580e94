"""A node that does not pass its preflight, on a real stack: it joins closed, says why, and takes work when it has passed."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.main import main
from fairlead.stack.local import AGENTS
from fairlead.stack.processes import Spec
from tests.system.cluster import StackCluster

pytestmark = [pytest.mark.nats, pytest.mark.slow]

SICK = "sim-1"
PLAYED = '[[lost]]\ngpus = [3]\nwhy = "GPU is lost"\n'


class OneSick(StackCluster):
    """Two nodes; a GPU of one has fallen off the bus, in play."""

    def _add(self, spec: Spec) -> None:
        if spec.name == AGENTS:
            script = f"FAIRLEAD_SIMULATION={self.data / 'simulation.toml'}"
            own = ["--node", SICK, script, "FAIRLEAD_GPU_COUNT=8", "FAIRLEAD_HEALTH_S=0.5"]
            spec = spec._replace(argv=[*spec.argv, *own])
        super()._add(spec)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[OneSick]:
    """With the fault from the beginning."""
    cluster = OneSick(tmp_path, nodes=2)
    (tmp_path / "simulation.toml").write_text(PLAYED)
    cluster.start()
    yield cluster
    cluster.stop()


def typed(cluster: StackCluster, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """Return the output of a typed command."""
    monkeypatch.setenv("FAIRLEAD_URL", f"http://127.0.0.1:{cluster.port}")
    screen = io.StringIO()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        main(list(words))
    return screen.getvalue()


def test_a_node_takes_no_work_before_its_preflight_has_passed(
    cluster: OneSick, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gang of two nodes waits; the GPU answers again: the preflight passes by itself, the gang starts on the others."""
    gang = {"command": ["/bin/true"], "nodes": 2, "resources": {"nvidia.com/gpu": 7, "cpu": "1", "memory": "64Mi"}}
    job = cluster.client.submit(gang).id

    def described() -> str:
        return typed(cluster, monkeypatch, "nodes", "describe", SICK)

    cluster.until(lambda: "gpu_lost" in described() and "preflight, since" in described(), "both are shown")
    shown = described()
    assert "fairlead/preflight:NoSchedule" in shown
    assert "7 GPUs answer, 8 are expected" in shown and "GPU is lost" in shown
    assert cluster.client.job(job).state in ("queued", "offered")
    assert "taint" in typed(cluster, monkeypatch, "why", job)
    (cluster.data / "simulation.toml").write_text("")
    cluster.until(lambda: "fairlead/preflight" not in described(), "the preflight has passed")
    assert "gpu_lost" in described()  # that it answers again is not enough
    gpu = next(iter(cluster.client.node(SICK).faulted))
    assert cluster.client.job(job).state != "succeeded"
    assert typed(cluster, monkeypatch, "restore", SICK, gpu) == f"{SICK} uses {gpu} again\n"
    cluster.until(lambda: cluster.client.job(job).state == "succeeded", "the gang has run")
    cluster.until(lambda: "nothing is known to be wrong" in described(), "all is well")
