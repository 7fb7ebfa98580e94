"""Exit of a container, as accurately as it can be known. Pure.

The engine reports one number: 128+n for a signal and for `exit 128+n` alike. It was a signal for certain only where
the agent sent it, or the kernel killed for memory.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fairlead_agent.core.runs import Exit

SIGNALLED = 128
KILL, TERM = 9, 15
#: Names of signals by which programs end (Linux, signal(7)). Other signals are shown by number only.
_NAMES = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    KILL: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    TERM: "SIGTERM",
    24: "SIGXCPU",
    31: "SIGSYS",
}
SIGNALS_MAX = 64
OVER_MEMORY = "killed: over its memory limit"
GONE = Exit(message="its container was removed from outside Fairlead")
#: The exit codes with which a container ends that the engine itself stops.
_STOPPED = (SIGNALLED + KILL, SIGNALLED + TERM)
_ENDS_THEM = {True: "", False: ", which ends its containers when it stops (live-restore is off)"}


class EndKnowledge(NamedTuple):
    """Agent's knowledge of a container, in addition to the engine's final state."""

    #: The last signal that the agent sent, 0 for none.
    sent: int = 0
    #: Signal that came through the engine from another sender, 0 for none.
    foreign: int = 0
    #: The kernel killed in it for memory while it ran.
    over_memory: bool = False
    #: It ended while the engine was not there,
    engine_away: bool = False
    #: The engine lets its containers continue while it is away (live-restore).
    engine_spares: bool = False


def how(state: Mapping[str, Any], known: EndKnowledge) -> Exit:
    """From `State` of an inspected container that has ended."""
    code = int(state["ExitCode"])
    over_memory = known.over_memory or bool(state.get("OOMKilled"))
    message = str(state.get("Error") or "")[:200]
    number = code - SIGNALLED
    if over_memory and number == KILL:
        return Exit(signal=KILL, message=OVER_MEMORY, over_memory=True)
    if known.sent and code in _STOPPED:
        return Exit(signal=number)
    if known.foreign:
        return Exit(
            message=f"it was ended from outside Fairlead through the engine, with {name_of(known.foreign)} (exit code {code})"
        )
    if known.engine_away and (code in _STOPPED or not known.engine_spares):
        # Also with code 0: that is how a polite program ends when the engine's stop asks it to, its work half done.
        return Exit(
            message=f"it ended with exit code {code} while the Docker engine was away{_ENDS_THEM[known.engine_spares]}"
        )
    if over_memory:
        return Exit(code=code, message="a process of it was killed: over its memory limit", over_memory=code != 0)
    if code and not message and 0 < number <= SIGNALS_MAX:
        message = f"as a program ends by {name_of(number)}"
    return Exit(code=code, message=message)


def name_of(number: int) -> str:
    """ "signal 11 (SIGSEGV)"."""
    return f"signal {number} ({_NAMES[number]})" if number in _NAMES else f"signal {number}"
