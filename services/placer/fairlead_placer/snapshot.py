"""The folded state as canonical bytes, and back. Equal states have equal bytes; what is derived is left out."""

from typing import Any

import msgspec

from fairlead_bus.core import schema_of
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
)
from fairlead_placer.cluster.plans import LayoutPlan, RepartitionBackoff, RolloutPlan, Window
from fairlead_placer.cluster.run_durations import RunDurations
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.packing.policy import Arrivals
from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.policies.idle import IdleRule
from fairlead_schemas.policies.launchers import GangRule
from fairlead_schemas.policies.partitions import AS_THE_CLUSTER, OnPartition
from fairlead_schemas.queuefile.settings import Packing
from fairlead_schemas.wire.events import Part, Setter
from fairlead_schemas.wire.resources import Inventory, Request


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class NodeShot(_Strict, frozen=True, kw_only=True):
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


class JobShot(_Strict, frozen=True, kw_only=True):
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


class ClassShot(_Strict, frozen=True, kw_only=True):
    """Snapshot of the outcome published for a parked class; its offers are among the offers."""

    request: Request
    outcome: ReportedRefusal


class RunShot(_Strict, frozen=True, kw_only=True):
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
    restarted: str = ""
    idle: tuple[IdleRule, ...] = ()
    gang: GangRule = ""
    gpu_fault: str = ""


class WorkShot(_Strict, frozen=True, kw_only=True):
    """The work that has arrived in a pool, in the order in which kinds of it came first."""

    pool: str
    arrived: int
    weights: tuple[tuple[Request, int], ...]


class Shot(_Strict, frozen=True, kw_only=True):
    """Everything."""

    sequence: int
    cursors: dict[str, int]
    nodes: list[NodeShot]
    jobs: list[JobShot]
    offers: list[Offer]
    withdrawals: list[Withdrawal]
    unanswered: dict[str, int]
    classes: list[ClassShot]
    claims: list[ReservationRequest]
    pleas: list[PreemptionRequest]
    reservations: list[Reservation]
    runs: list[RunShot]
    work: list[WorkShot] = []
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
#: The name of the snapshot's shape.
SCHEMA = schema_of(Shot, VERSION)
_encoder = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder(Shot)


def dump(state: ClusterState) -> bytes:
    """Canonical bytes of the folded state."""
    return _encoder.encode(
        Shot(
            sequence=state.sequence,
            cursors=state.cursors,
            nodes=[_fields(NodeShot, state.nodes[name]) for name in sorted(state.nodes)],
            jobs=[_fields(JobShot, state.jobs[job], job=job) for job in sorted(state.jobs)],
            offers=[state.offers[job] for job in sorted(state.offers)],
            withdrawals=[state.withdrawals[job] for job in sorted(state.withdrawals)],
            unanswered=state.unanswered,
            requeued=state.requeued,
            classes=_classes(state),
            claims=[state.claims[job] for job in sorted(state.claims)],
            pleas=[state.pleas[job] for job in sorted(state.pleas)],
            reservations=[state.reservations[job] for job in sorted(state.reservations)],
            runs=[_run_shot(state.runs[key]) for key in sorted(state.runs)],
            work=[
                WorkShot(pool=pool, arrived=work.arrived, weights=tuple(work.weights.items()))
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
            spans=state.spans,
            layouts=state.layouts,
            spoilt=state.spoilt,
        )
    )


def _fields[S: msgspec.Struct](kind: type[S], thing: object, **more: Any) -> S:
    return kind(**more, **{name: getattr(thing, name) for name in kind.__struct_fields__ if name not in more})


def _classes(state: ClusterState) -> list[ClassShot]:
    found = [
        ClassShot(request=group.request, outcome=group.outcome)
        for group in state.classes.values()
        if group.outcome is not None
    ]
    return sorted(found, key=lambda shot: _encoder.encode(shot.request))


def _run_shot(run: PlacedRun) -> RunShot:
    return _fields(RunShot, run, started=f"{run.started:x}", ended=f"{run.ended:x}", released=f"{run.released:x}")


def load(data: bytes) -> ClusterState:
    """The state that had these bytes. Raises msgspec.MsgspecError."""
    shot = _decoder.decode(data)
    state = ClusterState()
    state.sequence, state.cursors = shot.sequence, shot.cursors
    for item in shot.nodes:
        state.add_node(_node(item))
    for item in shot.jobs:
        request = state.intern(item.request)
        state.jobs[item.job] = JobRecord(
            item.name,
            item.queue,
            item.user,
            item.grace_ns,
            request,
            item.spec.copy(),
            item.total_ns,
            item.slice_ns,
            item.on_partition,
            item.checkpoint,
            item.gang,
        )
    for offer in shot.offers:
        state.open_offer(offer._replace(request=state.intern(offer.request)))
    state.unanswered, state.requeued = shot.unanswered, shot.requeued
    state.withdrawals = {withdrawal.job: withdrawal for withdrawal in shot.withdrawals}
    for item in shot.classes:
        state.classes[item.request].outcome = item.outcome
    for item in shot.runs:
        _hold(state, item)
    state.claims = {claim.job: claim for claim in shot.claims}
    state.pleas = {plea.job: plea for plea in shot.pleas}
    state.failed_on, state.failing, state.well = shot.failed_on, shot.failing, shot.well
    state.removed = shot.removed
    state.acts, state.tripped, state.reset_ns = shot.acts, shot.tripped, shot.reset_ns
    state.windows = {window.name: window for window in shot.windows}
    state.rollouts = {rollout.name: rollout for rollout in shot.rollouts}
    state.spans = shot.spans
    state.spoilt = shot.spoilt
    for name, plan in shot.layouts.items():
        state.lay_out(state.nodes[name], plan)
    state.defragmented = dict.fromkeys(shot.defragmented, True)
    for pool, packing in shot.packings.items():
        state.pack(pool, packing)
    for kept in shot.reservations:
        state.reserve(kept)
    for work in shot.work:
        weights = {state.intern(request): weight for request, weight in work.weights}
        state.arrivals[work.pool] = Arrivals(weights, work.arrived)
    return state


def _node(shot: NodeShot) -> ClusterNode:
    node = ClusterNode(shot.name, shot.incarnation, shot.boot_id, shot.inventory)
    for name in NodeShot.__struct_fields__:
        setattr(node, name, getattr(shot, name))
    node.derive()
    return node


def _hold(state: ClusterState, shot: RunShot) -> None:
    run = PlacedRun(shot.job, shot.attempt, shot.epoch, shot.parts, shot.hosts)
    run.master_address, run.master_port = shot.master_address, shot.master_port
    run.started, run.ended, run.released = int(shot.started, 16), int(shot.ended, 16), int(shot.released, 16)
    run.stop, run.verdict, run.began_ns = shot.stop, shot.verdict, shot.began_ns
    run.placed_ns, run.gang, run.gpu_fault = shot.placed_ns, shot.gang, shot.gpu_fault
    run.noticed_ns, run.notice_ns, run.saved_ns = shot.noticed_ns, shot.notice_ns, shot.saved_ns
    run.restarted, run.idle, run.ran_ns = shot.restarted, shot.idle, shot.ran_ns
    state.runs[run.key] = run
    for rank, part in enumerate(run.parts):
        if not run.released >> rank & 1:
            node = state.nodes[part.node]
            state.hold(node, run.key, rank, part)
            node.live += not run.ended >> rank & 1
