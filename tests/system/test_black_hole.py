"""A node that fails every job at once, among good ones: it is found out, the jobs succeed elsewhere, and an admin gives it back."""

import contextlib
import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead.client import Client
from fairlead.main import main
from fairlead.stack.local import AGENTS
from fairlead.stack.processes import Spec
from fairlead_bus.log import LogReader
from fairlead_bus.nats.adapter import NatsBus
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from tests.system.cluster import StackCluster

pytestmark = [pytest.mark.nats, pytest.mark.slow]

BROKEN = "sim-1"
USERS = ("ann", "bob", "cem", "dee", "eva", "fay")


class OneBroken(StackCluster):
    """Three nodes; on one of them the programs of jobs are not where they should be."""

    def _add(self, spec: Spec) -> None:
        if spec.name == AGENTS:
            spec = spec._replace(argv=[*spec.argv, "--node", BROKEN, "PATH=/usr/bin:/bin"])
        super()._add(spec)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[OneBroken]:
    """Good nodes find `work`, the broken one does not."""
    programs = tmp_path / "programs"
    programs.mkdir()
    work = programs / "work"
    work.write_text("#!/bin/sh\nsleep 2\n")
    work.chmod(0o755)
    cluster = OneBroken(tmp_path / "data", nodes=3, environment={"PATH": f"{programs}:/usr/bin:/bin"})
    cluster.start()
    yield cluster
    cluster.stop()
    shutil.rmtree(tmp_path, ignore_errors=True)


def typed(cluster: StackCluster, monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """Return the output of a typed command."""
    monkeypatch.setenv("FAIRLEAD_URL", f"http://127.0.0.1:{cluster.port}")
    screen = io.StringIO()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        main(list(words))
    return screen.getvalue()


async def all_events(bus: NatsBus) -> list[ev.Event]:
    """The whole log."""
    end = (await bus.state(subjects.LOG)).last
    reader, found = LogReader(bus), []
    while reader.chain.last < end:
        found += [event for folded in await reader.next() for event in folded.commit.events]
    await reader.close()
    return found


def test_a_failing_node_is_closed_after_three_jobs(cluster: OneBroken, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six users' jobs take a whole node each: at most three fail there, and all succeed, without an admin."""
    for user in USERS:
        with Client(f"http://127.0.0.1:{cluster.port}", user=user) as client:
            client.submit(
                {
                    "command": ["work"],
                    "resources": {"nvidia.com/gpu": 8, "cpu": "1", "memory": "64Mi"},
                    "retries": {"max": 2},
                }
            )
    cluster.until(lambda: _ended(cluster) == {"succeeded": len(USERS)}, "every job has succeeded", 120)
    events = cluster.run(all_events)
    hurt = {event.job for event in events if isinstance(event, ev.RunEnded) and event.exit_code != 0}
    (closed,) = [event for event in events if isinstance(event, ev.NodeQuarantined)]
    assert (closed.node, closed.setter, set(closed.jobs)) == (BROKEN, "health", hurt)
    assert len(hurt) == 3
    shown = typed(cluster, monkeypatch, "nodes", "describe", BROKEN)
    assert "state             quarantined" in shown
    assert "3 different jobs failed fast" in shown
    assert all(job in shown for job in hurt)
    _waits_for_it_and_is_told_so(cluster, monkeypatch)


def _waits_for_it_and_is_told_so(cluster: OneBroken, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that needs all three nodes says which one it lacks and why; when an admin returns it, the job starts."""
    everywhere = {
        "command": ["/bin/true"],
        "nodes": 3,
        "resources": {"nvidia.com/gpu": 8, "cpu": "1", "memory": "64Mi"},
    }
    job = cluster.client.submit(everywhere).id
    cluster.until(lambda: "quarantine" in typed(cluster, monkeypatch, "why", job), "why names the quarantine")
    told = typed(cluster, monkeypatch, "why", job)
    assert BROKEN in told and "3 different jobs failed fast" in told
    assert typed(cluster, monkeypatch, "unquarantine", BROKEN) == f"{BROKEN} released\n"
    cluster.until(lambda: cluster.client.job(job).state == "succeeded", "the job that waited has succeeded")
    assert "ready" in typed(cluster, monkeypatch, "nodes", "describe", BROKEN)


def _ended(cluster: StackCluster) -> dict[str, int]:
    found: dict[str, int] = {}
    for job in cluster.client.jobs().items:
        found[job.state] = found.get(job.state, 0) + 1
    return found
