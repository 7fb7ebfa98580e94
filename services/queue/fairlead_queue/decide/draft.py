"""Draft of the queue's decision: its events so far, and the changes that they mean for the rest of it.

The state stays unchanged. The effect of an earlier event on a later one of the same decision is kept in the draft's own
small maps.
"""

from typing import NamedTuple

import msgspec

from fairlead_bus.core import CommitDraft
from fairlead_queue.decide.configuration import ProposedConfiguration
from fairlead_queue.limits import ANSWER_BYTES, COMMANDS_BYTES, COMMIT_BYTES_BUDGET, SUBMIT_BYTES
from fairlead_queue.state import QueueState
from fairlead_queue.waiting.closures import QueueClosures
from fairlead_schemas.queuefile.settings import PoolSettings, QueueSettings
from fairlead_schemas.wire.commit import COMMIT_EVENTS_MAX
from fairlead_schemas.wire.events import JobRejected, JobSubmitted, QueueEvent, ServiceApplied
from fairlead_schemas.wire.resources import Request

_encode = msgspec.json.Encoder().encode


class AcceptedJob(NamedTuple):
    """A single job that this very decision accepts: it may be offered at once."""

    order: int
    id: str
    queue: str
    user: str
    request: Request
    cause: str


class QueueDraft(CommitDraft[QueueState, QueueEvent]):
    """Events decided, room left, and the overlay."""

    def __init__(self, state: QueueState, now_ns: int, commands: int, authorities_bytes: int = 0) -> None:
        #: The log's time, by which everything is decided, and what the commit itself will say.
        super().__init__(state, max(now_ns, state.at_ns))
        self.commit_ns = now_ns
        #: Kept free for what the commands need: one event each, and these bytes until they are answered.
        self.reserved = commands
        self.bytes_reserved = COMMANDS_BYTES + authorities_bytes if commands else 0
        #: {job: its state after the events so far}
        self.states: dict[str, str] = {}
        #: Jobs that people have changed, moved, held or released by the commands so far.
        self.changed: set[str] = set()
        self.keys: dict[str, tuple[str, str]] = {}
        #: Services that the commands so far have changed.
        self.services: set[str] = set()
        #: The queues and pools after a change that this very decision accepts; None: as they are.
        self.outlook: ProposedConfiguration | None = None
        #: Queues that are held or drained after what was decided so far; None: as they are.
        self.closed: QueueClosures | None = None
        #: Limits, marks of budgets, or the jobs in line differ after this decision: the next decision offers.
        self.reshaped = False
        #: Queues that jobs enter by this decision, and jobs that it accepts.
        self.entered: set[str] = set()
        self.accepted: set[str] = set()
        #: (queue, user, project, request) of submits that may enter, as the queues are now.
        self.welcome: set[tuple[str, str, str, Request]] = set()
        self.next_number = state.next_number
        self.next_place = state.next_place
        self.next_rank = state.next_rank
        #: Single jobs that this decision accepts, and those of them for which turns are taken already.
        self.fresh: list[AcceptedJob] = []
        self.tried: set[str] = set()
        #: Something was left for the next decision because this one is full.
        self.full = False

    def queues(self) -> "dict[str, QueueSettings]":
        """The settings of all queues, after what was decided so far."""
        if self.outlook is not None:
            return self.outlook.queues
        return {path: queue.settings for path, queue in self.state.queues.items()}

    def settings_of(self, path: str) -> QueueSettings | None:
        """A queue's settings, after what was decided so far; None: there is none."""
        if self.outlook is not None:
            return self.outlook.queues.get(path)
        queue = self.state.queues.get(path)
        return queue.settings if queue is not None else None

    def pool_settings(self, name: str) -> PoolSettings:
        """A pool's settings, after what was decided so far."""
        return self.outlook.pools[name] if self.outlook is not None else self.state.pools[name].settings

    @property
    def closures(self) -> QueueClosures:
        """Queues that are held or drained, after what was decided so far."""
        return self.closed if self.closed is not None else self.state.closures

    def change_closures(self) -> QueueClosures:
        """Return the closures of this decision, to be changed: no job is offered or welcome by what was known before."""
        if self.closed is None:
            self.closed = self.state.closures.copy()
        self.reshaped = True
        self.welcome.clear()
        return self.closed

    def room(self) -> int:
        """Return the number of events that still fit in addition to those that the commands need."""
        return min(
            COMMIT_EVENTS_MAX - self.reserved - len(self.events),
            (COMMIT_BYTES_BUDGET - self.size - self.bytes_reserved) // (self.EVENT_BYTES + self.authority_bytes),
        )

    def has_room(self, events: int = 1) -> bool:
        """Return True if so many more events fit; else the rest is left for the next decision."""
        if self.room() >= events:
            return True
        self.full = True
        return False

    def answer(self, event: QueueEvent) -> None:
        """Add an event that a command was promised room for; the last one frees what was reserved."""
        if self.authority is not None:
            event = self.authorized(event)
            self.size += self.authority_bytes
        self.events.append(event)
        self.reserved -= 1
        if isinstance(event, JobSubmitted):
            self.size += SUBMIT_BYTES + len(memoryview(event.spec))
        elif isinstance(event, ServiceApplied):
            self.size += ANSWER_BYTES + len(_encode(event))
        elif isinstance(event, JobRejected):
            self.size += ANSWER_BYTES + len(_encode((event.request, event.queue, event.project)))
        else:
            self.size += ANSWER_BYTES
        if not self.reserved:
            self.bytes_reserved = 0
