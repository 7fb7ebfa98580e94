"""Every event of the log: one fact, recorded once, by the one writer that owns the fact.

Event types are closed: each has exactly one writer, one meaning and an emitter. Names are past tense, aggregate
first. Fields may be added with defaults; a field's meaning never changes under the same name. Integers only.
`cause` names the origin of the event: "cmd:<id>", "<sequence>.<index>", "report:<node>:<n>" or "clock".

Read `base.py` and `enums.py` first. Then there is a file per subject: `queue.py` and `services.py` (written by the queue),
`nodes.py` and `placement.py` (by the placer), `idle.py` (by telemetry), `access.py` and `storage.py` (by the services
of these names), `base.py` (by each of them).
"""

# One door to all of them.
# pyright: reportUnusedImport=false
from fairlead_schemas.wire.events.access import (
    AccessCommandRejected,
    GroupSynced,
    LevelRaised,
    PrincipalAdmitted,
    PrincipalSuspended,
    RoleGranted,
    RoleRevoked,
    RolesApplied,
    SessionEnded,
    SessionOpened,
    TokenIssued,
    TokenRevoked,
)
from fairlead_schemas.wire.events.base import (
    CLOCK_STEPPED,
    FIELDS,
    AccessClockStepped,
    ClockStepped,
    EventBase,
    PlacerClockStepped,
    QueueClockStepped,
    StorageClockStepped,
    TelemetryClockStepped,
)
from fairlead_schemas.wire.events.enums import (
    Basis,
    BreakerKind,
    DeferReason,
    DependencyState,
    FailReason,
    JobKind,
    MigDropReason,
    MigMode,
    RequeueReason,
    RolloutStep,
    RunOutcome,
    Setter,
    StartFault,
    StopReason,
    WithdrawReason,
    YieldRule,
)
from fairlead_schemas.wire.events.idle import (
    IdlePoliciesSet,
    JobActive,
    JobExtended,
    JobIdle,
    LeaseShrunk,
    ReclaimRequested,
    ReclaimSimulated,
    TelemetryCommandRejected,
)
from fairlead_schemas.wire.events.nodes import (
    BreakerReset,
    BreakerTripped,
    GpuFaulted,
    GpuRestored,
    MaintenanceEnded,
    MaintenanceScheduled,
    MaintenanceStarted,
    MigLayoutChanged,
    MigLayoutDropped,
    MigLayoutFailed,
    MigLayoutPlanned,
    NodeChanged,
    NodeCleared,
    NodeCordoned,
    NodeDeclaredDead,
    NodeDrained,
    NodeDraining,
    NodeJoined,
    NodeLost,
    NodeQuarantined,
    NodeRecovered,
    NodeRemoved,
    NodeReturned,
    NodeSuspected,
    NodeTainted,
    NodeUncordoned,
    NodeUnhealthy,
    NodeUnquarantined,
    NodeUntainted,
    RolloutAdvanced,
    RolloutEnded,
    RolloutPaused,
    RolloutResumed,
    RolloutStarted,
)
from fairlead_schemas.wire.events.placement import (
    AllocationReleased,
    AppReady,
    CheckpointSaved,
    JobPlaced,
    JobUnplaceable,
    NearMiss,
    NodeCommandRejected,
    OfferReturned,
    Part,
    PreemptionDeclined,
    PreemptionStarted,
    RankEnded,
    RankStarted,
    ReportRejected,
    ReservationEnded,
    ReservationMade,
    RunEnded,
    RunStarted,
)
from fairlead_schemas.wire.events.queue import (
    BudgetReached,
    CommandRejected,
    CommandRepeated,
    DeadlineMissed,
    Dependency,
    JobCancelled,
    JobDeferred,
    JobFailed,
    JobHeld,
    JobMoved,
    JobOffered,
    JobQueued,
    JobRejected,
    JobReleased,
    JobRequeued,
    JobSignalRequested,
    JobsRetired,
    JobStopRequested,
    JobSubmitted,
    JobSucceeded,
    JobUpdated,
    OfferWithdrawn,
    PoolConfigured,
    PoolRemoved,
    PreemptionRequested,
    PriceSet,
    PriorityAged,
    QueueConfigured,
    QueueDrained,
    QueueHeld,
    QueueReleased,
    QueueRemoved,
    QueuesApplied,
    ReservationRequested,
    Victim,
)
from fairlead_schemas.wire.events.services import (
    ReplicaJob,
    ReplicaRetired,
    ServiceApplied,
    ServiceBlocked,
    ServiceKeyIssued,
    ServiceKeyRevoked,
    ServiceLoad,
    ServiceScaled,
    ServiceStopped,
)
from fairlead_schemas.wire.events.storage import (
    DatasetAdded,
    DatasetRetired,
    StorageClassRemoved,
    StorageClassSet,
    StorageCommandRejected,
    VolumeCreated,
    VolumeDeleted,
    VolumeResized,
)

QueueEvent = (
    QueuesApplied
    | PoolConfigured
    | PoolRemoved
    | QueueConfigured
    | QueueRemoved
    | QueueHeld
    | QueueDrained
    | QueueReleased
    | PriceSet
    | BudgetReached
    | JobSubmitted
    | JobRejected
    | JobQueued
    | JobMoved
    | JobUpdated
    | PriorityAged
    | JobDeferred
    | DeadlineMissed
    | JobOffered
    | OfferWithdrawn
    | JobHeld
    | JobReleased
    | ReservationRequested
    | PreemptionRequested
    | JobStopRequested
    | JobSignalRequested
    | JobRequeued
    | JobSucceeded
    | JobFailed
    | JobCancelled
    | JobsRetired
    | ServiceApplied
    | ServiceScaled
    | ServiceLoad
    | ServiceBlocked
    | ServiceStopped
    | ReplicaRetired
    | ServiceKeyIssued
    | ServiceKeyRevoked
    | CommandRejected
    | CommandRepeated
    | QueueClockStepped
)
PlacerEvent = (
    NodeJoined | NodeChanged | NodeLost | NodeReturned | NodeDeclaredDead | NodeRemoved | NodeCordoned | NodeUncordoned | NodeDraining | NodeDrained
    | NodeTainted | NodeUntainted | NodeSuspected | NodeCleared | NodeQuarantined | NodeUnquarantined
    | GpuFaulted | GpuRestored | NodeUnhealthy | NodeRecovered | MigLayoutPlanned | MigLayoutChanged | MigLayoutFailed | MigLayoutDropped
    | BreakerTripped | BreakerReset
    | MaintenanceScheduled | MaintenanceStarted | MaintenanceEnded
    | RolloutStarted | RolloutAdvanced | RolloutPaused | RolloutResumed | RolloutEnded
    | JobPlaced | JobUnplaceable | OfferReturned | ReservationMade | ReservationEnded | PreemptionStarted
    | PreemptionDeclined | RankStarted | RunStarted | AppReady | CheckpointSaved | RankEnded | RunEnded
    | AllocationReleased | ReportRejected | NodeCommandRejected | PlacerClockStepped
)  # fmt: skip
TelemetryEvent = (
    IdlePoliciesSet
    | JobIdle
    | JobActive
    | JobExtended
    | LeaseShrunk
    | ReclaimSimulated
    | ReclaimRequested
    | TelemetryCommandRejected
    | TelemetryClockStepped
)
AccessEvent = (
    PrincipalAdmitted
    | PrincipalSuspended
    | RoleGranted
    | RoleRevoked
    | RolesApplied
    | GroupSynced
    | TokenIssued
    | TokenRevoked
    | SessionOpened
    | SessionEnded
    | LevelRaised
    | AccessCommandRejected
    | AccessClockStepped
)
StorageEvent = (
    StorageClassSet
    | StorageClassRemoved
    | VolumeCreated
    | VolumeResized
    | VolumeDeleted
    | DatasetAdded
    | DatasetRetired
    | StorageCommandRejected
    | StorageClockStepped
)
Event = QueueEvent | PlacerEvent | TelemetryEvent | AccessEvent | StorageEvent

#: Which writer emits which types; a commit holding another's type is out of contract.
EVENTS_OF: dict[str, tuple[type[EventBase], ...]] = {
    "queue": QueueEvent.__args__,
    "placer": PlacerEvent.__args__,
    "telemetry": TelemetryEvent.__args__,
    "access": AccessEvent.__args__,
    "storage": StorageEvent.__args__,
}
