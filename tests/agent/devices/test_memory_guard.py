"""The memory guard's rule: who is above a share, for how long, and what follows. Pure."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from fairlead_agent.core.runs import RunKey
from fairlead_agent.devices.memory_guard import GpuUse, Guard, Share, ShareFinding, left_behind, shares, uses
from fairlead_agent.devices.port import GpuProcess
from fairlead_schemas.units.timestamps import SECOND_NS
from tests.agent.placer_script import order

A, B, C = (RunKey(job, 1, 0) for job in "789")
TOTAL = {"g": 16_000}
GRACE_S = 10


class Watch:
    """A guard that is looked through every second. Three runs have 5,000 MiB each of one GPU."""

    def __init__(self, *held: Share) -> None:
        self.shares = held or tuple(Share(key, "g", 5_000) for key in (A, B, C))
        self.guard = Guard(GRACE_S * SECOND_NS)
        self.second = 100

    def look(self, used: Mapping[RunKey, int], seconds: int = 1) -> list[ShareFinding]:
        """So many seconds of this use, and all that was found."""
        found: list[ShareFinding] = []
        for _ in range(seconds):
            self.second += 1
            of = {(key, "g"): mib for key, mib in used.items()}
            found += self.guard.look(self.shares, of, TOTAL, self.second * SECOND_NS)
        return found


def told(found: list[ShareFinding]) -> list[tuple[str, RunKey]]:
    return [(each.what, each.share.key) for each in found]


def test_a_run_within_its_share_gets_no_warning() -> None:
    """Up to its last MiB, however long."""
    assert Watch().look({A: 5_000, B: 5_000, C: 5_000}, 100) == []


def test_a_run_that_takes_promised_memory_is_warned_then_stopped_alone() -> None:
    """After a fifth of the grace, because the neighbours fail meanwhile. Each report occurs once, with the numbers and
    the GPU."""
    watch = Watch()
    found = watch.look({A: 9_812, B: 1_000, C: 1_000}, 60)
    assert told(found) == [("warn", A), ("stop", A)]
    assert (
        found[0].message
        == "uses 9,812 MiB of its 5,000 MiB share of g; it will be stopped unless it uses less within 2 s"
    )
    assert found[1].message == "used 9,812 MiB of its 5,000 MiB share of g for 2 s"


def test_unpromised_memory_is_tolerated_for_the_whole_grace() -> None:
    """1,000 MiB of the GPU are in no share."""
    watch = Watch()
    assert told(watch.look({A: 6_000}, GRACE_S)) == [("warn", A)]
    assert told(watch.look({A: 6_000}, 1)) == [("stop", A)]
    lonely = Watch(Share(A, "g", 5_000))
    assert told(lonely.look({A: 16_000}, GRACE_S)) == [("warn", A)], "nobody else is on the GPU"


def test_a_run_that_shrinks_in_time_continues() -> None:
    """Time below the share counts back; the next excess is reported again."""
    watch = Watch()
    assert told(watch.look({A: 6_000}, 9)) == [("warn", A)]
    assert watch.look({A: 4_000}, 20) == []
    assert told(watch.look({A: 6_000}, 9)) == [("warn", A)]


def test_a_run_that_swings_around_its_share_is_judged_by_the_longer_part() -> None:
    """Two seconds above for one below add up; the other way round they do not."""
    worse, better = Watch(), Watch()
    found = [each for _ in range(20) for each in worse.look({A: 6_000}, 2) + worse.look({A: 100}, 1)]
    assert ("stop", A) in told(found)
    found = [each for _ in range(50) for each in better.look({A: 6_000}, 1) + better.look({A: 100}, 2)]
    assert ("stop", A) not in told(found)


def test_an_agent_that_stood_still_saw_nothing_meanwhile() -> None:
    """One look after an hour is no hour above the share."""
    watch = Watch()
    watch.look({A: 6_000})
    watch.second += 3600
    assert watch.look({A: 6_000}) == []


def test_a_finished_run_is_forgotten() -> None:
    """The next one on the GPU starts without history."""
    watch = Watch()
    watch.look({A: 6_000}, 9)
    watch.shares = (Share(B, "g", 5_000),)
    watch.look({})
    watch.shares = (Share(A, "g", 5_000),)
    assert told(watch.look({A: 6_000}, 5)) == [("warn", A)]


@given(st.lists(st.fixed_dictionaries({key: st.integers(0, 16_000) for key in (A, B, C)}), max_size=80))
def test_only_an_offender_is_stopped_and_never_without_a_warning(history: list[dict[RunKey, int]]) -> None:
    """For any history: a run that is warned or stopped exceeds its share at that moment, and the warning precedes the
    stop."""
    watch, warned = Watch(), set[RunKey]()
    stopped: list[RunKey] = []
    for used in history:
        for what, key in told(watch.look(used)):
            assert used[key] > 5_000
            warned |= {key} if what == "warn" else set()
            assert key in warned
            stopped += [key] if what == "stop" else []
    assert len(stopped) == len(set(stopped))


def test_uses_are_summed_over_a_runs_processes() -> None:
    """By GPU; a process without a run counts for no run, and an unknown use counts as nothing."""
    processes = [
        GpuProcess(uuid="g", pid=1, memory_mib=100, utilization_pct=70),
        GpuProcess(uuid="g", pid=2, memory_mib=50, utilization_pct=60),
        GpuProcess(uuid="g", pid=3, memory_mib=9_000),
        GpuProcess(uuid="h", pid=1),
    ]
    assert uses(processes, {1: A, 2: A}) == {(A, "g"): GpuUse(150, 100), (A, "h"): GpuUse(0, 0)}


def test_only_shares_that_hardware_does_not_mark_off_are_guarded() -> None:
    """Not whole GPUs, not MIG instances, not what does not run."""
    orders = {
        A: order("7", "true", gpus=("g",), gpu_milli=300, gpu_memory_mib=5_000),
        B: order("8", "true", gpus=("g",)),
        C: order("9", "true", gpus=("g",), gpu_milli=142, gpu_memory_mib=5_000, instances=("MIG-1",)),
    }
    assert shares(orders, {A, B, C}) == [Share(A, "g", 5_000)]
    assert shares(orders, {B}) == []


def test_neighbours_are_no_evidence_that_a_share_is_busy() -> None:
    """Its own processes are, and those without a run."""
    processes = [GpuProcess(uuid="g", pid=pid) for pid in (1, 2, 3)] + [GpuProcess(uuid="h", pid=4)]
    owners = {1: A, 2: B}
    assert left_behind(A, ["g"], processes, owners, {B}) == {"g": "processes of 7.1.0 on it: 1, 3"}
    assert left_behind(A, ["g"], processes[1:2], owners, {B}) == {}
