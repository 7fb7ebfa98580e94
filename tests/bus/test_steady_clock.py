"""Log time under steps of the wall clock: it does not fall or jump, and returns in the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_bus.log_time import CREEP, STEP_NS, STEPS_MAX, ClockStep, SteadyClock, boottime_ns
from fairlead_schemas.units.timestamps import HOUR_NS, SECOND_NS

EPOCH_NS = 1_735_689_600 * SECOND_NS


class Machine:
    """A wall clock and a boot's clock that a test moves, and the log time of a writer on that machine."""

    def __init__(self) -> None:
        self.wall_ns, self.boot_ns = EPOCH_NS, 50 * SECOND_NS
        self.clock = SteadyClock(lambda: self.wall_ns, lambda: self.boot_ns)
        self.clock.now()

    def run(self, seconds: float) -> int:
        """Let time pass; return log time."""
        passed_ns = int(seconds * SECOND_NS)
        self.wall_ns, self.boot_ns = self.wall_ns + passed_ns, self.boot_ns + passed_ns
        return self.clock.now()

    def step(self, seconds: float) -> None:
        """Set the wall clock."""
        self.wall_ns += int(seconds * SECOND_NS)


def test_without_steps_log_time_is_the_wall_clock() -> None:
    """Nothing is lost or added, and nothing is recorded."""
    machine = Machine()
    for seconds in (0.001, 1, 30, 86_400):
        assert machine.run(seconds) == machine.wall_ns
    assert machine.clock.steps() == []


@pytest.mark.parametrize("hours", [1, -1])
def test_an_hour_that_comes_and_goes_within_seconds_changes_nothing(hours: int) -> None:
    """After 6 s with a wall clock one hour off, log time has run for 6 s, give or take one part in CREEP; each
    change of the wall clock is recorded once."""
    machine = Machine()
    machine.step(hours * 3600)
    seen = [machine.run(0.5) for _ in range(12)]
    assert abs(seen[-1] - EPOCH_NS - 6 * SECOND_NS) == 6 * SECOND_NS // CREEP
    assert seen == sorted(set(seen))
    machine.step(-hours * 3600)
    machine.run(60)
    assert machine.clock.now() == machine.wall_ns
    first, second = machine.clock.steps()
    assert (first.step_ns, second.step_ns) == (hours * HOUR_NS, -hours * HOUR_NS)
    assert first.lag_ns == hours * (HOUR_NS - SECOND_NS // 2 // CREEP) + (hours * SECOND_NS // 2 // CREEP)
    assert abs(second.lag_ns) == 6 * SECOND_NS // CREEP


@pytest.mark.parametrize("hours", [1, -1])
def test_a_step_that_stays_is_crept_to(hours: int) -> None:
    """An hour is made up for within 100 hours, and log time then is the wall clock again."""
    machine = Machine()
    machine.step(hours * 3600)
    for _ in range(99):
        machine.run(3600)
    assert machine.clock.lag_ns == hours * HOUR_NS // CREEP
    assert machine.run(3600) == machine.wall_ns
    assert [each.step_ns for each in machine.clock.steps()] == [hours * HOUR_NS]
    machine.step(hours * 3600)
    machine.run(1)
    assert [each.step_ns for each in machine.clock.steps()] == [hours * HOUR_NS], "the next one counts from there"


def test_corrections_of_up_to_five_seconds_are_crept_to_unrecorded() -> None:
    """NTP sets a clock by a few seconds now and then; only what adds up to more than that is a step."""
    machine = Machine()
    machine.step(4)
    assert machine.run(100) == EPOCH_NS + 101 * SECOND_NS
    machine.run(600)
    machine.step(4)
    machine.run(1)
    assert machine.clock.steps() == []
    machine.step(4)
    machine.run(1)
    assert [each.step_ns for each in machine.clock.steps()] == [8 * SECOND_NS]


def test_log_time_does_not_follow_an_untrusted_wall_clock() -> None:
    """Until it is trusted, log time runs by the boot's clock alone; later it is slewed to as usual."""
    machine = Machine()
    machine.clock.is_trusted = False
    machine.step(3600)
    assert machine.run(1000) == EPOCH_NS + 1000 * SECOND_NS
    machine.clock.is_trusted = True
    assert machine.run(1000) == EPOCH_NS + 2010 * SECOND_NS


def test_log_time_never_goes_below_a_log_that_is_ahead() -> None:
    """Log time continues from the newest commit, however far ahead that is, and lets the wall clock catch up."""
    machine = Machine()
    machine.clock.resume(EPOCH_NS + HOUR_NS, 0)
    assert machine.clock.now() == EPOCH_NS + HOUR_NS
    assert machine.run(100) == EPOCH_NS + HOUR_NS + 99 * SECOND_NS
    machine.clock.resume(EPOCH_NS + 2 * HOUR_NS, -5)
    assert machine.clock.now() == EPOCH_NS + 2 * HOUR_NS, "a server whose clock was set back measures nothing"


def test_a_new_process_continues_the_slew() -> None:
    """A restart is no step: the previous process's target remains."""
    machine = Machine()
    machine.step(3600)
    machine.clock = SteadyClock(lambda: machine.wall_ns, lambda: machine.boot_ns)
    machine.clock.resume(EPOCH_NS, 10 * SECOND_NS)
    assert machine.clock.now() == EPOCH_NS + 10 * SECOND_NS
    assert machine.run(100) == EPOCH_NS + 111 * SECOND_NS
    assert machine.clock.steps() == []


def test_unused_steps_are_bounded() -> None:
    """A clock that is set again and again fills no memory, and no distance is lost."""
    machine = Machine()
    for _ in range(3 * STEPS_MAX):
        machine.step(60)
        machine.run(1)
    steps = machine.clock.steps()
    assert len(steps) == STEPS_MAX
    assert sum(each.step_ns for each in steps) == 3 * STEPS_MAX * 60 * SECOND_NS


@given(
    st.lists(st.tuples(st.floats(0, 600), st.one_of(st.just(0.0), st.floats(-86_400, 86_400))), min_size=1, max_size=40)
)
def test_log_time_keeps_the_boots_pace(moves: list[tuple[float, float]]) -> None:
    """For any moves of the wall clock, log time passes within one part in CREEP of the boot's time."""
    machine = Machine()
    for passed_s, step_s in moves:
        before_ns, boot_ns = machine.clock.now(), machine.boot_ns
        machine.step(step_s)
        after_ns = machine.run(passed_s)
        passed_ns = machine.boot_ns - boot_ns
        assert abs(after_ns - before_ns - passed_ns) <= passed_ns // CREEP
        assert all(abs(each.step_ns) > STEP_NS for each in machine.clock.steps())


def test_the_boots_clock_only_rises() -> None:
    """The default is a clock of this machine that is never set."""
    first, second = boottime_ns(), boottime_ns()
    assert 0 < first <= second
    assert isinstance(ClockStep(1, 2), tuple)
