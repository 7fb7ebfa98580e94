"""Decisions about services: answers to commands, and the steps by which their replicas come and go.

Replicas enter as any job does, by the rules of their queue; where one is refused, that is an event and it is tried again. What is to be done is
`waiting/services.py`'s plan. Start at `reconcile_services`.
"""

import msgspec

from fairlead_bus.core import CommandRefusal, encoded_bytes
from fairlead_queue.decide.admission import accepted_job, submit_refusal, unknown_queue
from fairlead_queue.decide.draft import QueueDraft
from fairlead_queue.limits import SUBMIT_BYTES
from fairlead_queue.waiting.services import LiveService
from fairlead_schemas.policies import services as policy
from fairlead_schemas.policies.services import faults_of, is_service_name
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import COMMIT_BYTES_MAX

#: Bytes of a job file of a service: its replicas are submitted without a command each, a few in one commit.
SPEC_BYTES_MAX = COMMIT_BYTES_MAX // 8
KEY_NAME_CHARS_MAX = 80
#: Characters of the reason of a refusal that is repeated in ServiceBlocked.
REASON_CHARS_MAX = 200
#: Why a job that is not needed any more ends: nobody asked, so no user is named.
_CAUSE = "clock"


def reconcile_services(draft: QueueDraft) -> None:
    """Take the steps that are due, service by service, while the commit has room."""
    for name in [*draft.state.restless]:
        if name not in draft.services:
            _reconcile(draft, draft.state.services[name])


def _reconcile(draft: QueueDraft, service: LiveService) -> None:
    plan = draft.state.plan_of(service, draft.now_ns, draft.states)
    if plan.scale is not None:
        if draft.has_room():
            draft.emit(ev.ServiceScaled(cause=_CAUSE, service=service.name, wanted=plan.scale, reason="load"))
        return
    for job, reason in plan.retire:
        if not draft.has_room():
            return
        draft.emit(ev.ReplicaRetired(cause=_CAUSE, service=service.name, job=job, reason=reason))
    for job in plan.end:
        if not draft.has_room():
            return
        _end(draft, service, job)
    for _ in range(plan.submit):
        if not _submit(draft, service):
            return


def _end(draft: QueueDraft, service: LiveService, id_: str) -> None:
    job = draft.state.jobs[id_]
    by, state = service.stopped_by, draft.states.get(id_, job.state)
    if state in ("offered", "placed", "running"):
        stop = ev.JobStopRequested(cause=_CAUSE, job=id_, attempt=job.attempt, reason="cancelled", by=by)
        draft.emit(stop, encoded_bytes(by))
        draft.states[id_] = "stopping"
    else:
        draft.emit(ev.JobCancelled(cause=_CAUSE, job=id_, by=by, attempt=job.attempt), encoded_bytes(by))
        draft.states[id_] = "cancelled"


def _submit(draft: QueueDraft, service: LiveService) -> bool:
    """Submit one replica; return whether another may follow now."""
    template = service.template
    spec_bytes = len(memoryview(template.spec))
    if not draft.has_room(2 + (SUBMIT_BYTES + spec_bytes) // draft.EVENT_BYTES):
        return False
    command = cmd.SubmitJob(
        id="",
        user=service.user,
        name=service.name,
        queue=service.queue,
        request=template.request,
        spec=template.spec,
        project=template.project,
        kind="service",
        priority=template.priority,
        total_ns=template.total_ns,
        grace_ns=template.grace_ns,
        slice_ns=template.slice_ns,
        on_partition=template.on_partition,
        checkpoint=template.checkpoint,
        gang=template.gang,
    )
    refused = submit_refusal(draft, command)
    if refused is not None:
        message = refused.message[:REASON_CHARS_MAX]
        blocked = ev.ServiceBlocked(cause=_CAUSE, service=service.name, code=refused.code, message=message)
        draft.emit(blocked, encoded_bytes(message))
        return False
    draft.emit(accepted_job(draft, command, _CAUSE, service.name, service.revision), SUBMIT_BYTES + spec_bytes)
    return True


# ------------------------------------------------------------------------------- commands


def apply_service(draft: QueueDraft, command: cmd.ApplyService, cause: str) -> ev.QueueEvent | CommandRefusal:
    """Make a service, or another revision of it; the same job file again changes no revision."""
    name, template = command.service, command.template
    if not is_service_name(name):
        return CommandRefusal("invalid", f'name: expected {policy.NAME_WORDS}, found "{name[:40]}"', "name")
    if found := faults_of(command.rules):
        return CommandRefusal("invalid", found[0].message, found[0].field)
    if len(memoryview(template.spec)) > SPEC_BYTES_MAX:
        return CommandRefusal("invalid", f"expected a job file of at most {SPEC_BYTES_MAX} bytes for a service")
    known = draft.state.services.get(name)
    if (refused := _busy(draft, name)) is not None:
        return refused
    if known is not None and known.queue != command.queue:
        return CommandRefusal("conflict", f"name: the name {name} is taken; choose another one", "name")
    if known is None and len(draft.state.services) + len(draft.services) >= policy.SERVICES_MAX:
        return CommandRefusal("too_many", f"expected at most {policy.SERVICES_MAX} services")
    if (refused := unknown_queue(draft, command.queue)) is not None:
        return refused
    submit = cmd.SubmitJob(
        id=command.id,
        user=command.user,
        name=name,
        queue=command.queue,
        request=template.request,
        spec=template.spec,
        project=template.project,
        priority=template.priority,
        total_ns=template.total_ns,
        grace_ns=template.grace_ns,
        slice_ns=template.slice_ns,
        on_partition=template.on_partition,
        checkpoint=template.checkpoint,
    )
    if (refused := submit_refusal(draft, submit)) is not None:
        return refused
    draft.services.add(name)
    draft.entered.add(command.queue)
    revision = 1 if known is None else known.revision + (known.template != template)
    return ev.ServiceApplied(
        cause=cause,
        service=name,
        queue=command.queue,
        user=command.user,
        revision=revision,
        template=template,
        rules=command.rules,
    )


def scale_service(draft: QueueDraft, command: cmd.ScaleService, cause: str) -> ev.QueueEvent | CommandRefusal:
    """Give a service another number of replicas."""
    service = _service(draft, command.service)
    if isinstance(service, CommandRefusal):
        return service
    rules = msgspec.structs.replace(service.rules, replicas_min=command.replicas_min, replicas_max=command.replicas_max)
    if found := faults_of(rules):
        field = found[0].field.removeprefix("service.")
        return CommandRefusal("invalid", f"{field}: {found[0].message}", field)
    draft.services.add(service.name)
    wanted = min(rules.replicas_max, max(rules.replicas_min, service.wanted))
    return ev.ServiceScaled(cause=cause, service=service.name, wanted=wanted, rules=rules, by=command.user)


def report_load(draft: QueueDraft, command: cmd.ReportServiceLoad, cause: str) -> ev.QueueEvent | CommandRefusal:
    """Record the load of one app proxy."""
    service = _service(draft, command.service)
    if isinstance(service, CommandRefusal):
        return service
    if not is_token(command.proxy):
        return CommandRefusal("invalid", f'proxy: expected 1 to 63 of a-z 0-9 _ -, found "{command.proxy[:40]}"')
    if not 0 <= command.in_flight <= policy.IN_FLIGHT_MAX * policy.PROXIES_MAX:
        return CommandRefusal("invalid", f"in_flight: expected 0 or more, found {command.in_flight}")
    if command.proxy not in service.loads and len(service.loads) >= policy.PROXIES_MAX:
        return CommandRefusal("too_many", f"expected at most {policy.PROXIES_MAX} app proxies")
    draft.services.add(service.name)
    return ev.ServiceLoad(cause=cause, service=service.name, proxy=command.proxy, in_flight=command.in_flight)


def stop_service(draft: QueueDraft, command: cmd.StopService, cause: str) -> ev.QueueEvent | CommandRefusal:
    """End a service."""
    service = _service(draft, command.service)
    if isinstance(service, CommandRefusal):
        return service
    draft.services.add(service.name)
    return ev.ServiceStopped(cause=cause, service=service.name, by=command.user)


def issue_key(draft: QueueDraft, command: cmd.IssueServiceKey, cause: str) -> ev.QueueEvent | CommandRefusal:
    """Let programs use a service by a key."""
    service = _service(draft, command.service)
    if isinstance(service, CommandRefusal):
        return service
    if not is_token(command.key) or command.key in service.keys:
        return CommandRefusal("invalid", f'key: expected the id of a new key, found "{command.key[:40]}"', "key")
    if len(command.name) > KEY_NAME_CHARS_MAX or not command.name.isprintable():
        return CommandRefusal("invalid", f"expected at most {KEY_NAME_CHARS_MAX} printable characters", "name")
    if len(service.keys) >= policy.KEYS_OF_SERVICE_MAX:
        return CommandRefusal(
            "too_many", f"service {service.name} has {policy.KEYS_OF_SERVICE_MAX} keys: revoke one first"
        )
    for field, found, most in (
        ("per_minute", command.per_minute, policy.PER_MINUTE_MAX),
        ("in_flight", command.in_flight, policy.IN_FLIGHT_MAX),
    ):
        if not 0 <= found <= most:
            return CommandRefusal("invalid", f"expected 1 to {most}, or 0 for no bound, found {found}", field)
    if command.expires_ns and command.expires_ns <= draft.now_ns:
        return CommandRefusal("invalid", "expected a time to come", "expires")
    draft.services.add(service.name)
    return ev.ServiceKeyIssued(
        cause=cause,
        service=service.name,
        key=command.key,
        name=command.name,
        per_minute=command.per_minute,
        in_flight=command.in_flight,
        expires_ns=command.expires_ns,
        by=command.user,
    )


def revoke_key(draft: QueueDraft, command: cmd.RevokeServiceKey, cause: str) -> ev.QueueEvent | CommandRefusal:
    """Revoke a key of a service."""
    service = _service(draft, command.service)
    if isinstance(service, CommandRefusal):
        return service
    if command.key not in service.keys:
        return CommandRefusal("not_found", f"service {service.name} has no key {command.key[:40]}")
    draft.services.add(service.name)
    return ev.ServiceKeyRevoked(cause=cause, service=service.name, key=command.key, by=command.user)


def _service(draft: QueueDraft, name: str) -> LiveService | CommandRefusal:
    """Return a service that this decision has not changed yet, so that a command never sees half of what another one did."""
    service = draft.state.services.get(name)
    refused = _busy(draft, name)
    if refused is not None:
        return refused
    if service is None:
        return CommandRefusal("not_found", f"there is no service {name[:80]}")
    return service


def _busy(draft: QueueDraft, name: str) -> CommandRefusal | None:
    if name in draft.services:
        return CommandRefusal(
            "conflict", f"service {name} is being changed by another command at this moment; send it again"
        )
    service = draft.state.services.get(name)
    if service is not None and service.is_stopped:
        return CommandRefusal("conflict", f"service {name} is being stopped: its replicas have not ended yet")
    return None
