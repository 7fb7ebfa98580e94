"""Times of typing into a run's terminals, with real ones: of a process here, of a container if an engine answers."""

import contextlib
import os
import pty
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead_agent.core.runs import RunKey
from fairlead_agent.linux.metering import Metering
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.runtimes.process.runtime import ProcessRuntime
from fairlead_schemas.wire.samples import RunResources
from tests.agent.runtime_watch import Watch, incarnation, launch, until_file
from tests.kit.eventually import eventually_async

LONG_AGO_S = 1_000_000_000
#: The kernel's step for a terminal's times.
STEP_S = 8
#: A program in a terminal of its own, as `tmux` makes them; what is typed comes when the file is there.
TYPIST = f"""
import os, pty, sys, time
pid, master = pty.fork()
if pid == 0:
    while True:
        input()
os.utime(os.ptsname(master), ({LONG_AGO_S}, {LONG_AGO_S}))
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
os.write(master, b"ls\\n")
time.sleep(600)
"""


async def eventually_typed(runtime: Runtime, contained: bool, after_ns: int) -> None:
    """Somebody has typed since then (to the kernel's step)."""
    earliest_ns = after_ns - STEP_S * 10**9
    await eventually_async(
        lambda: (measured(runtime, contained=contained)["801.1"].terminal_ns or 0) >= earliest_ns, look_s=0.1
    )


async def until_controlled(runtime: Runtime) -> RunResources:
    """What is measured of job 801 once its child has taken up its terminal: a parent may say "ready" before that."""

    def controlled() -> list[RunResources]:
        found = measured(runtime, contained=False).get("801.1")
        return [found] if found is not None and found.terminal_ns is not None else []

    return (await eventually_async(controlled, "the child has its terminal", look_s=0.05))[0]


async def until_known(runtime: Runtime, key: RunKey) -> int:
    """The process id of a run's first process; its output may be here before the engine has told it."""
    await eventually_async(lambda: key in runtime.programs(), look_s=0.05)
    return runtime.programs()[key]


async def until_there(folder: Path) -> Path:
    """The first terminal of a container."""
    found = await eventually_async(lambda: [path for path in folder.iterdir() if path.name.isdecimal()], look_s=0.05)
    return found[0]


def measured(runtime: Runtime, *, contained: bool) -> dict[str, RunResources]:
    return {each.run: each for each in Metering().read(runtime.programs(), contained=contained)}


@contextlib.asynccontextmanager
async def processes(base: Path) -> AsyncIterator[tuple[ProcessRuntime, Watch]]:
    runtime, watch = ProcessRuntime(base, "n1", incarnation()), Watch()
    await runtime.open(watch.handle)
    yield runtime, watch
    for job in ("801", "802"):
        runtime.kill(RunKey(job, 1, 0))
    await watch.until(lambda: len(watch.exits) == 2)
    await runtime.close()


async def test_typing_into_a_terminal_of_a_process_run_is_seen(tmp_path: Path) -> None:
    """Long ago before, now after; another run without a terminal is reported as having none."""
    go = tmp_path / "go"
    async with processes(tmp_path / "agent") as (runtime, _):
        runtime.start(launch("801", sys.executable, "-c", TYPIST, str(go)))
        runtime.start(launch("802", "sh", "-c", "echo ready; sleep 600"))
        for job in ("801", "802"):
            await until_file(runtime.output(RunKey(job, 1, 0))[0], b"ready")
        assert (await until_controlled(runtime)).terminal_ns == LONG_AGO_S * 10**9
        assert measured(runtime, contained=False)["802.1"].terminal_ns is None
        typed_ns = time.time_ns()
        go.touch()
        await eventually_typed(runtime, False, typed_ns)


async def test_a_time_in_the_future_counts_as_now(tmp_path: Path) -> None:
    """A program may set its terminal's time; that does not make it active permanently."""
    script = TYPIST.replace(str(LONG_AGO_S), str(9 * LONG_AGO_S))
    async with processes(tmp_path / "agent") as (runtime, _):
        runtime.start(launch("801", sys.executable, "-c", script, str(tmp_path / "never")))
        runtime.start(launch("802", "sleep", "600"))
        await until_file(runtime.output(RunKey("801", 1, 0))[0], b"ready")
        told = (await until_controlled(runtime)).terminal_ns
        assert told is not None and told <= time.time_ns()


@pytest.mark.docker
async def test_typing_into_a_terminal_of_a_container_is_seen(tmp_path: Path) -> None:
    """Also in a session by `exec`; a container without a terminal has none."""
    import docker

    from fairlead_agent.runtimes.docker.runtime import DockerRuntime
    from tests.agent.runtimes.docker import of_journal
    from tests.agent.runtimes.docker.image import SOCKET, ensure_image

    own = incarnation()
    runtime = DockerRuntime(tmp_path, "n1", own, simulated=True, socket=SOCKET)
    await runtime.open(Watch().handle)
    client, key = docker.APIClient(version="auto"), RunKey("801", 1, 0)
    try:
        runtime.start(launch("801", "sh", "-c", "echo ready; sleep 600", image=ensure_image()))
        await until_file(runtime.output(key)[0], b"ready")
        pid = await until_known(runtime, key)
        assert measured(runtime, contained=True)["801.1"].terminal_ns is None
        person, terminal = pty.openpty()
        [there] = [each["Id"] for each in of_journal.containers(own)]
        with subprocess.Popen(["docker", "exec", "-it", there, "sh"], stdin=terminal, stdout=terminal) as shell:  # noqa: ASYNC220 -- one start of a test's
            inside = await until_there(Path(f"/proc/{pid}/root/dev/pts"))
            os.utime(inside, (LONG_AGO_S, LONG_AGO_S))
            typed_ns = time.time_ns()
            os.write(person, b"true\n")
            await eventually_typed(runtime, True, typed_ns)
            shell.kill()
        os.close(person)
        os.close(terminal)
    finally:
        await runtime.close()
        for container in of_journal.containers(own):
            client.remove_container(container["Id"], force=True)
        client.close()
