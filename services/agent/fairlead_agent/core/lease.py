"""Lease contents, and the constants that agent and guard must agree upon. Pure; imports the standard library alone, as the
guard does.

Variables of a run's environment for the guard. `launch/plan.py` sets them; a job file cannot.
"""

from collections.abc import Iterable
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
    """Lease data for the guard. Times are nanoseconds since boot (`lease_file.boottime_ns`)."""

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


#: Seconds without a lease after which the run is stopped, or "never"; only where that is not what its node does.
STOP_AFTER = "FAIRLEAD_STOP_AFTER"
NEVER = "never"


def stop_after_word(stop_after_ns: int) -> str:
    """The variable's value."""
    return NEVER if stop_after_ns == NEVER_NS else f"{stop_after_ns / 1e9:g}"


def stop_after_in(environment: Iterable[bytes]) -> int:
    """Nanoseconds, or NEVER_NS; 0 where the environment says nothing that can be read."""
    prefix = f"{STOP_AFTER}=".encode()
    text = next((line[len(prefix) :].decode(errors="replace") for line in environment if line.startswith(prefix)), "")
    if text == NEVER:
        return NEVER_NS
    try:
        return max(0, int(float(text) * 1e9)) if text else 0
    except (ValueError, OverflowError):
        return 0
