"""The guard: its core over a clock in hand, then the real program over real processes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_agent.core.lease import NAME, NEVER_NS, STOP_AFTER, Lease, stop_after_in, stop_after_word
from fairlead_agent.files import guard_files
from fairlead_agent.files.guard_files import GuardReports, LeaseFile, boottime_ns, tell
from fairlead_agent.guard.policy import Act, GuardWatch, Work
from fairlead_agent.linux.processes import tag_prefix, tagged
from fairlead_schemas.wire.reports import ExitSeen, StartSeen
from tests.agent import sleepers
from tests.agent.placer_script import order
from tests.agent.runtimes.process.spawners import spawners
from tests.agent.world import AgentWorld
from tests.kit.eventually import eventually, eventually_async

S = 1_000_000_000
LEASE = Lease("boot", "n1", "inc", "process", 1000 * S, 60 * S, 30 * S, 30 * S)


def watch(lease: Lease | None = LEASE) -> GuardWatch:
    """A watch that has read the file."""
    made = GuardWatch()
    made.read(lease)
    return made


def due(made: GuardWatch, second: int, *works: Work) -> list[Act]:
    """Return the guard's actions this many seconds after the renewal."""
    now = LEASE.renewed_ns + second * S
    return made.look(list(works), now) if made.must_look("boot", now) else []


def test_the_agent_is_first() -> None:
    """Its fence is after 60 s; the guard waits for a third of the margin more, and has killed before the placer's lease."""
    made = watch()
    assert due(made, 69, Work("7.1.0")) == []
    assert due(made, 70, Work("7.1.0")) == [Act("7.1.0", "TERM")]
    assert due(made, 99, Work("7.1.0")) == []
    assert due(made, 100, Work("7.1.0")) == [Act("7.1.0", "KILL")]
    assert due(made, 101, Work("7.1.0")) == [Act("7.1.0", "KILL")]
    assert due(made, 102) == []


def test_it_rests_until_an_act_may_be_due() -> None:
    """Until the shortest time that a job may have, and the guard's part of the margin; not while a run is ending."""
    made = watch()
    assert [made.due_in_ns("boot", LEASE.renewed_ns + second * S) // S for second in (0, 19, 20, 99)] == [20, 1, 0, 0]
    due(made, 70, Work("7.1.0"))
    made.read(LEASE._replace(renewed_ns=LEASE.renewed_ns + 80 * S))
    assert made.due_in_ns("boot", LEASE.renewed_ns + 80 * S) == 0
    assert min(watch(None).due_in_ns("boot", 10**18), made.due_in_ns("another", 10**18)) > 10**18


def test_each_job_has_its_own_time() -> None:
    """Shorter, longer, or none at all."""
    made = watch()
    works = (Work("1.1.0", 10 * S), Work("2.1.0"), Work("3.1.0", 300 * S), Work("4.1.0", NEVER_NS))
    assert due(made, 19, *works) == []
    assert due(made, 20, *works) == [Act("1.1.0", "TERM")]
    assert due(made, 70, *works[1:]) == [Act("2.1.0", "TERM")]
    assert due(made, 310, *works[2:]) == [Act("3.1.0", "TERM")]
    assert due(made, 10**6, works[3]) == []


def test_a_young_lease_guards_its_work() -> None:
    """An agent that is just restarting within its lease loses nothing, however often."""
    made = watch()
    for second in range(0, 1000, 50):
        made.read(LEASE._replace(renewed_ns=LEASE.renewed_ns + second * S))
        assert due(made, second + 49, Work("7.1.0")) == []


def test_a_started_stop_is_completed() -> None:
    """A lease that comes back after TERM does not leave a run half ended."""
    made = watch()
    assert due(made, 70, Work("7.1.0")) == [Act("7.1.0", "TERM")]
    made.read(LEASE._replace(renewed_ns=LEASE.renewed_ns + 71 * S))
    assert due(made, 100, Work("7.1.0"), Work("8.1.0")) == [Act("7.1.0", "KILL")]


def test_a_guard_that_slept_gives_no_more_time() -> None:
    """It looks when everything is over: TERM, and KILL with the next look."""
    made = watch()
    assert due(made, 95, Work("7.1.0")) == [Act("7.1.0", "TERM")]
    assert due(made, 99, Work("7.1.0")) == []
    assert due(made, 100, Work("7.1.0"), Work("8.1.0")) == [Act("7.1.0", "KILL"), Act("8.1.0", "TERM")]
    assert due(made, 100, Work("8.1.0")) == [Act("8.1.0", "KILL")]


def test_nothing_is_done_without_a_lease_or_on_another_boot() -> None:
    """A missing or unreadable file gives no information; its last content counts."""
    assert not watch(None).must_look("boot", 10**18)
    assert not watch().must_look("another", 10**18)
    made = watch()
    made.read(None)
    assert due(made, 70, Work("7.1.0")) == [Act("7.1.0", "TERM")]


@given(st.lists(st.integers(0, 200), max_size=30), st.integers(0, 400))
def test_no_time_is_too_early(renewals: list[int], asked: int) -> None:
    """In any order of renewals and clock reads, nothing ends before its lease is over."""
    made = watch()
    for second in sorted(renewals):
        made.read(LEASE._replace(renewed_ns=LEASE.renewed_ns + second * S))
    newest = max(renewals, default=0)
    assert bool(due(made, asked, Work("7.1.0"))) == (asked - newest >= 70)


# ---------------------------------------------------------------------------- files


def test_a_lease_is_read_as_it_was_written(tmp_path: Path) -> None:
    """In place: the file keeps its length, so a full disk cannot keep it from being renewed."""
    file = LeaseFile(tmp_path)
    for renewed in (1, 10**18, 5):
        file.write(LEASE._replace(renewed_ns=renewed))
        assert guard_files.read(tmp_path) == LEASE._replace(renewed_ns=renewed)
        assert (tmp_path / NAME).stat().st_size == guard_files.BYTES
    file.close()


@given(st.binary(max_size=200))
def test_anything_else_is_no_lease(data: bytes) -> None:
    """Torn, garbled, of another version: None, and no exception."""
    whole = guard_files.encode(LEASE)
    assert guard_files.decode(whole) == LEASE
    assert guard_files.decode(data) is None
    assert guard_files.decode(whole[: len(data)] + data) is None
    assert guard_files.decode(whole.replace(b'"n1"', b'"n2"')) is None


def test_the_lease_time_in_the_environment() -> None:
    """Written and read the same; an unreadable value means the node's own time."""
    for ns in (NEVER_NS, 10 * S, 1500 * 10**6):
        assert stop_after_in([b"A=b", f"{STOP_AFTER}={stop_after_word(ns)}".encode()]) == ns
    for text in (b"", b"soon", b"nan", b"inf", b"-5"):
        assert stop_after_in([STOP_AFTER.encode() + b"=" + text]) == 0
    assert stop_after_in([]) == 0


def test_the_agent_reads_what_the_guard_did(tmp_path: Path) -> None:
    """Of its open runs only; other records are removed."""
    told = GuardReports(tmp_path)
    assert told.how("7.1.0") == ""
    tell(tmp_path, ["7.1.0", "8.1.0"], 71.26, 5)
    tell(tmp_path, ["9.1.0"], 71.3, 6)
    assert told.how("7.1.0") == "the guard ended it: its agent had had no lease for 71.3 s"
    assert told.how("10.1.0") == ""
    told.forget({"9.1.0"})
    assert [path.name for path in (tmp_path / "guard").iterdir()] == ["6.json"]
    (tmp_path / "guard" / "7.json").write_text("{")
    assert told.how("9.1.0") != "" and told.how("7.1.0") == ""


# ---------------------------------------------------------------------------- the program

TIMES: dict[str, Any] = {"fence_ns": 3 * S, "fence_grace_ns": S, "fence_margin_ns": 3 * S}
#: A fence that no restart on a slow machine outlasts.
LONG_NS = 9 * S
#: Ends at KILL only, and so do the children that it leaves in sessions of their own.
STUBBORN = "trap '' TERM; setsid sh -c \"trap '' TERM; sleep 600\" & while :; do sleep 0.1; done"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    """A joined node, with short times."""
    made = AgentWorld(tmp_path)
    made.settings = msgspec.structs.replace(made.settings, **TIMES)
    await made.open()
    yield made
    await made.close()
    for process in tagged(tag_prefix("n1", made.placer.incarnation["n1"])):
        os.kill(process.pid, signal.SIGKILL)


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The real program over the world's directory."""
    env = {**os.environ, "FAIRLEAD_DATA": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-m", "fairlead_agent.guard"], env=env, stderr=subprocess.PIPE)
    yield process
    process.terminate()
    process.communicate(timeout=60)


async def running(world: AgentWorld, job: str, script: str, **more: Any) -> str:
    """A run that runs; returns the prefix of its tags."""
    await world.placer.desire("n1", order(job, "sh", "-c", script, **more))
    await world.placer.until(lambda: bool(world.placer.of(StartSeen, job)))
    return tag_prefix("n1", world.placer.incarnation["n1"]) + f"{job}.1.0"


async def gone(prefix: str) -> None:
    """Until nothing of the run is left."""
    await eventually_async(lambda: not tagged(prefix), look_s=0.05)


async def test_work_of_a_dead_agent_ends(world: AgentWorld, guard: subprocess.Popen[bytes]) -> None:
    """Also what ignores TERM, and what has left its group; and the next agent says who did it."""
    prefix = await running(world, "7", STUBBORN)
    await world.stop()
    await gone(prefix)
    await world.start()
    ended = await world.ended("7")
    assert (ended.outcome, ended.signal) == ("node_lost", 9)
    assert ended.message.startswith("the guard ended it: its agent had had no lease for ")
    assert guard.poll() is None


async def test_daemons_without_the_runs_environment_end_too(world: AgentWorld, guard: subprocess.Popen[bytes]) -> None:
    """Agent and spawner are dead: what `env -i setsid` has started is found by the mark of its run."""
    daemon = f"env -i setsid sh -c 'trap \"\" TERM; while sleep {sleepers.own('7')}; do :; done' >/dev/null 2>&1 &"
    await running(world, "7", f"{daemon} exec sleep 600")
    await sleepers.until_asleep("7")
    await world.stop()
    [spawner] = spawners(world.settings.directory)
    os.kill(spawner, signal.SIGKILL)
    await sleepers.until_gone("7")
    await world.start()
    assert (await world.ended("7")).outcome == "node_lost"


async def test_an_agent_that_restarts_in_time_loses_nothing(world: AgentWorld, guard: subprocess.Popen[bytes]) -> None:
    """Restarts over more than the whole time, however slow they are: the lease is renewed in between, and the run runs on."""
    await world.stop()
    await world.start(fence_ns=LONG_NS)
    prefix = await running(world, "7", "while :; do sleep 0.1; done")
    began = boottime_ns()
    while boottime_ns() - began < LONG_NS + TIMES["fence_margin_ns"]:
        await world.stop()
        await asyncio.sleep(0.3)
        agent = await world.start(fence_ns=LONG_NS)
        beats = world.placer.beats
        await world.placer.until(lambda: world.placer.beats > beats + 2)  # noqa: B023 -- awaited in this turn
        await asyncio.sleep(1.0)
        assert not agent.core.stopping
    assert tagged(prefix)
    assert world.placer.of(ExitSeen, "7") == []


async def test_a_job_that_is_never_stopped_for_silence(world: AgentWorld, guard: subprocess.Popen[bytes]) -> None:
    """Its neighbour ends, it does not; and neither does the agent that comes back stop it."""
    forever = order("8", "sh", "-c", "while :; do sleep 0.1; done", stop_after_ns=NEVER_NS)
    await world.placer.desire("n1", order("7", "sleep", "600"), forever)
    await world.placer.until(lambda: bool(world.placer.of(StartSeen, "7") and world.placer.of(StartSeen, "8")))
    await world.stop()
    prefix = tag_prefix("n1", world.placer.incarnation["n1"])
    await gone(f"{prefix}7.1.0")
    await world.start()
    assert (await world.ended("7")).outcome == "node_lost"
    assert tagged(f"{prefix}8.1.0")


async def test_silence_is_counted_over_an_agents_restarts(world: AgentWorld) -> None:
    """Without a guard, too: an agent that starts again and again under a silent placer does not get the full time
    again."""
    prefix = await running(world, "7", "while :; do sleep 0.1; done")
    world.placer.silent = True
    for _ in range(8):
        await world.stop()
        await asyncio.sleep(0.2)
        await world.start()
        await asyncio.sleep(0.3)
    await gone(prefix)


def test_one_guard_per_directory(tmp_path: Path, guard: subprocess.Popen[bytes]) -> None:
    """A second one says so and ends."""
    lock = tmp_path / "guard.lock"
    eventually(lambda: lock.exists() and lock.read_text(), "the first has its lock", within_s=60, look_s=0.02)
    assert guard.poll() is None
    env = {**os.environ, "FAIRLEAD_DATA": str(tmp_path)}
    second = subprocess.run([sys.executable, "-m", "fairlead_agent.guard"], env=env, capture_output=True, check=False)
    assert second.returncode == 1 and b"has a guard already" in second.stderr


def test_it_is_small() -> None:
    """The standard library and a few files of the agent: nothing of the bus, the schemas or the network."""
    script = "import fairlead_agent.guard.__main__, sys; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    ours = {name.partition(".")[0] for name in loaded if name.startswith("fairlead")}
    assert ours == {"fairlead_agent"}
    assert not {"msgspec", "nats", "structlog", "docker", "asyncio"} & set(loaded)


def test_time_is_the_boots() -> None:
    """No step of the wall clock is seen."""
    first = boottime_ns()
    assert first <= boottime_ns() < first + 60 * S
