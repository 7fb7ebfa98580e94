"""GPU time against a budget: exact from the log, settled lazily, in calendar periods of UTC.

The placer's clock alone measures it, because its commits record the start and end of each holding. Holdings of a queue
and those below it (from the placement until the run's end) count, in milli-GPU times the price of the model in
thousandths, times nanoseconds. A period begins again by the clock of the commits alone.
"""

from collections.abc import Mapping

from fairlead_schemas.queuefile.settings import Budget
from fairlead_schemas.units.timestamps import SECOND_NS, calendar_period

#: Marks at which the use of a budget is reported, in percent.
MARKS = (80, 100)
#: Of one milli-GPU-second of price 1.000, in the unit that is counted in: milli-GPU * thousandths * ns.
UNIT = 1000 * SECOND_NS


class Account:
    """Usage of one queue in the running period."""

    __slots__ = ("begin_ns", "budget", "due_ns", "end_ns", "path", "rate", "reached", "since_ns", "used")

    def __init__(self, path: str, budget: Budget, at_ns: int) -> None:
        self.path = path
        self.budget = budget
        self.begin_ns, self.end_ns = calendar_period(budget.period, at_ns)
        #: milli-GPU * thousandths that are held now, and what was used up to `since_ns`.
        self.rate = 0
        self.used = 0
        self.since_ns = at_ns
        #: The mark (percent) last reported in this period; 0: none.
        self.reached = 0
        #: When its mark may be another one, as of its last change (0: not by time alone).
        self.due_ns = 0

    @property
    def limit(self) -> int:
        """The whole budget in the unit of `used`."""
        return self.budget.gpu_milli_s * UNIT

    def is_spent(self, effect: str) -> bool:
        """Return True if the budget was reported as wholly used, and `effect` is its consequence."""
        return self.reached >= 100 and self.budget.when_spent == effect

    def settle(self, at_ns: int) -> None:
        """Count what is held up to a moment; a new period begins with nothing used."""
        if at_ns <= self.since_ns:  # clocks of commits never step back, so this is the same moment
            return
        if at_ns >= self.end_ns:
            self.begin_ns, self.end_ns = calendar_period(self.budget.period, at_ns)
            self.used, self.since_ns = 0, self.begin_ns
        self.used += self.rate * (at_ns - self.since_ns)
        self.since_ns = at_ns

    def at(self, now_ns: int) -> tuple[int, int]:
        """(begin of the period, used) at a moment not before the last settling; changes nothing."""
        if now_ns < self.end_ns:
            return self.begin_ns, self.used + self.rate * max(0, now_ns - self.since_ns)
        begin_ns, _ = calendar_period(self.budget.period, now_ns)
        return begin_ns, self.rate * (now_ns - begin_ns)

    def mark(self, now_ns: int) -> int:
        """The highest mark reached at a moment, in percent; 0: none."""
        _, used = self.at(now_ns)
        return max((mark for mark in MARKS if used * 100 >= self.limit * mark), default=0)

    def next_ns(self, now_ns: int) -> int | None:
        """The next moment after this one at which its mark may be another one; None: not while nothing changes."""
        if not self.reached and not self.rate:
            return None
        _, end_ns = calendar_period(self.budget.period, now_ns)
        _, used = self.at(now_ns)
        ahead = [mark for mark in MARKS if used * 100 < self.limit * mark]
        if not self.rate or not ahead:
            return end_ns
        missing = self.limit * ahead[0] - used * 100
        return min(end_ns, now_ns - -missing // (100 * self.rate))


def refusing_account(accounts: Mapping[str, Account], path: str) -> Account | None:
    """The budget of a queue, or of the nearest above it, that is spent and refuses."""
    while path:
        account = accounts.get(path)
        if account is not None and account.is_spent("refuse"):
            return account
        path = path.rpartition("/")[0]
    return None
