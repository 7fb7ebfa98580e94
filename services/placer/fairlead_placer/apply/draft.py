"""Draft of a commit, and the state with its events applied speculatively."""

from typing import ClassVar

from fairlead_bus.core import CommitDraft, EventPosition
from fairlead_placer.apply.handlers import HANDLERS, REPORT_CURSOR
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.cluster.state import ClusterState
from fairlead_schemas.wire import events as ev

#: Rules stop here; what a rule adds for one more report still fits into COMMIT_EVENTS_MAX and COMMIT_BYTES_MAX.
EVENTS_SOFT_MAX = 900
BYTES_SOFT_MAX = 200 * 1024


class PlacerDraft(CommitDraft[ClusterState, ev.Event]):
    """Events and cursors of one decision in progress. Each event is applied to the state as it is emitted, so that the next
    rule sees it; the function that opened the draft rolls all of them back.
    """

    __slots__ = ("_at", "crowded", "cursors", "roomy")

    EVENT_BYTES: ClassVar[int] = 160

    def __init__(self, state: ClusterState, now_ns: int, *, roomy: bool = False) -> None:
        super().__init__(state, now_ns)
        #: Position in the next commit: its sequence separates reservations of earlier commits from those of this one.
        self._at = EventPosition(state.sequence + 1, 0, now_ns)
        self.cursors: dict[str, int] = {}
        #: Set when an event found no room in this draft. The next draft is then `roomy`: reports wait for the one
        #: after it (agents send them again), or under steady load the large event would never fit.
        self.crowded = False
        self.roomy = roomy

    def emit(self, event: ev.Event, extra_bytes: int = 0) -> None:
        """Add an event and apply it to the state. `extra_bytes`: its size beyond that of an ordinary event."""
        if self.authority is not None:
            event = self.authorized(event)
            extra_bytes += self.authority_bytes
        events, handler = self.events, HANDLERS.get(type(event))
        if handler is not None:
            at = self._at
            at.index = len(events)
            handler(self.state, event, at)
        events.append(event)
        self.size += self.EVENT_BYTES + extra_bytes

    def has_room(self, extra_bytes: int = 0, events: int = 1) -> bool:
        """Return True if so many more events may be emitted, which take `extra_bytes` beyond ordinary ones. An empty draft takes
        any size: a gang of thousands of GPUs fills a commit alone.
        """
        if self.events and not self.fits(extra_bytes, events):
            self.crowded = True
            return False
        return True

    def consume(self, node: ClusterNode, number: int) -> None:
        """A report counts as taken up once this is in the log."""
        name = REPORT_CURSOR + node.name
        if name in self.cursors:
            node.reported = number  # what it was before the draft is noted
        else:
            self.state.set(node, "reported", number)
        self.cursors[name] = number

    @property
    def full(self) -> bool:
        """True when no rule may begin anything more in this commit."""
        return len(self.events) >= EVENTS_SOFT_MAX or self.size >= BYTES_SOFT_MAX
