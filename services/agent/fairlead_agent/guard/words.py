"""What a run's environment says to the guard. `launch.py` puts it there; a job file cannot."""

from collections.abc import Iterable

from fairlead_agent.lease import NEVER_NS

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
