"""The contract of runtimes, held by every adapter: processes here, containers where an engine answers."""

import asyncio
import os

import pytest

from fairlead_agent.core.runs import Exit, Found, RunKey
from fairlead_agent.linux.metering import Metering
from fairlead_agent.runtimes.run_directory import write_note
from fairlead_agent.shell.checkpoint_watcher import read_mark
from fairlead_schemas.policies.checkpoints import Checkpoint
from tests.agent import sleepers
from tests.agent.runtime_watch import until_file
from tests.agent.runtimes.runtime_world import RuntimeWorld

DEAF = "trap '' TERM; echo ready; while true; do sleep 0.05; done"
#: Says "ready", and goes on when USR1 has reached it.
WAITS = "trap 'go=on' USR1; echo ready; while [ -z \"$go\" ]; do sleep 0.05; done"
POLITE = "trap 'exit 9' TERM; echo ready; while true; do sleep 0.05; done"


def key(job: str) -> RunKey:
    return RunKey(job, 1, 0)


async def test_exit_codes_come_as_they_are(world: RuntimeWorld) -> None:
    """A run's exit code is reported, and each run starts and ends exactly once."""
    runtime, watch = await world.runtime()
    codes = {"701": 0, "702": 1, "703": 7, "704": 255}
    for job, code in codes.items():
        runtime.start(world.sh(job, f"exit {code}"))
    await watch.until(lambda: len(watch.exits) == len(codes))
    assert {key(job): Exit(code=code) for job, code in codes.items()} == watch.exits
    assert sorted(watch.starts) == sorted(watch.exits)


async def test_output_is_in_two_files(world: RuntimeWorld) -> None:
    """stdout and stderr are kept apart, byte for byte."""
    runtime, watch = await world.runtime()
    runtime.start(world.sh("711", "echo one; echo two >&2; echo three"))
    await watch.exit_of(key("711"))
    stdout, stderr = runtime.output(key("711"))
    assert (stdout.read_bytes(), stderr.read_bytes()) == (b"one\nthree\n", b"two\n")


async def test_terminate_lets_a_run_end_by_itself(world: RuntimeWorld) -> None:
    """TERM reaches the program, which may end with a code of its own."""
    runtime, watch = await world.runtime()
    runtime.start(world.sh("721", POLITE))
    await until_file(runtime.output(key("721"))[0], b"ready")
    runtime.terminate(key("721"))
    assert Exit(code=9) == await watch.exit_of(key("721"))


async def test_kill_ends_a_program_that_ignores_term(world: RuntimeWorld) -> None:
    """It continues until KILL, which is reported as signal 9."""
    runtime, watch = await world.runtime()
    runtime.start(world.sh("731", DEAF))
    await until_file(runtime.output(key("731"))[0], b"ready")
    runtime.terminate(key("731"))
    await asyncio.sleep(0.3)
    assert watch.exits == {}
    runtime.kill(key("731"))
    exit = await watch.exit_of(key("731"))
    assert (exit.code, exit.signal) == (None, 9)


async def test_a_second_runtime_adopts_running_programs(world: RuntimeWorld) -> None:
    """A run continues while its agent is away; the next agent process sees its end and its exit code."""
    first, first_watch = await world.runtime()
    first.start(world.sh("741", f"{WAITS}; exit 5"))
    await first_watch.until(lambda: key("741") in first_watch.starts)
    await until_file(first.output(key("741"))[0], b"ready")
    await first.close()
    second, watch = await world.runtime()
    found = await second.adopt([key("741")])
    assert {key("741"): Found("running", image=first_watch.images[key("741")])} == found
    second.signal(key("741"), "SIGUSR1")
    assert Exit(code=5) == await watch.exit_of(key("741"))
    assert second.output(key("741"))[0].read_bytes() == b"ready\n"


async def test_an_end_while_the_agent_was_away_is_known(world: RuntimeWorld) -> None:
    """The exit code survives an agent that was not there when the run ended."""
    first, first_watch = await world.runtime()
    first.start(world.sh("751", f"{WAITS}; sleep 0.3; echo late; exit 6"))
    await first_watch.until(lambda: key("751") in first.programs())
    program = first.programs()[key("751")]
    await until_file(first.output(key("751"))[0], b"ready")
    await first.close()
    await world.lets_go_on(program)
    await world.empty([program])
    second, watch = await world.runtime()
    found = (await second.adopt([key("751")]))[key("751")]
    assert ("ended", Exit(code=6)) == (found.state, found.exit)
    assert watch.exits == {}
    assert second.output(key("751"))[0].read_bytes() == b"ready\nlate\n"


async def test_a_run_that_was_never_started_is_known_as_such(world: RuntimeWorld) -> None:
    """Accepted in the journal but not started: certain, so it is reported."""
    runtime, _ = await world.runtime()
    assert {key("761"): Found("never")} == await runtime.adopt([key("761")])


async def test_processes_have_owners(world: RuntimeWorld) -> None:
    """A run's program and its children are the run's; other processes of the machine have no run; also after a restart."""
    runtime, watch = await world.runtime()
    for job in ("791", "792"):
        runtime.start(world.sh(job, f"FAIRLEAD_RUN= sleep {sleepers.own(job)} & wait"))
    asleep = {job: await sleepers.until_asleep(job) for job in ("791", "792")}
    await watch.until(lambda: len(watch.starts) == 2)
    pids = [os.getpid(), 1, 2**22 + 1, *asleep["791"], *asleep["792"]]
    expected = {pid: key(job) for job, found in asleep.items() for pid in found}
    assert (len(expected), expected) == (2, await runtime.owners(pids))
    await runtime.close()
    second, watch = await world.runtime()
    await second.adopt([key("791"), key("792")])
    assert expected == await second.owners(pids)
    for job in ("791", "792"):
        second.kill(key(job))
    await watch.until(lambda: len(watch.exits) == 2)


async def test_use_of_runs_is_read_from_the_kernel(world: RuntimeWorld) -> None:
    """CPU of the one that computed, ended children included; memory of the one that holds some; also after a restart,
    and never less than before. Traffic only of a network of its own."""
    runtime, watch = await world.runtime()
    burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    runtime.start(world.sh("793", f"sh -c '{burn}'; echo ready; sleep 60; true"))
    runtime.start(world.sh("794", "x=$(head -c 30000000 /dev/zero | tr '\\0' x); echo ready; sleep 60; echo $x"))
    for job in ("793", "794"):
        await until_file(runtime.output(key(job))[0], b"ready")
    await watch.until(lambda: set(runtime.programs()) == {key("793"), key("794")})  # noted a little later
    contained = runtime.name == "docker"
    meter = Metering()
    found = {each.run: each for each in meter.read(runtime.programs(), contained=contained)}
    assert set(found) == {"793.1", "794.1"}
    assert found["793.1"].cpu_ms >= 50
    assert found["794.1"].memory_mib >= 25 > found["793.1"].memory_mib
    assert all((each.network_rx_bytes is not None) == contained for each in found.values())
    assert all((each.disk_written_bytes or 0) >= 0 for each in found.values())
    await runtime.close()
    second, watch = await world.runtime()
    await second.adopt([key("793"), key("794")])
    await watch.until(lambda: set(second.programs()) == {key("793"), key("794")})  # asked about after adoption
    later = {each.run: each for each in Metering().read(second.programs(), contained=contained)}
    assert later["793.1"].cpu_ms >= found["793.1"].cpu_ms
    for job in ("793", "794"):
        second.kill(key(job))
    await watch.until(lambda: len(watch.exits) == 2)
    assert second.programs() == {}


async def test_a_line_of_the_agents_costs_no_line_of_the_program(world: RuntimeWorld) -> None:
    """It is written between two of the program's lines; a copy of the output resumes after the program's part."""
    first, watch = await world.runtime()
    first.start(world.sh("796", f"echo one >&2; {WAITS}; echo two >&2; sleep 0.2; echo three >&2"))
    stderr = first.output(key("796"))[1]
    await until_file(stderr, b"one\n")
    await until_file(first.output(key("796"))[0], b"ready")
    write_note(stderr, "warning: too much")
    await watch.until(lambda: key("796") in watch.starts)
    await first.close()
    second, watch = await world.runtime()
    await second.adopt([key("796")])
    second.signal(key("796"), "SIGUSR1")
    await watch.exit_of(key("796"))
    assert stderr.read_text() == "one\nfairlead: warning: too much\ntwo\nthree\n"


async def test_a_run_that_no_journal_knows_is_killed(world: RuntimeWorld) -> None:
    """A run of this node that the journal does not hold cannot continue."""
    first, first_watch = await world.runtime()
    first.start(world.sh("771", DEAF))
    await until_file(first.output(key("771"))[0], b"ready")
    second, _ = await world.runtime()
    await second.adopt([])
    await first_watch.exit_of(key("771"))


async def test_the_same_run_does_not_start_twice(world: RuntimeWorld) -> None:
    """Even without a journal, a runtime refuses the second start of a run: its directory or name is taken."""
    runtime, watch = await world.runtime()
    runtime.start(world.sh("781", "sleep 600"))
    await watch.until(lambda: key("781") in watch.starts)
    runtime.start(world.sh("781", "sleep 600"))
    await watch.until(lambda: key("781") in watch.failures)
    assert [key("781")] == watch.starts


MANY = 64


@pytest.mark.slow
async def test_many_runs_are_adopted_without_interruption(world: RuntimeWorld) -> None:
    """64 of them under another agent process: each is the same program as before, is reported once, and ends normally."""
    first, before = await world.runtime()
    jobs = [str(8000 + at) for at in range(MANY)]
    for job in jobs:
        first.start(world.sh(job, "echo started; trap 'exit 3' TERM; while true; do sleep 0.2; done"))
    await before.until(lambda: len(before.starts) == MANY, 240)
    for job in jobs:
        await until_file(first.output(key(job))[0], b"started")
    await first.close()
    second, watch = await world.runtime()
    found = await second.adopt([key(job) for job in jobs])
    assert {what.state for what in found.values()} == {"running"} and len(found) == MANY
    assert (watch.starts, watch.exits) == ([], {})
    for job in jobs:
        second.terminate(key(job))
        await asyncio.sleep(0.05)  # all in one instant: Docker 20.10 may lock itself up (docs/reference/facts.md)
    await watch.until(lambda: len(watch.exits) == MANY, 240)
    assert set(watch.exits.values()) == {Exit(code=3)}
    for job in jobs:  # it was started once, and what it has printed is there once
        assert second.output(key(job))[0].read_bytes() == b"started\n"


@pytest.mark.docker
@pytest.mark.parametrize("world", ["docker"], indirect=True)
async def test_a_container_over_its_memory_is_reported_as_such(world: RuntimeWorld) -> None:
    """Signal 9 and the reason, not a bare exit code."""
    runtime, watch = await world.runtime()
    runtime.start(world.sh("796", "x=a; while true; do x=$x$x; done"))
    exit = await watch.exit_of(key("796"))
    assert exit == Exit(signal=9, message="killed: over its memory limit", over_memory=True)


@pytest.mark.docker
@pytest.mark.parametrize("world", ["docker"], indirect=True)
async def test_a_container_of_another_epoch_or_name_is_no_run_of_ours(world: RuntimeWorld) -> None:
    """A container with a run's labels but another epoch is ended; it is not taken for the run."""
    first, first_watch = await world.runtime()
    first.start(world.sh("797", "trap 'exit 4' TERM; echo ready; while true; do sleep 0.05; done"))
    await until_file(first.output(key("797"))[0], b"ready")
    await first.close()
    second, watch = await world.runtime()
    found = await second.adopt([key("797")], {key("797"): 2})
    assert found[key("797")].state == "lost" and watch.exits == {}
    assert first_watch.exits == {}


#: Says "told" where USR1 reached it, and goes on; a shell runs its trap when what it waits for has ended.
LISTENER = "trap 'echo told' USR1; echo ready; while true; do sleep 0.05; done"


async def test_a_signal_reaches_the_program_and_not_its_children(world: RuntimeWorld) -> None:
    """A child that would die of it lives, the program's own trap runs, and the run continues."""
    runtime, watch = await world.runtime()
    runtime.start(
        world.sh("791", f"sleep 600 & child=$!; trap 'kill -0 $child && echo told' USR1; {LISTENER.partition('; ')[2]}")
    )
    out = runtime.output(key("791"))[0]
    await until_file(out, b"ready")
    await watch.until(lambda: key("791") in watch.starts)
    runtime.signal(key("791"), "SIGUSR1")
    await until_file(out, b"ready\ntold")
    assert watch.exits == {}
    runtime.kill(key("791"))
    assert (await watch.exit_of(key("791"))).signal == 9


async def test_an_adopted_run_is_signalled_like_any_other(world: RuntimeWorld) -> None:
    """Signals and commands need no knowledge of the agent process that started it."""
    first, watch = await world.runtime()
    first.start(world.sh("792", LISTENER))
    out = first.output(key("792"))[0]
    await until_file(out, b"ready")
    await watch.until(lambda: key("792") in watch.starts)
    await first.close()
    runtime, _ = await world.runtime()
    await runtime.adopt([key("792")])
    runtime.signal(key("792"), "SIGUSR1")
    await until_file(out, b"ready\ntold")
    assert (await runtime.exec(key("792"), ["sh", "-c", "exit 4"], 20, {})).code == 4


async def test_a_command_runs_in_the_environment_of_the_program(world: RuntimeWorld) -> None:
    """With its environment, in its directory, seeing its files; its exit code and output are returned."""
    runtime, watch = await world.runtime()
    name = f"fairlead-test-{os.getpid()}"
    runtime.start(world.sh("793", f"cd /tmp; echo 41 > {name}; {LISTENER}"))
    await until_file(runtime.output(key("793"))[0], b"ready")
    await watch.until(lambda: key("793") in watch.starts)  # it may speak before the runtime has noted it
    script = f'echo "$FAIRLEAD_JOB $WHY"; cat /tmp/{name}; rm /tmp/{name}; exit 3'
    done = await runtime.exec(key("793"), ["sh", "-c", script], 20, {"WHY": "preempted"})
    assert (done.code, done.output) == (3, "793 preempted\n41")
    assert watch.exits == {}


async def test_a_command_that_fails_is_reported_as_failed(world: RuntimeWorld) -> None:
    """A missing one, one that takes too long, and one without a running program: no code, and a reason."""
    runtime, watch = await world.runtime()
    runtime.start(world.sh("794", LISTENER))
    await until_file(runtime.output(key("794"))[0], b"ready")
    await watch.until(lambda: key("794") in watch.starts)  # it may speak before the runtime has noted it
    assert (await runtime.exec(key("794"), ["no-such-program"], 20, {})).code in (None, 126, 127)
    assert (await runtime.exec(key("794"), ["sleep", "60"], 0.5, {})).code is None
    assert (await runtime.exec(key("799"), ["true"], 20, {})).code is None
    runtime.kill(key("794"))
    await watch.exit_of(key("794"))


async def test_the_way_of_gpus_into_a_container_is_reported(world: RuntimeWorld) -> None:
    """Without GPUs there is nothing to report."""
    runtime, _ = await world.runtime()
    ways = {"process": {"environment"}, "docker": {"cdi", "device-request", "simulated"}}
    assert runtime.injection(["GPU-a"]) in ways[world.kind]
    assert runtime.injection([]) == ""


async def test_a_run_reports_a_checkpoint_by_a_file(world: RuntimeWorld) -> None:
    """The file is empty until then; its content can be read from outside, and each report has a time stamp of its own."""
    runtime, watch = await world.runtime()
    save = 'echo step={} > "$FAIRLEAD_CHECKPOINT_FILE"'
    words = f"{save.format(1)}; {WAITS}; {save.format(2)}; echo done; sleep 600"
    runtime.start(world.sh("795", words, checkpoint=Checkpoint()))
    out, path = runtime.output(key("795"))[0], runtime.checkpoint_file(key("795"))
    assert read_mark(path) is None
    await until_file(out, b"ready")
    first = read_mark(path)
    await watch.until(lambda: key("795") in watch.starts)
    runtime.signal(key("795"), "SIGUSR1")
    await until_file(out, b"ready\ndone")
    second = read_mark(path)
    assert first is not None
    assert second is not None
    assert (first.note, second.note) == ("step=1", "step=2")
    assert second.stamp > first.stamp
