"""Fields that every event carries, and their meaning; and clock events of each writer of the log.

Clock events are written by the service shell, which has the clock; cores base no decision on them.
"""

import msgspec

from fairlead_schemas.wire.authority import Authority

#: What a field means in every event that has it and says nothing else.
FIELDS: dict[str, str] = {
    "level": "Level of the log's format.",
    "job": 'Id of a job ("12"), an array ("12") or an array\'s element ("12_3").',
    "attempt": "The attempt concerned, from 1.",
    "rank": "Position of the node's part in the placement, from 0.",
    "node": "Id of the node.",
    "by": 'The user who requested it; "" without one.',
    "user": "Who asked for it.",
    "command": "Id of the command that it answers.",
    "code": "A word for programs.",
    "message": "A sentence for people.",
    "reason": "Why.",
    "digest": "SHA-256 (hex) that names the bytes.",
    "outcome": "How it ended.",
    "exit_code": "Exit code of the process; absent if a signal ended it or its end was not observed.",
    "signal": "The signal that ended the process.",
    "inventory": "What the node has.",
    "boot_id": "Names the boot of the machine; another one means that it was restarted.",
    "queue": "Path of the queue.",
    "path": "Path of the queue.",
    "jobs": "Ids of jobs.",
    "deadline_ns": "The Unix time by which it was to have ended.",
    "pool": "Name of the pool.",
    "settings": "The whole setting, in integers.",
    "configured": "How many were made or changed.",
    "removed": "How many were removed.",
    "unchanged": "How many were as they are wanted already.",
    "move_to": "The queue that its waiting jobs are in from here on.",
    "resource": 'What of: "gpu", "gpu:<model>", "cpu" or "memory".',
    "held": "What is held under the limit.",
    "needed": "What the job needs.",
    "ceiling": "The limit.",
    "waited_ns": "How long it has waited.",
    "victims": "Who may yield, in order.",
    "amounts": "{resource: amount}.",
    "budget": "The whole budget, in the unit of `spent`.",
    "beneficiary": "Whom it yields to.",
    "rule": "By which rule.",
    "nodes": "Ids of nodes.",
    "state": "How the other must have ended.",
    "released": "Whether what it held is free again, on evidence.",
    "gpu": "UUID of the GPU.",
    "taint": 'As Kubernetes writes it: "key=value:Effect".',
    "setter": "Which class set it.",
    "name": "Its name.",
    "budget_gpus": "Most GPUs of its nodes that may take no work at once.",
    "starts_ns": "The Unix time at which the nodes must be empty.",
    "ends_ns": "The Unix time at which they take work again.",
    "plan": "Sequence of the commit whose MigLayoutPlanned it answers.",
    "mode": "What is done to the GPU's MIG mode.",
    "scope": 'Whose policy it is: "global", "project:<name>" or "user:<name>".',
    "principal": "Opaque id of a person or a service account.",
    "subject": 'A principal, or "group:<name>".',
    "group": 'Name of the group: "group:<name>".',
    "role": "Name of the role.",
    "source": "Origin of the statement; each source takes back its own only.",
    "token": "Opaque id of the token, never its text.",
    "session": "Opaque id of the sign-in, never its cookie.",
    "service": "Name of the service.",
    "revision": "Number of the service's job file, from 1.",
    "wanted": "How many replicas are wanted.",
    "in_flight": "Requests at a time.",
    "template": "The job that each replica is.",
    "rules": "How many replicas there are, and how they are replaced.",
    "key": "Opaque id of the key, never its text.",
    "proxy": "Name of the app proxy.",
    "volume": "Name of the volume.",
    "dataset": 'Name and version of the dataset: "imagenet@2012.1".',
    "storage_class": "Name of the class of storage.",
    "quota_bytes": "Most bytes that it may hold.",
    "size_bytes": "Bytes of all its files.",
    "files": "Number of its files.",
    "expires_ns": "Unix time at which it ends by itself.",
    "action": "What the policy does once the notice is over.",
    "evidence": "What decided: one entry for each signal that was asked about.",
    "since_ns": "Unix time since which that holds.",
    "ran_ns": "Run time by its node's monotonic clock; 0: not known.",
    "step_ns": "By how much the wall clock was set; positive: forward.",
    "lag_ns": "Distance from log time to the wall clock afterwards; positive: the wall clock is ahead.",
}


class EventBase(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"
):
    """Fields that every event carries."""

    cause: str
    #: Right by which the command was sent that this event answers; None without a signed-in caller.
    authority: Authority | None = None


class QueueClockStepped(EventBase, tag=True, frozen=True, kw_only=True):
    """The wall clock of the queue's machine was set. Log time continues as before and slowly approaches the new clock."""

    step_ns: int
    lag_ns: int = 0


class PlacerClockStepped(EventBase, tag=True, frozen=True, kw_only=True):
    """The wall clock of the placer's machine was set. Log time continues as before and slowly approaches the new
    clock.
    """

    step_ns: int
    lag_ns: int = 0


class TelemetryClockStepped(EventBase, tag=True, frozen=True, kw_only=True):
    """The wall clock of the telemetry service's machine was set. Log time continues as before and slowly approaches
    the new clock.
    """

    step_ns: int
    lag_ns: int = 0


class AccessClockStepped(EventBase, tag=True, frozen=True, kw_only=True):
    """The wall clock of the access service's machine was set. Log time continues as before and slowly approaches the new
    clock.
    """

    step_ns: int
    lag_ns: int = 0


class StorageClockStepped(EventBase, tag=True, frozen=True, kw_only=True):
    """The wall clock of the storage service's machine was set. Log time continues as before and slowly approaches the new
    clock.
    """

    step_ns: int
    lag_ns: int = 0


type ClockStepped = (
    QueueClockStepped | PlacerClockStepped | TelemetryClockStepped | AccessClockStepped | StorageClockStepped
)

#: Which of them a writer emits.
CLOCK_STEPPED: dict[
    str,
    type[QueueClockStepped]
    | type[PlacerClockStepped]
    | type[TelemetryClockStepped]
    | type[AccessClockStepped]
    | type[StorageClockStepped],
] = {
    "queue": QueueClockStepped,
    "placer": PlacerClockStepped,
    "telemetry": TelemetryClockStepped,
    "access": AccessClockStepped,
    "storage": StorageClockStepped,
}
