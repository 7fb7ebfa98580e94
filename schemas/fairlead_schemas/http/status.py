"""Documents of the cluster's processes: which of them lead, what each version can read, and the servers' copies of streams."""

from typing import Literal

import msgspec


class ProcessInfo(msgspec.Struct, kw_only=True):
    """Process of a service that states that it runs."""

    service: str
    #: FAIRLEAD_INSTANCE, or host and process id.
    name: str
    #: leads | stands_by: of a service that writes the log, of which one process leads; the others wait for its lease.
    #: serves: of a service whose processes all work.
    role: Literal["leads", "stands_by", "serves"]
    #: "": of a version that does not state it.
    version: str
    #: The highest level of the log's format that it knows.
    level: int
    #: Seconds since it last stated that it runs.
    heard_s: float


class ServerInfo(msgspec.Struct, kw_only=True):
    """Server of the bus, by what the leaders of streams know of it."""

    name: str
    #: current | behind | offline; the worst over all streams of which it has a copy.
    state: Literal["current", "behind", "offline"]
    #: Streams that it leads.
    leads: list[str]
    #: Most operations that one of its copies is behind.
    lag: int


class StreamInfo(msgspec.Struct, kw_only=True):
    """Stream with its copies."""

    name: str
    #: Copies that it should have, and those that are current.
    copies: int
    current: int
    #: Server that leads it; "" while there is none, and where one server is alone.
    leader: str


class ClusterStatus(msgspec.Struct, kw_only=True):
    """Processes, servers and streams of the cluster, and the level of the log's format."""

    sequence: int
    #: Level to which the log was raised: what needs a higher one is not written.
    level: int
    #: The highest level that every process knows, to which it may be raised.
    raisable: int
    #: Reasons why it cannot be raised to this gateway's own level, with the names of processes; none where it can.
    hindrances: list[str]
    processes: list[ProcessInfo]
    servers: list[ServerInfo]
    streams: list[StreamInfo]
