"""A future: both cores at a sequence, the job submitted, played on until it has its place. Pure.

The engine is that of what-if (`whatif/player.py`). Only what comes from outside is drawn (`chances.py`).
"""

from collections.abc import Iterable
from typing import NamedTuple

from fairlead_bus.core import Input
from fairlead_placer.core import PlacerCore
from fairlead_queue.core import QueueCore
from fairlead_replay.estimates.chances import DrawnLengths, arrivals, commands, facts_of
from fairlead_replay.estimates.history import ClusterHistory
from fairlead_replay.estimates.lengths_now import LengthsNow
from fairlead_replay.fold import FoldedCluster
from fairlead_replay.whatif.nodes import PlayedNodes
from fairlead_replay.whatif.player import GivenCommit, PlayedLog, Player, PlayStalled
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import SubmitJob
from fairlead_schemas.wire.commit import Commit

#: Id of the command of the job that is asked about.
ASKED = "asked"
CMD = "CMD"


class TwoCores(FoldedCluster):
    """The cores that decide, at a sequence."""

    def evolve(self, sequence: int, commit: Commit) -> None:
        """Fold the next commit."""
        self.queue.evolve(sequence, commit)
        self.placer.evolve(sequence, commit)
        self.sequence, self.at_ns = sequence, max(self.at_ns, commit.at_ns)


class ClusterMoment:
    """State of both cores at a sequence, from which any number of futures begin."""

    def __init__(self, cluster: FoldedCluster, now_ns: int) -> None:
        self.sequence, self.now_ns = cluster.sequence, max(now_ns, cluster.at_ns)
        self._queue, self._placer = cluster.queue.snapshot(), cluster.placer.snapshot()

    def cores(self) -> TwoCores:
        """Return the cores, for one future."""
        cluster = TwoCores()
        cluster.queue, cluster.placer = QueueCore.restore(self._queue), PlacerCore.restore(self._placer)
        cluster.sequence, cluster.at_ns = self.sequence, self.now_ns
        return cluster


class Question(NamedTuple):
    """Job that is asked about: one that is submitted now, or one that waits."""

    submit: SubmitJob | None = None
    job: str = ""


class FutureStart(NamedTuple):
    """What came of the job in one future."""

    #: When it runs (Unix ns); 0: it had no place when the work was over, at `until_ns`.
    start_ns: int
    until_ns: int
    #: Nothing had to end for it.
    at_once: bool = False
    nodes: tuple[str, ...] = ()
    #: Runs that were asked to yield to it: (job, rule).
    displaced: tuple[tuple[str, str], ...] = ()
    #: Code of the refusal, where the submit was refused.
    refused: str = ""
    #: Events that were played.
    events: int = 0


class FutureStimuli:
    """`Stimuli` of a future: the submit that is asked about, then those that arrive."""

    def __init__(self, question: Question, now_ns: int, behaviour: DrawnLengths) -> None:
        self.watched = question.job
        self.placed: ev.JobPlaced | None = None
        self.displaced: dict[str, str] = {}
        self.refused = ""
        self._behaviour, self._now_ns = behaviour, now_ns
        self._coming: list[tuple[int, SubmitJob]] = []
        if question.submit is not None:
            submit = question.submit
            self._coming.append((now_ns, SubmitJob(**{**_fields(submit), "id": ASKED, "key": "", "digest": ""})))
        self._next = self._messages = 0

    def expect(self, coming: Iterable[tuple[int, SubmitJob]]) -> None:
        """Add submits, which come later than the one that is asked about."""
        self._coming.extend(coming)

    def next_ns(self) -> int | None:
        """Return the time of the next submit."""
        return self._coming[self._next][0] if self._next < len(self._coming) else None

    def pass_time(self, now_ns: int) -> None:
        """Remember the time."""
        self._now_ns = now_ns

    def commits(self) -> list[GivenCommit]:
        """There are no other writers."""
        return []

    def placer_inputs(self) -> list[Input]:
        """Nobody asks anything of nodes."""
        return []

    def queue_inputs(self) -> list[Input]:
        """Return the next submit that is due."""
        if self._next >= len(self._coming) or self._coming[self._next][0] > self._now_ns:
            return []
        command = self._coming[self._next][1]
        self._next += 1
        self._messages += 1
        return [Input(CMD, (1 << 60) + self._messages, [command])]

    def away_until(self, writer: str, now_ns: int) -> int:
        """Services are always there."""
        return 0

    def see(self, events: Iterable[ev.Event], now_ns: int) -> None:
        """Watch the job."""
        for event in events:
            match event:
                case ev.JobSubmitted():
                    self._enter(event, now_ns)
                case ev.JobRejected():
                    if event.cause == f"cmd:{ASKED}":
                        self.refused = event.code
                case ev.PreemptionStarted():
                    if self._is_watched(event.beneficiary):
                        self.displaced[event.job] = event.rule
                case ev.JobPlaced():
                    if self.placed is None and self._is_watched(event.job):
                        self.placed = event
                case _:
                    pass

    def _enter(self, event: ev.JobSubmitted, now_ns: int) -> None:
        at = self._next - 1
        self._behaviour.meet(event.job, facts_of(self._coming[at][1], now_ns))
        if event.cause == f"cmd:{ASKED}":
            self.watched = event.job

    def _is_watched(self, job: str) -> bool:
        return bool(self.watched) and self.watched in (job, array_of(job))


def _fields(command: SubmitJob) -> dict[str, object]:
    return {name: getattr(command, name) for name in command.__struct_fields__}


def play_future(
    moment: ClusterMoment,
    history: ClusterHistory,
    lengths: LengthsNow,
    question: Question,
    seed: str,
    future: int,
    *,
    busy: bool,
    events_max: int,
) -> FutureStart:
    """Play one future until the job has its place, or so many events have come. `busy`: others submit meanwhile."""
    now_ns = moment.now_ns
    behaviour = DrawnLengths(history, lengths, seed, future)
    log = PlayedLog(cluster=moment.cores())
    placer = log.cluster.placer
    stimuli = FutureStimuli(question, now_ns, behaviour)
    if busy:
        stimuli.expect(commands(arrivals(history, seed, future, now_ns)))
    nodes = PlayedNodes(behaviour, lambda: placer.state)
    player = Player(log, nodes, stimuli, now_ns)
    nodes.adopt(placer.state, now_ns)
    player.resume()
    try:
        stimuli.pass_time(now_ns)
        player.settle()
        while stimuli.placed is None and not stimuli.refused and log.counts.total() < events_max:
            at_ns = player.next_ns()
            if at_ns is None:
                break
            player.advance(at_ns)
    except PlayStalled:
        return FutureStart(0, player.now_ns, events=log.counts.total())
    placed, displaced = stimuli.placed, tuple(sorted(stimuli.displaced.items()))
    if placed is None:
        return FutureStart(0, player.now_ns, displaced=displaced, refused=stimuli.refused, events=log.counts.total())
    return FutureStart(
        player.now_ns + history.start_ns,
        player.now_ns,
        at_once=player.now_ns == now_ns,
        nodes=tuple([part.node for part in placed.parts]),
        displaced=displaced,
        events=log.counts.total(),
    )
