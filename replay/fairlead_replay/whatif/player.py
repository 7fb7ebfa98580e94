"""The engine: both production cores over an imagined log, from moment to moment.

Both cores decide until neither has a decision left. Then time moves to the next stimulus, the next thing that happens on
a node, or the next wake-up time of a core. Nothing happens in between, so a quiet month costs nothing.

With `record`, every commit is chained and passed on as a stored message. These messages make a log that can be exported
and verified like any other.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from fairlead_bus.core import Decision, Input
from fairlead_bus.log import NO_HEAD, LogHead
from fairlead_bus.port import Stored
from fairlead_placer.core import PlacerCore
from fairlead_queue.core import QueueCore
from fairlead_replay.fold import FoldedCluster
from fairlead_replay.whatif.nodes import PlayedNodes
from fairlead_replay.whatif.reactions import PLAYED, PlayedReactions
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import VERSION, Commit, commit_hash, encode_commit
from fairlead_schemas.wire.events import Event, JobUnplaceable

#: Rounds of both cores at one moment, beyond which they are going round in circles.
ROUNDS_MAX = 10_000


class PlayStalled(Exception):
    """A play cannot continue: a command is refused, some job can never end, or the cores do not rest."""


class PlayedLog:
    """Both cores over one imagined log, from its start or from the state of another log."""

    def __init__(
        self,
        record: Callable[[Stored], None] | None = None,
        cluster: FoldedCluster | None = None,
        heads: dict[str, LogHead] | None = None,
        observe: Callable[[Commit], None] | None = None,
        reactions: PlayedReactions | None = None,
    ) -> None:
        """`reactions`: how long the cores take to hear of commits; None: no time."""
        self.cluster = cluster or FoldedCluster()
        #: {event type: how many}
        self.counts: Counter[str] = Counter()
        self._heads: dict[str, LogHead] = dict(heads or {})
        self._record, self._observe = record, observe
        self._reactions = reactions
        #: {writer: commits that it has not heard of: (when it will, sequence, commit)}
        self._unheard: dict[str, deque[tuple[int, int, Commit]]] = {writer: deque() for writer in PLAYED}
        #: {writer: when it can decide again after its own commit}
        self._ready_ns = dict.fromkeys(PLAYED, 0)
        #: Commits that the placer has folded since they were last taken.
        self._folded: list[Commit] = []

    def decide(self, core: QueueCore | PlacerCore, inputs: list[Input], now_ns: int) -> Decision | None:
        """Let a core decide, and both fold what it says; None when that is nothing."""
        try:
            decision = core.decide(inputs, now_ns)
        except Exception as error:  # a sequencer may be anybody's, and its name and moment are the answer
            found = f"{type(error).__name__}: {error}"
            raise PlayStalled(f"the {core.writer} could not decide at {rfc3339(now_ns)}: {found}") from error
        if not decision.events and not decision.cursors:
            return None
        self.append(core.writer, decision, now_ns)
        return decision

    def append(self, writer: str, decision: Decision, now_ns: int) -> None:
        """Add a commit of any writer, and fold it."""
        head, sequence = self._heads.get(writer, NO_HEAD), self.cluster.sequence + 1
        commit = Commit(
            v=VERSION,
            writer=writer,
            n=head.n + 1,
            basis=sequence - 1,
            at_ns=now_ns,
            cursors=decision.cursors,
            prev=head.hash,
            events=decision.events,
        )
        own_hash = head.hash
        if self._record is not None:
            payload = encode_commit(commit)
            own_hash = commit_hash(payload)
            self._record(Stored(sequence, subjects.log(writer), payload))
        self._heads[writer] = LogHead(head.n + 1, own_hash, sequence)
        if self._reactions is None:
            self.cluster.evolve(sequence, commit)
            self._folded.append(commit)
        else:
            self._spread(sequence, commit, now_ns, self._reactions.delays(commit))
        self.counts.update(type(event).__name__ for event in decision.events)
        if self._observe is not None:
            self._observe(commit)

    # ------------------------------------------------------------------ who knows what

    def _spread(self, sequence: int, commit: Commit, now_ns: int, delays: dict[str, int]) -> None:
        """Let each core fold a commit when it hears of it; its writer has folded all before it by then."""
        for writer, core in self.cluster.cores().items():
            if writer not in PLAYED:
                core.evolve(sequence, commit)
            elif writer != commit.writer:
                unheard = self._unheard[writer]
                heard_ns = max(now_ns + delays[writer], unheard[-1][0] if unheard else 0)
                unheard.append((heard_ns, sequence, commit))
            else:
                self._hear(writer, None)
                self._fold(writer, sequence, commit)
                self._ready_ns[writer] = now_ns + delays[writer]
        self.cluster.sequence = sequence
        self.cluster.at_ns = max(self.cluster.at_ns, commit.at_ns)

    def hear(self, now_ns: int) -> list[Commit]:
        """Let the cores fold what they have heard of by now. Return the commits that the placer has folded since the last call."""
        for writer in PLAYED:
            self._hear(writer, now_ns)
        folded, self._folded = self._folded, []
        return folded

    def _hear(self, writer: str, now_ns: int | None) -> None:
        unheard = self._unheard[writer]
        while unheard and (now_ns is None or unheard[0][0] <= now_ns):
            _, sequence, commit = unheard.popleft()
            self._fold(writer, sequence, commit)

    def _fold(self, writer: str, sequence: int, commit: Commit) -> None:
        self.cluster.cores()[writer].evolve(sequence, commit)
        if writer == "placer":
            self._folded.append(commit)

    def ready_ns(self, writer: str) -> int:
        """Return when a writer can decide."""
        return self._ready_ns[writer]

    def next_ns(self, now_ns: int) -> int | None:
        """Return when a writer hears of a commit, or can decide again; None: nothing is under way."""
        heard = [unheard[0][0] for unheard in self._unheard.values() if unheard]
        return min([*heard, *(each for each in self._ready_ns.values() if each > now_ns)], default=None)


class GivenCommit(NamedTuple):
    """Commit of a writer that is not played."""

    writer: str
    decision: Decision


class Stimuli(Protocol):
    """What comes to a cluster from outside."""

    def next_ns(self) -> int | None:
        """Return the time of the next stimulus in ns, None if there is none."""
        ...

    def pass_time(self, now_ns: int) -> None:
        """Let happen on nodes what is due, and have ready what is due for a core."""
        ...

    def commits(self) -> list[GivenCommit]:
        """Return the commits of other writers that are ready."""
        ...

    def queue_inputs(self) -> list[Input]:
        """Return the next message for the queue that is ready."""
        ...

    def placer_inputs(self) -> list[Input]:
        """Return the next inputs for the placer that are ready, but reports."""
        ...

    def see(self, events: Iterable[Event], now_ns: int) -> None:
        """Take note of what was decided."""
        ...

    def away_until(self, writer: str, now_ns: int) -> int:
        """Return the time up to which a service decides nothing; 0: it is there."""
        ...


class Player:
    """Play of stimuli on a cluster."""

    def __init__(self, log: PlayedLog, nodes: PlayedNodes, stimuli: Stimuli, now_ns: int, *, grid_ns: int = 0) -> None:
        """`grid_ns`: moments are rounded up to multiples of it; 0: they are exact."""
        self.log, self.nodes, self.stimuli, self.now_ns = log, nodes, stimuli, now_ns
        self._queue, self._placer = log.cluster.queue, log.cluster.placer
        self._grid_ns = grid_ns
        #: Moments at which something was looked at.
        self.moments = 0

    def resume(self) -> None:
        """Continue from the state of a log's middle.

        A core that is restored has forgotten which offers it found no place for, and names the present causes again. The
        core that wrote the log had named them when they arose: that news is dropped, and what was looked at stays known.
        """
        decision = self._placer.decide([], self.now_ns)
        state = self._placer.rollback()
        for event in decision.events:
            offer = state.offers.get(event.job) if isinstance(event, JobUnplaceable) else None
            if offer is not None:
                state.classes[offer.request].failed_at = state.pools.version

    def next_ns(self) -> int | None:
        """Return the time of the next happening or core wake-up in ns, None if there is none."""
        at_ns = earliest(
            self.happens_ns(),
            self._wake_ns(self._queue),
            self._wake_ns(self._placer),
            self.log.next_ns(self.now_ns),
        )
        return at_ns if at_ns is None or not self._grid_ns else -(-at_ns // self._grid_ns) * self._grid_ns

    def _wake_ns(self, core: QueueCore | PlacerCore) -> int | None:
        wake_ns, back_ns = core.wake_at(), self.stimuli.away_until(core.writer, self.now_ns)
        if wake_ns is not None:
            wake_ns = max(wake_ns, self.log.ready_ns(core.writer))
        return back_ns if back_ns and (wake_ns is None or wake_ns < back_ns) else wake_ns

    def happens_ns(self) -> int | None:
        """Return the time of the next stimulus, or of the next thing that happens on a node."""
        return earliest(self.nodes.next_ns(), self.stimuli.next_ns())

    def advance(self, at_ns: int) -> None:
        """Go to a moment, and let everything happen and be decided there."""
        self.moments += 1
        self.now_ns = max(self.now_ns, at_ns)
        self.nodes.pass_time(self.now_ns)
        self.stimuli.pass_time(self.now_ns)
        self.settle()

    def play_to(self, until_ns: int) -> None:
        """Play every moment up to a time, that one included."""
        while (at_ns := self.next_ns()) is not None and max(at_ns, self.now_ns) <= until_ns:
            self.advance(at_ns)

    def settle(self) -> None:
        """Decide at this moment until neither core has anything to say. Raises PlayStalled."""
        now_ns, stimuli = self.now_ns, self.stimuli
        for _ in range(ROUNDS_MAX):
            given = stimuli.commits()
            for each in given:
                self.log.append(each.writer, each.decision, now_ns)
                self._let_nodes_see()
            queue = placer = None
            self._let_nodes_see()
            if not stimuli.away_until("queue", now_ns):
                commands = stimuli.queue_inputs()
                if commands or self.log.ready_ns("queue") <= now_ns:
                    queue = self.log.decide(self._queue, commands, now_ns)
            if queue is not None:
                stimuli.see(queue.events, now_ns)
                self._let_nodes_see()
            if not stimuli.away_until("placer", now_ns):
                commands = stimuli.placer_inputs()
                if commands or self.log.ready_ns("placer") <= now_ns:
                    placer = self.log.decide(self._placer, [*self.nodes.reports(), *commands], now_ns)
            if placer is not None:
                self.nodes.taken(placer.cursors)
                stimuli.see(placer.events, now_ns)
                self._let_nodes_see()
            if queue is None and placer is None and not given:
                return
        raise PlayStalled(f"the cores do not come to rest at {now_ns}")

    def _let_nodes_see(self) -> None:
        """Show nodes what the placer knows."""
        for commit in self.log.hear(self.now_ns):
            self.nodes.see(commit.events, self.now_ns)


def earliest(*times: int | None) -> int | None:
    """Return the earliest of the times that are known."""
    return min((at_ns for at_ns in times if at_ns is not None), default=None)
