"""Conditions that fail a node or some of its GPUs; minimum versions; the gate."""

import shutil
from typing import Any

import pytest

from fairlead_agent.devices.port import GpuHealth
from fairlead_agent.node.health import gate as gating
from fairlead_agent.node.health.checks import Clock, DiskHealth, EngineHealth, HealthFacts
from fairlead_agent.node.health.gate import Gate
from fairlead_agent.node.health.preflight import (
    FLOORS,
    TAINT,
    Examination,
    PreflightVerdict,
    below,
    judged,
    parsed,
    too_old,
)
from tests.kit.eventually import eventually_async

GPUS = (GpuHealth(uuid="g0"), GpuHealth(uuid="g1"))


def facts(**more: Any) -> HealthFacts:
    return HealthFacts(now_ns=0, **{"gpus": GPUS, **more})


def test_a_node_without_faults_passes() -> None:
    """An unknown fact is no fault."""
    assert judged(Examination(facts(gpus_expected=2)), floors=True) == PreflightVerdict("", {})


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (Examination(facts(gpus_expected=3)), "2 GPUs answer, 3 are expected"),
        (Examination(facts(gpus=(GPUS[0], GpuHealth(uuid="g1", lost=True)), gpus_expected=2)), "1 GPUs answer"),
        (Examination(facts(disks=(DiskHealth("/", 100, 4),))), "4.0 % left"),
        (Examination(facts(clock=Clock(0, 0, 6 * 10**9))), "+6.0 s from the placer's clock"),
        (Examination(facts(engine=EngineHealth(silent="refused"))), "refused"),
        (Examination(facts(), {"toolkit": "1.17.7"}), "CVE-2025-23266"),
        (Examination(facts(), {"runc": "1.1.5+ds1"}), "CVE-2025-31133"),
        (Examination(facts(), {"driver": "470.82.01"}), "too old"),
        (Examination(facts(), peers=("from GPU 0 to GPU 1: error",)), "from GPU 0 to GPU 1"),
    ],
)
def test_conditions_that_fail_the_preflight(found: Examination, reason: str) -> None:
    """With a sentence that has the finding."""
    assert reason in judged(found, floors=True).failure


def test_old_versions_do_not_fail_the_preflight_if_the_admin_allows_them() -> None:
    """A distribution patches old versions, too."""
    assert judged(Examination(facts(), {"runc": "1.1.5"}), floors=False).failure == ""


def test_a_sick_gpu_keeps_itself_out_and_not_the_node() -> None:
    """A failed test, memory that lost data; a hot one may cool down."""
    sick = (GpuHealth(uuid="g0", ecc_volatile_uncorrectable=1), GpuHealth(uuid="g1", slowdowns=("hw_thermal",)))
    assert judged(Examination(facts(gpus=sick)), floors=True).gpus.keys() == {"g0"}
    tested = Examination(facts(), tests={"g0": "", "g1": "3 words were wrong"})
    assert judged(tested, floors=True) == PreflightVerdict("", {"g1": "3 words were wrong"})
    assert judged(tested, floors=True, only=("g0",)).gpus == {}


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("1.1.15", True),
        ("1.2.7", True),
        ("1.2.8", False),
        ("1.3.2", True),
        ("1.3.3", False),
        ("1.4.0-rc.3", False),
        ("2.0", False),
        ("?", False),
    ],
)
def test_a_floor_with_several_lines(version: str, old: bool) -> None:
    """Of each line its own first good version; what comes after all lines is good, what cannot be read is not judged."""
    assert below(FLOORS["runc"], version) is old


def test_versions_are_read_as_people_write_them() -> None:
    """A leading v, and whatever a distribution appends."""
    assert [parsed(each) for each in ("v1.17.8", "1.17.8-1", "580.65.06", "x")] == [
        (1, 17, 8),
        (1, 17, 8),
        (580, 65, 6),
        (),
    ]
    (told,) = too_old({"toolkit": "1.17.7", "runc": "1.3.3"})
    assert "1.17.7" in told and "install" in told


class Tries:
    """A preflight that fails a given number of times, and the gate's reports."""

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)
        self.said: list[object] = []
        self.gate = Gate(self.examine, self.said.append, self.said.append)

    async def examine(self) -> PreflightVerdict:
        return PreflightVerdict(self.failures.pop(0) if self.failures else "", {})


async def test_the_taint_is_removed_when_the_preflight_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is repeated until it passes; the reason is reported each time; the taint stays meanwhile."""
    monkeypatch.setattr(gating, "AGAIN_FIRST_S", 0.01)
    tries = Tries("no disk", "no disk")
    closed = tries.gate.close()
    assert tries.gate.taints == (TAINT,)
    assert tries.gate.close() is closed
    await closed
    assert tries.said == [True, "no disk", "no disk", "", False]
    assert tries.gate.taints == ()
    await tries.gate.stop()


async def test_a_failed_examination_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is a failure with its message."""
    tries = Tries()

    async def broken() -> PreflightVerdict:
        raise OSError("no such file")

    monkeypatch.setattr(tries.gate, "_examine", broken)
    tries.gate.close()
    await eventually_async(lambda: len(tries.said) >= 2)
    assert tries.gate.closed
    assert "no such file" in str(tries.said[-1])
    await tries.gate.stop()


@pytest.mark.connected
def test_runc_of_this_machine_is_read() -> None:
    """If it is installed."""
    from fairlead_agent.node.health.collect import (
        _output,
        _word_after,  # pyright: ignore[reportPrivateUsage]
    )

    if shutil.which("runc") is None:
        pytest.skip("there is no runc on this machine")
    assert parsed(_word_after("version", _output("runc", "--version")))
