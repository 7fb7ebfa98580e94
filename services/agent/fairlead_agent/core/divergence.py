"""Consistency of the node's journal with the log: either may be an old copy that was put back. Pure."""

from fairlead_agent.core.ledger import Ledger
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.reports import ReportAck

#: Reason to end an agent.
REMOVED = (
    "this node was removed from the cluster, and its journal is closed; to join again, move this agent's directory away, so "
    "that the node joins under a new journal"
)
#: A placer that knows less than an earlier report from its log is doubted, at most once in this interval: an
#: old placer that was paused may send many such messages at once,
DOUBT_NS = 5 * SECOND_NS
#: and after so many doubts without a good answer between them it is the log that went back.
DOUBTS_MAX = 7


class Divergence:
    """Evidence from the placer's confirmations about the age of this journal and of the log."""

    def __init__(self, ledger: Ledger, now: int) -> None:
        self._ledger = ledger
        #: Until the placer's first answer: what an earlier process has numbered. Of this one's reports none was sent.
        self._numbered_before: int | None = ledger.reported or None
        self._doubts = 0
        self._doubted_at = now

    def journal_went_back(self, confirm: ReportAck) -> str:
        """Return the reason that this journal is an old copy; "" without evidence for it.

        Only the first call can detect this, so the caller must remember the result: every further start numbers another
        inventory, and would soon make up for the missing reports.
        """
        made = self._ledger.reported if self._numbered_before is None else self._numbered_before
        self._numbered_before = None
        if confirm.incarnation != self._ledger.incarnation or confirm.through <= made:
            return ""
        return (
            f"the journal went backwards: the placer has confirmed report {confirm.through}, and the newest here was "
            f"{made}; put back the journal that was here last, or move its directory away, so that the node joins "
            "under a new one"
        )

    def log_went_back(self, confirm: ReportAck, now: int) -> str:
        """Return the reason that the log must be an old copy; "" until the evidence has lasted long enough.

        A placer that was paused and does not know yet that it is replaced sends the same evidence, but not for long and not
        alone.
        """
        ledger = self._ledger
        if confirm.incarnation == ledger.incarnation:  # a placer that knows no `desired` says 0
            behind = confirm.through < ledger.confirmed or 0 < confirm.desired < ledger.sequence
        else:
            behind = confirm.incarnation == "" and ledger.confirmed > 0
        if not behind:
            self._doubts = 0
        elif self._doubts == 0 or now - self._doubted_at >= DOUBT_NS:
            self._doubts += 1
            self._doubted_at = now
        if self._doubts < DOUBTS_MAX:
            return ""
        return (
            f"the log went backwards: the placer confirms report {confirm.through} and desired state {confirm.desired}, "
            f"after it had confirmed {ledger.confirmed} and {ledger.sequence}; put back the newer log, or, where there is "
            "none, move this agent's directory away, so that the node joins under a new journal"
        )
