"""Events of one node's runs, as values. Emitted by the runtime, by the code that starts and ends runs, and by the
watchers of checkpoints and GPUs; `shell/run_events.py` handles them. Pure.

Each of RunStarted, RunStartFailed and RunExited is emitted at most once per run and process of the agent; after an
adoption, again for runs that are still running.
"""

from collections.abc import Callable
from typing import NamedTuple

from fairlead_agent.core.runs import CheckpointMark, Exit, RunKey
from fairlead_schemas.wire.events import StartFault


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
    | RunNoticed
    | NoticeCommandEnded
)

#: Receiver of events; called in the event loop, and may emit further events before it returns.
Emit = Callable[[RunEvent], None]
