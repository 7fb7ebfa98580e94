"""Documents of the HTTP API about services. Times are RFC 3339, UTC."""

from typing import Literal

import msgspec

#: Of a replica: its job waits, its application does not answer yet, it takes requests, or it takes none any more.
ReplicaState = Literal["waiting", "starting", "serving", "leaving"]


class ServiceReplica(msgspec.Struct, kw_only=True):
    """Replica of a service, which is a job."""

    job: str
    revision: int
    state: ReplicaState
    node: str
    #: Why it takes no new requests: revision, drain or scale; "" while it may.
    retired: str = ""


class ServiceInfo(msgspec.Struct, kw_only=True):
    """Service, and what the caller may do with it."""

    name: str
    queue: str
    user: str
    project: str
    revision: int
    #: Least and largest number of replicas, the number that is wanted now, and those that take requests.
    replicas_min: int
    replicas_max: int
    wanted: int
    serving: int
    #: Requests in flight for which one replica is wanted; 0: the number is fixed.
    requests: int
    #: First label of its host name.
    label: str
    #: Where programs reach it: the host of its own ("": the site has no names for applications), and the app proxy, by the key alone.
    url: str
    address: str
    created_at: str
    applied_at: str
    stopping: bool
    #: Why no replica can be submitted; "" where none was refused.
    blocked: str
    replicas: list[ServiceReplica]
    #: Verbs of the caller on it, such as job:cancel.
    may: list[str]
    sequence: int


class ServiceKeyInfo(msgspec.Struct, kw_only=True):
    """Key of a service. 0: no bound."""

    key: str
    name: str
    per_minute: int
    in_flight: int
    created_at: str
    created_by: str
    #: null: until it is revoked.
    expires_at: str | None
    sequence: int


class NewServiceKey(ServiceKeyInfo, kw_only=True):
    """New key, with its text, which is shown once."""

    token: str


class ServiceChanged(msgspec.Struct, kw_only=True):
    """Answer to a stop, or to a revoked key: its name."""

    name: str
    sequence: int
