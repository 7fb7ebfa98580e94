"""The view of services: their rules, replicas and keys. What a replica is doing is in its job's row."""

import msgspec

from fairlead_schemas.policies.services import ServiceRules, label_of_service
from fairlead_schemas.wire import events as ev


class ReplicaRow(msgspec.Struct, frozen=True):
    """Job that serves for a service; `retired`: why it gets no new requests, "" while it may."""

    job: str
    revision: int
    retired: str = ""


class KeyRow(msgspec.Struct, frozen=True):
    """Key of a service; `ServiceKeyIssued` defines the fields."""

    key: str
    name: str
    per_minute: int
    in_flight: int
    expires_ns: int
    by: str
    at_ns: int


class ServiceRow(msgspec.Struct):
    """Service, until its last replica has ended."""

    name: str
    label: str
    queue: str
    user: str
    project: str
    revision: int
    rules: ServiceRules
    wanted: int
    #: Time of its first job file, and of the newest one.
    created_ns: int
    applied_ns: int
    is_stopped: bool = False
    #: Why its last replica was refused; "": none was since.
    blocked: str = ""
    replicas: dict[str, ReplicaRow] = {}
    keys: dict[str, KeyRow] = {}
    #: {app proxy: (requests in flight, time of its report)}
    loads: dict[str, tuple[int, int]] = {}


class ServicesView:
    """Services by name."""

    def __init__(self) -> None:
        self.rows: dict[str, ServiceRow] = {}
        #: Derived: {label: name}, {job: its service}
        self.labels: dict[str, str] = {}
        self.of_job: dict[str, str] = {}
        self.handlers = {
            ev.ServiceApplied: self._applied,
            ev.ServiceScaled: self._scaled,
            ev.ServiceLoad: self._load,
            ev.ServiceBlocked: self._blocked,
            ev.ServiceStopped: self._stopped,
            ev.ReplicaRetired: self._retired,
            ev.ServiceKeyIssued: self._key_issued,
            ev.ServiceKeyRevoked: self._key_revoked,
            ev.JobSubmitted: self._submitted,
            ev.JobSucceeded: self._ended,
            ev.JobFailed: self._ended,
            ev.JobCancelled: self._ended,
        }

    def fill(self, rows: list[ServiceRow]) -> None:
        """Take the rows of a snapshot."""
        self.rows = {row.name: row for row in rows}
        self.labels = {row.label: row.name for row in rows}
        self.of_job = {job: row.name for row in rows for job in row.replicas}

    def _applied(self, event: ev.ServiceApplied, _seq: int, at_ns: int) -> None:
        row = self.rows.get(event.service)
        if row is None:
            label = label_of_service(event.service, event.queue)
            row = ServiceRow(
                event.service,
                label,
                event.queue,
                event.user,
                "",
                event.revision,
                event.rules,
                event.rules.replicas_min,
                at_ns,
                at_ns,
            )
            self.rows[event.service] = row
            self.labels[label] = event.service
        row.user, row.project, row.revision = event.user, event.template.project, event.revision
        row.rules, row.applied_ns, row.blocked = event.rules, at_ns, ""
        row.wanted = min(event.rules.replicas_max, max(event.rules.replicas_min, row.wanted))

    def _scaled(self, event: ev.ServiceScaled, _seq: int, _at_ns: int) -> None:
        row = self.rows[event.service]
        row.wanted, row.rules = event.wanted, event.rules or row.rules

    def _load(self, event: ev.ServiceLoad, _seq: int, at_ns: int) -> None:
        row = self.rows[event.service]
        if event.in_flight:
            row.loads[event.proxy] = event.in_flight, at_ns
        else:
            row.loads.pop(event.proxy, None)

    def _blocked(self, event: ev.ServiceBlocked, _seq: int, _at_ns: int) -> None:
        self.rows[event.service].blocked = event.message

    def _stopped(self, event: ev.ServiceStopped, _seq: int, _at_ns: int) -> None:
        row = self.rows[event.service]
        row.is_stopped = True
        row.keys.clear()
        self._forget_ended(row)

    def _retired(self, event: ev.ReplicaRetired, _seq: int, _at_ns: int) -> None:
        replicas = self.rows[event.service].replicas
        replicas[event.job] = msgspec.structs.replace(replicas[event.job], retired=event.reason)

    def _key_issued(self, event: ev.ServiceKeyIssued, _seq: int, at_ns: int) -> None:
        self.rows[event.service].keys[event.key] = KeyRow(
            event.key, event.name, event.per_minute, event.in_flight, event.expires_ns, event.by, at_ns
        )

    def _key_revoked(self, event: ev.ServiceKeyRevoked, _seq: int, _at_ns: int) -> None:
        self.rows[event.service].keys.pop(event.key, None)

    def _submitted(self, event: ev.JobSubmitted, _seq: int, _at_ns: int) -> None:
        if event.service:
            row = self.rows[event.service]
            row.replicas[event.job] = ReplicaRow(event.job, event.revision)
            row.blocked = ""
            self.of_job[event.job] = event.service

    def _ended(self, event: ev.JobSucceeded | ev.JobFailed | ev.JobCancelled, _seq: int, _at_ns: int) -> None:
        service = self.of_job.pop(event.job, None)
        if service is not None:
            row = self.rows[service]
            row.replicas.pop(event.job)
            self._forget_ended(row)

    def _forget_ended(self, row: ServiceRow) -> None:
        if row.is_stopped and not row.replicas:
            del self.rows[row.name], self.labels[row.label]
