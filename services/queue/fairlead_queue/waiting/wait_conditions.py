"""Times that the queue waits for, each kind in a list of its own, earliest first; and jobs that wait for the end of
another job. Called by `evolve` only.

    timers     (Unix ns, job)    starts, delays and time limits: `Job.timer_ns`
    deadlines  (Unix ns, job)    when a job can no longer meet its own: `Job.alarm_ns`
    ages       (Unix ns, job)    when the priority of a job in line rises: `Job.ages_ns`
    marks      (Unix ns, queue)  when the mark of a budget may be another one: `Account.due_ns`

All times are derived from the jobs and accounts.

Derived from `Job.after`; called by `evolve` only.
"""

from bisect import bisect_left, insort

from fairlead_queue.fairness.budgets import Account
from fairlead_queue.fairness.waiting_line import priority_of
from fairlead_queue.waiting.pending import LiveJob
from fairlead_schemas.units.ids import PRIORITY_MAX

type Times = list[tuple[int, str]]


class Due:
    """All times that something waits for; an entry of 0 ns does not exist."""

    def __init__(self) -> None:
        self.timers: Times = []
        self.deadlines: Times = []
        self.ages: Times = []
        self.marks: Times = []

    def set_timer(self, job: LiveJob, at_ns: int) -> None:
        """Set the time for which the job, or its run, waits instead of another."""
        self.drop_timer(job)
        job.timer_ns = at_ns
        insort(self.timers, (at_ns, job.id))

    def drop_timer(self, job: LiveJob) -> None:
        """Forget the time it waits for, if any."""
        if job.timer_ns:
            _take(self.timers, job.timer_ns, job.id)
            job.timer_ns = 0

    def set_deadline(self, job: LiveJob, deadline_ns: int) -> None:
        """Set the time by which the job shall have ended (0: no deadline)."""
        job.deadline_ns = deadline_ns
        self.set_alarm(job)

    def set_alarm(self, job: LiveJob) -> None:
        """From when on its deadline is missed: while it waits, when too little time is left to run; else at the deadline
        itself. To be called when that has changed."""
        if job.alarm_ns:
            _take(self.deadlines, job.alarm_ns, job.id)
            job.alarm_ns = 0
        if job.deadline_ns:
            has_place = job.id in job.lane.running
            job.alarm_ns = job.deadline_ns if has_place else job.deadline_ns - max(0, job.total_ns - job.used_ns)
            insort(self.deadlines, (job.alarm_ns, job.id))

    def begin_to_age(self, job: LiveJob) -> None:
        """Set the time at which the priority of a job in line rises, if its pool lets priorities rise with time."""
        ageing = job.lane.request_class.pool.settings.ageing
        assert ageing is not None
        if job.aged < ageing.most and priority_of(job.order) < PRIORITY_MAX:
            job.ages_ns = job.since_ns + (job.aged + 1) * ageing.every_ns
            insort(self.ages, (job.ages_ns, job.id))

    def age_no_more(self, job: LiveJob) -> None:
        """Keep the job's priority as it is, for now."""
        if job.ages_ns:
            _take(self.ages, job.ages_ns, job.id)
            job.ages_ns = 0

    def discard_age(self, job: LiveJob) -> None:
        """Forget when the priority of a job rises, if that was noted."""
        entry = (job.ages_ns, job.id)
        at = bisect_left(self.ages, entry)
        if at < len(self.ages) and self.ages[at] == entry:
            del self.ages[at]
        job.ages_ns = 0

    def await_mark(self, account: Account, now_ns: int) -> None:
        """Schedule the account's next budget mark, after a change of what the account counts."""
        self.drop_mark(account)
        account.due_ns = account.next_ns(now_ns) or 0
        if account.mark(now_ns) != account.reached:
            account.due_ns = now_ns
        if account.due_ns:
            insort(self.marks, (account.due_ns, account.path))

    def drop_mark(self, account: Account) -> None:
        """Drop the account's due mark."""
        if account.due_ns:
            _take(self.marks, account.due_ns, account.path)
            account.due_ns = 0


def _take(times: Times, at_ns: int, name: str) -> None:
    del times[bisect_left(times, (at_ns, name))]


class Dependents:
    """{job: the jobs that wait for its end}."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, LiveJob]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def of(self, ended: str) -> list[LiveJob]:
        """Return the jobs that wait for this job's end."""
        return list(self._waiting.get(ended, {}).values())

    def add(self, job: LiveJob) -> None:
        """Register that the job waits for the ends of the jobs in `after`."""
        for other in job.after or ():
            self._waiting.setdefault(other, {})[job.id] = job

    def drop(self, job: LiveJob) -> None:
        """Register that the job waits for no other job's end any more."""
        for other in list(job.after or ()):
            self.drop_one(job, other)
        job.after = None

    def drop_one(self, job: LiveJob, other: str) -> None:
        """Register that the job no longer waits for the end of `other`."""
        assert job.after is not None
        del job.after[other]
        waiting = self._waiting[other]
        del waiting[job.id]
        if not waiting:
            del self._waiting[other]
