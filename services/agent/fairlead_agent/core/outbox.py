"""Delivery of numbered reports: at once when new, again until confirmed. No rules about what they say.

Owns what was sent and when; must not know the journal (the agent hands over reports that are durable).
Also used by hollow nodes. Reports travel by core messages, which may be lost, doubled or come late: the
placer takes them in order of their numbers, and its ReportAck says how far it has committed.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.reports import REPORT_BYTES_MAX, REPORTS_PER_MESSAGE_MAX, InventorySeen, Report, ReportAck

RESEND_NS = SECOND_NS
#: So many unconfirmed reports are sent again at a time; the rest follows as these are confirmed.
RESEND_REPORTS_MAX = 2000
#: Room for the envelope around the reports of a message.
ENVELOPE_BYTES = 256

_encoder = msgspec.json.Encoder(order="deterministic")
encode_report = _encoder.encode


def message_head(node: str, incarnation: str) -> bytes:
    """Return the first bytes of a message of reports; node ids and incarnations need no escaping."""
    return b'{"node":"%b","incarnation":"%b","reports":[' % (node.encode(), incarnation.encode())


def messages(head: bytes, reports: list[bytes]) -> Iterator[bytes]:
    """Encoded reports as messages, each within both bounds (one larger report travels alone)."""
    batch: list[bytes] = []
    size = ENVELOPE_BYTES
    for report in reports:
        if batch and (len(batch) >= REPORTS_PER_MESSAGE_MAX or size + len(report) >= REPORT_BYTES_MAX):
            yield head + b",".join(batch) + b"]}"
            batch, size = [], ENVELOPE_BYTES
        batch.append(report)
        size += len(report) + 1
    if batch:
        yield head + b",".join(batch) + b"]}"


class Outbox:
    """Durable, unconfirmed reports of one incarnation. Times are monotonic nanoseconds."""

    def __init__(self, node: str, incarnation: str, confirmed: int = 0, *, held: bool = False) -> None:
        """`held`: nothing is sent before the placer's first word, which says how far the placer knows us (see
        `Reconciler.confirmed`); a beat asks for it."""
        self.node = node
        self.incarnation = incarnation
        self.confirmed = confirmed
        self.sent = confirmed
        self.resends = 0
        self._head = message_head(node, incarnation)
        self._waiting: deque[bytes] = deque()  # numbers confirmed + 1, confirmed + 2, …
        self._inventory: InventorySeen | None = None
        self._introduce = False
        self._held = held
        self._resend_at = 0

    @property
    def idle(self) -> bool:
        """True if nothing is to be sent before another report or answer comes."""
        return not self._waiting and not self._introduce

    def add(self, report: Report) -> None:
        """A report, durable now; they come by rising number without a gap."""
        if report.n <= self.confirmed + len(self._waiting):
            return
        if isinstance(report, InventorySeen):
            self._inventory = report
        self._waiting.append(encode_report(report))

    def add_all(self, reports: Iterable[Report]) -> None:
        """Add these reports, in their order."""
        for report in reports:
            self.add(report)

    def confirm(self, confirm: ReportAck, now: int) -> None:
        """The placer's word. One that does not know us gets everything again, an inventory first."""
        self._held = False
        if confirm.incarnation != self.incarnation:
            # Beats and reports are each answered so until it has joined us; once a resend period is enough.
            if now >= self._resend_at or self.sent == self.confirmed:
                self._introduce = True
                self.sent = self.confirmed
            return
        if not self.confirmed < confirm.through <= self.confirmed + len(self._waiting):
            return  # old; or of reports that we never made, and in whose place ours must not be dropped
        for _ in range(confirm.through - self.confirmed):
            self._waiting.popleft()
        self.confirmed = confirm.through
        self.sent = max(self.sent, self.confirmed)
        self._resend_at = now + RESEND_NS

    def reconnected(self) -> None:
        """Mark all unconfirmed reports to be sent again, since those under way may be lost."""
        self.sent = self.confirmed

    def due(self, now: int) -> list[bytes]:
        """Messages to publish now: what is new; or, a second after the last, what is still unconfirmed."""
        if self._held:
            return []
        newest = self.confirmed + len(self._waiting)
        if self._waiting and self.sent > self.confirmed and now >= self._resend_at:
            self.sent = self.confirmed
            self.resends += 1
        if self.sent >= newest and not self._introduce:
            return []
        skip = self.sent - self.confirmed
        reports = list(islice(self._waiting, skip, skip + RESEND_REPORTS_MAX))
        self.sent += len(reports)
        self._resend_at = now + RESEND_NS
        return list(messages(self._head, self._introduction() + reports))

    def _introduction(self) -> list[bytes]:
        # A placer that has lost its log joins us at the number of the first report that it gets, which must be an
        # inventory. If ours is confirmed (by the earlier placer), it is sent again under the number before the first
        # unconfirmed one: a placer that knows us ignores that number.
        introduce, self._introduce = self._introduce, False
        if not introduce or self._inventory is None or self.confirmed == 0:
            return []
        return [encode_report(msgspec.structs.replace(self._inventory, n=self.confirmed))]
