"""Effects of events on services and their replicas. Called by `evolve` only.

After each event that concerns a service, `_settle` notes whether anything is to be done about it, now or at a known time: a decision looks at
those services alone.
"""

from typing import Any

import msgspec

from fairlead_bus.core import EventHandler, EventHandlers, EventPosition
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.services import LiveReplica, LiveService, ServiceKey
from fairlead_schemas.wire import events as ev


def _applied(state: QueueState, event: ev.ServiceApplied, at: EventPosition) -> None:
    service = state.services.get(event.service)
    wanted = event.rules.replicas_min
    # The bytes of the spec are a part of the whole commit's, which nobody else holds.
    template = msgspec.structs.replace(event.template, spec=event.template.spec.copy())
    if service is None:
        service = LiveService(event.service, event.queue, event.user, event.revision, template, event.rules, wanted)
        state.services[event.service] = service
    else:
        if service.revision != event.revision:
            service.failures = service.not_before_ns = 0
        service.user, service.revision, service.template = event.user, event.revision, template
        service.rules, service.blocked = event.rules, ""
        service.wanted = min(event.rules.replicas_max, max(wanted, service.wanted))
    service.needed_ns = state.at_ns
    _settle(state, service)


def _scaled(state: QueueState, event: ev.ServiceScaled, at: EventPosition) -> None:
    service = state.services[event.service]
    if event.rules is not None:
        service.rules = event.rules
    service.wanted, service.needed_ns = event.wanted, state.at_ns
    _settle(state, service)


def _load(state: QueueState, event: ev.ServiceLoad, at: EventPosition) -> None:
    service = state.services[event.service]
    service.note_need(state.at_ns)
    if event.in_flight:
        service.loads[event.proxy] = event.in_flight, state.at_ns
    else:
        service.loads.pop(event.proxy, None)
    _settle(state, service)


def _blocked(state: QueueState, event: ev.ServiceBlocked, at: EventPosition) -> None:
    service = state.services[event.service]
    service.blocked = event.message
    service.note_failure(state.at_ns)
    _settle(state, service)


def _stopped(state: QueueState, event: ev.ServiceStopped, at: EventPosition) -> None:
    service = state.services[event.service]
    service.is_stopped, service.stopped_by = True, event.by
    service.keys.clear()
    _settle(state, service)


def _retired(state: QueueState, event: ev.ReplicaRetired, at: EventPosition) -> None:
    service = state.services[event.service]
    service.replicas[event.job].retired_ns = state.at_ns
    _settle(state, service)


def _key_issued(state: QueueState, event: ev.ServiceKeyIssued, at: EventPosition) -> None:
    key = ServiceKey(event.key, event.name, event.per_minute, event.in_flight, event.expires_ns)
    state.services[event.service].keys[event.key] = key


def _key_revoked(state: QueueState, event: ev.ServiceKeyRevoked, at: EventPosition) -> None:
    del state.services[event.service].keys[event.key]


def _submitted(state: QueueState, event: ev.JobSubmitted, at: EventPosition) -> None:
    if not event.service:
        return
    service = state.services[event.service]
    service.replicas[event.job] = LiveReplica(event.job, event.revision)
    service.blocked = ""
    state.replicas[event.job] = service
    _settle(state, service)


def _app_ready(state: QueueState, event: ev.AppReady, at: EventPosition) -> None:
    service = state.replicas.get(event.job)
    job = state.jobs.get(event.job)
    if service is None or job is None or job.attempt != event.attempt:
        return
    service.replicas[event.job].is_ready = True
    service.failures = 0
    _settle(state, service)


def _requeued(state: QueueState, event: ev.JobRequeued, at: EventPosition) -> None:
    service = state.replicas.get(event.job)
    if service is not None:
        service.replicas[event.job].is_ready = False
        _settle(state, service)


def _touched(state: QueueState, event: Any, at: EventPosition) -> None:
    service = state.replicas.get(event.job)
    if service is not None:
        _settle(state, service)


def _ended(*, by_itself: bool) -> EventHandler[QueueState]:
    def handler(state: QueueState, event: Any, at: EventPosition) -> None:
        service = state.replicas.pop(event.job, None)
        if service is None:
            return
        replica = service.replicas.pop(event.job)
        if by_itself and not replica.retired_ns:
            service.note_failure(state.at_ns)
        _settle(state, service)

    return handler


def _draining(state: QueueState, event: ev.NodeDraining, at: EventPosition) -> None:
    state.nodes.draining.add(event.node)
    settle_services(state)


def _not_draining(state: QueueState, event: ev.NodeUncordoned | ev.NodeRemoved, at: EventPosition) -> None:
    if event.node in state.nodes.draining:
        state.nodes.draining.discard(event.node)
        settle_services(state)


def settle_services(state: QueueState) -> None:
    """Note for all services whether anything is to be done about them."""
    for service in [*state.services.values()]:
        _settle(state, service)


def _settle(state: QueueState, service: LiveService) -> None:
    if service.is_stopped and not service.replicas:
        del state.services[service.name]
        state.restless.pop(service.name, None)
        return
    plan = state.plan_of(service, state.at_ns)
    if plan.is_empty and plan.next_ns is None:
        state.restless.pop(service.name, None)
    else:
        state.restless[service.name] = None


#: Handlers for events that other tables of the queue handle, too: these come after those, while there are services or nodes that
#: are drained.
FOLLOWING: EventHandlers[QueueState] = {
    ev.JobSubmitted: _submitted,
    ev.JobRequeued: _requeued,
    ev.JobStopRequested: _touched,
    ev.JobPlaced: _touched,
    ev.RunStarted: _touched,
    ev.RunEnded: _touched,
    ev.JobSucceeded: _ended(by_itself=True),
    ev.JobFailed: _ended(by_itself=True),
    ev.JobCancelled: _ended(by_itself=False),
    ev.NodeUncordoned: _not_draining,
    ev.NodeRemoved: _not_draining,
}
HANDLERS: EventHandlers[QueueState] = {
    ev.ServiceApplied: _applied,
    ev.ServiceScaled: _scaled,
    ev.ServiceLoad: _load,
    ev.ServiceBlocked: _blocked,
    ev.ServiceStopped: _stopped,
    ev.ReplicaRetired: _retired,
    ev.ServiceKeyIssued: _key_issued,
    ev.ServiceKeyRevoked: _key_revoked,
    ev.AppReady: _app_ready,
    ev.NodeDraining: _draining,
}


def follow(state: QueueState, event: Any, at: EventPosition) -> None:
    """Apply what an event means for services, after the handler of its own table."""
    kind: type[Any] = event.__class__
    handler = FOLLOWING.get(kind)
    if handler is not None:
        handler(state, event, at)
