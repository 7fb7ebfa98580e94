"""Fencing of the runs of a lost node: the time at which each counts as ended there, and may be started elsewhere; and
silence of each node. Emits on a draft.

A lost node has ended its own work, unless a job may run longer. A strict job waits for proof: its node's own report,
its reboot or a new journal (`membership.py`), or a person's statement. If too many nodes were lost at once, no run is
ended: the fault may then be on the receiving side.

Time never runs backwards here. A jump ahead counts against this process, not against the nodes. If the watch was not
queried for longer than a part of the lease, this process was asleep or its clock was set, and every node counts as
just seen.
"""

from collections import OrderedDict
from collections.abc import Iterator

from fairlead_bus.core import MESSAGE_CHARS_MAX, CommandRefusal, encoded_bytes
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.cluster.entities import ClusterNode, PlacedRun, RankVerdict
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.decide import circuit_breaker
from fairlead_placer.decide.run_lifecycle import rank_ended
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import DeclareNodeDead

#: The job ends with such a run, even if another copy may still run: nothing is started elsewhere.
FINAL_STOPS = ("cancelled", "time_limit")


def fence_lost(draft: PlacerDraft) -> None:
    """End what waits for nothing on lost nodes. Driven by state, so that more than one commit's worth is done in several."""
    for node in [] if circuit_breaker.holds_losses(draft.state) else list(_lost(draft.state)):
        if not _end(draft, [each for each in _live(draft.state, node) if ends_now(draft.state, node, each[0])]):
            return


def is_due(state: ClusterState) -> bool:
    """Return True if `fence_lost` has work: a stop may have come since the node was lost."""
    if not state.closed or circuit_breaker.holds_losses(state):
        return False
    return any(ends_now(state, node, run) for node in _lost(state) for run, _ in _live(state, node))


def silent_for(draft: PlacerDraft, node: ClusterNode, silent_ns: int) -> None:
    """End what says that it may be started elsewhere after so long. The length is measured by who listens, whose clock does not
    jump; it is not folded, since the ends are."""
    if not circuit_breaker.holds_losses(draft.state):
        waiting = _live(draft.state, node)
        _end(draft, [each for each in waiting if 0 < _replace_after_ns(draft.state, each[0]) <= silent_ns])


def next_after_ns(state: ClusterState, node: ClusterNode) -> int | None:
    """The silence after which `silent_for` has something to do; None where nothing waits for that."""
    if not node.lost or not node.live or circuit_breaker.holds_losses(state):
        return None
    after = [_replace_after_ns(state, run) for run, _ in _live(state, node) if not ends_now(state, node, run)]
    return min((each for each in after if each > 0), default=None)


def ends_now(state: ClusterState, node: ClusterNode, run: PlacedRun) -> bool:
    """Return True if a run counts as ended as soon as its node is lost, or by now."""
    return node.dead or run.stop in FINAL_STOPS or _replace_after_ns(state, run) == 0


def may_return(draft: PlacerDraft, node: ClusterNode) -> bool:
    """Return True if a lost node may be readmitted, which excludes due ends that are not recorded yet. Runs still withheld
    belong to the node, and its agent reports their fate.
    """
    state = draft.state
    if not node.live or circuit_breaker.holds_losses(state):
        return True
    return not any(ends_now(state, node, run) for run, _ in _live(state, node))


def declare_dead(draft: PlacerDraft, asked: DeclareNodeDead, cause: str) -> CommandRefusal | None:
    """A person has seen that nothing runs there."""
    node = draft.state.nodes[asked.node]
    if not node.lost:
        return CommandRefusal(
            "not_lost",
            f"expected a node that is lost, found {asked.node}, whose lease still runs: wait until fairlead nodes shows it as "
            f"lost, or fairlead drain {asked.node}",
        )
    reason = asked.reason[:MESSAGE_CHARS_MAX]
    event = ev.NodeDeclaredDead(cause=cause, node=asked.node, by=asked.user, reason=reason)
    draft.emit(event, encoded_bytes(reason))
    return None


def _end(draft: PlacerDraft, due: list[tuple[PlacedRun, int]]) -> bool:
    """False when the commit is full first."""
    for run, rank in due:
        if draft.full:
            return False
        rank_ended(draft, run, RankVerdict("node_lost", None, None, rank, ""), False, "clock")
    return True


def _replace_after_ns(state: ClusterState, run: PlacedRun) -> int:
    """0 for a job that says nothing, or is gone; below 0 for a strict one."""
    job = state.job_of(run)
    return 0 if job is None else job.on_partition.replace_after_ns


def _lost(state: ClusterState) -> Iterator[ClusterNode]:
    for node in map(state.nodes.__getitem__, sorted(state.closed)):
        if node.lost and node.live:
            yield node


def _live(state: ClusterState, node: ClusterNode) -> list[tuple[PlacedRun, int]]:
    held = ((state.runs[key], node.held[key]) for key in sorted(node.held))
    return [(run, rank) for run, rank in held if not run.ended >> rank & 1]


DEFAULT_LEASE_NS = 120 * SECOND_NS


class LeaseWatch:
    """Last contact per node; `silent` names those whose lease is over, `quiet` those that have just stopped to beat."""

    def __init__(self, lease_ns: int = DEFAULT_LEASE_NS, quiet_ns: int = 0) -> None:
        """`quiet_ns`: the silence after which a node is quiet; 0: never."""
        self.lease_ns = lease_ns
        self.quiet_ns = quiet_ns
        #: {node: last contact}, oldest first.
        self._heard: OrderedDict[str, int] = OrderedDict()
        #: {node: its last word}: not moved by being named.
        self._since: dict[str, int] = {}
        #: {node: time of its last sign of life}, oldest first, for nodes that `quiet` has not named since.
        self._talking: OrderedDict[str, int] = OrderedDict()
        self._now = 0
        self._asked = 0
        self._asked_quiet = 0

    def heard(self, node: str, now_ns: int) -> None:
        """The node spoke."""
        self._since[node] = self._at(now_ns)
        if self.quiet_ns:
            self._talking[node] = self._now
            self._talking.move_to_end(node)
        self._watch(node)

    def _watch(self, node: str) -> None:
        self._heard[node] = self._now
        self._heard.move_to_end(node)

    def forget(self, node: str) -> None:
        """Watch it no more."""
        self._heard.pop(node, None)
        self._talking.pop(node, None)
        self._since.pop(node, None)

    def silence_ns(self, node: str) -> int:
        """Return the node's silence in nanoseconds as of the last query of the watch."""
        return self._now - self._since.get(node, self._now)

    def restart(self, now_ns: int) -> None:
        """Count every node as just seen: this process was the one that could not receive."""
        for node in self._heard:
            self._heard[node] = self._since[node] = self._at(now_ns)
        self._talking = OrderedDict.fromkeys(self._talking, self._now)

    def quiet(self, now_ns: int, limit: int = 64) -> list[str]:
        """Return at most `limit` nodes that have been silent for `quiet_ns`; each is named once until its next sign of life."""
        now = self._at(now_ns)
        if self._asked_quiet and now - self._asked_quiet > self.quiet_ns // 2:
            self._talking = OrderedDict.fromkeys(self._talking, now)  # it was we who did not listen
        self._asked_quiet = now
        found: list[str] = []
        while self._talking and len(found) < limit:
            node, last = next(iter(self._talking.items()))
            if now - last < self.quiet_ns:
                break
            found.append(node)
            del self._talking[node]
        return found

    def silent(self, now_ns: int, limit: int = 64) -> list[tuple[str, int]]:
        """Return (node, ns of silence) of at most `limit` nodes whose lease is over; each is then watched from now on."""
        now = self._at(now_ns)
        if self._asked and now - self._asked > self.lease_ns // 2:
            self.restart(now)
        self._asked = now
        found: list[tuple[str, int]] = []
        while self._heard and len(found) < limit:
            node, last = next(iter(self._heard.items()))
            if now - last < self.lease_ns:
                break
            found.append((node, now - last))
            self._watch(node)
        return found

    def next_at(self) -> int | None:
        """Return the time of the next `silent` query, None without nodes: at the first lease's end, and often enough to notice
        this process's own sleep.
        """
        if not self._heard:
            return None
        first = next(iter(self._heard.values())) + self.lease_ns
        first = min(first, self._asked + self.lease_ns // 4) if self._asked else first
        return min(first, self._now + self.quiet_ns // 4) if self._talking else first

    def _at(self, now_ns: int) -> int:
        self._now = max(self._now, now_ns)
        return self._now
