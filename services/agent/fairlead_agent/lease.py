"""What a lease says, and what agent and guard must agree upon. Pure; imports the standard library alone, as the guard does."""

from typing import NamedTuple

#: The file's name in an agent's directory.
NAME = "lease"
#: Of a job's own words: it is never stopped for silence.
NEVER_NS = -1
#: The shortest time that a job may be given without a lease: earlier nothing needs to be looked for.
STOP_AFTER_LEAST_NS = 10_000_000_000
#: The guard waits for this part of the margin before it takes a silent agent for dead or hung.
GUARD_WAITS = 3


class Lease(NamedTuple):
    """What the guard must know. Times are nanoseconds since boot (`lease_file.boottime_ns`)."""

    boot_id: str
    node: str
    incarnation: str
    runtime: str  # process | docker
    #: The moment of the newest beat that the placer has answered, or of the agent's start.
    renewed_ns: int
    #: Silence after which a run is stopped that says nothing else; from TERM to KILL; from then to the placer's lease.
    fence_ns: int
    grace_ns: int
    margin_ns: int
