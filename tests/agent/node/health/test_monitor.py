"""The whole agent's health on the in-memory bus: what it reports, and what it does about the work it is given."""

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead_agent.__main__ import build_devices
from fairlead_agent.core.runs import RunKey
from fairlead_agent.devices.port import GpuHealth, Xid
from fairlead_agent.node.health import gate as gating
from fairlead_agent.node.health.monitor import HealthMonitor
from fairlead_agent.node.health.peer_check import Rules
from fairlead_agent.node.health.peer_check import meet as really_meet
from fairlead_agent.node.health.preflight import TAINT
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.reports import CleanSeen, ExitSeen, HealthSeen, InventorySeen, StartSeen
from fairlead_schemas.wire.samples import GpuSample, decode_samples
from tests.agent.placer_script import order
from tests.agent.world import AgentWorld
from tests.kit import loopback

#: A meeting that somebody is missing from lasts for all of its time; one to which all come ends when they have met.
SHORT = Rules(tried_s=5.0, shared_s=7.0, piece_bytes=64 * 1024)
LONG = SHORT._replace(tried_s=60.0, shared_s=90.0)
meet = partial(really_meet, rules=SHORT)


class Played:
    """Simulated devices whose health a test says."""

    def __init__(self, devices: Any) -> None:
        self._devices = devices
        self.facts: dict[int, dict[str, Any]] = {}
        self.reported: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._devices, name)

    def health(self) -> list[GpuHealth]:
        return [GpuHealth(uuid=gpu.uuid, **self.facts.get(gpu.index, {})) for gpu in self._devices.gpus()]

    def xids(self) -> list[Xid]:
        reported, self.reported = self.reported, []
        return [Xid(uuid=self._devices.gpus()[index].uuid, code=code) for index, code in reported]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    """The devices of the next agent."""
    found: list[Played] = []

    def build(settings: Any, env: Any = os.environ) -> Any:
        if not found:
            found.append(Played(build_devices(settings, env)))
        return found[0]

    monkeypatch.setattr("fairlead_agent.__main__.build_devices", build)
    monkeypatch.setattr(gating, "AGAIN_FIRST_S", 0.05)
    monkeypatch.setattr("fairlead_agent.node.health.monitor.meet", meet)
    monkeypatch.setattr(
        "fairlead_agent.node.health.fault_localization.SLOWER", 10**9
    )  # a busy machine is no slow network
    from fairlead_agent.settings import Settings

    return build(Settings(node="n1", devices="simulated"))


@pytest.fixture
async def world(tmp_path: Path, played: Played) -> AsyncIterator[AgentWorld]:
    """A node whose agent looks ten times a second; the test joins it."""
    world = AgentWorld(tmp_path)
    world.settings = msgspec.structs.replace(world.settings, health_s=0.1)
    yield world
    await world.close()


def seen(world: AgentWorld) -> list[tuple[str, str, bool]]:
    return [(each.gpu and each.gpu[:3], each.code, each.over) for each in world.placer.of(HealthSeen)]


def taints(world: AgentWorld) -> list[tuple[str, ...]]:
    return [each.inventory.taints for each in world.placer.of(InventorySeen)]


async def test_a_node_that_passes_at_once_joins_ready(world: AgentWorld) -> None:
    """One inventory, without a taint, and nothing to report; the next agent of this boot does not try again."""
    await world.open()
    await asyncio.sleep(0.3)
    assert taints(world) == [()]
    assert seen(world) == []
    await world.stop()
    await world.start()
    await world.placer.until(lambda: len(taints(world)) == 2)
    assert taints(world) == [(), ()]


async def test_a_node_that_fails_its_preflight_joins_tainted_with_the_reason(
    world: AgentWorld, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The preflight is repeated until it passes: then the taint is removed and the fault is over."""
    monkeypatch.setattr(gating, "WAIT_S", 0.1)
    world.settings = msgspec.structs.replace(world.settings, gpu_count=8)
    played.facts[3] = {"lost": True, "why": "GPU is lost"}
    await world.open()
    await world.placer.until(lambda: len(seen(world)) >= 2)
    assert taints(world) == [(TAINT,)]
    evidence = {each.code: each.evidence for each in world.placer.of(HealthSeen)}
    assert evidence["preflight"].startswith("7 GPUs answer, 8 are expected")
    assert evidence["gpu_lost"] == "GPU is lost"
    played.facts.clear()
    await world.placer.until(lambda: len(taints(world)) == 2)
    assert taints(world)[1] == ()
    await world.placer.until(lambda: ("", "preflight", True) in seen(world))


async def test_an_xid_is_reported_once_and_survives_the_agent(world: AgentWorld, played: Played) -> None:
    """The next agent of the same boot does not repeat or withdraw it."""
    await world.open()
    played.reported += [(0, 79), (0, 79), (1, 13)]
    await world.placer.until(lambda: len(seen(world)) == 1)
    assert seen(world) == [("GPU", "xid79", False)]
    await world.stop()
    agent = await world.start()
    assert list(agent.ledger.ailing.values()) == [agent.boot_id]
    await asyncio.sleep(0.3)
    assert len(seen(world)) == 1


async def test_samples_tell_what_the_last_look_found(world: AgentWorld, played: Played) -> None:
    """ECC, XIDs and clocks that are held down, of that GPU; of the others that there is nothing."""
    told: list[GpuSample] = []
    await world.open()
    played.facts[0] = {"slowdowns": ("hw_thermal",), "ecc_volatile_correctable": 3, "ecc_volatile_uncorrectable": 0}
    played.reported += [(0, 13)]
    await world.hub.connect().subscribe(
        subjects.SAMPLE_ALL, lambda message: told.extend(decode_samples(message.payload).gpus)
    )
    first, second = (gpu.uuid for gpu in played.gpus()[:2])
    wanted = {first: (64, 3, 0, 13, 1), second: (None, None, None, 0, 0)}
    await world.placer.until(
        lambda: (
            {
                gpu.uuid: (gpu.slowdowns, gpu.ecc_correctable, gpu.ecc_uncorrectable, gpu.xid, gpu.xids)
                for gpu in told
                if gpu.uuid in wanted
            }
            == wanted
        )
    )


async def test_a_programs_own_error_is_reported_to_its_user(world: AgentWorld, played: Played) -> None:
    """With the end of the run that held the GPU, and nowhere else."""
    await world.open()
    gpu = played.gpus()[0].uuid
    go = world.settings.data / "go"
    waits = ("sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done")
    await world.placer.desire("n1", order("7", *waits, gpus=(gpu,)), order("8", *waits))
    await world.placer.until(lambda: len(world.placer.of(StartSeen)) == 2)
    played.reported += [(0, 31)]
    await world.placer.until(lambda: gpu in world.agents[0][0].monitor.xids)
    go.touch()
    assert (await world.ended("7")).message == f"{gpu} reported XID 31, GPU memory page fault"
    assert (await world.ended("8")).message == ""
    assert seen(world) == []


async def test_after_a_failed_run_its_gpus_are_looked_at_before_they_are_given_again(
    world: AgentWorld, played: Played
) -> None:
    """One that waits for a reset is reported long before the next look; the run's end says what it always says."""
    world.settings = msgspec.structs.replace(world.settings, health_s=60)
    await world.open()
    gpu = played.gpus()[0].uuid
    go = world.settings.data / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.05; done; exit 3"
    await world.placer.desire("n1", order("7", "sh", "-c", waits, gpus=(gpu,)))
    await world.placer.until(lambda: bool(world.placer.of(StartSeen)))
    played.facts[0] = {"recovery": "gpu_reset"}
    go.touch()
    report = await world.ended("7")
    assert (report.outcome, report.exit_code) == ("exited", 3)
    await world.placer.until(lambda: bool(seen(world)))
    assert seen(world)[0][:2] in (("GPU", "gpu_test"), ("GPU", "recovery"))


async def test_a_gang_does_not_start_on_a_node_that_is_not_fit(world: AgentWorld, played: Played) -> None:
    """Nothing was started; the end says why, and that it was the node. On a fit node it starts."""
    await world.open()
    gpu = played.gpus()[2].uuid
    played.facts[2] = {"ecc_volatile_uncorrectable": 1}
    gang = {"hosts": ("127.0.0.1", "127.0.0.2"), "gpus": (gpu,)}
    await world.placer.desire("n1", order("7", "true", **gang))
    report = await world.ended("7")
    assert (report.outcome, report.exit_code, report.clean) == ("preflight", None, True)
    assert "1 words were wrong (simulated)" in report.message and gpu in report.message
    assert world.placer.of(StartSeen, "7") == []
    played.facts.clear()
    await world.placer.desire("n1", order("8", "true", hosts=("127.0.0.1", "127.0.0.2")))
    assert (await world.ended("8")).outcome == "exited"


async def test_a_node_that_fails_a_check_takes_no_more_work_until_it_passes(world: AgentWorld, played: Played) -> None:
    """The taint follows the run, and is removed by itself."""
    world.settings = msgspec.structs.replace(world.settings, gpu_count=8)
    await world.open()
    played.facts[0] = {"lost": True}
    await world.placer.desire("n1", order("7", "true", hosts=("127.0.0.1", "127.0.0.2")))
    assert (await world.ended("7")).outcome == "preflight"
    await world.placer.until(lambda: (TAINT,) in taints(world))
    played.facts.clear()
    await world.placer.until(lambda: taints(world)[-1] == ())


async def test_a_check_that_hangs_keeps_the_gang_from_starting(
    world: AgentWorld, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that cannot even be looked at is not fit."""
    await world.open()
    monkeypatch.setattr("fairlead_agent.node.health.monitor.BEFORE_S", 0.1)

    async def hangs(*_: Any) -> Any:
        await asyncio.sleep(60)

    monkeypatch.setattr(HealthMonitor, "short", hangs)
    await world.placer.desire("n1", order("7", "true", hosts=("127.0.0.1", "127.0.0.2")))
    assert "did not end within" in (await world.ended("7")).message


async def test_gpus_that_were_not_clean_come_back_after_the_check(world: AgentWorld, played: Played) -> None:
    """Every end of a part is followed by its return, checked or not."""
    await world.open()
    orders = [order(str(n), "sh", "-c", f"exit {n % 2}", gpus=(gpu.uuid,)) for n, gpu in enumerate(played.gpus(), 1)]
    await world.placer.desire("n1", *orders)
    await world.placer.until(
        lambda: sum(each.clean for each in world.placer.of(ExitSeen)) + len(world.placer.of(CleanSeen)) == len(orders)
    )


async def test_a_large_gang_checks_its_peers_before_it_starts(
    world: AgentWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node without any contact blames itself, and its rank does not start. A gang with contact starts."""
    world.settings = msgspec.structs.replace(world.settings, meet_nodes=3)
    await world.open()
    hosts = loopback.hosts(3)
    await world.placer.desire("n1", order("7", "true", rank=1, hosts=hosts))
    report = await world.ended("7")
    assert (report.outcome, report.blames) == ("preflight", None)
    assert f"rank 1 ({hosts[1]}) failed with 2 of 2 others" in report.message
    assert seen(world) == [("", "meeting", False)]
    monkeypatch.setattr("fairlead_agent.node.health.monitor.meet", partial(really_meet, rules=LONG))
    others = [asyncio.ensure_future(really_meet(order("8", "true", rank=rank, hosts=hosts), LONG)) for rank in (1, 2)]
    await world.placer.desire("n1", order("8", "true", rank=0, hosts=hosts))
    assert (await world.ended("8")).outcome == "exited"
    assert all(found.clean for found in await asyncio.gather(*others))
    assert seen(world)[1:] == [("", "meeting", True)]


async def test_a_healthy_rank_blames_the_rank_that_the_others_cannot_reach(world: AgentWorld) -> None:
    """By rank: the placer keeps the job from that node."""
    world.settings = msgspec.structs.replace(world.settings, meet_nodes=3)
    await world.open()
    hosts = loopback.hosts(3)
    other = asyncio.ensure_future(meet(order("9", "true", rank=1, hosts=hosts)))
    await world.placer.desire("n1", order("9", "true", rank=0, hosts=hosts))
    report = await world.ended("9")
    assert (report.outcome, report.blames) == ("preflight", 2)
    assert (await other).culprits == (2,)
    assert seen(world) == []


async def test_only_gpus_without_other_holders_are_tested(world: AgentWorld, played: Played) -> None:
    """A test takes all free memory: neighbours on a shared GPU would starve."""
    await world.open()
    tending = world.agents[0][0].monitor
    gpus = [gpu.uuid for gpu in played.gpus()]
    await world.placer.desire(
        "n1", order("7", "sleep", "60", gpus=(gpus[0],)), order("8", "sleep", "60", gpus=(gpus[0],))
    )
    await world.placer.until(lambda: len(world.placer.of(StartSeen)) == 2)
    assert tending._testable(gpus) == sorted(gpus[1:])  # pyright: ignore[reportPrivateUsage]
    assert tending._testable(gpus[:1], RunKey("7", 1, 0)) == []  # pyright: ignore[reportPrivateUsage]
    await world.placer.desire("n1", order("7", "sleep", "60", gpus=(gpus[0],)))
    await world.ended("8")
    assert tending._testable(gpus[:1], RunKey("7", 1, 0)) == [gpus[0]]  # pyright: ignore[reportPrivateUsage]
