"""A story of jobs that change their queue, wait for others, or stop and wait again."""

from fairlead_schemas.queuefile.settings import QueueSettings
from fairlead_schemas.wire import events as ev
from tests.telemetry.story import Story, ended, joined, offered, placed, started, submitted


def afternoon() -> Story:
    """Queue b goes and its jobs with it, comes back, and goes again; others are moved by people."""
    s = Story()
    s.at(0, *(ev.QueueConfigured(cause="cmd:q", path=path) for path in "abcd"))
    limited = QueueSettings(maximum={"gpu": 6000, "cpu": 9000})
    s.at(0, ev.QueueConfigured(cause="cmd:q", path="a", settings=limited))
    s.at(1, joined("n1", gpus=8))
    # 1 is moved to b before that goes; 2 ends in b before; 3 is an array, of which one element has ended in b.
    s.at(
        10,
        submitted("1", queue="a"),
        submitted("2", queue="b"),
        submitted("3", queue="b", array=(0, 1)),
        offered("2"),
        offered("3_0"),
    )
    s.at(
        11,
        placed("2", n1=1),
        placed("3_0", n1=1),
        started("2"),
        started("3_0"),
        ended("2", released=("n1",)),
        ended("3_0", released=("n1",)),
    )
    s.at(12, *(ev.JobSucceeded(cause="4.4", job=job, attempt=1) for job in ("2", "3_0")))
    s.at(13, ev.JobMoved(cause="cmd:m", job="1", queue="b", by="ada"))
    s.at(14, ev.QueueRemoved(cause="cmd:r", path="b", move_to="c"), offered("3_1"))
    # b is there again: 4 waits in it, for 1, and 5 for 2, which has succeeded already.
    s.at(20, ev.QueueConfigured(cause="cmd:q", path="b"))
    s.at(
        21,
        submitted("4", queue="b", after=(ev.Dependency(job="1"),)),
        submitted("5", queue="b", after=(ev.Dependency(job="2", state="ended"),)),
    )
    s.at(22, submitted("6", queue="b", after=(ev.Dependency(job="2", state="failed"),)))
    # 7 runs in d, must give back what it has, waits again, is moved to b, which goes, and runs in a.
    s.at(30, submitted("7", gpus=2, queue="d"), offered("7"))
    s.at(31, placed("7", n1=2), started("7"))
    s.at(3631, ev.JobStopRequested(cause="clock", job="7", attempt=1, reason="reclaimed", by="ada"))
    s.at(3631, ended("7", exit_code=None, outcome="stopped", signal=15, released=("n1",)))
    s.at(3632, ev.JobRequeued(cause="12.0", job="7", attempt=2, reason="preempted"))
    s.at(3633, ev.JobMoved(cause="cmd:m", job="7", queue="b", by="ada"))
    s.at(3634, ev.QueueRemoved(cause="cmd:r", path="b", move_to="a"))
    return s


def again() -> Story:
    """And 7 has its place for the second time."""
    s = afternoon()
    s.at(3640, offered("7", 2))
    s.at(3641, placed("7", 2, n1=2))
    return s
