"""The agenda of the idle core: the runs to look at, and an exception between any two of its steps."""

from fairlead_telemetry.idle.decide.decision import ReviewSchedule
from tests.cores.injection import Injected, Injector

JOBS = ("a", "b", "c")
DUE_NS, LATER_NS = 10, 20


def filled() -> ReviewSchedule:
    """An agenda of three runs, all of them due at one moment; the moment of one of them has been moved before."""
    agenda = ReviewSchedule()
    agenda.settled("b", DUE_NS - 1)
    for job in JOBS:
        agenda.settled(job, DUE_NS)
    return agenda


def interrupted_at(call: int, injector: Injector) -> tuple[ReviewSchedule, bool]:
    """An agenda whose runs were woken and settled up to a call that raised; whether any did."""
    agenda = filled()
    try:
        with injector.armed(call):
            agenda.wake(DUE_NS)
            for job in JOBS:
                agenda.settled(job, LATER_NS)
    except Injected:
        return agenda, True
    return agenda, False


def test_an_exception_loses_no_moment() -> None:
    """After one at any call, the runs are looked at again or their next moment is known; once they are settled, each is
    woken at that moment."""
    call = 0
    with Injector() as injector:
        while True:
            call += 1
            agenda, raised = interrupted_at(call, injector)
            agenda.wake(DUE_NS)
            for job in list(agenda.looks):
                agenda.settled(job, LATER_NS)
            assert agenda.next_ns() == LATER_NS, f"after call {call}"
            agenda.wake(LATER_NS)
            assert sorted(agenda.looks) == list(JOBS), f"after call {call}"
            if not raised:
                break
    assert call > len(JOBS)
