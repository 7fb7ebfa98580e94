"""The folded state as canonical bytes, and back. Equal states have equal bytes; what is derived is left out."""

import msgspec

from fairlead_bus.snapshot_codec import SnapshotCodec, fill, row_of
from fairlead_placer.cluster.entities import (
    ClusterNode,
    FastFail,
    JobFailure,
    JobRecord,
    LastSuccess,
    Offer,
    PlacedRun,
    PreemptionRequest,
    RankVerdict,
    RemovedNode,
    ReportedRefusal,
    Reservation,
    ReservationRequest,
    Withdrawal,
    run_key,
)
from fairlead_placer.cluster.plans import LayoutPlan, RepartitionBackoff, RolloutPlan, Window
from fairlead_placer.cluster.run_durations import LearnedDurations, RunDurations
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.packing.policy import Arrivals
from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.policies.idle import IdleRule
from fairlead_schemas.policies.launchers import GangRule
from fairlead_schemas.policies.partitions import AS_THE_CLUSTER, OnPartition
from fairlead_schemas.queuefile.settings import Packing
from fairlead_schemas.wire.events import Part, Setter
from fairlead_schemas.wire.resources import Inventory, Request


class SavedNode(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshot of one node; the runs determine its holdings."""

    name: str
    incarnation: str
    superseded: tuple[str, ...]
    boot_id: str
    reported: int
    lost: bool
    duty: str
    by: str
    reason: str
    cause: str
    deadline_ns: int
    inventory: Inventory
    setter: Setter = "person"
    lost_ns: int = 0
    dead: bool = False
    quarantined: bool = False
    suspect: bool = False
    resting: bool = False
    rest_ns: int = 0
    tainted: tuple[tuple[str, Setter], ...] = ()
    faulted: dict[str, str] = {}
    ills: tuple[str, ...] = ()


class SavedJobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshot of one kept job."""

    job: str
    name: str
    queue: str
    user: str
    grace_ns: int
    request: Request
    spec: msgspec.Raw
    total_ns: int = 0
    slice_ns: int = 0
    on_partition: OnPartition = AS_THE_CLUSTER
    checkpoint: Checkpoint | None = None
    gang: GangRule = ""


class SavedRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshot of the outcome published for a parked class; its offers are among the offers."""

    request: Request
    outcome: ReportedRefusal


class SavedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshot of one run that holds resources."""

    job: str
    attempt: int
    epoch: int
    parts: tuple[Part, ...]
    hosts: tuple[str, ...]
    master_address: str
    master_port: int
    started: str  # ranks as bits, hexadecimal: a gang may have more than 64
    ended: str
    released: str
    stop: str
    verdict: RankVerdict | None
    began_ns: int = 0
    placed_ns: int = 0
    noticed_ns: int = 0
    notice_ns: int = 0
    ran_ns: int = 0
    saved_ns: int = 0
    signals: tuple[tuple[int, str], ...] = ()
    restarted: str = ""
    idle: tuple[IdleRule, ...] = ()
    gang: GangRule = ""
    gpu_fault: str = ""
    app_ready: bool = False


class SavedArrivals(msgspec.Struct, frozen=True, kw_only=True):
    """The work that has arrived in a pool, in the order in which kinds of it came first."""

    pool: str
    arrived: int
    weights: tuple[tuple[Request, int], ...]


class PlacerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything."""

    sequence: int
    cursors: dict[str, int]
    nodes: list[SavedNode]
    jobs: list[SavedJobRecord]
    offers: list[Offer]
    withdrawals: list[Withdrawal]
    unanswered: dict[str, int]
    classes: list[SavedRefusal]
    claims: list[ReservationRequest]
    preemption_requests: list[PreemptionRequest] = msgspec.field(name="pleas")
    reservations: list[Reservation]
    runs: list[SavedRun]
    work: list[SavedArrivals] = []
    failed_on: dict[str, tuple[JobFailure, ...]] = {}
    removed: dict[str, RemovedNode] = {}
    failing: dict[str, tuple[FastFail, ...]] = {}
    well: dict[str, LastSuccess] = {}
    acts: dict[str, int] = {}
    tripped: dict[str, int] = {}
    reset_ns: int = 0
    windows: list[Window] = []
    rollouts: list[RolloutPlan] = []
    spans: dict[str, RunDurations] = {}
    layouts: dict[str, LayoutPlan] = {}
    spoilt: dict[str, RepartitionBackoff] = {}
    defragmented: list[str] = []
    packings: dict[str, Packing] = {}
    requeued: dict[str, str] = {}


#: Increase when the meaning of a field changes.
VERSION = 2
_CODEC = SnapshotCodec(PlacerSnapshot, VERSION)
SCHEMA = _CODEC.schema


def dump(state: ClusterState) -> bytes:
    """Canonical bytes of the folded state."""
    return _CODEC.encode(
        PlacerSnapshot(
            sequence=state.sequence,
            cursors=state.cursors,
            nodes=[row_of(SavedNode, state.nodes[name]) for name in sorted(state.nodes)],
            jobs=[row_of(SavedJobRecord, state.jobs[job], job=job) for job in sorted(state.jobs)],
            offers=[state.offers[job] for job in sorted(state.offers)],
            withdrawals=[state.withdrawals[job] for job in sorted(state.withdrawals)],
            unanswered=state.unanswered,
            requeued=state.requeued,
            classes=_classes(state),
            claims=[state.claims[job] for job in sorted(state.claims)],
            preemption_requests=[state.preemption_requests[job] for job in sorted(state.preemption_requests)],
            reservations=[state.reservations[job] for job in sorted(state.reservations)],
            runs=[_run_row(state.runs[key]) for key in sorted(state.runs)],
            work=[
                SavedArrivals(pool=pool, arrived=work.arrived, weights=tuple(work.weights.items()))
                for pool, work in sorted(state.arrivals.items())
            ],
            failed_on=state.failed_on,
            removed=state.removed,
            failing=state.failing,
            well=state.well,
            acts=state.acts,
            tripped=state.tripped,
            reset_ns=state.reset_ns,
            windows=[state.windows[name] for name in sorted(state.windows)],
            defragmented=sorted(state.defragmented),
            packings=state.packings,
            rollouts=[state.rollouts[name] for name in sorted(state.rollouts)],
            spans={kind: known.saved() for kind, known in state.spans.items()},
            layouts=state.layouts,
            spoilt=state.spoilt,
        )
    )


def _classes(state: ClusterState) -> list[SavedRefusal]:
    found = [
        SavedRefusal(request=group.request, outcome=group.outcome)
        for group in state.classes.values()
        if group.outcome is not None
    ]
    return sorted(found, key=lambda row: msgspec.json.encode(row.request, order="deterministic"))


def _run_row(run: PlacedRun) -> SavedRun:
    return row_of(SavedRun, run, started=f"{run.started:x}", ended=f"{run.ended:x}", released=f"{run.released:x}")


def load(data: bytes) -> ClusterState:
    """The state that had these bytes. Raises msgspec.MsgspecError."""
    saved = _CODEC.decode(data)
    state = ClusterState()
    state.sequence, state.cursors = saved.sequence, saved.cursors
    for row in saved.nodes:
        state.add_node(_node(row))
    for row in saved.jobs:
        request = state.intern(row.request)
        state.jobs[row.job] = JobRecord(
            row.name,
            row.queue,
            row.user,
            row.grace_ns,
            request,
            row.spec.copy(),
            row.total_ns,
            row.slice_ns,
            row.on_partition,
            row.checkpoint,
            row.gang,
        )
    for offer in saved.offers:
        state.open_offer(offer._replace(request=state.intern(offer.request)))
    state.unanswered, state.requeued = saved.unanswered, saved.requeued
    state.withdrawals = {withdrawal.job: withdrawal for withdrawal in saved.withdrawals}
    for row in saved.classes:
        state.classes[row.request].outcome = row.outcome
    for row in saved.runs:
        _hold(state, row)
    state.claims = {claim.job: claim for claim in saved.claims}
    state.preemption_requests = {preemption.job: preemption for preemption in saved.preemption_requests}
    state.failed_on, state.failing, state.well = saved.failed_on, saved.failing, saved.well
    state.removed = saved.removed
    state.acts, state.tripped, state.reset_ns = saved.acts, saved.tripped, saved.reset_ns
    state.windows = {window.name: window for window in saved.windows}
    state.rollouts = {rollout.name: rollout for rollout in saved.rollouts}
    state.spans = {kind: LearnedDurations(known) for kind, known in saved.spans.items()}
    state.spoilt = saved.spoilt
    for name, plan in saved.layouts.items():
        state.lay_out(state.nodes[name], plan)
    state.defragmented = dict.fromkeys(saved.defragmented, True)
    for pool, packing in saved.packings.items():
        state.pack(pool, packing)
    for kept in saved.reservations:
        state.reserve(kept)
    for work in saved.work:
        weights = {state.intern(request): weight for request, weight in work.weights}
        state.arrivals[work.pool] = Arrivals(weights, work.arrived)
    return state


def _node(row: SavedNode) -> ClusterNode:
    node = ClusterNode(row.name, row.incarnation, row.boot_id, row.inventory)
    fill(node, row)
    node.derive()
    return node


def _hold(state: ClusterState, row: SavedRun) -> None:
    run = PlacedRun(row.job, row.attempt, run_key(row.job, row.attempt), row.epoch, row.parts, row.hosts)
    fill(run, row, without=("started", "ended", "released"))
    run.started, run.ended, run.released = int(row.started, 16), int(row.ended, 16), int(row.released, 16)
    state.runs[run.key] = run
    for rank, part in enumerate(run.parts):
        if not run.released >> rank & 1:
            node = state.nodes[part.node]
            state.hold(node, run.key, rank, part)
            node.live += not run.ended >> rank & 1
