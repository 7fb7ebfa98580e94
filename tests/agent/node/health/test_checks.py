"""Checks on facts: each at its threshold, on either side of it."""

from typing import Any

import pytest

from fairlead_agent.devices.port import GpuHealth
from fairlead_agent.node.health.checks import (
    FAR_NS,
    KILLED_NS,
    ZOMBIE_NS,
    Clock,
    Dirt,
    DiskHealth,
    EngineHealth,
    HealthFacts,
    Kill,
    all_findings,
)
from fairlead_schemas.units.timestamps import SECOND_NS

GIB = 2**30


def gpu(**facts: Any) -> HealthFacts:
    return HealthFacts(now_ns=0, gpus=(GpuHealth(uuid="g0", **facts), GpuHealth(uuid="g1")))


def found(facts: HealthFacts, before: HealthFacts | None = None) -> list[tuple[str, str]]:
    return [(each.gpu, each.code) for each in all_findings(facts, before)]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, []),
        ({"lost": True, "why": "GPU is lost"}, [("g0", "gpu_lost")]),
        ({"ecc_volatile_uncorrectable": 0, "ecc_aggregate_uncorrectable": 7, "ecc_volatile_correctable": 900}, []),
        ({"ecc_volatile_uncorrectable": 1}, [("g0", "ecc_uncorrectable")]),
        ({"remap_pending": True, "rows_remapped": 2}, [("g0", "remap_pending")]),
        ({"remap_pending": True, "remap_failed": True}, [("g0", "remap_failed")]),
        ({"recovery": "none"}, []),
        ({"recovery": "gpu_reset"}, [("g0", "recovery")]),
        ({"slowdowns": ("power_cap",)}, []),
        ({"slowdowns": ("sw_thermal",), "temperature_c": 91}, [("g0", "thermal")]),
        ({"slowdowns": ("hw_power_brake",)}, [("", "power_brake")]),
        ({"pcie_width": 16, "pcie_width_max": 16, "pcie_generation": 1, "pcie_generation_max": 5}, []),
        ({"pcie_width": 8, "pcie_width_max": 16}, [("", "pcie_narrow")]),
    ],
)
def test_findings_about_a_gpu(facts: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """One fact, one finding; an unknown fact gives none."""
    assert found(gpu(**facts)) == expected


def test_a_low_generation_counts_under_load_only() -> None:
    """An idle GPU saves power."""
    slow = gpu(pcie_generation=1, pcie_generation_max=5)
    assert found(slow._replace(loads={"g0": 10})) == []
    assert found(slow._replace(loads={"g0": 90})) == [("", "pcie_narrow")]


def test_links_are_judged_by_their_errors_between_two_checks() -> None:
    """Old errors are history; without an earlier check there is no judgement."""
    assert found(gpu(nvlink_errors=5000)) == []
    assert found(gpu(nvlink_errors=5050), gpu(nvlink_errors=5000)) == []
    assert found(gpu(nvlink_errors=5100), gpu(nvlink_errors=5000)) == [("", "nvlink_errors")]
    assert found(gpu(nvlink_errors=5), gpu(nvlink_errors=5000)) == []  # the driver was loaded anew


@pytest.mark.parametrize(
    ("free", "expected"), [(10, []), (9, ["disk_low"]), (5, ["disk_low"]), (4, ["disk_full", "disk_low"])]
)
def test_a_disk_at_its_thresholds(free: int, expected: list[str]) -> None:
    """Below 10 % nothing is pulled, below 5 % nothing is started; the fullest file system decides."""
    facts = HealthFacts(
        now_ns=0, disks=(DiskHealth("/a", 100 * GIB, 80 * GIB), DiskHealth("/b", 100 * GIB, free * GIB))
    )
    assert [code for _, code in found(facts)] == expected


@pytest.mark.parametrize(
    ("step_s", "expected"), [(0, []), (5, []), (-5, []), (6, ["clock_step"]), (-3600, ["clock_step"])]
)
def test_a_clock_that_jumps(step_s: int, expected: list[str]) -> None:
    """Against the monotonic one, more than 5 s between two looks."""
    before = HealthFacts(now_ns=0, clock=Clock(wall_ns=10**18, monotonic_ns=0))
    facts = HealthFacts(now_ns=0, clock=Clock(wall_ns=10**18 + (60 + step_s) * SECOND_NS, monotonic_ns=60 * SECOND_NS))
    assert [code for _, code in found(facts, before)] == expected


@pytest.mark.parametrize(
    ("skew_ns", "expected"),
    [(None, []), (SECOND_NS // 2, []), (SECOND_NS, ["clock_skew"]), (-FAR_NS - 1, ["clock_far"])],
)
def test_a_clock_that_is_off(skew_ns: int | None, expected: list[str]) -> None:
    """From the placer's: half a second is a note, five are too much."""
    assert [code for _, code in found(HealthFacts(now_ns=0, clock=Clock(0, 0, skew_ns)))] == expected


def test_the_engine_and_the_spawner() -> None:
    """Silence, another process than before, and one that was never there."""
    assert found(HealthFacts(now_ns=0, engine=EngineHealth(silent="no answer"), spawner=False)) == [
        ("", "engine_gone"),
        ("", "spawner_gone"),
    ]
    before, after = (
        HealthFacts(now_ns=0, engine=EngineHealth(started=each), spawner=True) for each in ("as 1", "as 2")
    )
    assert found(after, before) == [("", "engine_restarted")]
    assert found(after, HealthFacts(now_ns=0, engine=EngineHealth(silent="was away"))) == []


def test_runs_that_do_not_end_and_gpus_that_are_not_freed() -> None:
    """A minute after the kill, five minutes after the end; not before."""
    facts = HealthFacts(now_ns=KILLED_NS, kills=(Kill("7.1.0", ("g0",), 0), Kill("8.1.0", (), 1)))
    assert found(facts) == [("", "kill_failed"), ("g0", "kill_failed")]
    facts = HealthFacts(now_ns=ZOMBIE_NS, dirt=(Dirt("7.1.0", ("g0",), 0), Dirt("8.1.0", ("g1",), 1)))
    assert found(facts) == [("g0", "zombie_memory")]
