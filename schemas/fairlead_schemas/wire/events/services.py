"""Events of services and their replicas, written by the queue: a replica is a job, and who starts and ends jobs is the queue."""

from typing import Literal

import msgspec

from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.policies.launchers import GangRule
from fairlead_schemas.policies.partitions import AS_THE_CLUSTER, OnPartition
from fairlead_schemas.policies.services import ServiceRules
from fairlead_schemas.wire.events.base import EventBase
from fairlead_schemas.wire.resources import Request

#: Why the number of replicas is another one: a person, or the requests in flight.
ScaleReason = Literal["asked", "load"]
#: Why a replica is taken out: another one of the newest revision, of a node that is not drained, or none is there for it.
RetireReason = Literal["revision", "drain", "scale"]


class ReplicaJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The job that each replica of a revision is. The fields are those of JobSubmitted."""

    request: Request
    spec: msgspec.Raw
    project: str = ""
    priority: int = 50
    total_ns: int = 0
    grace_ns: int = 0
    slice_ns: int = 0
    on_partition: OnPartition = AS_THE_CLUSTER
    checkpoint: Checkpoint | None = None
    gang: GangRule = ""


class ServiceApplied(EventBase, tag=True, frozen=True, kw_only=True):
    """A service exists from here on, or is another one: replicas of earlier revisions are replaced."""

    service: str
    queue: str
    user: str
    revision: int
    template: ReplicaJob
    rules: ServiceRules


class ServiceScaled(EventBase, tag=True, frozen=True, kw_only=True):
    """Another number of replicas is wanted."""

    service: str
    wanted: int
    reason: ScaleReason = "asked"
    #: Of "asked": the rules from here on.
    rules: ServiceRules | None = None
    by: str = ""


class ServiceLoad(EventBase, tag=True, frozen=True, kw_only=True):
    """One app proxy has so many requests of a service in flight, those that wait for a replica included."""

    service: str
    proxy: str
    in_flight: int


class ServiceBlocked(EventBase, tag=True, frozen=True, kw_only=True):
    """No replica of a service can be submitted; it is tried again."""

    service: str
    code: str
    message: str


class ServiceStopped(EventBase, tag=True, frozen=True, kw_only=True):
    """A service ends, with all its replicas and keys."""

    service: str
    by: str = ""


class ReplicaRetired(EventBase, tag=True, frozen=True, kw_only=True):
    """A replica gets no new requests from here on. The queue ends its job once the service's drain time is over."""

    service: str
    job: str
    reason: RetireReason


class ServiceKeyIssued(EventBase, tag=True, frozen=True, kw_only=True):
    """Programs may send requests to a service by a key. Its text and digest are never in the log."""

    service: str
    key: str
    name: str = ""
    #: Requests in a minute, and at a time; 0: no bound.
    per_minute: int = 0
    in_flight: int = 0
    expires_ns: int = 0
    by: str = ""


class ServiceKeyRevoked(EventBase, tag=True, frozen=True, kw_only=True):
    """No request may be sent by a key any more."""

    service: str
    key: str
    by: str = ""
