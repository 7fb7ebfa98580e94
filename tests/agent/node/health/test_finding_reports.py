"""From findings to reports: nothing flaps, and a GPU comes back on the evidence that its fault asks for."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead_agent.node.health.checks import HealthFinding
from fairlead_agent.node.health.finding_reports import HOLDS, USUAL, Change, HealthWatch
from fairlead_schemas.units.timestamps import MINUTE_NS, SECOND_NS

HOT = HealthFinding("g0", "thermal", "91 C")
FULL = HealthFinding("", "disk_full", "3 %")


def test_heat_is_reported_after_five_minutes_and_over_after_five() -> None:
    """A short break restarts either time."""
    watch = HealthWatch("b1", {})
    for minute in range(5):
        assert watch.look([HOT], minute * MINUTE_NS) == []
    assert watch.look([HOT], 5 * MINUTE_NS) == [Change("g0", "thermal", "91 C")]
    assert watch.look([HOT], 6 * MINUTE_NS) == []
    for minute in (7, 8, 11):
        assert watch.look([], minute * MINUTE_NS) == []
    assert watch.look([HOT], 11 * MINUTE_NS) == []
    assert watch.look([], 12 * MINUTE_NS) == []
    assert watch.look([], 17 * MINUTE_NS) == [Change("g0", "")]


def test_heat_that_pauses_is_never_reported() -> None:
    """Four minutes on, a look without it: the five begin again."""
    watch = HealthWatch("b1", {})
    for minute in range(60):
        assert watch.look([HOT] if minute % 5 else [], minute * MINUTE_NS) == []


def test_a_full_disk_closes_at_once_and_opens_after_a_minute_with_room() -> None:
    """A fault of the node itself: its code is reported as over by name."""
    watch = HealthWatch("b1", {})
    assert watch.look([FULL], 0) == [Change("", "disk_full", "3 %")]
    assert watch.look([], 10 * SECOND_NS) == []
    assert watch.look([], 70 * SECOND_NS) == [Change("", "disk_full", over=True)]


def test_the_gravest_fault_of_a_gpu_is_reported() -> None:
    """A lighter one is reported when the graver one is over; the last end is the GPU's health."""
    watch = HealthWatch("b1", {})
    pending = HealthFinding("g0", "remap_pending", "rows")
    assert watch.look([pending], 0) == [Change("g0", "remap_pending", "rows")]
    assert watch.xid("g0", 109, "NVRM", 1) == [Change("g0", "xid109", "NVRM")]
    assert watch.look([pending], 2) == []
    assert watch.tested("g0", "", 3) == [Change("g0", "remap_pending", "rows")]
    assert watch.look([], 4) == []
    assert watch.look([], 4 + USUAL.closes_ns) == [Change("g0", "")]


def test_an_xid_that_requires_a_boot_is_not_cleared_by_a_test() -> None:
    """Time does not clear it either; after a boot a passed test is enough."""
    watch = HealthWatch("b1", {})
    assert watch.xid("g0", 79, "off the bus", 0) == [Change("g0", "xid79", "off the bus")]
    assert watch.suspects == ()
    assert watch.tested("g0", "", 1) == [] == watch.look([], 10**18)
    booted = HealthWatch("b2", {("g0", "xid79"): "b1"})
    assert booted.suspects == ("g0",)
    assert booted.tested("g0", "wrong words", 2) == []  # what is said is graver
    assert booted.tested("g0", "", 3) == [Change("g0", "")]


def test_an_agent_that_was_restarted_in_the_same_boot_forgets_nothing() -> None:
    """Its journal says what was reported; only what a person must restore stays whatever is tested."""
    watch = HealthWatch("b1", {("g0", "xid79"): "b1", ("g1", "remap_failed"): "b0", ("", "disk_full"): "b1"})
    assert watch.tested("g0", "", 1) == [] == watch.tested("g1", "", 1)
    watch.look([], 0)
    assert watch.look([], 2 * MINUTE_NS) == [Change("", "disk_full", over=True)]


def test_a_repeated_xid_is_reported_again_but_not_in_a_storm() -> None:
    """A user may have restored the GPU meanwhile; the placer ignores a known fault."""
    watch = HealthWatch("b1", {})
    said = [watch.xid("g0", 95, "x", at * SECOND_NS) for at in range(130)]
    assert [at for at, each in enumerate(said) if each] == [0, 60, 120]


def test_more_errors_than_before_are_a_new_fault() -> None:
    """Also if a user has cleared the old one."""
    watch = HealthWatch("b1", {})
    two = HealthFinding("g0", "ecc_uncorrectable", "2", 2)
    assert watch.look([two], 0) == [Change("g0", "ecc_uncorrectable", "2")]
    assert watch.look([two], 1) == []
    assert watch.look([two._replace(mark=3, evidence="3")], 2) == [Change("g0", "ecc_uncorrectable", "3")]


def test_notes_change_nothing() -> None:
    """A program's own error."""
    watch = HealthWatch("b1", {})
    assert [watch.xid("g0", number, "x", 0) for number in (13, 31, 43, 45, 63, 94)] == [[]] * 6


def test_a_failed_test_is_over_when_one_passes() -> None:
    """A preflight is reported for the node itself."""
    watch = HealthWatch("b1", {})
    assert watch.tested("g0", "3 words were wrong", 0) == [Change("g0", "gpu_test", "3 words were wrong")]
    assert watch.tested("g0", "4 words were wrong", 1) == []
    assert watch.look([], 10**18) == []
    assert watch.tested("g0", "", 2) == [Change("g0", "")]
    assert watch.report("preflight", "too old", 0) == [Change("", "preflight", "too old")]
    assert watch.report("preflight", "too old", 1) == [] == watch.look([], 10**18)
    assert watch.report("preflight", "", 2) == [Change("", "preflight", over=True)]
    assert watch.report("preflight", "", 3) == []


CONDITIONS = [
    HOT,
    FULL,
    HealthFinding("g0", "remap_pending", "r"),
    HealthFinding("", "clock_step", "c"),
    HealthFinding("g1", "zombie_memory", "z"),
]


@given(st.lists(st.tuples(st.sets(st.sampled_from(CONDITIONS)), st.integers(1, 200)), max_size=60))
def test_reports_alternate_and_keep_their_distance(looks: list[tuple[set[HealthFinding], int]]) -> None:
    """For any history: a code opens and is over in turn; its time is between the two; a report for a GPU is never
    repeated."""
    watch, now_ns = HealthWatch("b1", {}), 0
    opened: dict[tuple[str, str], int] = {}
    said: dict[str, str] = {}
    for findings, seconds in looks:
        now_ns += seconds * SECOND_NS
        for change in watch.look(findings, now_ns):
            key = change.gpu, change.code
            if change.gpu:
                assert said.get(change.gpu, "") != change.code
                said[change.gpu] = change.code
            elif change.over:
                assert now_ns - opened.pop(key) >= HOLDS.get(change.code, USUAL).closes_ns
            else:
                assert key not in opened
                opened[key] = now_ns
    for _ in range(2):  # a good hour later all is well
        now_ns += 3600 * SECOND_NS
        for change in watch.look([], now_ns):
            said[change.gpu] = "" if change.gpu else said.get("", "")
            opened.pop((change.gpu, change.code), None)
    assert not opened and not any(said.values())
