"""Draft of a decision: its events, its cursors, its size, and the state with the events tried on.

The draft enforces the bounds of a commit. `emit` both records an event and tries it on the state, so that the next rule
sees the previous decisions. The function that opened the draft takes it all back with `State.undo`.

Refusal of a command to the placer.
"""

from typing import NamedTuple

import msgspec

from fairlead_placer.apply.handlers import HANDLERS, REPORT_CURSOR
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import COMMIT_BYTES_MAX, COMMIT_EVENTS_MAX

#: Rules stop here; what a rule adds for one more report still fits into COMMIT_EVENTS_MAX and COMMIT_BYTES_MAX.
EVENTS_SOFT_MAX = 900
BYTES_SOFT_MAX = 200 * 1024
#: An event of ordinary size, encoded; the larger kinds state theirs.
EVENT_BYTES = 160


def encoded_bytes(text: str) -> int:
    """Return the encoded size of foreign text in bytes: a character may take six bytes and more."""
    return len(msgspec.json.encode(text)) if text else 0


class CommitDraft:
    """Events and cursors of one decision in progress."""

    __slots__ = ("_seq", "bytes", "crowded", "cursors", "events", "now_ns", "roomy", "state")

    def __init__(self, state: ClusterState, now_ns: int, *, roomy: bool = False) -> None:
        self.state = state
        #: Sequence of the next commit: it separates reservations of earlier commits from those of this one.
        self._seq = state.sequence + 1
        self.now_ns = now_ns
        self.events: list[ev.Event] = []
        self.cursors: dict[str, int] = {}
        self.bytes = 0
        #: Set when an event found no room in this draft. The next draft is then `roomy`: reports wait for the one
        #: after it (agents send them again), or under steady load the large event would never fit.
        self.crowded = False
        self.roomy = roomy

    def emit(self, event: ev.Event, size: int = EVENT_BYTES) -> None:
        """Add an event of about `size` bytes and let the state have it."""
        events, handler = self.events, HANDLERS.get(type(event))
        if handler is not None:
            handler(self.state, self._seq, len(events), self.now_ns, event)
        events.append(event)
        self.bytes += size

    def has_room(self, size: int, events: int = 1) -> bool:
        """Return True if `events` more events of `size` bytes together may be emitted. An empty draft takes any size: a gang of
        thousands of GPUs fills a commit alone.
        """
        full = self.bytes + size > COMMIT_BYTES_MAX or len(self.events) + events > COMMIT_EVENTS_MAX
        if self.events and full:
            self.crowded = True
            return False
        return True

    def consume(self, node: ClusterNode, number: int) -> None:
        """A report counts as taken up once this is in the log."""
        self.state.set(node, "reported", number)
        self.cursors[REPORT_CURSOR + node.name] = number

    @property
    def full(self) -> bool:
        """True when no rule may begin anything more in this commit."""
        return len(self.events) >= EVENTS_SOFT_MAX or self.bytes >= BYTES_SOFT_MAX


#: So much of what others wrote is repeated in an event.
MESSAGE_CHARS_MAX = 500


class CommandRefusal(NamedTuple):
    """Reason for refusing a command: a code for programs, a sentence for people."""

    code: str
    message: str


def reject_command(draft: CommitDraft, command_id: str, refusal: CommandRefusal, digest: str = "") -> None:
    """Record it."""
    message = refusal.message[:MESSAGE_CHARS_MAX]
    draft.emit(
        ev.NodeCommandRejected(
            cause=f"cmd:{command_id}", command=command_id, code=refusal.code, message=message, digest=digest
        ),
        EVENT_BYTES + encoded_bytes(message),
    )
