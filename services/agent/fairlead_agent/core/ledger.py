"""Contents of the journal: records, and the ledger that they fold into. Pure: no I/O, clock or bus.

The agent is event-sourced like the rest: a record is appended and applied, a restart applies them
again. A run enters the ledger before it is started and leaves only when a later desired state no
longer names it, so no run is started twice.
"""

from collections import deque
from collections.abc import Iterable
from typing import Literal

import msgspec

from fairlead_agent.core.runs import RunKey
from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.wire.reports import (
    AppSeen,
    CheckpointSeen,
    CleanSeen,
    ExitSeen,
    HealthSeen,
    InventorySeen,
    Report,
    StartSeen,
)

#: Version of the journal. A newer agent reads every older one; an older agent refuses a newer one by this
#: number. 2: runs state how long they may continue without a lease. 3: starts and ends carry the boot's
#: clock. 4: signals that were sent are counted.
FORMAT = 4

Phase = Literal["accepted", "running", "ended", "clean"]
OPEN_PHASES: frozenset[Phase] = frozenset({"accepted", "running"})


class RecordBase(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="r"
):
    """Record that is one line of the journal."""


class Opened(RecordBase, frozen=True, tag="opened"):
    """Record that the journal was made; `incarnation` is its permanent id."""

    incarnation: str
    node: str
    #: Format of the agent that wrote this line. Journals of agents that did not state it yet have format 1.
    format: int = 1


class Booted(RecordBase, frozen=True, tag="booted"):
    """The agent runs under this boot of the machine."""

    boot_id: str


class Took(RecordBase, frozen=True, tag="took"):
    """Desired state of this log sequence was taken up; lower ones are refused from here on."""

    sequence: int


class Accepted(RecordBase, frozen=True, tag="accepted"):
    """The run will be started, or was; a second order for it starts nothing."""

    job: str
    attempt: int
    rank: int
    epoch: int
    gpus: tuple[str, ...] = ()
    grace_ns: int = 0
    instances: tuple[str, ...] = ()
    #: Silence of the placer after which it is stopped; 0: as the node does; -1: never.
    stop_after_ns: int = 0
    checkpoint: Checkpoint | None = None
    #: Stamp of the newest mark that was reported; other than 0 only where compaction wrote the record.
    saved: int = 0
    #: Other than "accepted" only where compaction wrote the record.
    phase: Phase = "accepted"
    #: As of its start's report; other than 0 only where compaction wrote the record.
    began_ns: int = 0
    #: Number of the newest signal of a person that was sent; other than 0 only where compaction wrote the record.
    signalled: int = 0
    #: Its application was reported to serve; True only where compaction wrote the record.
    app_ready: bool = False


class Signalled(RecordBase, frozen=True, tag="signalled"):
    """A person's signal of this number will be sent to the run, or was; it is not sent a second time."""

    job: str
    attempt: int
    rank: int
    number: int


class Reported(RecordBase, frozen=True, tag="reported"):
    """A numbered report, kept until the placer confirms it."""

    report: Report


class Confirmed(RecordBase, frozen=True, tag="confirmed"):
    """The placer has committed reports up to here."""

    through: int


class Forgot(RecordBase, frozen=True, tag="forgot"):
    """A clean run that a later desired state no longer names."""

    job: str
    attempt: int
    rank: int


class Numbered(RecordBase, frozen=True, tag="numbered"):
    """Written by compaction: reports up to here were numbered, and confirmed."""

    reported: int
    confirmed: int


class Condemned(RecordBase, frozen=True, tag="condemned"):
    """Record that this journal is an old copy: the placer has confirmed reports that are not in it. It is never opened again."""

    reason: str


class Cut(RecordBase, frozen=True, tag="cut"):
    """Record that a GPU will be cut by this plan, or was; the cut is not begun a second time."""

    plan: int
    #: True only where compaction wrote the record: an inventory has answered it.
    answered: bool = False


class Ailing(RecordBase, frozen=True, tag="ailing"):
    """Written by compaction: this was reported as not well, and is not over."""

    gpu: str
    code: str
    boot_id: str


Record = (
    Ailing | Opened | Booted | Took | Accepted | Signalled | Reported | Confirmed | Forgot | Numbered | Condemned | Cut
)


class RunEntry:
    """A run of the ledger."""

    __slots__ = (
        "app_ready",
        "began_ns",
        "checkpoint",
        "epoch",
        "gpus",
        "grace_ns",
        "instances",
        "key",
        "phase",
        "saved",
        "signalled",
        "stop_after_ns",
    )

    def __init__(self, key: RunKey, accepted: Accepted) -> None:
        self.key = key
        self.epoch = accepted.epoch
        self.gpus = accepted.gpus
        self.grace_ns = accepted.grace_ns
        self.phase: Phase = accepted.phase
        self.instances = accepted.instances
        #: How it saves its work, and the stamp of its newest mark that was reported (0: none was).
        self.checkpoint = accepted.checkpoint
        self.saved = accepted.saved
        self.stop_after_ns = accepted.stop_after_ns
        #: Clock of this boot when it was seen to run; 0: it was not yet, or an older agent saw it.
        self.began_ns = accepted.began_ns
        self.signalled = accepted.signalled
        self.app_ready = accepted.app_ready

    @property
    def devices(self) -> tuple[str, ...]:
        """UUIDs of what it may use: its MIG instances, else its GPUs."""
        return self.instances or self.gpus

    @property
    def open(self) -> bool:
        """Accepted or running: not yet ended."""
        return self.phase in OPEN_PHASES

    def ran_ns(self, now: int) -> int:
        """Return the time that the run has been running by the boot's clock, in nanoseconds; 0 if it is not known."""
        return max(0, now - self.began_ns) if self.began_ns else 0


class Ledger:
    """State folded from the journal's records; only `apply` changes it."""

    def __init__(self) -> None:
        self.incarnation = ""
        self.node = ""
        self.boot_id = ""
        self.sequence = 0
        self.reported = 0
        self.confirmed = 0
        #: Why this journal must not be used any more; "" for a good one.
        self.condemned = ""
        #: The newest plan to cut a GPU that was begun, and the newest that an inventory has answered.
        self.cut = 0
        self.cut_answered = 0
        #: {(GPU or "", code): the boot in which it was reported}: what is not well. Of a GPU the newest code alone.
        self.ailing: dict[tuple[str, str], str] = {}
        self.runs: dict[RunKey, RunEntry] = {}
        #: Reports above `confirmed`, by rising number.
        self.unconfirmed: deque[Report] = deque()

    def apply(self, record: Record) -> None:
        """Fold one record."""
        match record:
            case Opened():
                self.incarnation, self.node = record.incarnation, record.node
            case Booted():
                self.boot_id = record.boot_id
            case Took():
                self.sequence = record.sequence
            case Accepted():
                key = RunKey(record.job, record.attempt, record.rank)
                self.runs[key] = RunEntry(key, record)
            case Signalled():
                run = self.runs.get(RunKey(record.job, record.attempt, record.rank))
                if run is not None:
                    run.signalled = record.number
            case Reported():
                self._reported(record.report)
            case Confirmed():
                self.confirmed = record.through
                while self.unconfirmed and self.unconfirmed[0].n <= record.through:
                    self.unconfirmed.popleft()
            case Forgot():
                self.runs.pop(RunKey(record.job, record.attempt, record.rank), None)
            case Numbered():
                self.reported, self.confirmed = record.reported, record.confirmed
            case Condemned():
                self.condemned = record.reason
            case Ailing():
                self.ailing[(record.gpu, record.code)] = record.boot_id
            case Cut():
                self.cut = max(self.cut, record.plan)
                if record.answered:
                    self.cut_answered = self.cut

    def _reported(self, report: Report) -> None:
        self.reported = report.n
        self.unconfirmed.append(report)
        if isinstance(report, InventorySeen):
            self.cut_answered = max(self.cut_answered, report.plan)
            return
        if isinstance(report, HealthSeen):
            self._ailed(report)
            return
        run = self.runs.get(RunKey(report.job, report.attempt, report.rank))
        if run is None:
            return
        match report:
            case StartSeen():
                run.phase, run.began_ns = "running", report.boot_ns
            case AppSeen():
                run.app_ready = True
            case CheckpointSeen():
                run.saved = report.at_ns
            case ExitSeen():
                run.phase = "clean" if report.clean else "ended"
            case CleanSeen():
                run.phase = "clean"

    def _ailed(self, report: HealthSeen) -> None:
        for key in [key for key in self.ailing if key[0] == report.gpu and (report.gpu or key[1] == report.code)]:
            del self.ailing[key]
        if report.code and not report.over:
            self.ailing[(report.gpu, report.code)] = self.boot_id

    def records(self) -> Iterable[Record]:
        """The shortest list of records that folds into this ledger: what compaction writes."""
        yield Opened(incarnation=self.incarnation, node=self.node, format=FORMAT)
        yield Booted(boot_id=self.boot_id)
        yield Took(sequence=self.sequence)
        first = self.unconfirmed[0].n if self.unconfirmed else self.reported + 1
        yield Numbered(reported=first - 1, confirmed=self.confirmed)
        yield from (Reported(report=report) for report in self.unconfirmed)
        # After the reports: the phase already has what they say.
        for run in self.runs.values():
            yield Accepted(
                job=run.key.job,
                attempt=run.key.attempt,
                rank=run.key.rank,
                epoch=run.epoch,
                stop_after_ns=run.stop_after_ns,
                gpus=run.gpus,
                grace_ns=run.grace_ns,
                instances=run.instances,
                checkpoint=run.checkpoint,
                saved=run.saved,
                phase=run.phase,
                began_ns=run.began_ns,
                signalled=run.signalled,
                app_ready=run.app_ready,
            )
        for (gpu, code), boot_id in self.ailing.items():
            yield Ailing(gpu=gpu, code=code, boot_id=boot_id)
        if self.cut:
            yield Cut(plan=self.cut, answered=self.cut_answered >= self.cut)
        if self.condemned:
            yield Condemned(reason=self.condemned)
