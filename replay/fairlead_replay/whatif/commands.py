"""Commands that a log's events answer: what people asked for, as far as the log tells. Pure.

Every event that answers a command has the cause "cmd:<id>". A command is read off the first event that answers it; later
events with the same cause are its consequences (the stop of each element of an array, the drain of a rollout's node).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from fairlead_schemas.queuefile.settings import (
    DEFAULT_POOL,
    PoolEntry,
    PoolSettings,
    QueueEntry,
    QueueRemoval,
    QueueSettings,
)
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit

CMD_PREFIX = "cmd:"
#: Job file of a submit whose own file the log does not have.
NO_FILE = msgspec.Raw(b'{"command":["true"]}')

type Command = cmd.QueueCommand | cmd.PlacerCommand

_QUEUE_CHANGES = (ev.QueueConfigured, ev.PoolConfigured, ev.QueueRemoved, ev.PoolRemoved, ev.QueuesApplied)


class CommandReader:
    """Reader of the commands that commits answer, in the order of the log."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        #: Settings as they are: a change of queues counts what it left as it was, and does not name it.
        self._queues: dict[str, QueueSettings] = {}
        self._pools: dict[str, PoolSettings] = {DEFAULT_POOL: PoolSettings()}
        #: Answers that do not tell what was asked: {event type: how many}.
        self.unknown: Counter[str] = Counter()

    def read(self, commit: Commit) -> list[Command]:
        """Return the commands that are answered first in this commit, in order."""
        found: list[Command] = []
        for index, event in enumerate(commit.events):
            if event.cause.startswith(CMD_PREFIX) and event.cause not in self._seen:
                command = self._command(event, commit, index)
                if command is not None:
                    found.append(_with_authority(command, event))
            self._keep(event)
        return found

    def _keep(self, event: ev.Event) -> None:
        match event:
            case ev.QueueConfigured():
                self._queues[event.path] = event.settings or QueueSettings()
            case ev.QueueRemoved():
                self._queues.pop(event.path, None)
            case ev.PoolConfigured():
                self._pools[event.pool] = event.settings
            case ev.PoolRemoved():
                self._pools.pop(event.pool, None)
            case _:
                pass

    def _command(self, event: ev.Event, commit: Commit, index: int) -> Command | None:
        if isinstance(event, _QUEUE_CHANGES):
            self._seen.add(event.cause)
            return self._apply(event.cause, commit.events[index:])
        reader = READERS.get(type(event))
        if reader is None:
            return None
        self._seen.add(event.cause)
        command = reader(event, commit.at_ns)
        if command is None:
            self.unknown[type(event).__name__] += 1
        return command

    def _apply(self, cause: str, events: Sequence[ev.Event]) -> cmd.ApplyQueues:
        own = [event for event in events if event.cause == cause]
        pools = [
            PoolEntry(pool=each.pool, settings=each.settings) for each in own if isinstance(each, ev.PoolConfigured)
        ]
        queues = [
            QueueEntry(path=each.path, settings=each.settings or QueueSettings())
            for each in own
            if isinstance(each, ev.QueueConfigured)
        ]
        gone = {each.path: each.move_to for each in own if isinstance(each, ev.QueueRemoved)}
        dropped = {each.pool for each in own if isinstance(each, ev.PoolRemoved)}
        applied = next((each for each in own if isinstance(each, ev.QueuesApplied)), None)
        unchanged = applied.unchanged if applied is not None else 0
        more_queues, more_pools = self._unchanged(queues, pools, gone, dropped, unchanged)
        return cmd.ApplyQueues(
            id=_id(cause),
            user=applied.by if applied is not None else "",
            pools=(*pools, *more_pools),
            queues=(*queues, *more_queues),
            remove=tuple(QueueRemoval(path=path, move_to=move_to) for path, move_to in gone.items()),
            prune=bool(dropped),
            reclaim=applied is not None and applied.reclaim,
        )

    def _unchanged(
        self,
        queues: Iterable[QueueEntry],
        pools: Iterable[PoolEntry],
        gone: Iterable[str],
        dropped: set[str],
        count: int,
    ) -> tuple[list[QueueEntry], list[PoolEntry]]:
        """Return entries that the command named and left as they were: which they were is not known, their number is. A
        pool is removed only by a command that names all that stays."""
        named = {each.path for each in queues} | set(gone)
        named_pools = {each.pool for each in pools} | dropped
        queues_left = [QueueEntry(path=path, settings=each) for path, each in self._queues.items() if path not in named]
        pools_left = [
            PoolEntry(pool=name, settings=each) for name, each in self._pools.items() if name not in named_pools
        ]
        if dropped:
            return queues_left, pools_left
        return queues_left[:count], pools_left[: max(0, count - len(queues_left))]


def _id(cause: str) -> str:
    return cause[len(CMD_PREFIX) :]


def _with_authority(command: Any, event: ev.Event) -> Any:
    return command if event.authority is None else msgspec.structs.replace(command, authority=event.authority)


# ---------------------------------------------------------------------------- one event, one command


def _submitted(event: ev.JobSubmitted, _at_ns: int) -> Command:
    return cmd.SubmitJob(
        id=_id(event.cause),
        user=event.user,
        name=event.name,
        queue=event.queue,
        request=event.request,
        spec=event.spec,
        project=event.project,
        kind=event.kind,
        priority=event.priority,
        array=event.array,
        retries=event.retries,
        total_ns=event.total_ns,
        grace_ns=event.grace_ns,
        start_at_ns=event.start_at_ns,
        deadline_ns=event.deadline_ns,
        slice_ns=event.slice_ns,
        after=event.after,
        array_limit=event.array_limit,
        on_partition=event.on_partition,
        checkpoint=event.checkpoint,
        gang=event.gang,
        key=event.key,
        digest=event.digest,
    )


def _refused(event: ev.JobRejected, _at_ns: int) -> Command | None:
    """Return a refused submit, where the log says what was asked for."""
    asked: Any = event
    request = getattr(asked, "request", None)
    if request is None:
        return None
    return cmd.SubmitJob(
        id=_id(event.cause),
        user=event.user,
        name="refused",
        queue=asked.queue,
        request=request,
        spec=NO_FILE,
        project=asked.project,
        total_ns=asked.total_ns,
        array=asked.array,
    )


def _stop_requested(event: ev.JobStopRequested, _at_ns: int) -> Command | None:
    if event.reason == "requeued":
        return cmd.RequeueJob(id=_id(event.cause), user=event.by, job=event.job)
    return cmd.CancelJob(id=_id(event.cause), user=event.by, job=event.job, save=event.save)


def _signal_requested(event: ev.JobSignalRequested, _at_ns: int) -> Command:
    return cmd.SignalJob(id=_id(event.cause), user=event.by, job=event.job, signal=event.signal)


def _cancelled(event: ev.JobCancelled, _at_ns: int) -> Command:
    return cmd.CancelJob(id=_id(event.cause), user=event.by, job=event.job)


def _held(event: ev.JobHeld | ev.OfferWithdrawn, _at_ns: int) -> Command:
    return cmd.HoldJob(id=_id(event.cause), user=event.by, job=event.job)


def _released(event: ev.JobReleased, _at_ns: int) -> Command:
    return cmd.ReleaseJob(id=_id(event.cause), user=event.by, job=event.job)


def _moved(event: ev.JobMoved, _at_ns: int) -> Command:
    return cmd.MoveJob(id=_id(event.cause), user=event.by, job=event.job, queue=event.queue)


def _updated(event: ev.JobUpdated, _at_ns: int) -> Command:
    return cmd.UpdateJob(
        id=_id(event.cause),
        user=event.by,
        job=event.job,
        name=event.name,
        priority=event.priority,
        total_ns=event.total_ns,
        labels=event.labels,
        extends=event.extends,
    )


def _cordoned(event: ev.NodeCordoned, _at_ns: int) -> Command:
    return cmd.CordonNode(id=_id(event.cause), user=event.by, node=event.node, reason=event.reason)


def _uncordoned(event: ev.NodeUncordoned, _at_ns: int) -> Command:
    return cmd.UncordonNode(id=_id(event.cause), user=event.by, node=event.node)


def _draining(event: ev.NodeDraining, at_ns: int) -> Command:
    deadline_ns = max(1, event.deadline_ns - at_ns) if event.deadline_ns else 0
    return cmd.DrainNode(
        id=_id(event.cause), user=event.by, node=event.node, reason=event.reason, deadline_ns=deadline_ns
    )


def _tainted(event: ev.NodeTainted, _at_ns: int) -> Command:
    return cmd.TaintNode(id=_id(event.cause), user=event.by, node=event.node, taint=event.taint, reason=event.reason)


def _untainted(event: ev.NodeUntainted, _at_ns: int) -> Command:
    return cmd.UntaintNode(id=_id(event.cause), user=event.by, node=event.node, taint=event.taint)


def _quarantined(event: ev.NodeQuarantined, _at_ns: int) -> Command:
    return cmd.QuarantineNode(id=_id(event.cause), user=event.by, node=event.node, reason=event.reason)


def _unquarantined(event: ev.NodeUnquarantined, _at_ns: int) -> Command:
    return cmd.UnquarantineNode(id=_id(event.cause), user=event.by, node=event.node)


def _declared_dead(event: ev.NodeDeclaredDead, _at_ns: int) -> Command:
    return cmd.DeclareNodeDead(id=_id(event.cause), user=event.by, node=event.node, reason=event.reason)


def _removed(event: ev.NodeRemoved, _at_ns: int) -> Command:
    return cmd.RemoveNode(id=_id(event.cause), user=event.by, node=event.node, reason=event.reason)


def _gpu_restored(event: ev.GpuRestored, _at_ns: int) -> Command:
    return cmd.RestoreGpu(id=_id(event.cause), user=event.by, node=event.node, gpu=event.gpu)


def _recovered(event: ev.NodeRecovered, _at_ns: int) -> Command:
    return cmd.RestoreGpu(id=_id(event.cause), user=event.by, node=event.node)


def _breaker_reset(event: ev.BreakerReset, _at_ns: int) -> Command:
    return cmd.ResetBreaker(id=_id(event.cause), user=event.by)


def _window(event: ev.MaintenanceScheduled, _at_ns: int) -> Command:
    return cmd.ScheduleMaintenance(
        id=_id(event.cause),
        user=event.by,
        name=event.name,
        starts_ns=event.starts_ns,
        ends_ns=event.ends_ns,
        nodes=event.nodes,
        notice_ns=event.notice_ns,
        reason=event.reason,
    )


def _window_ended(event: ev.MaintenanceEnded, _at_ns: int) -> Command:
    return cmd.CancelMaintenance(id=_id(event.cause), user=event.by, name=event.name)


def _rollout(event: ev.RolloutStarted, _at_ns: int) -> Command:
    return cmd.StartRollout(
        id=_id(event.cause),
        user=event.by,
        name=event.name,
        budget_gpus=event.budget_gpus,
        nodes=event.nodes,
        nodes_max=event.nodes_max,
        want=event.want,
        deadline_ns=event.deadline_ns,
        stop_long=event.stop_long,
        reason=event.reason,
    )


def _rollout_paused(event: ev.RolloutPaused, _at_ns: int) -> Command:
    return cmd.PauseRollout(id=_id(event.cause), user=event.by, name=event.name, reason=event.reason)


def _rollout_resumed(event: ev.RolloutResumed, _at_ns: int) -> Command:
    return cmd.ResumeRollout(id=_id(event.cause), user=event.by, name=event.name)


def _rollout_ended(event: ev.RolloutEnded, _at_ns: int) -> Command:
    return cmd.CancelRollout(id=_id(event.cause), user=event.by, name=event.name)


def _rollout_advanced(event: ev.RolloutAdvanced, _at_ns: int) -> Command:
    return cmd.FinishRolloutNode(id=_id(event.cause), name=event.name, node=event.node)


def _untold(event: ev.Event, _at_ns: int) -> None:
    """The event does not tell what was asked."""


#: Commands that name a job or a node, and say nothing else that decides.
_OF_JOBS: dict[str, type[cmd.CancelJob | cmd.HoldJob | cmd.ReleaseJob | cmd.RequeueJob]] = {
    "CancelJob": cmd.CancelJob,
    "HoldJob": cmd.HoldJob,
    "ReleaseJob": cmd.ReleaseJob,
    "RequeueJob": cmd.RequeueJob,
}
_OF_NODES: dict[str, type[cmd.CordonNode | cmd.UncordonNode | cmd.UnquarantineNode | cmd.DeclareNodeDead]] = {
    "CordonNode": cmd.CordonNode,
    "UncordonNode": cmd.UncordonNode,
    "UnquarantineNode": cmd.UnquarantineNode,
    "DeclareNodeDead": cmd.DeclareNodeDead,
}


def _rejected(event: Any, _at_ns: int) -> Command | None:
    """Return a command that was refused, where the log says which: it may be in time in another play."""
    verb, about = getattr(event, "verb", ""), getattr(event, "about", "")
    if not about:
        return None
    if verb in _OF_JOBS:
        return _OF_JOBS[verb](id=_id(event.cause), job=about)
    return _OF_NODES[verb](id=_id(event.cause), node=about) if verb in _OF_NODES else None


#: {type of event: reader of the command that it answers}. An event of another type answers none.
READERS: dict[type, Callable[[Any, int], Command | None]] = {
    ev.JobSubmitted: _submitted,
    ev.JobRejected: _refused,
    ev.JobStopRequested: _stop_requested,
    ev.JobSignalRequested: _signal_requested,
    ev.JobCancelled: _cancelled,
    ev.JobHeld: _held,
    ev.OfferWithdrawn: _held,
    ev.JobReleased: _released,
    ev.JobMoved: _moved,
    ev.JobUpdated: _updated,
    ev.NodeCordoned: _cordoned,
    ev.NodeUncordoned: _uncordoned,
    ev.NodeDraining: _draining,
    ev.NodeTainted: _tainted,
    ev.NodeUntainted: _untainted,
    ev.NodeQuarantined: _quarantined,
    ev.NodeUnquarantined: _unquarantined,
    ev.NodeDeclaredDead: _declared_dead,
    ev.NodeRemoved: _removed,
    ev.GpuRestored: _gpu_restored,
    ev.NodeRecovered: _recovered,
    ev.BreakerReset: _breaker_reset,
    ev.MaintenanceScheduled: _window,
    ev.MaintenanceEnded: _window_ended,
    ev.RolloutStarted: _rollout,
    ev.RolloutPaused: _rollout_paused,
    ev.RolloutResumed: _rollout_resumed,
    ev.RolloutEnded: _rollout_ended,
    ev.RolloutAdvanced: _rollout_advanced,
    ev.CommandRejected: _rejected,
    ev.NodeCommandRejected: _rejected,
    ev.CommandRepeated: _untold,
}
