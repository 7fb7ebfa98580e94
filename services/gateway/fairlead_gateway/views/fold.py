"""All views together: fold a commit into them, write them to a snapshot, read them back.

Pure: time is the commit's. The only entry points are `fold`, `snapshot` and `restore`.
"""

from collections.abc import Callable
from typing import Any, Self

import msgspec

from fairlead_bus.snapshot_codec import SnapshotCodec
from fairlead_gateway.views.idle import IdleView
from fairlead_gateway.views.jobs import JobsView, RunsView
from fairlead_gateway.views.nodes import NodesView, PlansView
from fairlead_gateway.views.outcomes import OutcomesView
from fairlead_gateway.views.queues import PricesView, QueuesView, SetPriceRow
from fairlead_gateway.views.rows import (
    BreakerRow,
    DeferralRow,
    DryRunSavings,
    IdlePolicies,
    JobRow,
    NodeRow,
    OutcomeRow,
    PlacementRefusal,
    PoolRow,
    QueueRow,
    RolloutRow,
    WindowRow,
)
from fairlead_gateway.views.services import ServiceRow, ServicesView
from fairlead_gateway.views.storage import StorageRows, StorageView
from fairlead_gateway.views.waiting import WaitingView
from fairlead_rights.effects import EFFECTS
from fairlead_rights.rows import AccessRows, rows_of, state_of
from fairlead_rights.state import AccessState
from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.events import Event
from fairlead_schemas.wire.resources import Request

#: Increased by hand when the meaning of a row's field changes but its type stays; new types are detected
#: automatically.
MEANING = 11

Handler = Callable[[Any, int, int], None]


class _Snapshot(msgspec.Struct, kw_only=True):
    schema: str
    sequence: int
    at_ns: int
    born: int
    jobs: list[JobRow]
    refusals: list[PlacementRefusal]
    deferrals: list[tuple[str, Request, str, DeferralRow]]
    queues: list[QueueRow]
    pools: list[PoolRow]
    nodes: list[NodeRow]
    gangs: dict[str, tuple[str, ...]]
    windows: list[WindowRow]
    rollouts: list[RolloutRow]
    tripped: list[BreakerRow]
    idle_policies: list[IdlePolicies]
    savings: list[DryRunSavings]
    access: AccessRows
    storage: StorageRows
    services: list[ServiceRow]
    prices: list[SetPriceRow]
    outcomes_old: dict[str, OutcomeRow]
    outcomes_young: dict[str, OutcomeRow]


_CODEC = SnapshotCodec(_Snapshot, MEANING, keeps_order=True)
#: Name of the rows' shape: a snapshot of another one is ignored, and the log folded from its start.
SCHEMA = _CODEC.schema


class Views:
    """Everything that the gateway knows, as of `sequence`."""

    def __init__(self) -> None:
        self.sequence = 0
        #: The clock of the newest commit folded (Unix ns).
        self.at_ns = 0
        self.queues = QueuesView()
        self.jobs = JobsView(self.queues)
        self.waiting = WaitingView(self.jobs, self.queues)
        self.nodes = NodesView()
        self.plans = PlansView()
        self.idle = IdleView(self.jobs)
        self.prices = PricesView()
        self.storage = StorageView()
        self.services = ServicesView()
        self.outcomes = OutcomesView()
        #: Grants, tokens and sign-ins in force.
        self.access = AccessState()
        #: Seconds for which a node has been silent, 0 for none: the live gateway's (monitoring/probes.py). The log does not know.
        self.silent_s: Callable[[str], int] = lambda _node: 0
        #: Login name of a principal that the live gateway has in memory, else the id (access/people.py). The log does not know.
        self.name_of: Callable[[str], str] = lambda principal: principal
        self._handlers: dict[type, tuple[Handler, ...]] = dict.fromkeys(Event.__args__, ())
        # In this order: what jobs and runs are has changed before anybody draws conclusions from it.
        runs = RunsView(self.jobs, lambda: self.at_ns)
        views = (
            self.queues,
            self.jobs,
            runs,
            self.waiting,
            self.nodes,
            self.plans,
            self.idle,
            self.prices,
            self.storage,
            self.services,
        )
        for view in views:
            for kind, handler in view.handlers.items():
                self._handlers[kind] = (*self._handlers[kind], handler)
        for kind, effect in EFFECTS.items():
            self._handlers[kind] = (*self._handlers[kind], self._access_handler(effect))

    def _access_handler(self, effect: Callable[[AccessState, Any, object], None]) -> Handler:
        return lambda event, _seq, _at_ns: effect(self.access, event, None)

    def fold(self, seq: int, commit: Commit) -> None:
        """Fold one commit. Raises KeyError when the log is not valid (unknown job, illegal move)."""
        at_ns = commit.at_ns
        handlers = self._handlers
        # First, so that a client that is notified of an outcome finds views with its sequence.
        self.sequence = seq
        self.at_ns = max(self.at_ns, at_ns)
        for event in commit.events:
            for handle in handlers[type(event)]:
                handle(event, seq, at_ns)
            if event.cause.startswith("cmd:"):
                self.outcomes.caused(event, seq)

    def job_counts(self, counts_queue: Callable[[str], bool] = lambda _path: True) -> dict[str, int]:
        """Jobs and elements ever by state, over all queues that `counts_queue` allows ("waiting": elements not offered yet)."""
        counts: dict[str, int] = {}
        for queue in self.queues.rows.values():
            if not counts_queue(queue.path):
                continue
            for state, count in queue.states.items():
                counts[state] = counts.get(state, 0) + count
            if queue.unborn:
                counts["waiting"] = counts.get("waiting", 0) + queue.unborn
        return {state: count for state, count in sorted(counts.items()) if count}

    def snapshot(self) -> bytes:
        """All rows, in their order and that of their dicts."""
        old, young = self.outcomes.rows()
        return _CODEC.encode(
            _Snapshot(
                schema=SCHEMA,
                sequence=self.sequence,
                at_ns=self.at_ns,
                born=self.jobs.born,
                jobs=list(self.jobs.rows.values()),
                refusals=list(self.waiting.refusals.values()),
                deferrals=[(*like, deferral) for like, deferral in self.waiting.deferrals.items()],
                queues=list(self.queues.rows.values()),
                pools=list(self.queues.pools.values()),
                nodes=list(self.nodes.rows.values()),
                gangs=self.nodes.gangs,
                windows=list(self.plans.windows.values()),
                rollouts=list(self.plans.rollouts.values()),
                tripped=list(self.plans.tripped.values()),
                idle_policies=list(self.idle.policies.values()),
                savings=list(self.idle.savings.values()),
                access=rows_of(self.access),
                storage=self.storage.rows(),
                services=list(self.services.rows.values()),
                prices=list(self.prices.rows.values()),
                outcomes_old=old,
                outcomes_young=young,
            )
        )

    @classmethod
    def restore(cls, data: bytes) -> Self | None:
        """The inverse of `snapshot`; None when the bytes are of another shape (fold the log instead)."""
        try:
            saved = _CODEC.decode(data)
        except msgspec.MsgspecError:
            return None
        if saved.schema != SCHEMA:
            return None
        views = cls()
        views.sequence, views.at_ns, views.jobs.born = saved.sequence, saved.at_ns, saved.born
        for row in saved.jobs:
            row.spec = row.spec.copy()  # not a view into the whole snapshot
        views.jobs.rows.update((row.id, row) for row in saved.jobs)
        views.waiting.refusals.update((refusal.request, refusal) for refusal in saved.refusals)
        views.waiting.deferrals.update(((queue, request, scope), one) for queue, request, scope, one in saved.deferrals)
        views.waiting.rooms.update(row.id for row in saved.jobs if row.room is not None)
        views.queues.rows.update((row.path, row) for row in saved.queues)
        views.queues.pools.update((row.name, row) for row in saved.pools)
        views.nodes.rows.update((row.id, row) for row in saved.nodes)
        views.nodes.gangs.update(saved.gangs)
        views.plans.windows.update((row.name, row) for row in saved.windows)
        views.plans.rollouts.update((row.name, row) for row in saved.rollouts)
        views.plans.tripped.update((row.kind, row) for row in saved.tripped)
        views.idle.restore(saved.idle_policies, saved.savings)
        views.access = state_of(saved.access)
        views.storage.fill(saved.storage)
        views.services.fill(saved.services)
        views.prices.rows.update(((row.model, row.from_ns), row) for row in saved.prices)
        views.outcomes.fill(saved.outcomes_old, saved.outcomes_young)
        return views
