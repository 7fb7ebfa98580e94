"""Jobs in the foreground of a terminal: reasons while they wait, the output of one, and Ctrl-C.

`run` follows one job to its end, `submit --wait` waits for one or several. Neither ends a job when it ends itself. Start at `attended`.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import typer

from fairlead.client import Client
from fairlead.commands.options import connect
from fairlead.errors import FairleadError, Unreachable
from fairlead.render import terminal
from fairlead.render.terminal import OutputWriter
from fairlead_schemas.http.api import Job
from fairlead_schemas.wire.lifecycle import END_STATES

#: Exit code after Ctrl-C, by the custom of shells: 128 + SIGINT.
INTERRUPTED = 128 + signal.SIGINT
#: A reason whose numbers alone have changed is shown again after so long.
REPEAT_S = 10.0
_AT_WORK = END_STATES | {"running", "stopping"}


class WaitingReasons:
    """Lines about a waiting job, one for each new reason. Of several jobs the first that still waits has them."""

    def __init__(self) -> None:
        self._job = self._code = self._message = ""
        self._shown_s = float("-inf")

    def see(self, job: Job) -> None:
        """Take up a job as it is now, and write a line where its reason has changed."""
        if job.state in _AT_WORK or job.reason is None:
            if job.id == self._job:
                self._job = ""
            return
        if self._job and job.id != self._job:
            return
        now_s, reason = time.monotonic(), job.reason
        is_new = (job.id, reason.code) != (self._job, self._code)
        self._job, self._code = job.id, reason.code
        if is_new or (reason.message != self._message and now_s - self._shown_s >= REPEAT_S):
            terminal.note(f"job {job.id} waits: {reason.message}")
            self._message, self._shown_s = reason.message, now_s


@contextmanager
def attended(ids: Sequence[str], *, ask: Callable[[str], str] | None = None) -> Iterator[None]:
    """Answer Ctrl-C as a person wants it: the jobs continue without this command, or they are cancelled and it goes on to
    their end. Without a terminal they continue. Raises typer.Exit(INTERRUPTED) once they continue without it.
    """

    def interrupted(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, detached)  # the second one needs no answer
        wants_end = (ask or _ask)(f"\n{_names(ids)} may continue without this command.  [d]etach or [c]ancel? [d] ")
        if not wants_end.strip().lower().startswith("c"):
            _detach(ids)
        _cancel(ids)
        signal.signal(signal.SIGINT, interrupted)

    def detached(_signal: int, _frame: FrameType | None) -> None:
        _detach(ids)

    has_person = ask is not None or (sys.stdin.isatty() and sys.stderr.isatty())
    before = signal.signal(signal.SIGINT, interrupted if has_person else detached)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _ask(question: str) -> str:
    """Ask on the terminal. The streams of the interrupted code are left alone: they may be in the middle of a write."""
    os.write(2, question.encode())
    return os.read(0, 1024).decode(errors="replace")


def _detach(ids: Sequence[str]) -> None:
    first = ids[0]
    lines = [f"{_names(ids)} continue{'s' if len(ids) == 1 else ''}: fairlead logs -f {first} | fairlead wait {first}"]
    lines.append(f"to end {'it' if len(ids) == 1 else 'them'}: fairlead cancel {','.join(ids)}")
    os.write(2, "".join(f"{line}\n" for line in lines).encode())
    raise typer.Exit(INTERRUPTED)


def _cancel(ids: Sequence[str]) -> None:
    """Cancel by a client of its own, since the interrupted one may be in the middle of a request."""
    with connect() as client:
        for job_id in ids:
            try:
                client.cancel(job_id)
            except FairleadError as error:
                os.write(2, f"error: {error}\n".encode())


def _names(ids: Sequence[str]) -> str:
    return f"job {ids[0]}" if len(ids) == 1 else f"{len(ids)} jobs"


def follow_to_end(client: Client, job_id: str) -> Job:
    """Write the reasons for which a job waits to stderr and its output to stdout, and return it once it has ended."""
    ended: list[Job] = []
    reasons, writer = WaitingReasons(), OutputWriter()

    def see(job: Job) -> None:
        reasons.see(job)
        if job.state in END_STATES:
            ended[:] = [job]

    for piece in client.follow(job_id, seen=see):
        writer.write(piece)
    writer.end()
    if not ended:
        raise Unreachable(f"the end of job {job_id} is not known", hint=f"fairlead show {job_id}")
    return ended[0]
