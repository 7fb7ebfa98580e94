"""Maintenance windows: nodes that are empty between two times. Emits on a draft.

From its notice on a window's nodes drain, at its start what still runs is stopped with its grace, at its end they take
work again. A node that another has in hand by then is left to him.
"""

from fairlead_bus.core import MESSAGE_CHARS_MAX, CommandRefusal, encoded_bytes, names_bytes
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.plans import Window
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.decide import circuit_breaker, cordon
from fairlead_placer.decide.rollout_order import fault_of_name, selected
from fairlead_schemas.units.quantities import DURATION_NS_MAX
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CancelMaintenance, ScheduleMaintenance

WINDOWS_MAX = 256
#: A window's nodes drain in one commit.
NODES_MAX = 400


def schedule(draft: PlacerDraft, asked: ScheduleMaintenance, cause: str) -> CommandRefusal | None:
    """Remember it."""
    state = draft.state
    if (wrong := fault_of_name(asked.name) or _fault_of_times(draft, asked)) is not None:
        return wrong
    if asked.name in state.windows:
        return CommandRefusal("exists", f"a window {asked.name} is scheduled already: cancel it first")
    if len(state.windows) >= WINDOWS_MAX:
        return CommandRefusal("too_many", f"expected at most {WINDOWS_MAX} windows")
    nodes = selected(state, asked.nodes, asked.selector, most=NODES_MAX)
    if isinstance(nodes, CommandRefusal):
        return nodes
    reason = asked.reason[:MESSAGE_CHARS_MAX]
    draft.emit(
        ev.MaintenanceScheduled(
            cause=cause,
            name=asked.name,
            nodes=nodes,
            starts_ns=asked.starts_ns,
            ends_ns=asked.ends_ns,
            notice_ns=asked.notice_ns,
            by=asked.user,
            reason=reason,
        ),
        encoded_bytes(reason) + names_bytes(nodes),
    )
    return None


def _fault_of_times(draft: PlacerDraft, asked: ScheduleMaintenance) -> CommandRefusal | None:
    latest = draft.now_ns + DURATION_NS_MAX
    if not 0 < asked.starts_ns < asked.ends_ns <= latest or not 0 <= asked.notice_ns <= DURATION_NS_MAX:
        return CommandRefusal("bad_times", "expected a start before the end, both within a hundred years, and a notice")
    return CommandRefusal("bad_times", "expected an end in the future") if asked.ends_ns <= draft.now_ns else None


def cancel(draft: PlacerDraft, asked: CancelMaintenance, cause: str) -> CommandRefusal | None:
    """Forget it, and give back what it has drained."""
    window = draft.state.windows.get(asked.name)
    if window is None:
        return CommandRefusal("not_found", f'expected the name of a window, found "{asked.name[:80]}"')
    _end(draft, window, cause, asked.user, cancelled=True)
    return None


def step(draft: PlacerDraft) -> bool:
    """Windows whose notice or end has come. False when the commit was full before the end."""
    state = draft.state
    for window in [state.windows[name] for name in sorted(state.windows)]:
        due = window.ends_ns if window.started else window.starts_ns - window.notice_ns
        if due > draft.now_ns or (not window.started and circuit_breaker.is_open(state)):
            continue
        if not draft.has_room((len(window.nodes) + 1) * draft.EVENT_BYTES, len(window.nodes) + 1):
            return False
        if window.started or window.ends_ns <= draft.now_ns:
            _end(draft, window, "clock", "", cancelled=False)
        else:
            _begin(draft, window)
    return True


def _begin(draft: PlacerDraft, window: Window) -> None:
    draft.emit(ev.MaintenanceStarted(cause="clock", name=window.name))
    reason = f"maintenance {window.name}: {window.reason}" if window.reason else f"maintenance {window.name}"
    for name in window.nodes:
        node = draft.state.nodes[name]
        if node.on_duty:
            cordon.begin(draft, node, "maintenance", window.cause, window.by, reason[:120], window.starts_ns)


def _end(draft: PlacerDraft, window: Window, cause: str, by: str, *, cancelled: bool) -> None:
    draft.emit(ev.MaintenanceEnded(cause=cause, name=window.name, by=by, cancelled=cancelled))
    for name in window.nodes if window.started else ():
        node = draft.state.nodes[name]
        if not in_window(draft.state, node):  # another one's
            cordon.give_back(draft, node, "maintenance", cause, by)


def in_window(state: ClusterState, node: ClusterNode) -> bool:
    """Return True while a window keeps the node empty, or would if no other setter did."""
    return any(window.started and node.name in window.nodes for window in state.windows.values())


def deadlines(state: ClusterState) -> list[int]:
    """Return the times at which windows next need action. Windows that the breaker holds are left out until its reset."""
    held = circuit_breaker.is_open(state)
    return [
        window.ends_ns if window.started else window.starts_ns - window.notice_ns
        for window in state.windows.values()
        if window.started or not held
    ]
