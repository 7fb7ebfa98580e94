"""The view of what is planned for nodes: maintenance windows, rollouts, and the breaker that stops them."""

from fairlead_gateway.views.rows import BreakerRow, RolloutRow, WindowRow
from fairlead_schemas.wire import events as ev

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
            e.name, dict.fromkeys(e.nodes, ""), e.budget_gpus, e.nodes_max, e.want, e.deadline_ns, e.stop_long, e.by,
            e.reason, at_ns,
        )  # fmt: skip

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
