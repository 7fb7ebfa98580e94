"""Backfill never delays a reserved start: random small clusters, simulated to the end, in which limits are kept. Every
run ends by its limit at the latest, a run without one never ends, and ranks take time to start. Then the job with the
reservation starts no later than each promised start, and no later than in the same world without later jobs."""

from heapq import heappop, heappush
from typing import NamedTuple

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from fairlead_placer.cluster.entities import run_key
from fairlead_placer.cluster.timeline.run_ends import SETTLE_NS, START_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request
from tests.kit.placer_world import SECOND, PlacerWorld, request
from tests.placer.reserved_nodes import claim

GRACE_NS = 5 * SECOND
MINUTE = 60


class Small(NamedTuple):
    """A job that comes `at_s` after the claim; its limit (0: none), and how much of it and of the time to start it takes
    (percent)."""

    at_s: int
    wanted: Request
    limit_s: int
    lasts: int
    starts: int


class Play:
    """A world, and agents that start and end what is placed."""

    def __init__(self, nodes: list[int]) -> None:
        self.world = PlacerWorld()
        for at, gpus in enumerate(nodes):
            self.world.join("abcd"[at], gpus, cpu=16, labels={"fairlead/rack": "r1" if at < 2 else "r2"})
        self.jobs: dict[str, Small] = {}
        self.due: list[tuple[int, str, str, int, str]] = []  # (when, start | exit, job, rank, node)
        self.big = ""
        #: When the big job was placed (0: not yet), every start that was said, and those who were guests.
        self.began_ns = 0
        self.said: list[int] = []
        self.guests = 0

    def come(self, small: Small) -> str:
        """A job is submitted and offered."""
        events = self.world.submitted(small.wanted, limit_s=small.limit_s)
        self.jobs[events[0].job] = small
        self.heed(self.world.queue(*events))
        return events[0].job

    def heed(self, events: list[ev.Event]) -> None:
        """Plan the starts of what was placed."""
        world = self.world
        for event in events:
            if isinstance(event, ev.ReservationMade) and event.start_ns and event.basis == "limits":
                self.said.append(event.start_ns)
            if not isinstance(event, ev.JobPlaced):
                continue
            self.guests += bool(event.guest_of)
            if event.job == self.big:
                self.began_ns = world.now
            for rank, part in enumerate(event.parts):
                after_ns = START_NS * self.jobs[event.job].starts * (rank + 1) // (100 * len(event.parts))
                heappush(self.due, (world.now + after_ns, "start", event.job, rank, part.node))

    def run_until(self, until_ns: int) -> None:
        """Starts and ends as they are due, and the placer's own wakes."""
        world = self.world
        while True:
            wake_ns = world.core.wake_at()
            next_ns = min([at for at, *_ in self.due[:1]] + ([wake_ns] if wake_ns else []), default=until_ns)
            if next_ns >= until_ns or self.began_ns:
                break
            world.now = max(world.now, next_ns)
            if self.due and self.due[0][0] <= world.now:
                self._happens(*heappop(self.due)[1:])
            else:
                self.heed(world.step())
        world.now = max(world.now, until_ns)

    def _happens(self, what: str, job: str, rank: int, node: str) -> None:
        world = self.world
        if what == "exit":
            self.heed(world.exit(node, job, rank))
            return
        self.heed(world.start(node, job, rank))
        run, small = world.core.state.runs[run_key(job, 1)], self.jobs[job]
        if run.started != run.all_ranks or not small.limit_s:
            return
        lasts_ns = (small.limit_s * SECOND + GRACE_NS + SETTLE_NS) * small.lasts // 100
        for each, part in enumerate(run.parts):
            heappush(self.due, (world.now + lasts_ns, "exit", job, each, part.node))


def played(nodes: list[int], early: list[Small], big: Request, later: list[Small]) -> Play:
    """Simulate the early jobs, the job with the reservation, and the later jobs."""
    play = Play(nodes)
    for small in early:
        play.come(small)
    play.run_until(play.world.now + 2 * START_NS)
    play.big = play.come(Small(0, big, 0, 100, 0))
    if play.began_ns:
        return play
    play.heed(play.world.queue(claim(play.big)))
    begin_ns = play.world.now
    for small in sorted(later, key=lambda small: small.at_s):
        play.run_until(begin_ns + small.at_s * SECOND)
        if play.began_ns:
            return play
        play.come(small)
    play.run_until(begin_ns + 30 * 86_400 * SECOND)
    return play


def smalls(limits: list[int], lasts: st.SearchStrategy[int], units: int = 2) -> st.SearchStrategy[Small]:
    wanted = st.builds(
        request, st.sampled_from([0, 1, 1, 2, 4]), nodes=st.sampled_from([1, 1, units]), cpu=st.integers(0, 5)
    )
    return st.builds(
        Small, st.integers(0, 90 * MINUTE), wanted, st.sampled_from(limits), lasts, st.sampled_from([0, 50, 100])
    )


clusters = st.lists(st.sampled_from([2, 4, 4, 8]), min_size=1, max_size=4)
there = [20 * MINUTE, 60 * MINUTE, 90 * MINUTE, 240 * MINUTE]
bigs = st.builds(
    request,
    st.sampled_from([2, 3, 4, 8]),
    nodes=st.sampled_from([1, 1, 2]),
    cpu=st.integers(1, 12),
    require=st.sampled_from([(), (), ("rack",)]),
)
always = st.just(100)


@pytest.mark.slow
@given(
    clusters,
    st.lists(smalls(there, st.sampled_from([10, 60, 100])), min_size=2, max_size=8),
    bigs,
    st.lists(smalls([0, 0, 2 * MINUTE, 10 * MINUTE, 50 * MINUTE], st.sampled_from([10, 100])), max_size=10),
)
@settings(max_examples=60, deadline=None)
@example([8], [Small(0, request(4), 3600, 100, 0)], request(6), [Small(1, request(1), 0, 100, 0)] * 3)
@example(  # a gang comes as a guest in the moment in which the start is said anew, by the end of that very gang
    [2, 4, 4, 4],
    [Small(0, request(2, nodes=2, cpu=0), 1200, 100, 0), Small(0, request(2, nodes=2, cpu=4), 5400, 60, 50)],
    request(3, nodes=2, cpu=2, require=("rack",)),
    [
        Small(111, request(1, nodes=1, cpu=5), 0, 10, 50),
        Small(161, request(1, nodes=2, cpu=0), 0, 10, 0),
        Small(210, request(1, nodes=1, cpu=1), 0, 100, 100),
        Small(238, request(1, nodes=1, cpu=1), 3000, 10, 100),
        Small(330, request(2, nodes=2, cpu=3), 120, 100, 100),
        Small(494, request(1, nodes=1, cpu=1), 0, 100, 100),
    ],
)
@example(  # a job without a limit runs for longer than others of its kind did: the estimate passes, and nothing else is known
    [4, 4, 4],
    [
        Small(0, request(0, nodes=1, cpu=0), 1200, 10, 0),
        Small(0, request(0, nodes=1, cpu=3), 1200, 60, 0),
        Small(0, request(2, nodes=1, cpu=0), 5400, 10, 0),
        Small(0, request(2, nodes=1, cpu=4), 1200, 60, 0),
        Small(0, request(0, nodes=1, cpu=0), 1200, 10, 0),
        Small(0, request(0, nodes=2, cpu=5), 1200, 60, 0),
        Small(0, request(1, nodes=1, cpu=3), 1200, 60, 0),
        Small(0, request(2, nodes=1, cpu=0), 5400, 10, 0),
    ],
    request(4, nodes=1, cpu=1, require=()),
    [Small(0, request(0, nodes=1, cpu=0), 0, 10, 0)] * 4
    + [Small(0, request(1, nodes=1, cpu=0), 0, 10, 0), Small(0, request(1, nodes=2, cpu=5), 0, 10, 0)],
)
@example(  # the same where another node has a start by limits
    [4, 4, 4],
    [
        Small(0, request(0, nodes=1, cpu=3), 1200, 60, 0),
        Small(0, request(2, nodes=1, cpu=4), 14400, 10, 0),
        Small(0, request(2, nodes=1, cpu=0), 5400, 10, 0),
        Small(0, request(2, nodes=1, cpu=0), 5400, 10, 0),
        Small(0, request(0, nodes=1, cpu=0), 1200, 10, 0),
        Small(0, request(0, nodes=2, cpu=5), 1200, 100, 0),
        Small(0, request(0, nodes=2, cpu=2), 1200, 10, 0),
        Small(0, request(1, nodes=1, cpu=4), 1200, 100, 0),
    ],
    request(4, nodes=1, cpu=1, require=()),
    [Small(158, request(0, nodes=1, cpu=0), 3000, 10, 0), Small(0, request(1, nodes=1, cpu=0), 0, 10, 0)],
)
def test_every_promised_start_is_kept(nodes: list[int], early: list[Small], big: Request, later: list[Small]) -> None:
    """With any arrivals and early ends. A start estimated from past durations may pass; it does not delay the start
    promised by limits."""
    play = played(nodes, early, big, later)
    assume(play.said)
    assert play.began_ns, "it has a start, and never started"
    assert play.began_ns <= min(play.said)


@pytest.mark.slow
@given(
    clusters,
    st.lists(smalls(there, always, 1), min_size=2, max_size=8),
    bigs,
    st.lists(smalls([0, 2 * MINUTE, 10 * MINUTE, 50 * MINUTE], always), max_size=10),
)
@settings(max_examples=60, deadline=None)
@example(  # two end in the very moment that was said, the one in the way last: nobody may slip in between
    [4, 4, 8],
    [
        Small(0, request(0), 3600, 100, 50),
        Small(0, request(4), 3600, 100, 100),
        Small(0, request(4), 5400, 100, 0),
        Small(0, request(1), 3600, 100, 50),
        Small(0, request(4), 3600, 100, 100),
    ],
    request(4),
    [Small(0, request(1), 0, 100, 0)],
)
def test_backfill_does_not_delay_the_reserved_start(
    nodes: list[int], early: list[Small], big: Request, later: list[Small]
) -> None:
    """If all jobs last as long as their limits allow, the world without later jobs is the reference. (The last rank of
    a gang may start up to a minute late.)"""
    with_them, without = played(nodes, early, big, later), played(nodes, early, big, [])
    assert bool(with_them.began_ns) == bool(without.began_ns)
    assert with_them.began_ns <= without.began_ns


def test_the_generated_worlds_have_backfill() -> None:
    """The properties above are checked on worlds with backfilled jobs."""
    early = [Small(0, request(2), 3600, 100, 0)]
    later = [Small(60 * at, request(1), 600, 100, 50) for at in range(12)]
    play = played([4], early, request(4), later)
    assert play.guests >= 10
    assert play.began_ns <= min(play.said)
