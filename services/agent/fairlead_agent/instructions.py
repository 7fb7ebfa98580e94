"""What the core asks of the shell: instructions, and the step that they come in."""

from typing import NamedTuple

from fairlead_agent.records import Record
from fairlead_agent.run import RunKey
from fairlead_schemas.checkpoints import Checkpoint
from fairlead_schemas.desired import LayoutOrder, RunOrder
from fairlead_schemas.reports import Report


class StartRun(NamedTuple):
    """Start it; its acceptance is in the journal."""

    order: RunOrder


class NoticeRun(NamedTuple):
    """Tell it that its end is near, as its job file says; say first which word of its is there (`Reconciler.told`)."""

    key: RunKey
    checkpoint: Checkpoint
    #: Why it will end: the order's word, or "node_lost".
    reason: str


class TerminateRun(NamedTuple):
    """Ask it to end (TERM)."""

    key: RunKey


class KillRun(NamedTuple):
    """End it (KILL): its grace is over."""

    key: RunKey


class GiveUp(NamedTuple):
    """End the agent, loudly: journal and log belong to different pasts, and going on would hide it. `removed`: its node was
    removed from the cluster."""

    reason: str
    removed: bool = False


class RepartitionGpu(NamedTuple):
    """Cut it anew, and say what came of it (`Reconciler.was_cut`); not at all where `refusal` says why not."""

    order: LayoutOrder
    refusal: str


Instruction = StartRun | NoticeRun | TerminateRun | KillRun | GiveUp | RepartitionGpu


class Step(NamedTuple):
    """What follows from one thing that happened."""

    records: list[Record]
    instructions: list[Instruction]
    reports: list[Report]
