"""Checkpoint settings of a job: the notice of a near end, and the time that the job then has. In integers.

The job file's words for them are in `jobfile/resolve.py`. A statement of the job ("saved, at step 1200") is a
report (reports.CheckpointSeen) and then an event (events.CheckpointSaved).
"""

import msgspec

from fairlead_schemas.units.timestamps import HOUR_NS
from fairlead_schemas.units.validation import FieldError

#: Signals that may notify a program. Their numbers depend on the node.
SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT", "SIGHUP")
#: Signals that a person may send to a run (`fairlead cancel --signal`): launchers and containers pass them on to the program.
SENT_SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGINT", "SIGHUP")
_SIGNAL_NUMBERS = {"1": "HUP", "2": "INT", "3": "QUIT", "9": "KILL", "10": "USR1", "12": "USR2", "15": "TERM"}
#: A job that waits for the GPUs waits for the notice, too.
NOTICE_NS_MAX = HOUR_NS
#: For all words of the command together: the log and every order carry them.
COMMAND_CHARS_MAX = 1024
#: What a job says with its word: "step=1200".
NOTE_CHARS_MAX = 200


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """Settings of a job that reports its saves; with `signal` or `command` it is notified before TERM."""

    #: Sent to the program itself, not to its children.
    signal: str = ""
    #: Run next to the program, in the same place and with the same identity. Its end ends the notice.
    command: tuple[str, ...] = ()
    #: From there to TERM, unless the job says sooner that it has saved.
    notice_ns: int = 0
    #: Interval of saves that it makes on its own, without a notice; 0: not known.
    every_ns: int = 0

    @property
    def is_told(self) -> bool:
        """True if the job gets a notice at all."""
        return self.notice_ns > 0 and bool(self.signal or self.command)


def signal_name(word: str) -> str:
    """Return a signal's name as the log has it, from "usr1", "SIGUSR1" or its number on Linux."""
    upper = word.strip().upper()
    name = _SIGNAL_NUMBERS.get(upper, upper)
    return name if name.startswith("SIG") or not name else f"SIG{name}"


def signal_fault(word: str) -> str:
    """Return what is wrong with the name of a signal that is to be sent to a run; "" for one of SENT_SIGNALS."""
    if word in SENT_SIGNALS:
        return ""
    found = f'expected one of {", ".join(SENT_SIGNALS)}, found "{word[:40]}"'
    if word in ("SIGTERM", "SIGKILL", "SIGQUIT"):
        return f"{found}; a cancel without a signal ends the run"
    return found


def note_of(text: str) -> str:
    """Return a job's note as one line that can be printed and stored: cut to length, with unprintable characters
    replaced by "?".
    """
    line = text.strip().partition("\n")[0]
    return "".join(char if char.isprintable() else "?" for char in line[:NOTE_CHARS_MAX])


def fault_of(checkpoint: Checkpoint, total_ns: int) -> FieldError | None:
    """Return the first setting that is out of range, else None."""
    fault = _fault(checkpoint, total_ns)
    return FieldError(field=f"checkpoint.{fault[0]}", message=fault[1]) if fault else None


def _fault(checkpoint: Checkpoint, total_ns: int) -> tuple[str, str] | None:
    told = checkpoint.signal or checkpoint.command
    if checkpoint.signal and checkpoint.command:
        return "command", "expected a signal or a command, found both; a command may send signals itself"
    if checkpoint.signal and checkpoint.signal not in SIGNALS:
        return "signal", f'expected one of {", ".join(SIGNALS)}, found "{checkpoint.signal[:40]}"'
    if sum(map(len, checkpoint.command)) > COMMAND_CHARS_MAX:
        return "command", f"expected at most {COMMAND_CHARS_MAX} characters; put the script into a file"
    if any("\0" in word for word in checkpoint.command) or (checkpoint.command and not checkpoint.command[0]):
        return "command", "expected a program and its words, without NUL characters"
    if not told and checkpoint.notice_ns:
        return "notice", "expected with signal or command: nothing else notifies the job that it has begun"
    if told and not 0 < checkpoint.notice_ns <= NOTICE_NS_MAX:
        return "notice", "expected more than 0 and at most 1h"
    if checkpoint.every_ns < 0:
        return "every", "expected 0 or more"
    if total_ns and checkpoint.notice_ns >= total_ns:
        return "notice", "expected less than time.total, at whose end it is over"
    return None
