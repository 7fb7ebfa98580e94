"""The whole agent on the in-memory bus, with real processes, against a scripted placer."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead_agent.__main__ import build_agent
from fairlead_agent.core.runs import RunKey
from fairlead_agent.files.journal import Journal
from fairlead_agent.settings import Admin, from_environment
from fairlead_bus.environment_settings import BadSetting
from fairlead_schemas.queuefile.settings import POOL_LABEL
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.reports import ExitSeen, InventorySeen, OutputPiece, ReadOutput, StartSeen, encode
from fairlead_schemas.wire.samples import decode_samples
from tests.agent.placer_script import order
from tests.agent.world import AgentWorld
from tests.kit.eventually import eventually_async


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AgentWorld]:
    """A joined node."""
    world = await AgentWorld(tmp_path).open()
    yield world
    await world.close()


async def test_a_job_runs_and_is_reported(world: AgentWorld) -> None:
    """Inventory, start, end, in this order, the GPU clean at once."""
    gpu = world.placer.of(InventorySeen)[0].inventory.gpus[0].uuid
    await world.placer.desire("n1", order("7", "sh", "-c", "exit 3", gpus=(gpu,)))
    report = await world.ended("7")
    assert (report.outcome, report.exit_code, report.signal, report.clean) == ("exited", 3, None, True)
    assert [InventorySeen, StartSeen, ExitSeen] == [type(report) for _, report in world.placer.reports]


async def test_output_arrives_with_offsets_and_an_end(world: AgentWorld) -> None:
    """The pieces of each stream join into the file, and the last one says so; empty output publishes nothing."""
    pieces: list[tuple[str, OutputPiece]] = []
    watcher = world.hub.connect()
    await watcher.subscribe(
        subjects.OUTPUT_ALL, lambda m: pieces.append((m.subject, msgspec.json.decode(m.payload, type=OutputPiece)))
    )
    script = "seq 1 20000; echo oops >&2"
    await world.placer.desire("n1", order("7", "sh", "-c", script), order("8", "true"))
    await world.ended("7")
    await world.ended("8")
    await eventually_async(lambda: {piece.stream for _, piece in pieces if piece.last} == {"stdout", "stderr"})
    expected = "".join(f"{n}\n" for n in range(1, 20001)).encode()
    stdout = {piece.offset: piece for _, piece in pieces if piece.stream == "stdout"}
    joined = b""
    while len(joined) in stdout and stdout[len(joined)].data:
        joined += stdout[len(joined)].data
    assert expected == joined
    assert max(len(piece.data) for _, piece in pieces) <= 16 * 1024
    assert {subjects.output("n1", "7")} == {subject for subject, _ in pieces}
    assert {(piece.job, piece.attempt, piece.rank) for _, piece in pieces} == {("7", 1, 0)}


async def test_the_file_answers_for_what_the_bus_no_longer_has(world: AgentWorld) -> None:
    """A request reads from any offset; a path cannot be smuggled in."""
    await world.placer.desire("n1", order("7", "echo", "0123456789"))
    await world.ended("7")
    wanted = ReadOutput(job="7", attempt=1, rank=0, stream="stdout", offset=4, bytes_max=3)
    asker = world.hub.connect()
    answer = await asker.request(subjects.rpc_node("n1", "output"), encode(wanted), timeout_s=60)
    assert ((piece := msgspec.json.decode(answer, type=OutputPiece)).data, piece.offset) == (b"456", 4)
    evil = encode(msgspec.structs.replace(wanted, job="../../etc"))
    assert b"error" in await asker.request(subjects.rpc_node("n1", "output"), evil, timeout_s=60)


async def test_a_signal_reaches_a_program_once_also_over_a_restart_of_the_agent(world: AgentWorld) -> None:
    """The one that came while no agent ran is delivered by the next; the one before it is not delivered again."""
    script = "trap 'echo told' USR1; trap 'echo up' HUP; echo ready; while true; do sleep 0.05; done"
    await world.placer.desire("n1", order("7", "sh", "-c", script))
    await world.says("7", b"ready")
    await world.placer.until(lambda: bool(world.placer.of(StartSeen, "7")))
    await world.placer.desire("n1", order("7", "sh", "-c", script, signals=((1, "SIGUSR1"),)))
    await world.says("7", b"ready\ntold")
    await world.stop()
    both = order("7", "sh", "-c", script, signals=((1, "SIGUSR1"), (2, "SIGHUP")))
    await world.placer.desire("n1", both)
    await world.start()
    await world.says("7", b"ready\ntold\nup")
    await world.placer.desire("n1", both)
    await world.placer.desire("n1")
    assert (await world.ended("7")).outcome == "stopped"
    assert world.agents[-1][0].runtime.output(RunKey("7", 1, 0))[0].read_text() == "ready\ntold\nup\n"


async def test_stop_means_term_grace_kill(world: AgentWorld) -> None:
    """A deaf job gets its grace, then KILL; the end is `stopped` with signal 9."""
    deaf = order("7", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done", grace_s=0.4)
    await world.placer.desire("n1", deaf)
    await world.says("7", b"ready")
    await world.placer.desire("n1", msgspec.structs.replace(deaf, stop="cancelled"))
    report = await world.ended("7")
    assert (report.outcome, report.signal) == ("stopped", 9)


async def test_a_run_outlives_its_agent(world: AgentWorld) -> None:
    """SIGTERM ends the agent alone: the next one adopts the run, starts nothing twice and reports its end."""
    over = world.settings.data / "over"
    job = order("7", "sh", "-c", f"while ! [ -e {over} ]; do sleep 0.05; done; exit 5")
    await world.placer.desire("n1", job)
    await world.placer.until(lambda: bool(world.placer.of(StartSeen, "7")))
    assert await world.stop() == 0
    await world.start()
    await world.placer.until(lambda: len(world.placer.of(InventorySeen)) == 2)
    over.touch()
    report = await world.ended("7")
    assert (report.outcome, report.exit_code) == ("exited", 5)
    assert len(world.placer.of(StartSeen, "7")) == 1


async def test_reports_wait_for_an_unavailable_placer(world: AgentWorld) -> None:
    """Each is sent again until it is confirmed, and arrives once."""
    world.placer.silent = True
    await world.placer.desire("n1", order("7", "true"))
    ledger = world.agents[0][0].ledger
    await eventually_async(lambda: ledger.reported >= 3)
    assert world.placer.of(ExitSeen) == []
    world.placer.silent = False
    await world.ended("7")
    assert [report.n for _, report in world.placer.reports] == [1, 2, 3]


async def test_a_placer_that_lost_its_state_gets_all_reports_again(world: AgentWorld) -> None:
    """The node joins by an inventory and sends the rest in order, without a gap."""
    await world.placer.desire("n1", order("7", "true"))
    await world.ended("7")
    world.placer.incarnation.clear()
    world.placer.through.clear()
    await world.placer.joined("n1")
    await world.placer.desire("n1", order("8", "true"))
    assert (await world.ended("8")).outcome == "exited"


async def test_a_node_without_contact_fences_itself(tmp_path: Path) -> None:
    """Silence for the fence's length ends its runs; the end is reported as node_lost."""
    world = AgentWorld(tmp_path)
    world.settings = msgspec.structs.replace(world.settings, fence_ns=3_000_000_000)
    await world.open()
    await world.placer.desire("n1", order("7", "sleep", "1000"))
    await world.placer.until(lambda: bool(world.placer.of(StartSeen, "7")))
    world.placer.silent = True
    core = world.agents[0][0].core
    await eventually_async(lambda: core.fenced)
    world.placer.silent = False
    report = await world.ended("7")
    assert (report.outcome, report.signal) == ("node_lost", 15)
    await world.close()


async def test_another_boot_ends_what_ran(world: AgentWorld) -> None:
    """The machine booted: the run is over, as node_rebooted."""
    over = world.settings.data / "over"  # no length of a sleep is longer than a busy machine takes to stop an agent
    await world.placer.desire("n1", order("7", "sh", "-c", f"while ! [ -e {over} ]; do sleep 0.05; done"))
    await world.placer.until(lambda: bool(world.placer.of(StartSeen, "7")))
    await world.stop()
    agent = await build_agent(world.hub.connect(), world.settings)
    agent.boot_id = "another-boot"
    world.agents.append((agent, asyncio.ensure_future(agent.run())))
    report = await world.ended("7")
    assert (report.outcome, report.clean) == ("node_rebooted", True)
    over.touch()


async def test_samples_name_the_run_and_say_that_they_are_played(world: AgentWorld) -> None:
    """Numbered batches; a held GPU names its run."""
    batches = []
    await world.hub.connect().subscribe(subjects.SAMPLE_ALL, lambda m: batches.append(decode_samples(m.payload)))
    gpu = world.placer.of(InventorySeen)[0].inventory.gpus[2].uuid
    await world.placer.desire("n1", order("7", "sleep", "600", gpus=(gpu,)))
    held = lambda: any(sample.run for batch in batches for sample in batch.gpus if sample.uuid == gpu)  # noqa: E731
    await world.placer.until(held)
    numbers = [batch.n for batch in batches]
    assert list(range(numbers[0], numbers[0] + len(numbers))) == numbers
    assert all(batch.simulated for batch in batches)
    assert {"7.1"} == {sample.run for batch in batches for sample in batch.gpus if sample.uuid == gpu and sample.run}


async def test_a_journal_that_fails_ends_the_agent(world: AgentWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is acted upon that is not durable: no start, exit code 1."""

    def full(self: Journal, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "_append", full)
    await world.placer.desire("n1", order("7", "true"))
    _, task = world.agents.pop()
    assert await asyncio.wait_for(task, 60) == 1
    assert world.placer.of(StartSeen) == []


async def test_a_nodes_pool_is_a_label_of_its_inventory(world: AgentWorld) -> None:
    """As the setting says; without one there is no label."""
    assert POOL_LABEL not in world.placer.of(InventorySeen)[0].inventory.labels
    await world.stop()
    await world.start(pool="big")
    await world.placer.until(lambda: len(world.placer.of(InventorySeen)) == 2)
    assert world.placer.of(InventorySeen)[1].inventory.labels[POOL_LABEL] == "big"


def test_the_pool_is_a_setting() -> None:
    """A name like any other; the default pool needs none."""
    assert from_environment({"FAIRLEAD_NODE": "n1", "FAIRLEAD_POOL": "big"}).pool == "big"
    assert from_environment({"FAIRLEAD_NODE": "n1"}).pool == ""
    with pytest.raises(BadSetting, match="FAIRLEAD_POOL"):
        from_environment({"FAIRLEAD_NODE": "n1", "FAIRLEAD_POOL": "Big One"})


async def test_a_nodes_taints_are_in_its_inventory(world: AgentWorld) -> None:
    """As the setting says; without one there are none."""
    assert world.placer.of(InventorySeen)[0].inventory.taints == ()
    await world.stop()
    await world.start(admin=Admin(taints=("fresh:NoSchedule",)))
    await world.placer.until(lambda: len(world.placer.of(InventorySeen)) == 2)
    assert world.placer.of(InventorySeen)[1].inventory.taints == ("fresh:NoSchedule",)


def test_bad_settings_are_named() -> None:
    """The variable, what was expected, what was found."""
    with pytest.raises(BadSetting, match='FAIRLEAD_RUNTIME: expected one of process, docker, found "vm"'):
        from_environment({"FAIRLEAD_NODE": "n1", "FAIRLEAD_RUNTIME": "vm"})
    with pytest.raises(BadSetting, match=r'DOCKER_HOST: expected unix:///PATH .*, found "tcp://1.2.3.4:2375"'):
        from_environment({"FAIRLEAD_NODE": "n1", "DOCKER_HOST": "tcp://1.2.3.4:2375"})
    with pytest.raises(BadSetting, match="FAIRLEAD_NODE"):
        from_environment({"FAIRLEAD_NODE": "host.domain"})
