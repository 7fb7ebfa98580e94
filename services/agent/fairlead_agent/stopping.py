"""How one run is brought to its end: notice, TERM, grace, KILL. Pure; times are monotonic nanoseconds.

Every stop goes this way, whoever wants it: a preemption, a slice that is over, a drain, a job that is moved, a time
limit, a cancel. Only how long the notice is differs: none for a cancel (unless it was asked for), for a job that
would not be told, and for one that has not started. A fence shortens all of it to what the placer waits for.
"""

from fairlead_agent.run import Word
from fairlead_schemas.events import RunOutcome

SECOND_NS = 1_000_000_000
#: What a fenced node's runs have, from notice to KILL: the placer counts on it (sources.py there).
FENCE_GRACE_NS = 30 * SECOND_NS
#: What uses more of a GPU than its share has no longer than this between TERM and KILL: its neighbours wait for it.
SHARE_GRACE_NS = 10 * SECOND_NS
#: An order that has not begun after so long is given up; images of a hundred gigabytes take their time.
START_NS = 3600 * SECOND_NS
#: A kill that has not worked is tried again this often.
KILL_AGAIN_NS = 10 * SECOND_NS


class Stopping:
    """One run on its way out. Whatever exit code it ends with from here on, its end is `outcome`."""

    __slots__ = ("_before", "fenced", "grace_ns", "kill_at", "message", "outcome", "term_at")

    def __init__(self, outcome: RunOutcome, grace_ns: int, now: int, notice_ns: int = 0, message: str = "") -> None:
        self.outcome: RunOutcome = outcome
        #: Why, in place of what the program's end would say.
        self.message = message
        #: Its end was brought forward by a fence.
        self.fenced = False
        self.grace_ns = grace_ns
        #: When its notice is over; None: it had none, or TERM was sent.
        self.term_at = now + notice_ns if notice_ns else None
        self.kill_at = now + notice_ns + grace_ns
        #: The word that was there when it was told; None: it was not told yet.
        self._before: int | None = None

    @property
    def in_notice(self) -> bool:
        """It may still go on with its work."""
        return self.term_at is not None

    @property
    def wake_at(self) -> int:
        """When the next step is due."""
        return self.kill_at if self.term_at is None else self.term_at

    def told(self, stamp: int) -> None:
        """It is told now; a word other than this one answers that."""
        self._before = stamp

    def is_answered_by(self, word: Word) -> bool:
        """Whether the word was said after the notice, which is over with it."""
        return self.in_notice and self._before is not None and word.stamp != self._before

    def terminate(self, now: int) -> None:
        """TERM goes out now; grace begins."""
        self.term_at, self.kill_at = None, now + self.grace_ns

    def killed(self, now: int) -> None:
        """KILL goes out now, and again where it does not work."""
        self.kill_at = now + KILL_AGAIN_NS

    def fence(self, now: int, room_ns: int = FENCE_GRACE_NS) -> bool:
        """The node is cut off: its end comes within `room_ns`. True where TERM is due at once for that."""
        self.fenced = True
        hurried = self.term_at is not None and self.term_at + self.grace_ns > now + room_ns
        self.grace_ns = min(self.grace_ns, room_ns)
        if hurried:
            self.terminate(now)
        self.kill_at = min(self.kill_at, now + room_ns)
        return hurried


def fenced_times(notice_ns: int, grace_ns: int, room_ns: int = FENCE_GRACE_NS) -> tuple[int, int]:
    """(notice, grace) of a run that a fence ends: both within `room_ns`, and half of it for the grace."""
    notice_ns = min(notice_ns, room_ns // 2)
    return notice_ns, min(grace_ns, room_ns - notice_ns)
