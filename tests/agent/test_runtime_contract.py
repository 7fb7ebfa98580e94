"""The contract of runtimes, held by every adapter: processes here, containers where an engine answers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fairlead_agent.launch import Launch
from fairlead_agent.run import Exit, Found, RunKey
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.runtimes.process import ProcessRuntime
from tests.agent.runtime_watch import Watch, launch, until_file

DEAF = "trap '' TERM; echo ready; while true; do sleep 0.05; done"
POLITE = "trap 'exit 9' TERM; echo ready; while true; do sleep 0.05; done"


class World:
    """One adapter: makes runtimes on the same base, as agent processes after each other would."""

    def __init__(self, base: Path, kind: str) -> None:
        self.base = base
        self.kind = kind
        self.incarnation = f"inc{id(self):x}"
        self._open: list[Runtime] = []

    async def runtime(self) -> tuple[Runtime, Watch]:
        watch = Watch()
        runtime: Runtime
        if self.kind == "docker":
            from fairlead_agent.runtimes.docker import DockerRuntime

            runtime = DockerRuntime(self.base, "n1", self.incarnation, simulated=True)
        else:
            runtime = ProcessRuntime(self.base, "n1", self.incarnation)
        await runtime.open(watch)
        self._open.append(runtime)
        return runtime, watch

    def sh(self, job: str, script: str) -> Launch:
        return self.run(job, "sh", "-c", script)

    def run(self, job: str, *words: str) -> Launch:
        image = ""
        if self.kind == "docker":
            from tests.agent.docker_image import ensure_image

            image = ensure_image()
        return launch(job, *words, image=image)

    async def close(self) -> None:
        last, _ = await self.runtime()
        await last.adopt([])  # kills what a failed test has left
        await asyncio.sleep(0.05)
        for runtime in self._open:
            await runtime.close()


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """One world per adapter that the machine can run."""
    world = World(tmp_path, request.param)
    yield world
    await world.close()


def key(job: str) -> RunKey:
    return RunKey(job, 1, 0)


async def test_exit_codes_come_as_they_are(world: World) -> None:
    """A run's exit code is reported, and each run starts and ends exactly once."""
    runtime, watch = await world.runtime()
    codes = {"701": 0, "702": 1, "703": 7, "704": 255}
    for job, code in codes.items():
        runtime.start(world.sh(job, f"exit {code}"))
    await watch.until(lambda: len(watch.exits) == len(codes))
    assert {key(job): Exit(code=code) for job, code in codes.items()} == watch.exits
    assert sorted(watch.starts) == sorted(watch.exits)


async def test_output_lies_in_two_files(world: World) -> None:
    """stdout and stderr are kept apart, byte for byte."""
    runtime, watch = await world.runtime()
    runtime.start(world.sh("711", "echo one; echo two >&2; echo three"))
    await watch.exit_of(key("711"))
    stdout, stderr = runtime.output(key("711"))
    assert (stdout.read_bytes(), stderr.read_bytes()) == (b"one\nthree\n", b"two\n")


async def test_terminate_lets_a_run_end_by_itself(world: World) -> None:
    """TERM reaches the program, which may end with a code of its own."""
    runtime, watch = await world.runtime()
    runtime.start(world.sh("721", POLITE))
    await until_file(runtime.output(key("721"))[0], b"ready")
    runtime.terminate(key("721"))
    assert Exit(code=9) == await watch.exit_of(key("721"))


async def test_kill_ends_what_ignores_term(world: World) -> None:
    """A program deaf to TERM goes on until KILL, which is told as signal 9."""
    runtime, watch = await world.runtime()
    runtime.start(world.sh("731", DEAF))
    await until_file(runtime.output(key("731"))[0], b"ready")
    runtime.terminate(key("731"))
    await asyncio.sleep(0.3)
    assert watch.exits == {}
    runtime.kill(key("731"))
    exit = await watch.exit_of(key("731"))
    assert (exit.code, exit.signal) == (None, 9)


async def test_a_second_runtime_adopts_what_runs(world: World) -> None:
    """A run goes on while its agent is away; the next agent process sees its end and its exit code."""
    first, first_watch = await world.runtime()
    first.start(
        world.sh("741", "echo ready; while [ ! -e /tmp/never ] && [ $((i+=1)) -lt 20 ]; do sleep 0.05; done; exit 5")
    )
    await first_watch.until(lambda: key("741") in first_watch.starts)
    await first.close()
    second, watch = await world.runtime()
    assert {key("741"): Found("running")} == await second.adopt([key("741")])
    assert Exit(code=5) == await watch.exit_of(key("741"))
    assert second.output(key("741"))[0].read_bytes() == b"ready\n"


async def test_an_end_while_the_agent_was_away_is_known(world: World) -> None:
    """The exit code survives an agent that was not there when the run ended."""
    first, first_watch = await world.runtime()
    first.start(world.sh("751", "sleep 0.3; echo late; exit 6"))
    await first_watch.until(lambda: key("751") in first_watch.starts)
    await first.close()
    await asyncio.sleep(1.0)
    second, watch = await world.runtime()
    found = (await second.adopt([key("751")]))[key("751")]
    assert ("ended", Exit(code=6)) == (found.state, found.exit)
    assert watch.exits == {}
    assert second.output(key("751"))[0].read_bytes() == b"late\n"


async def test_a_run_that_was_never_started_is_known_as_such(world: World) -> None:
    """Accepted in the journal but not started: certain, so it may be said."""
    runtime, _ = await world.runtime()
    assert {key("761"): Found("never")} == await runtime.adopt([key("761")])


async def test_what_no_journal_knows_is_killed(world: World) -> None:
    """A run of this node that the journal does not hold cannot go on."""
    first, first_watch = await world.runtime()
    first.start(world.sh("771", DEAF))
    await until_file(first.output(key("771"))[0], b"ready")
    second, _ = await world.runtime()
    await second.adopt([])
    await first_watch.exit_of(key("771"))


async def test_the_same_run_does_not_start_twice(world: World) -> None:
    """Even without a journal, a runtime refuses the second start of a run: its directory or name is taken."""
    runtime, watch = await world.runtime()
    runtime.start(world.sh("781", "sleep 0.5"))
    await watch.until(lambda: key("781") in watch.starts)
    again: Callable[[], None] = lambda: runtime.start(world.sh("781", "sleep 0.5"))  # noqa: E731
    again()
    await watch.until(lambda: key("781") in watch.failures)
    assert [key("781")] == watch.starts
