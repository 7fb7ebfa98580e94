"""The nouns of the agent: which run, how it ended, what was found of it after a restart.

Must not know runtimes, the journal or the bus. A run is one rank of one attempt on this node.
"""

from typing import Literal, NamedTuple

from fairlead_schemas.wire.desired import RunOrder


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
