"""Nodes that fail one job after another fast, and so drain the queue. Emits on a draft.

Two fast failures of different jobs within ten minutes, and nothing that did well there since: the node is suspect and
gets one run at a time. The third: quarantine. Failures of one user count once, unless his runs did well on another
node meanwhile: a program that fails everywhere is no fault of any node.
"""

from fairlead_placer.draft import EVENT_BYTES, Draft, encoded_bytes
from fairlead_placer.entities import Node
from fairlead_placer.nodes import breaker
from fairlead_placer.nodes.answers import MESSAGE_CHARS_MAX, Refusal
from fairlead_placer.nodes.endings import WINDOW_NS
from fairlead_placer.state import State
from fairlead_schemas import events as ev
from fairlead_schemas.commands import QuarantineNode, UnquarantineNode

SUSPECT_AFTER, QUARANTINE_AFTER = 2, 3


def judge(draft: Draft) -> None:
    """Suspect, quarantine or clear what the ends of runs say."""
    state = draft.state
    for name in sorted(state.suspects):
        if name not in state.failing and not state.nodes[name].quarantined:
            draft.emit(ev.NodeCleared(cause="clock", node=name))
    for name in sorted(name for name, fails in state.failing.items() if len(fails) >= SUSPECT_AFTER):
        node = state.nodes[name]
        if draft.full or node.quarantined:
            continue
        jobs = witnesses(state, name, draft.now_ns)
        size = EVENT_BYTES + sum(len(job) + 3 for job in jobs)
        if len(jobs) >= QUARANTINE_AFTER and breaker.allows(draft, name):
            reason = f"{len(jobs)} different jobs failed fast"
            draft.emit(ev.NodeQuarantined(cause="clock", node=name, setter="health", reason=reason, jobs=jobs), size)
        if len(jobs) >= SUSPECT_AFTER and not node.suspect and not node.quarantined and not breaker.is_open(state):
            draft.emit(ev.NodeSuspected(cause="clock", node=name, jobs=jobs), size)


def witnesses(state: State, name: str, now_ns: int) -> tuple[str, ...]:
    """The different jobs whose fast failures speak against the node now, oldest first."""
    jobs: list[str] = []
    users: set[str] = set()
    for fail in state.failing.get(name, ()):
        if fail.at_ns <= now_ns - WINDOW_NS or fail.job in jobs:
            continue
        if fail.user in users and not _works_elsewhere(state, fail.user, name, now_ns):
            continue
        jobs.append(fail.job)
        users.add(fail.user)
    return tuple(jobs)


def _works_elsewhere(state: State, user: str, name: str, now_ns: int) -> bool:
    well = state.well.get(user)
    return well is not None and well.node != name and well.at_ns > now_ns - WINDOW_NS


def quarantine(draft: Draft, asked: QuarantineNode, cause: str) -> Refusal | None:
    """A person takes the node out of work until it is released."""
    reason = asked.reason[:MESSAGE_CHARS_MAX]
    draft.emit(
        ev.NodeQuarantined(cause=cause, node=asked.node, by=asked.user, reason=reason),
        EVENT_BYTES + encoded_bytes(reason),
    )
    return None


def release(draft: Draft, asked: UnquarantineNode, cause: str) -> Refusal | None:
    """A person has looked at it."""
    node: Node = draft.state.nodes[asked.node]
    if not node.quarantined and not node.suspect:
        return Refusal("not_quarantined", f'expected a node in quarantine or suspect, found "{node.name}" neither')
    draft.emit(ev.NodeReleased(cause=cause, node=asked.node, by=asked.user))
    return None
