"""Runs of a node: which one, how it ended, what was found of it after a restart, and the events of its life, as values. Pure.

A run is one rank of one attempt on this node. Events are emitted by the runtime, by the code that starts and ends runs, and by
the watchers of checkpoints and GPUs; `shell/run_events.py` handles them. Each of RunStarted, RunStartFailed and RunExited is emitted
at most once per run and process of the agent; after an adoption, again for runs that are still running.

Must not know runtimes, the journal or the bus.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from fairlead_schemas.wire.desired import RunOrder
from fairlead_schemas.wire.events import StartFault


class RunKey(NamedTuple):
    """Key of one rank of one attempt, which may be started at most once."""

    job: str
    attempt: int
    rank: int

    @property
    def name(self) -> str:
        """ "<job>.<attempt>.<rank>": for directories and tags. Job ids hold no dots."""
        return f"{self.job}.{self.attempt}.{self.rank}"


def key_of(order: RunOrder) -> RunKey:
    """The run that an order is about."""
    return RunKey(order.job, order.attempt, order.rank)


def parse_name(name: str) -> RunKey | None:
    """The inverse of `RunKey.name`; None for anything else."""
    job, attempt, rank = [*name.split("."), "", "", ""][:3]
    if name.count(".") != 2 or not attempt.isdecimal() or not rank.isdecimal():
        return None
    return RunKey(job, int(attempt), int(rank))


class Exit(NamedTuple):
    """Exit of a run: an exit code or a signal, never both; neither if it cannot be known."""

    code: int | None = None
    signal: int | None = None
    message: str = ""
    #: The guard ended it, because no lease covered it any more.
    fenced: bool = False
    #: The kernel killed a process of it at its memory limit, and it has failed.
    over_memory: bool = False

    @property
    def known(self) -> bool:
        """False if the exit was not observed."""
        return self.code is not None or self.signal is not None


class CheckpointMark(NamedTuple):
    """Mark that a run writes when its work is saved."""

    stamp: int
    """When it was written, by the node's clock (Unix ns): it only distinguishes marks."""
    note: str = ""


class Found(NamedTuple):
    """State of a run in the runtime after the agent's restart; the journal holds the run open."""

    state: Literal["running", "ended", "never", "lost"]
    """"ended" with `exit`; "never": certainly not started; "lost": started, and its end was not observed."""
    exit: Exit = Exit()
    clean: bool = False
    #: What it runs: the image by its digest; "" for a process.
    image: str = ""
    mark: CheckpointMark | None = None


class RunPreparing(NamedTuple):
    """A run is not started yet; its stderr names what it waits for."""

    key: RunKey


class ProgramStarted(NamedTuple):
    """The process or container of a run has started."""

    key: RunKey
    #: What runs, by its digest; "" for a process.
    image: str = ""


class RunStartFailed(NamedTuple):
    """A run could not be started; no part of it is left."""

    key: RunKey
    message: str
    #: Party at fault, where it is known.
    fault: StartFault = ""


class RunExited(NamedTuple):
    """The program of a run has ended; its output and its GPUs are still to be looked at."""

    key: RunKey
    exit: Exit


class RunFinished(NamedTuple):
    """The output of an ended run is shipped, and its GPUs were looked at."""

    key: RunKey
    exit: Exit
    #: The run left no process or memory on its GPUs, and they are free.
    clean: bool


class RunGpusClean(NamedTuple):
    """The GPUs of an ended run, which were in use after its end, are free."""

    key: RunKey


class RunUnfit(NamedTuple):
    """A run was not started, because this node or another of its gang has failed the check before the start."""

    key: RunKey
    message: str
    #: Rank whose node is to blame, where it is another one.
    blames: int | None


class RunOverShare(NamedTuple):
    """A run uses more memory of a GPU than its share."""

    key: RunKey
    message: str


class CheckpointMarked(NamedTuple):
    """The mark in a run's checkpoint file. The same mark is emitted again and again."""

    key: RunKey
    mark: CheckpointMark


class RunServes(NamedTuple):
    """The application of a run serves. Emitted again after an adoption."""

    key: RunKey


class RunNotAlive(NamedTuple):
    """The application of a run has served, and has not answered for as many looks as its job file allows."""

    key: RunKey
    message: str


class RunNoticed(NamedTuple):
    """A run is notified now that its end is near."""

    key: RunKey
    #: Its newest mark before the notice.
    mark: CheckpointMark | None


class NoticeCommandEnded(NamedTuple):
    """The command that notified a run has ended."""

    key: RunKey
    #: The command succeeded.
    saved: bool


RunEvent = (
    RunPreparing
    | ProgramStarted
    | RunStartFailed
    | RunExited
    | RunFinished
    | RunGpusClean
    | RunUnfit
    | RunOverShare
    | CheckpointMarked
    | RunServes
    | RunNotAlive
    | RunNoticed
    | NoticeCommandEnded
)

#: Receiver of events; called in the event loop, and may emit further events before it returns.
Emit = Callable[[RunEvent], None]
