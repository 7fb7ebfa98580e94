"""Nodes that fail one job after another fast, and so drain the queue. Emits on a draft.

Closing a node for good takes proof: a mistake in a job file fails fast, too, and must not cost anybody a node. Three
different jobs whose failures are the node's fault (`cluster/failure_history.py`) put it in quarantine, until a person releases it.

Proof takes time, and a node that fails everything would empty the queue meanwhile. So suspicion needs none: two fast
failures of different jobs within ten minutes, and nothing that did well there since, make the node suspect. It gets one run at a
time, and only what has no place elsewhere. From the third failure on it rests after each, every time twice as long. Failures of one
user count once here, unless runs of that user did well on another node meanwhile. Who submits under several names can
thus make a node rest, and no more.
"""

from fairlead_bus.core import MESSAGE_CHARS_MAX, CommandRefusal, encoded_bytes, names_bytes
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.cluster.entities import ClusterNode, FastFail, run_key
from fairlead_placer.cluster.failure_history import FAST_NS, WINDOW_NS
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.decide import circuit_breaker
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import QuarantineNode, UnquarantineNode

SUSPECT_AFTER, QUARANTINE_AFTER = 2, 3
#: A suspect node rests from so many failures on, at first for so long, and how often that doubles.
REST_AFTER, REST_NS, REST_DOUBLINGS_MAX = 3, 30 * SECOND_NS, 4


def judge(draft: PlacerDraft) -> None:
    """Suspect, quarantine or clear nodes by the ends of runs there; begin and end rests."""
    state = draft.state
    for name in sorted(state.suspects):
        node = state.nodes[name]
        if name not in state.failing and not node.quarantined:
            draft.emit(ev.NodeCleared(cause="clock", node=name))
        elif node.resting and node.rest_ns <= draft.now_ns:
            _suspect(draft, node, doubtful(state, name, draft.now_ns))
    for name in sorted(name for name, fails in state.failing.items() if len(fails) >= SUSPECT_AFTER):
        if draft.full or state.nodes[name].quarantined:
            continue
        _judge_one(draft, state.nodes[name])


def _judge_one(draft: PlacerDraft, node: ClusterNode) -> None:
    state, now_ns = draft.state, draft.now_ns
    proven = to_blame(state, node.name, now_ns)
    if len(proven) >= QUARANTINE_AFTER and circuit_breaker.allows(draft, node.name):
        reason = f"{len(proven)} different jobs failed fast here and not elsewhere"
        event = ev.NodeQuarantined(cause="clock", node=node.name, setter="health", reason=reason, jobs=proven)
        draft.emit(event, names_bytes(proven))
        return
    jobs = doubtful(state, node.name, now_ns)
    if len(jobs) < SUSPECT_AFTER or circuit_breaker.is_open(state):
        return
    newest_ns = max(fail.at_ns for fail in state.failing[node.name])
    if len(jobs) >= REST_AFTER and not node.resting and newest_ns > node.rest_ns:
        doublings = min(len(jobs) - REST_AFTER, REST_DOUBLINGS_MAX)
        _suspect(draft, node, jobs, now_ns + (REST_NS << doublings))
    elif not node.suspect:
        _suspect(draft, node, jobs)


def _suspect(draft: PlacerDraft, node: ClusterNode, jobs: tuple[str, ...], rests_until_ns: int = 0) -> None:
    event = ev.NodeSuspected(cause="clock", node=node.name, jobs=jobs, rests_until_ns=rests_until_ns)
    draft.emit(event, names_bytes(jobs))


def to_blame(state: ClusterState, name: str, now_ns: int) -> tuple[str, ...]:
    """The different jobs whose fast failures are the node's fault, oldest first."""
    return tuple([fail.job for fail in _recent(state, name, now_ns) if _is_proven(state, fail, name, now_ns)])


def doubtful(state: ClusterState, name: str, now_ns: int) -> tuple[str, ...]:
    """The different jobs whose fast failures may be the node's fault, oldest first; of one user the first, unless the node is
    known to be at fault or the user's runs do well elsewhere."""
    jobs: list[str] = []
    users: set[str] = set()
    for fail in _recent(state, name, now_ns):
        proven = _is_proven(state, fail, name, now_ns)
        if not proven and (
            fail.blame == "job" or (fail.user in users and not _works_elsewhere(state, fail.user, name, now_ns))
        ):
            continue
        jobs.append(fail.job)
        users.add(fail.user)
    return tuple(jobs)


def _recent(state: ClusterState, name: str, now_ns: int) -> list[FastFail]:
    """Return the node's fast failures within WINDOW_NS, one of each job."""
    return [fail for fail in state.failing.get(name, ()) if fail.at_ns > now_ns - WINDOW_NS]


def _is_proven(state: ClusterState, fail: FastFail, name: str, now_ns: int) -> bool:
    """True where the node is to blame; also while the job's next attempt runs on elsewhere for longer than a fast failure."""
    if fail.blame == "node":
        return True
    job, _, attempt = fail.run.rpartition(".")
    again = state.runs.get(run_key(job, int(attempt) + 1))
    if again is None or not again.began_ns or any(part.node == name for part in again.parts):
        return False
    return now_ns - again.began_ns >= FAST_NS and not again.is_stopping


def _works_elsewhere(state: ClusterState, user: str, name: str, now_ns: int) -> bool:
    well = state.well.get(user)
    return well is not None and well.node != name and well.at_ns > now_ns - WINDOW_NS


def quarantine(draft: PlacerDraft, asked: QuarantineNode, cause: str) -> CommandRefusal | None:
    """A person takes the node out of work until it is released."""
    reason = asked.reason[:MESSAGE_CHARS_MAX]
    draft.emit(
        ev.NodeQuarantined(cause=cause, node=asked.node, by=asked.user, reason=reason),
        encoded_bytes(reason),
    )
    return None


def release(draft: PlacerDraft, asked: UnquarantineNode, cause: str) -> CommandRefusal | None:
    """A person has looked at it."""
    node: ClusterNode = draft.state.nodes[asked.node]
    if not node.quarantined and not node.suspect:
        return CommandRefusal(
            "not_quarantined", f'expected a node in quarantine or suspect, found "{node.name}" neither'
        )
    draft.emit(ev.NodeUnquarantined(cause=cause, node=asked.node, by=asked.user))
    return None
