"""Hollow nodes on the in-memory bus against the scripted placer."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead_agent.devices.profiles import played_inside
from fairlead_agent.hollow.__main__ import arguments
from fairlead_agent.hollow.__main__ import shapes as hollow_shapes
from fairlead_agent.hollow.fleet import HollowFleet
from fairlead_agent.hollow.outcomes import played
from fairlead_agent.hollow.shapes import alike, inventory, read_shapes
from fairlead_agent.launch.plan import Program
from fairlead_bus.memory import MemoryHub
from fairlead_schemas.queuefile.settings import POOL_LABEL
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.desired import RunOrder
from fairlead_schemas.wire.reports import ExitSeen, InventorySeen, StartSeen
from fairlead_schemas.wire.resources import UNKNOWN_TOPOLOGY
from fairlead_schemas.wire.samples import SampleBatch, decode_samples
from tests.agent.placer_script import PlacerScript, order
from tests.kit.eventually import eventually_async


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["true"], (0.0, 0)),
        (["/bin/false"], (0.0, 1)),
        (["sleep", "1.5"], (1.5, 0)),
        (["sleep", "2m"], (120.0, 0)),
        (["sh", "-c", "exit 7"], (0.0, 7)),
        (["sh", "-c", "sleep 2; exit 3"], (2.0, 3)),
        (["sh", "-c", "sleep 1 && false && sleep 9"], (1.0, 1)),
        (["python", "train.py"], (0.0, 0)),
    ],
)
def test_commands_are_read_as_times_and_codes(words: list[str], expected: tuple[float, int]) -> None:
    """The duration and exit code of a simulated run are in its command."""
    assert expected == played(Program(command=words))


@pytest.fixture
async def played_world() -> AsyncIterator[tuple[PlacerScript, HollowFleet]]:
    """Twenty nodes at ten times the speed."""
    hub = MemoryHub()
    bus = hub.connect()
    await bus.ensure()
    placer = await PlacerScript(bus).open()
    fleet = HollowFleet(hub.connect(), alike(20, 8, "hollow"), speed=10.0, beat_s=0.2)
    await fleet.open()
    await placer.joined(*fleet.nodes)
    yield placer, fleet
    await fleet.close()


async def test_every_run_ends_once_with_its_code(played_world: tuple[PlacerScript, HollowFleet]) -> None:
    """Reports per node are in order, one start and one end per run; repeated desired states play nothing again."""
    placer, fleet = played_world
    for index, node in enumerate(fleet.nodes):
        runs = [
            order(str(100 + index), "true"),
            order(str(200 + index), "sleep", "0.5"),
            order(str(300 + index), "sh", "-c", "exit 7"),
        ]
        await placer.desire(node, *runs)
        await placer.desire(node, *runs)
    await placer.until(lambda: len(placer.of(ExitSeen)) == 60)
    assert Counter({("exited", 0, True): 40, ("exited", 7, True): 20}) == Counter(
        (r.outcome, r.exit_code, r.clean) for r in placer.of(ExitSeen)
    )
    assert len(placer.of(StartSeen)) == 60
    assert all(
        report.inventory.runtime == "hollow" and report.inventory.simulated for report in placer.of(InventorySeen)
    )


async def test_a_stop_ends_a_played_run(played_world: tuple[PlacerScript, HollowFleet]) -> None:
    """A run that would play for an hour is stopped; the old sequence cannot bring it back."""
    placer, fleet = played_world
    node = next(iter(fleet.nodes))
    await placer.desire(node, order("7", "sleep", "36000"))
    await placer.until(lambda: bool(placer.of(StartSeen, "7")))
    await placer.desire(node, order("7", "sleep", "36000", stop="cancelled"))
    await placer.until(lambda: bool(placer.of(ExitSeen, "7")))
    assert placer.of(ExitSeen, "7")[0].outcome == "stopped"
    await placer.desire(node, order("7", "sleep", "36000"), sequence=1)
    await placer.desire(node, order("8", "true"))
    await placer.until(lambda: bool(placer.of(ExitSeen, "8")))
    assert len(placer.of(StartSeen, "7")) == 1


async def test_job_files_are_read_from_the_spec_store(
    played_world: tuple[PlacerScript, HollowFleet], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose job file is named by its hash plays what that says; one that is stored nowhere cannot start."""
    monkeypatch.setattr("fairlead_agent.hollow.fleet.SPEC_PAUSE_S", 0.01)
    placer, fleet = played_world
    [node, other, *_] = fleet.nodes
    spec = b'{"command":["sh","-c","sleep 0.1; exit 7"]}'
    digest = hashlib.sha256(spec).hexdigest()

    def named(job: str, spec_hash: str) -> RunOrder:
        return msgspec.structs.replace(order(job), spec=msgspec.Raw(b"null"), spec_hash=spec_hash)

    for each in (node, other):
        await placer.bus.put(subjects.SPEC, subjects.spec_key(each, digest), spec)
    await placer.desire(node, named("7", digest), order("8", "true"))
    await placer.desire(node, named("7", digest), order("8", "true"), order("9", "false"))
    await placer.desire(other, named("10", digest), named("11", "0" * 64))
    await placer.until(lambda: len(placer.of(ExitSeen)) == 5)
    ends = {report.job: (report.outcome, report.exit_code) for report in placer.of(ExitSeen)}
    assert ends == {
        "7": ("exited", 7),
        "8": ("exited", 0),
        "9": ("exited", 1),
        "10": ("exited", 7),
        "11": ("start_failed", None),
    }
    assert [report.job for report in placer.of(StartSeen, "11")] == []


async def test_reports_survive_a_silent_placer(played_world: tuple[PlacerScript, HollowFleet]) -> None:
    """Unconfirmed reports are sent again."""
    placer, fleet = played_world
    node = next(iter(fleet.nodes))
    placer.silent = True
    await placer.desire(node, order("7", "sleep", "0.1"))
    await placer.until(lambda: fleet.nodes[node].reported == 3)
    placer.silent = False
    await placer.until(lambda: bool(placer.of(ExitSeen, "7")))
    assert len(placer.of(StartSeen, "7")) == 1


def test_hollow_nodes_have_a_pool_too() -> None:
    """The label of their shape's pool, and none for the default pool."""
    [shape] = alike(1, 8, "hollow")
    assert POOL_LABEL not in inventory(shape).labels
    assert inventory(shape._replace(pool="big")).labels[POOL_LABEL] == "big"


def test_hollow_nodes_play_a_profile_in_racks() -> None:
    """With its GPUs and its inside, one object for all; what the admin says comes last."""
    args = arguments(
        ["--nodes", "6", "--profile", "dgx-h100", "--label", "fairlead/spine=s9", "--taint", "drill:NoSchedule"]
    )
    played = [inventory(shape) for shape in hollow_shapes(args, {"FAIRLEAD_POOL": "big"})]
    assert [(each.labels["fairlead/rack"], each.labels["fairlead/spine"]) for each in played] == [("r1", "s9")] * 4 + [
        ("r2", "s9")
    ] * 2
    assert {(len(each.gpus), each.taints, each.labels[POOL_LABEL]) for each in played} == {
        (8, ("drill:NoSchedule",), "big")
    }
    assert all(each.inside is played_inside("dgx-h100") for each in played)
    assert played[0].gpus != played[1].gpus
    (plain,) = hollow_shapes(arguments(["--nodes", "1", "--nodes-per-rack", "0"]), {})
    assert inventory(plain).inside is UNKNOWN_TOPOLOGY
    assert "fairlead/rack" not in inventory(plain).labels


def test_shapes_follow_a_node_list(tmp_path: Path) -> None:
    """One node per line, CPU-only ones too; a bad line is named."""
    path = tmp_path / "nodes.csv"
    path.write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0000,32000,262144,0,\nopenb-node-0400,64000,262144,2,P100\n"
    )
    assert [(shape.node, shape.gpus) for shape in read_shapes(path)] == [("openb-node-0000", 0), ("openb-node-0400", 2)]
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,many,1,0,\n")
    with pytest.raises(ValueError, match="line 2"):
        read_shapes(path)


async def test_hollow_nodes_measure_when_asked_to() -> None:
    """Numbered batches of every node, played; none of a fleet that was not asked."""
    hub, batches = MemoryHub(), list[SampleBatch]()
    bus = hub.connect()
    await bus.ensure()
    await bus.subscribe(subjects.SAMPLE_ALL, lambda m: batches.append(decode_samples(m.payload)))
    fleet = HollowFleet(hub.connect(), alike(3, 2, "h"), sample_s=0.05)
    playing = asyncio.create_task(fleet.run())
    await eventually_async(lambda: len(batches) >= 9)
    await fleet.stop()
    await playing
    assert {batch.node for batch in batches} == {"h-1", "h-2", "h-3"}
    assert [batch.n for batch in batches if batch.node == "h-2"][:3] == [1, 2, 3]
    assert all(batch.simulated and len(batch.gpus) == 2 for batch in batches)
