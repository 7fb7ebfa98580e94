"""Cohort of Kueue's baseline load as a model: the rules alone, exact in milliseconds, and no delays.

`python -m bench.kueue.model` prints what each rule costs. A queue may use its guarantee, and of the cohort whatever
no queue uses. In a queue the higher priority goes first, then the earlier submit; a job that does not fit is passed by.
Among queues the one that uses least goes first. A run that yields starts again from nothing. Pure except for the print.
"""

import heapq
import sys
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.kueue.schedule import GUARANTEED, QUEUES, Arrival, schedule

TOTAL = GUARANTEED * QUEUES
_SUBMITTED, _ENDED, _YIELDED, _LOOK = range(4)


class Rules(NamedTuple):
    """Rules that may differ."""

    #: May a job ask runs of lower priority in its queue to yield?
    lower: bool = True
    #: May a job within its queue's guarantee ask runs of queues that are beyond theirs?
    reclaim: bool = True
    #: So long a job waits before it asks.
    ask_after_ms: int = 1000
    #: So long a run is safe.
    protect_ms: int = 0
    #: So long a job within the guarantee waits before what is free is kept for it. None: without end.
    claim_after_ms: int | None = 0
    #: What comes free because a job asked is that job's, before everybody's turn.
    keep: bool = True
    #: Who yields first: "youngest", "cheapest" (fewest unit-milliseconds lost) or "oldest".
    victims: str = "youngest"
    #: From a submit, an end or a request to yield until a decision can count on it.
    delay_ms: int = 0


class Outcome(NamedTuple):
    """Result of the load."""

    took_ms: int  # first submit to last end
    yielded: int
    lost: int  # unit-milliseconds of work that yielded
    waits_ms: dict[int, int]  # {units: mean wait until the first start}


@dataclass(order=True)
class Job:
    """Job; compares by its position in the queue."""

    order: tuple[int, int, int] = field(init=False)
    number: int
    arrival: Arrival = field(compare=False)
    started_ms: int = field(default=-1, compare=False)
    waited_ms: int = field(default=-1, compare=False)
    attempt: int = field(default=0, compare=False)
    yielding: bool = field(default=False, compare=False)
    #: Runs that it asked and that have not gone yet.
    asked: int = field(default=0, compare=False)
    #: Its place among those who have asked; 0: it has not.
    turn: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        self.queue, self.units = self.arrival.queue, self.arrival.units
        self.order = (-self.arrival.priority, self.arrival.at_ms, self.number)


class Cohort:
    """Queues of a cohort, what runs and what waits. Times are milliseconds."""

    def __init__(self, rules: Rules, jobs: Sequence[Job]) -> None:
        self.rules = rules
        self.used = {job.queue: 0 for job in jobs}
        self.running: dict[str, list[Job]] = {queue: [] for queue in self.used}
        self.waiting: dict[str, list[Job]] = {queue: [] for queue in self.used}
        #: (time, number of the job, what happens, the job, its attempt), soonest first
        self.ahead: list[tuple[int, int, int, Job, int]] = []
        #: {number of a run that was asked to yield: who asked}
        self.asker: dict[int, Job] = {}
        self.now = self.asks = self.yielded = self.lost = self.over = 0
        for job in jobs:
            self._at(job.arrival.at_ms + rules.delay_ms, _SUBMITTED, job)

    def step(self) -> None:
        """Do everything of the next moment, then whatever can be decided."""
        self.now = self.ahead[0][0]
        while self.ahead and self.ahead[0][0] == self.now:
            _, _, what, job, attempt = heapq.heappop(self.ahead)
            if what == _SUBMITTED:
                insort(self.waiting[job.queue], job)
            elif what != _LOOK and job.attempt == attempt and job.started_ms >= 0:
                self._leave(job, over=what == _ENDED)
        while self._decide():
            pass
        assert sum(self.used.values()) <= TOTAL, f"{self.used} is more than {TOTAL}"

    def _at(self, time: int, what: int, job: Job) -> None:
        heapq.heappush(self.ahead, (time, job.number, what, job, job.attempt))

    def _decide(self) -> bool:
        """Start the first job that may start; True if there was one."""
        free = TOTAL - sum(self.used.values())
        for job in sorted((job for queue in self.used for job in self._firsts(queue)), key=self._turn):
            if job.units <= free:
                self._start(job)
                return True
            self._ask(job)
            if self._claims(job):
                free = max(0, free - job.units)
        return False

    def _firsts(self, queue: str) -> Iterator[Job]:
        """The first waiting job of each size: the others of its size cannot fit where it does not."""
        seen: set[int] = set()
        for job in self.waiting[queue]:
            if job.units not in seen:
                seen.add(job.units)
                yield job

    def _turn(self, job: Job) -> tuple[int, int, str, Job]:
        asked = job.turn if job.turn and self.rules.keep else sys.maxsize
        return asked, self.used[job.queue], job.queue, job

    def _start(self, job: Job) -> None:
        self.waiting[job.queue].remove(job)
        self.running[job.queue].append(job)
        self.used[job.queue] += job.units
        job.attempt, job.started_ms, job.turn = job.attempt + 1, self.now, 0
        if job.waited_ms < 0:
            job.waited_ms = self.now - job.arrival.at_ms
        self._at(self.now + job.arrival.duration_ms + self.rules.delay_ms, _ENDED, job)

    def _leave(self, job: Job, *, over: bool) -> None:
        self.used[job.queue] -= job.units
        self.running[job.queue].remove(job)
        if (asker := self.asker.pop(job.number, None)) is not None:
            asker.asked -= 1
        if over:
            self.over += 1
        else:
            self.yielded += 1
            self.lost += job.units * (self.now - job.started_ms)
            insort(self.waiting[job.queue], job)
        job.started_ms, job.yielding = -1, False

    def _claims(self, job: Job) -> bool:
        after = self.rules.claim_after_ms
        if job.turn and self.rules.keep:
            return True
        return after is not None and self.used[job.queue] + job.units <= GUARANTEED and self._has_waited(job, after)

    def _has_waited(self, job: Job, after: int) -> bool:
        due = job.arrival.at_ms + after
        if self.now < due:
            self._at(due, _LOOK, job)
        return self.now >= due

    def _ask(self, job: Job) -> None:
        """Ask as few runs as make room, if there are such; not again until they have gone."""
        if job.asked or not self._has_waited(job, self.rules.ask_after_ms):
            return
        victims = self._victims(job, job.units - (TOTAL - sum(self.used.values())))
        if victims:
            self.asks += 1
            job.turn, job.asked = job.turn or self.asks, len(victims)
        for victim in victims:
            victim.yielding, self.asker[victim.number] = True, job
            self._at(self.now + self.rules.delay_ms, _YIELDED, victim)

    def _victims(self, job: Job, lacking: int) -> list[Job]:
        """Runs that free at least `lacking` units, none of them needless; none if there are not enough."""
        victims: list[Job] = []
        used = dict(self.used)
        for run in sorted(self._may_yield(job), key=self._cost):
            if lacking > 0 and (run.queue == job.queue or used[run.queue] > GUARANTEED):
                victims.append(run)
                lacking -= run.units
                used[run.queue] -= run.units
        if lacking > 0:
            return []
        for run in [*victims]:
            if lacking + run.units <= 0:
                victims.remove(run)
                lacking += run.units
        return victims

    def _may_yield(self, job: Job) -> Iterator[Job]:
        within = self.used[job.queue] + job.units <= GUARANTEED
        for queue, runs in self.running.items():
            own = queue == job.queue
            if self.rules.lower if own else self.rules.reclaim and within and self.used[queue] > GUARANTEED:
                for run in runs:
                    safe = run.yielding or self.now - run.started_ms < self.rules.protect_ms
                    if not safe and (not own or run.arrival.priority < job.arrival.priority):
                        yield run

    def _cost(self, run: Job) -> tuple[int, int]:
        ran = self.now - run.started_ms
        return {"youngest": ran, "oldest": -ran, "cheapest": ran * run.units}[self.rules.victims], run.number


def outcome(arrivals: Sequence[Arrival], rules: Rules) -> Outcome:
    """Play one cohort's arrivals, which are in order of time."""
    jobs = [Job(number, arrival) for number, arrival in enumerate(arrivals)]
    cohort = Cohort(rules, jobs)
    while cohort.over < len(jobs):
        cohort.step()
    waits = {units: [job.waited_ms for job in jobs if job.units == units] for units in sorted({j.units for j in jobs})}
    means = {units: sum(found) // len(found) for units, found in waits.items()}
    return Outcome(cohort.now - jobs[0].arrival.at_ms, cohort.yielded, cohort.lost, means)


VARIANTS: dict[str, Rules] = {
    "no run yields, nothing is kept": Rules(lower=False, reclaim=False, claim_after_ms=None),
    "no run yields, claims at once": Rules(lower=False, reclaim=False),
    "reclaim alone, asked at once": Rules(lower=False, ask_after_ms=0),
    "lower priority alone, asked at once": Rules(reclaim=False, ask_after_ms=0),
    "both, asked at once, youngest first": Rules(ask_after_ms=0),
    "both, asked at once, cheapest first": Rules(ask_after_ms=0, victims="cheapest"),
    "both, asked at once, oldest first": Rules(ask_after_ms=0, victims="oldest"),
    "both, asked at once, no claims": Rules(ask_after_ms=0, claim_after_ms=None),
    "both, asked at once, safe for 500 ms": Rules(ask_after_ms=0, protect_ms=500),
    "both, asked after 250 ms": Rules(ask_after_ms=250),
    "both, asked after 500 ms": Rules(ask_after_ms=500),
    "both, asked after 1 s": Rules(),
    "both, asked and claimed after 5 s": Rules(ask_after_ms=5000, claim_after_ms=5000),
    # Without a delay these two would never end: the run that yields is back before the job that asked.
    "both, asked at once, nothing kept": Rules(ask_after_ms=0, claim_after_ms=None, keep=False, delay_ms=20),
    "both, asked after 500 ms, nothing kept": Rules(ask_after_ms=500, claim_after_ms=None, keep=False, delay_ms=20),
}
DELAYS_MS = (0, 20, 50, 100)


def main() -> None:
    """Print what each rule costs."""
    arrivals = schedule(cohorts=1)
    print("| rules | decisions late by | took | runs that yielded | unit-seconds lost | mean wait, 1 / 5 / 20 units |")
    print("|---|---|---|---|---|---|")
    for name, rules in VARIANTS.items():
        for delay_ms in (delay_ms for delay_ms in DELAYS_MS if delay_ms >= rules.delay_ms):
            found = outcome(arrivals, rules._replace(delay_ms=delay_ms))
            waits = " / ".join(f"{wait_ms / 1000:.1f} s" for wait_ms in found.waits_ms.values())
            print(
                f"| {name} | {delay_ms} ms | {found.took_ms / 1000:.1f} s | {found.yielded:,} | "
                f"{found.lost / 1000:.0f} | {waits} |"
            )


if __name__ == "__main__":
    main()
