"""The agent on one node: the delay that it adds to a start, many containers at once, a restart, and rest.

Containers are compared with `docker run` of the same image with the same limits, processes with a bare spawn, in pairs (`pairs.py`). Without
an engine the container rows are left out, with a note.
"""

import asyncio
import contextlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import ceilings
from bench.agent.lone_node import LoneNode
from bench.agent.pairs import in_pairs
from bench.stack import Stack
from bench.table import Row, percentile
from fairlead_agent.settings import from_environment

IMAGE = "fairlead-bench:busybox"
STARTS = 40
WARM = 3
CONTAINERS = 64
DOCKER = {"runtime": "docker", "docker_socket": from_environment({"FAIRLEAD_NODE": "n1", **os.environ}).docker_socket}
BEAT_S = 2.0
REST_S = 30.0
#: Goals: milliseconds over the baseline; seconds; share of one core; MiB.
CONTAINER_MS, PROCESS_MS, ADOPTED_S, REST_SHARE, REST_MIB = 20.0, 5.0, 3.0, 0.02, 80
#: What the agent's fixed shape sets, in the command's words (runtimes/docker/template.py).
LIKE_THE_AGENT = [
    "--init",
    "--read-only",
    "--tmpfs=/tmp:rw,nosuid,nodev,size=1024m",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--pids-limit=4096",
    "--memory=32m",
    "--memory-swap=32m",
    "--cpus=0.1",
    "--shm-size=64m",
    "--log-driver=local",
    "--log-opt=max-size=10m",
    "--log-opt=max-file=3",
]
LASTS = ["sleep", "1000"]


async def rows() -> list[Row]:
    """Every row that this machine can measure."""
    found = [await process_start()]
    if reason := no_engine():
        print(f"  skipped: containers: {reason}")
    else:
        found += [await container_start(), *await many_containers()]
    found.append(await at_rest("process" if no_engine() else "docker"))
    return found


def no_engine() -> str:
    """Return the reason why containers cannot be measured; "" if they can: their image is then present."""
    busybox = shutil.which("busybox")
    if busybox is None or shutil.which("docker") is None:
        return "they need the docker command and busybox (see .ci/docker-engine)"
    try:
        import docker

        client = docker.from_env(timeout=10).api
        if not client.images(name=IMAGE):
            repository, _, tag = IMAGE.partition(":")
            client.import_image_from_data(_root(busybox), repository=repository, tag=tag)
    except Exception as error:  # noqa: BLE001 -- whatever keeps the engine from answering is the reason
        return f"no Docker engine answers ({type(error).__name__})"
    return ""


async def process_start() -> Row:
    """Time from the order on the bus to the report of the start, less a spawn and nothing else."""
    with tempfile.TemporaryDirectory() as base:
        node = await LoneNode(Path(base), devices="none").open()
        fsync_ms = ceilings.fsync_p50_us(Path(base), 50) / 1e3

        async def bare(_at: int) -> float:
            return _spawn_ms()

        async def ours(at: int) -> float:
            return await _one(node, str(at + 1), ["sleep", "0"], "")

        pairs = await in_pairs(bare, ours, 5 * STARTS)
        await node.close()
    more = pairs.more()
    return Row(
        "agent: start of a process, from order to reported, over a bare spawn",
        f"{more:.1f} ms more in the median of {pairs} ({percentile(pairs.ours, 0.5):.1f} ms; p95 {percentile(pairs.ours, 0.95):.1f})",
        f"≤ {PROCESS_MS:.0f} ms",
        more <= PROCESS_MS,
        f"posix_spawn alone: {percentile(pairs.bare, 0.5):.1f} ms; the journal's two fsyncs alone: {2 * fsync_ms:.1f} ms",
    )


async def container_start() -> Row:
    """The same of a container; `docker run -d` comes back when the container runs."""
    with tempfile.TemporaryDirectory() as base:
        node = await LoneNode(Path(base), devices="none", **DOCKER).open()
        network = "bridge" if "bridge" in _docker("network", "ls", "--format={{.Name}}").split() else "none"

        async def bare(_at: int) -> float:
            return await asyncio.to_thread(_docker_run_ms, network)

        async def ours(at: int) -> float:
            took = await _one(node, str(at + 1), LASTS, IMAGE)
            await node.stop_runs()
            await asyncio.sleep(0.2)  # it is removed meanwhile: nothing of it is in the next one's way
            return took

        pairs = await in_pairs(bare, ours, STARTS, warm=WARM)
        await node.close()
    more = pairs.more()
    low, high = pairs.more(0.25), pairs.more(0.75)
    return Row(
        "agent: start of a container, from order to reported, over `docker run`",
        f"{more:+.0f} ms in the median of {pairs}, half of them {low:+.0f} to {high:+.0f} "
        f"({percentile(pairs.ours, 0.5):.0f} ms; p95 {percentile(pairs.ours, 0.95):.0f})",
        f"≤ {CONTAINER_MS:.0f} ms",
        more <= CONTAINER_MS,
        f"`docker run -d`, same image and limits: {percentile(pairs.bare, 0.5):.0f} ms; p95 {percentile(pairs.bare, 0.95):.0f}",
    )


async def many_containers() -> list[Row]:
    """Order 64 at once and check that beats continue; then replace the agent under them."""
    jobs = [str(at + 1) for at in range(CONTAINERS)]
    with tempfile.TemporaryDirectory() as base:
        node = await LoneNode(Path(base), devices="none", beat_s=BEAT_S, **DOCKER).open()
        began = await node.order(jobs, LASTS, IMAGE)
        await node.until(lambda: len(node.started) == CONTAINERS or len(node.ended) > 0)
        took = time.perf_counter() - began
        await asyncio.sleep(2 * BEAT_S)
        gap = max(after - before for before, after in zip(node.beats, node.beats[1:], strict=False))
        before = _pids()
        await node.stop_agent()
        away = time.perf_counter()
        await node.start_agent()
        adopted = time.perf_counter() - away
        await asyncio.sleep(1.0)
        undisturbed = _pids() == before and len(before) == CONTAINERS and not node.ended
        bare = await asyncio.to_thread(_listed_ms)
        await node.close()
    beats = gap < 2 * BEAT_S and len(node.started) == CONTAINERS
    return [
        Row(
            f"agent: {CONTAINERS} containers ordered at once on one node",
            f"longest time between beats {gap:.1f} s; all run after {took:.1f} s",
            f"no beat missed (every {BEAT_S:.0f} s)",
            beats,
            f"{CONTAINERS / took:.1f} starts a second, the engine's own work",
        ),
        Row(
            f"agent restarted under {CONTAINERS} containers: all adopted again, reported",
            f"{adopted:.2f} s, {'none disturbed' if undisturbed else 'DISTURBED'}",
            f"≤ {ADOPTED_S:.0f} s, none disturbed",
            adopted <= ADOPTED_S and undisturbed,
            f"the engine's list of them alone: {bare:.0f} ms",
        ),
    ]


async def at_rest(runtime: str) -> Row:
    """An agent process with eight simulated GPUs, sampled each second, under a live control plane, and nothing to do."""
    with Stack() as stack:
        stack.control_plane(telemetry=False)
        stack.agent(runtime=runtime, FAIRLEAD_SAMPLE_S="1")
        stack.wait_nodes(1)
        await asyncio.sleep(5.0)
        pid = stack.processes["agent"].pid
        before, began = _cpu_s(pid), time.perf_counter()
        await asyncio.sleep(REST_S)
        share = (_cpu_s(pid) - before) / (time.perf_counter() - began)
        mib = stack.rss_mib("agent")
    return Row(
        f"agent at rest ({runtime} runtime), 8 simulated GPUs sampled each second",
        f"{100 * share:.1f} % of a core, {mib:.0f} MiB",
        f"≤ {100 * REST_SHARE:.0f} %, ≤ {REST_MIB} MB",
        share <= REST_SHARE and mib * 1.048576 <= REST_MIB,
        f"over {REST_S:.0f} s",
    )


async def _one(node: LoneNode, job: str, argv: list[str], image: str) -> float:
    """Milliseconds from the order to the report of its start."""
    at = await node.order([job], argv, image)
    await node.until(lambda: job in node.started or job in node.ended)
    assert job in node.started, node.ended[job].message
    return (node.started[job] - at) * 1e3


def _spawn_ms() -> float:
    at = time.perf_counter()
    pid = os.posix_spawnp("sleep", ["sleep", "0"], os.environ)
    took = (time.perf_counter() - at) * 1e3
    os.waitpid(pid, 0)
    return took


def _docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout


def _docker_run_ms(network: str) -> float:
    at = time.perf_counter()
    container = _docker("run", "-d", f"--network={network}", *LIKE_THE_AGENT, IMAGE, *LASTS).strip()
    took = (time.perf_counter() - at) * 1e3
    _docker("rm", "-f", container)
    return took


def _pids() -> dict[str, Any]:
    """{container: its first process}, of the agent's."""
    containers = _docker("ps", "-q", "--no-trunc", "--filter=label=fairlead.node=n1").split()
    lines = _docker("inspect", "--format={{.Id}} {{.State.Pid}}", *containers) if containers else ""
    return dict(line.split() for line in lines.splitlines())


def _listed_ms() -> float:
    import docker

    client = docker.from_env().api
    at = time.perf_counter()
    client.containers(all=True)
    return (time.perf_counter() - at) * 1e3


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process and of the children that it has reaped."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    raise RuntimeError("the agent has gone")


def _root(busybox: str) -> bytes:
    """A root file system with busybox and the one name that is called."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("bin", "tmp", "etc", "proc", "sys", "dev"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(directory)
        tar.add(busybox, "bin/busybox")
        link = tarfile.TarInfo("bin/sleep")
        link.type, link.linkname = tarfile.SYMTYPE, "busybox"
        tar.addfile(link)
    return buffer.getvalue()
