"""The view of nodes: what each has, which state it is in, and what it holds; and the view of what is planned for nodes:
maintenance windows, rollouts, and the breaker that stops them.
"""

from collections.abc import Mapping

from fairlead_gateway.views.rows import BreakerRow, HealthIssueRow, NodeRow, RolloutRow, WindowRow
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.events import Part


def run_name(job: str, attempt: int) -> str:
    """`run_name("812", 2) == "812.2"`."""
    return f"{job}.{attempt}"


class NodesView:
    """Rows by node id, and the ranks' nodes of gangs whose ranks end one by one."""

    def __init__(self) -> None:
        self.rows: dict[str, NodeRow] = {}
        #: {"<job>.<attempt>": node of each rank}, for gangs until their run has ended.
        self.gangs: dict[str, tuple[str, ...]] = {}
        #: Counts changes of any node's inventory; what is derived from all of them is kept for as long as it stays.
        self.inventories = 0
        self._runtimes: tuple[int, frozenset[str]] = (-1, frozenset())
        self.handlers = {
            ev.NodeJoined: self._joined,
            ev.NodeChanged: self._changed,
            ev.NodeLost: self._lost,
            ev.NodeReturned: self._returned,
            ev.NodeDeclaredDead: self._declared_dead,
            ev.NodeRemoved: self._removed,
            ev.NodeCordoned: self._cordoned,
            ev.NodeUncordoned: self._uncordoned,
            ev.NodeDraining: self._draining,
            ev.NodeDrained: self._drained,
            ev.NodeTainted: self._tainted,
            ev.NodeUntainted: self._untainted,
            ev.NodeSuspected: self._suspected,
            ev.NodeCleared: self._cleared,
            ev.NodeQuarantined: self._quarantined,
            ev.NodeUnquarantined: self._set_free,
            ev.GpuFaulted: self._faulted,
            ev.GpuRestored: self._restored,
            ev.NodeUnhealthy: self._ailed,
            ev.NodeRecovered: self._recovered,
            ev.JobPlaced: self._placed,
            ev.RankEnded: self._rank_ended,
            ev.RunEnded: self._run_ended,
            ev.AllocationReleased: self._allocation_released,
        }

    def runtimes(self) -> frozenset[str]:
        """Return the runtimes of all nodes: "process", "docker", "hollow"."""
        if self._runtimes[0] != self.inventories:
            found = frozenset(row.inventory.runtime for row in self.rows.values())
            self._runtimes = (self.inventories, found)
        return self._runtimes[1]

    def _joined(self, e: ev.NodeJoined, seq: int, _at_ns: int) -> None:
        row = self.rows.get(e.node)
        if row is None:
            row = self.rows[e.node] = NodeRow(
                e.node, e.inventory, e.boot_id, e.incarnation, held={}, taints=[], faulted={}, ailments=[]
            )
        row.inventory, row.boot_id, row.incarnation = e.inventory, e.boot_id, e.incarnation
        row.lost = False
        row.changed_seq = seq
        self.inventories += 1

    def _changed(self, e: ev.NodeChanged, seq: int, _at_ns: int) -> None:
        self.inventories += 1
        row = self.rows[e.node]
        row.inventory, row.boot_id, row.changed_seq = e.inventory, e.boot_id, seq

    def _lost(self, e: ev.NodeLost, seq: int, at_ns: int) -> None:
        row = self.rows[e.node]
        row.lost, row.changed_seq = True, seq
        row.last_contact_ns, row.dead = max(0, at_ns - e.silent_ns), False

    def _declared_dead(self, e: ev.NodeDeclaredDead, seq: int, _at_ns: int) -> None:
        row = self.rows[e.node]
        row.dead, row.changed_seq = True, seq

    def _removed(self, e: ev.NodeRemoved, _seq: int, _at_ns: int) -> None:
        del self.rows[e.node]
        self.inventories += 1

    def _returned(self, e: ev.NodeReturned, seq: int, _at_ns: int) -> None:
        row = self.rows[e.node]
        row.lost, row.changed_seq = False, seq

    def _cordoned(self, e: ev.NodeCordoned, seq: int, _at_ns: int) -> None:
        row = self.rows[e.node]
        row.cordoned, row.changed_seq = True, seq
        if not row.draining or row.setter != "person":  # a drain is more than a cordon and continues
            row.reason, row.setter = e.reason, e.setter

    def _uncordoned(self, e: ev.NodeUncordoned, seq: int, _at_ns: int) -> None:
        row = self.rows[e.node]
        row.cordoned = row.draining = row.drained = False
        row.reason, row.setter, row.changed_seq = "", "", seq

    def _draining(self, e: ev.NodeDraining, seq: int, _at_ns: int) -> None:
        row = self.rows[e.node]
        row.draining, row.drained, row.reason, row.changed_seq = True, False, e.reason, seq
        row.setter = e.setter

    def _drained(self, e: ev.NodeDrained, seq: int, _at_ns: int) -> None:
        row = self.rows[e.node]
        row.drained, row.changed_seq = True, seq

    def _tainted(self, e: ev.NodeTainted, seq: int, _at_ns: int) -> None:
        row = self.rows[e.node]
        like = _key_and_effect(e.taint)
        kept = [each for each in row.taints if each[1] != e.setter or _key_and_effect(each[0]) != like]
        row.taints, row.changed_seq = sorted([*kept, (e.taint, e.setter)]), seq

    def _untainted(self, e: ev.NodeUntainted, seq: int, _at_ns: int) -> None:
        row = self.rows[e.node]
        row.taints, row.changed_seq = [each for each in row.taints if each != (e.taint, e.setter)], seq

    def _suspected(self, e: ev.NodeSuspected, seq: int, _at_ns: int) -> None:
        row = self.rows[e.node]
        row.suspect, row.blamed_by, row.changed_seq = True, e.jobs, seq
        row.rests_until_ns = e.rests_until_ns

    def _cleared(self, e: ev.NodeCleared, seq: int, _at_ns: int) -> None:
        row = self.rows[e.node]
        row.suspect, row.blamed_by, row.changed_seq = False, (), seq
        row.rests_until_ns = 0

    def _quarantined(self, e: ev.NodeQuarantined, seq: int, _at_ns: int) -> None:
        row = self.rows[e.node]
        row.quarantined, row.quarantine_reason, row.changed_seq = True, e.reason, seq
        row.blamed_by, row.rests_until_ns = e.jobs or row.blamed_by, 0

    def _set_free(self, e: ev.NodeUnquarantined, seq: int, _at_ns: int) -> None:
        row = self.rows[e.node]
        row.quarantined = row.suspect = False
        row.rests_until_ns = 0
        row.quarantine_reason, row.blamed_by, row.changed_seq = "", (), seq

    def _faulted(self, e: ev.GpuFaulted, seq: int, at_ns: int) -> None:
        row = self.rows[e.node]
        row.faulted[e.gpu], row.changed_seq = e.code, seq
        others = [each for each in row.ailments if each.gpu != e.gpu]
        row.ailments = [*others, HealthIssueRow(e.gpu, e.code, e.reason, at_ns)]

    def _restored(self, e: ev.GpuRestored, seq: int, _at_ns: int) -> None:
        row = self.rows[e.node]
        row.faulted.pop(e.gpu, None)
        row.changed_seq = seq
        row.ailments = [each for each in row.ailments if each.gpu != e.gpu]

    def _ailed(self, e: ev.NodeUnhealthy, seq: int, at_ns: int) -> None:
        row = self.rows[e.node]
        row.ailments, row.changed_seq = [*row.ailments, HealthIssueRow("", e.code, e.reason, at_ns)], seq

    def _recovered(self, e: ev.NodeRecovered, seq: int, _at_ns: int) -> None:
        row = self.rows[e.node]
        row.ailments = [each for each in row.ailments if each.gpu or each.code != e.code]
        row.changed_seq = seq

    def _placed(self, e: ev.JobPlaced, seq: int, _at_ns: int) -> None:
        run = run_name(e.job, e.attempt)
        for part in e.parts:
            row = self.rows[part.node]
            row.held[run] = part
            row.changed_seq = seq
        if len(e.parts) > 1:
            self.gangs[run] = tuple(part.node for part in e.parts)

    def _rank_ended(self, e: ev.RankEnded, seq: int, _at_ns: int) -> None:
        run = run_name(e.job, e.attempt)
        if e.released:
            self._release(self.gangs[run][e.rank], run, seq)

    def _run_ended(self, e: ev.RunEnded, seq: int, _at_ns: int) -> None:
        run = run_name(e.job, e.attempt)
        for node in e.released:
            self._release(node, run, seq)
        self.gangs.pop(run, None)

    def _allocation_released(self, e: ev.AllocationReleased, seq: int, _at_ns: int) -> None:
        self._release(e.node, run_name(e.job, e.attempt), seq)

    def _release(self, node: str, run: str, seq: int) -> None:
        row = self.rows[node]
        row.held.pop(run, None)
        row.changed_seq = seq


def _key_and_effect(taint: str) -> tuple[str, str]:
    """Return the key and effect of "key=value:Effect". A setter has one taint of each pair."""
    head, _, effect = taint.partition(":")
    return head.partition("=")[0], effect


def node_state(row: NodeRow, *, silent: bool = False) -> str:
    """Return the one word for a node's state: the strongest that holds. `silent`: no beats of its agent arrive, and its
    lease still runs.
    """
    if row.lost:
        return "lost"
    if row.drained:
        return "drained"
    if row.draining:
        return "draining"
    if row.quarantined:
        return "quarantined"
    if row.cordoned:
        return "cordoned"
    return "silent" if silent else "suspect" if row.suspect else "ready"


def held_sum(parts: Mapping[str, Part]) -> tuple[int, int]:
    """(milli-CPU, MiB) of the parts that a node holds."""
    return sum(part.cpu_milli for part in parts.values()), sum(part.memory_mib for part in parts.values())


#: Rollouts that have ended and are still shown.
ENDED_MAX = 32


class PlansView:
    """Windows and rollouts by name, and what has tripped the breaker, by kind."""

    def __init__(self) -> None:
        self.windows: dict[str, WindowRow] = {}
        self.rollouts: dict[str, RolloutRow] = {}
        self.tripped: dict[str, BreakerRow] = {}
        self.handlers = {
            ev.MaintenanceScheduled: self._scheduled,
            ev.MaintenanceStarted: self._started,
            ev.MaintenanceEnded: self._over,
            ev.NodeRemoved: self._node_removed,
            ev.RolloutStarted: self._rollout,
            ev.RolloutAdvanced: self._advanced,
            ev.RolloutPaused: self._paused,
            ev.RolloutResumed: self._resumed,
            ev.RolloutEnded: self._ended,
            ev.BreakerTripped: self._tripped,
            ev.BreakerReset: self._reset,
        }

    def _scheduled(self, e: ev.MaintenanceScheduled, _seq: int, _at_ns: int) -> None:
        self.windows[e.name] = WindowRow(e.name, e.nodes, e.starts_ns, e.ends_ns, e.notice_ns, e.by, e.reason)

    def _started(self, e: ev.MaintenanceStarted, _seq: int, _at_ns: int) -> None:
        self.windows[e.name].started = True

    def _over(self, e: ev.MaintenanceEnded, _seq: int, _at_ns: int) -> None:
        self.windows.pop(e.name, None)

    def _node_removed(self, e: ev.NodeRemoved, _seq: int, _at_ns: int) -> None:
        for window in self.windows.values():
            window.nodes = tuple([name for name in window.nodes if name != e.node])
        for rollout in self.rollouts.values():
            if rollout.state not in ("done", "cancelled"):
                rollout.nodes.pop(e.node, None)

    def _rollout(self, e: ev.RolloutStarted, _seq: int, at_ns: int) -> None:
        self.rollouts.pop(e.name, None)  # an earlier one of that name; the newest comes last
        self.rollouts[e.name] = RolloutRow(
            e.name,
            dict.fromkeys(e.nodes, ""),
            e.budget_gpus,
            e.nodes_max,
            e.want,
            e.deadline_ns,
            e.stop_long,
            e.by,
            e.reason,
            at_ns,
        )

    def _advanced(self, e: ev.RolloutAdvanced, _seq: int, _at_ns: int) -> None:
        self.rollouts[e.name].nodes[e.node] = e.step

    def _paused(self, e: ev.RolloutPaused, _seq: int, _at_ns: int) -> None:
        self.rollouts[e.name].state = "paused"

    def _resumed(self, e: ev.RolloutResumed, _seq: int, _at_ns: int) -> None:
        self.rollouts[e.name].state = "running"

    def _ended(self, e: ev.RolloutEnded, _seq: int, _at_ns: int) -> None:
        row = self.rollouts[e.name]
        row.state = "cancelled" if e.cancelled else "done"
        # A cancelled rollout gives back what it has in hand.
        row.nodes = {node: "returned" if step == "draining" else step for node, step in row.nodes.items()}
        ended = [row.name for row in self.rollouts.values() if row.state in ("done", "cancelled")]
        for name in ended[:-ENDED_MAX]:
            del self.rollouts[name]

    def _tripped(self, e: ev.BreakerTripped, _seq: int, at_ns: int) -> None:
        self.tripped[e.kind] = BreakerRow(e.kind, e.found, e.allowed, e.of, at_ns)

    def _reset(self, _e: ev.BreakerReset, _seq: int, _at_ns: int) -> None:
        self.tripped.clear()
