"""A recording played again: control and variants are plays of one recording that differ in their changes."""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from fairlead_bus.port import Stored
from fairlead_replay.whatif.lengths import Lengths
from fairlead_replay.whatif.nodes import PlayedNodes
from fairlead_replay.whatif.player import PlayedLog, Player
from fairlead_replay.whatif.reactions import PlayedReactions
from fairlead_replay.whatif.real_cluster import RealCluster, RealJob
from fairlead_replay.whatif.record import LogRecording
from fairlead_replay.whatif.stimuli import Changes, IdMap, RecordedStimuli
from fairlead_schemas.wire.commit import Commit

#: Shaken run lengths change by up to this part.
SHAKE = 0.01


class Conditions(NamedTuple):
    """How a recording is played."""

    changes: Changes | None = None
    #: 0: as recorded; others shake run lengths and submits, equally in plays of equal seeds.
    seed: int = 0
    #: People submit after their own ends, not at recorded times.
    closed: bool = False
    grid_ns: int = 0


class Outcome(NamedTuple):
    """What came of a play."""

    books: RealCluster
    ids: IdMap
    #: Unix ns at which it ended.
    end_ns: int
    #: What was not given: {reason: how many}.
    left_out: Counter[str]
    sequence: int
    events: Counter[str]
    #: GPUs at its end, those that take work or not.
    gpus: int
    #: {queue at the top: its weight}, at its end.
    weights: dict[str, int]

    def job(self, real: str) -> RealJob | None:
        """The job of the play that the record has under this id."""
        played = self.ids.played(real)
        return self.books.job_of(played) if played is not None else None


def play_recording(
    recording: LogRecording,
    conditions: Conditions = Conditions(),  # noqa: B008 -- a constant
    *,
    record: Callable[[Stored], None] | None = None,
) -> Outcome:
    """Play a recording to its end. `record` is given every commit of the play as a stored message. Raises PlayStalled."""
    start = recording.start
    books = RealCluster()
    books.adopt(recording.real, start.at_ns)

    def observe(commit: Commit) -> None:
        books.take(commit, commit.at_ns)

    cluster = start.cluster()
    placer, queue = cluster.placer, cluster.queue
    shaken = conditions.seed != 0
    stimuli = RecordedStimuli(
        recording,
        lambda: queue.state,
        changes=conditions.changes,
        closed=conditions.closed,
        seed=conditions.seed,
        shaken=shaken,
    )
    reactions = PlayedReactions(recording.reactions, stimuli.ids) if recording.reactions is not None else None
    log = PlayedLog(record, cluster, start.heads, observe, reactions)
    lengths = Lengths(
        recording, seed=conditions.seed, shake=SHAKE if shaken else 0.0, real_of=stimuli.ids.real, wish=stimuli.wish
    )
    nodes = PlayedNodes(lengths, lambda: placer.state)
    stimuli.nodes, stimuli.lengths = nodes, lengths
    begin_ns = (
        start.at_ns or recording.begin_ns or min([each.at_ns for each in recording.given], default=recording.end_ns)
    )
    player = Player(log, nodes, stimuli, begin_ns, grid_ns=conditions.grid_ns)
    if start.sequence:
        nodes.adopt(placer.state, start.at_ns)
        player.resume()
    stimuli.pass_time(begin_ns)
    player.settle()
    player.play_to(recording.end_ns)
    state = placer.state
    gpus = sum(len(node.inventory.gpus) for node in state.nodes.values())
    weights = {path: each.settings.weight for path, each in queue.state.queues.items() if "/" not in path}
    return Outcome(
        books, stimuli.ids, recording.end_ns, stimuli.left_out, log.cluster.sequence, log.counts, gpus, weights
    )
