"""Commands: what people and services ask for. Imperative, verb first.

They travel as **a list per message** on `fairlead.cmd.<service>`: what arrives while one publish
is in flight goes into the next. `id` names the answer: every command leads to at least one event
with `cause == "cmd:<id>"`.
"""

import hashlib
from typing import Annotated, Any, ClassVar

import msgspec

from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.policies.idle import IdlePolicy
from fairlead_schemas.policies.launchers import GangRule
from fairlead_schemas.policies.partitions import AS_THE_CLUSTER, OnPartition
from fairlead_schemas.policies.rights import Role, Verb
from fairlead_schemas.policies.services import ServiceRules
from fairlead_schemas.policies.storage import Backend
from fairlead_schemas.queuefile.settings import PoolEntry, QueueEntry, QueueRemoval
from fairlead_schemas.units.validation import decode
from fairlead_schemas.wire.authority import Authority
from fairlead_schemas.wire.events import Dependency, JobKind, ReplicaJob
from fairlead_schemas.wire.events.access import EndReason, PrincipalKind, TokenKind
from fairlead_schemas.wire.resources import Request

#: A message of commands stays within both, so that what it leads to fits one commit.
MESSAGE_COMMANDS_MAX = 400
MESSAGE_BYTES_MAX = 96 * 1024
#: Both are repeated in events, one of them in that of every element of an array.
ID_CHARS_MAX = 80
USER_CHARS_MAX = 128


class CommandBase(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="type"
):
    """Fields that every command carries."""

    id: Annotated[str, msgspec.Meta(max_length=ID_CHARS_MAX)]
    #: Who asks.
    user: Annotated[str, msgspec.Meta(max_length=USER_CHARS_MAX)] = ""
    #: Right by which it was sent; None: without sign-on, or a service's own.
    authority: Authority | None = None


class SubmitJob(CommandBase, tag=True, frozen=True, kw_only=True):
    """Accept this job. `spec` is the canonical job file; the other fields are its meaning in integers."""

    name: str
    queue: str
    request: Request
    spec: msgspec.Raw
    project: str = ""
    kind: JobKind = "batch"
    priority: int = 50
    array: tuple[int, int] | None = None
    retries: int = 0
    total_ns: int = 0
    grace_ns: int = 0
    start_at_ns: int = 0
    deadline_ns: int = 0
    slice_ns: int = 0
    after: tuple[Dependency, ...] = ()
    array_limit: int = 0
    on_partition: OnPartition = AS_THE_CLUSTER
    checkpoint: Checkpoint | None = None
    gang: GangRule = ""
    #: Let it wait until a person releases it.
    held: bool = False
    #: Idempotency key, bound to its user ("" for none), and the digest of what was sent under it.
    key: str = ""
    digest: str = ""


class CancelJob(CommandBase, tag=True, frozen=True, kw_only=True):
    """End the job, wherever it is (an array with all its elements)."""

    job: str
    #: Give what runs its notice first (jobs whose file names a checkpoint signal or command).
    save: bool = False


class RequeueJob(CommandBase, tag=True, frozen=True, kw_only=True):
    """End the job's present run and let it wait for another one, which uses up no retry."""

    job: str


class SignalJob(CommandBase, tag=True, frozen=True, kw_only=True):
    """Send a signal to the programs of the job's present run, once. The job stays as it is."""

    job: str
    #: One of checkpoints.SENT_SIGNALS.
    signal: str


class HoldJob(CommandBase, tag=True, frozen=True, kw_only=True):
    """Keep a waiting job from being offered."""

    job: str


class ReleaseJob(CommandBase, tag=True, frozen=True, kw_only=True):
    """End a hold."""

    job: str


class ApplyQueues(CommandBase, tag=True, frozen=True, kw_only=True):
    """Create these queues and pools or replace their settings, and remove others: all of it, or nothing."""

    pools: tuple[PoolEntry, ...] = ()
    queues: tuple[QueueEntry, ...] = ()
    remove: tuple[QueueRemoval, ...] = ()
    #: Remove every queue and pool that is not named here.
    prune: bool = False
    #: Ask running jobs to yield where a queue now holds more than its maximum.
    reclaim: bool = False
    #: Log sequence after which nothing that is named here may have changed; None: it may have.
    unchanged_since: int | None = None


class HoldQueue(CommandBase, tag=True, frozen=True, kw_only=True):
    """Start nothing new of a queue and of those below it."""

    path: str
    reason: str = ""


class DrainQueue(CommandBase, tag=True, frozen=True, kw_only=True):
    """Accept no further jobs in a queue and in those below it."""

    path: str
    reason: str = ""


class ReleaseQueue(CommandBase, tag=True, frozen=True, kw_only=True):
    """End the hold and the drain of a queue."""

    path: str


class SetPrice(CommandBase, tag=True, frozen=True, kw_only=True):
    """Set what an hour of one whole GPU of a model costs from a moment on."""

    #: As in the node label nvidia.com/gpu.product; "*": every model without a price of its own.
    model: str
    #: Millionths of the currency.
    micro: int
    currency: str
    #: Unix ns; 0: from now on.
    from_ns: int = 0


class MoveJob(CommandBase, tag=True, frozen=True, kw_only=True):
    """Put a waiting job into another queue."""

    job: str
    queue: str


class UpdateJob(CommandBase, tag=True, frozen=True, kw_only=True):
    """Change a job, or an array with all its elements. A field that is None stays as it is. JobUpdated defines the fields."""

    job: str
    name: str | None = None
    priority: int | None = None
    total_ns: int | None = None
    labels: dict[str, str] | None = None
    #: Raise the limit also of a job that has a place or an offer.
    extends: bool = False
    #: Log sequence after which the job may not have been updated, moved, held or released; None: it may have.
    unchanged_since: int | None = None


class CordonNode(CommandBase, tag=True, frozen=True, kw_only=True):
    """Give the node no new work."""

    node: str
    reason: str = ""


class UncordonNode(CommandBase, tag=True, frozen=True, kw_only=True):
    """Give the node work again."""

    node: str


class DrainNode(CommandBase, tag=True, frozen=True, kw_only=True):
    """Give the node no new work; stop and requeue what runs there after `deadline_ns` from now (0: wait)."""

    node: str
    reason: str = ""
    deadline_ns: int = 0


class TaintNode(CommandBase, tag=True, frozen=True, kw_only=True):
    """Keep work from the node that does not tolerate the taint ("key=value:Effect")."""

    node: str
    taint: str
    reason: str = ""


class UntaintNode(CommandBase, tag=True, frozen=True, kw_only=True):
    """Remove the node's taints that match ("key", "key:Effect", "key=value" or "key=value:Effect"), but those that
    its inventory names."""

    node: str
    taint: str


class QuarantineNode(CommandBase, tag=True, frozen=True, kw_only=True):
    """Give the node no work until it is released; its runs continue."""

    node: str
    reason: str = ""


class UnquarantineNode(CommandBase, tag=True, frozen=True, kw_only=True):
    """End the node's quarantine, or the suspicion against it."""

    node: str


class DeclareNodeDead(CommandBase, tag=True, frozen=True, kw_only=True):
    """Declare that a person has seen that the lost node runs nothing any more. Its work may be started elsewhere,
    including strict jobs.
    """

    node: str
    reason: str = ""


class RemoveNode(CommandBase, tag=True, frozen=True, kw_only=True):
    """Forget a node that is lost and runs nothing any more."""

    node: str
    reason: str = ""


class RestoreGpu(CommandBase, tag=True, frozen=True, kw_only=True):
    """Use a faulted GPU of the node again; without one, what is wrong with the node itself is over."""

    node: str
    gpu: str = ""


class ResetBreaker(CommandBase, tag=True, frozen=True, kw_only=True):
    """Reset the breaker, so that nodes are acted upon automatically again."""


class ScheduleMaintenance(CommandBase, tag=True, frozen=True, kw_only=True):
    """Keep these nodes empty between two Unix times, and give them nothing new for `notice_ns` before. The nodes are
    those named, and those that have every label ("key=value") of the selector."""

    name: str
    starts_ns: int
    ends_ns: int
    nodes: tuple[str, ...] = ()
    selector: tuple[str, ...] = ()
    notice_ns: int = 0
    reason: str = ""


class CancelMaintenance(CommandBase, tag=True, frozen=True, kw_only=True):
    """Forget the window; the nodes that it drained take work again."""

    name: str


class StartRollout(CommandBase, tag=True, frozen=True, kw_only=True):
    """Drain and return these nodes (named, or by selector as in ScheduleMaintenance, or `every`), as many at a time as
    the budget allows. RolloutStarted defines the other fields.
    """

    name: str
    budget_gpus: int
    nodes: tuple[str, ...] = ()
    selector: tuple[str, ...] = ()
    every: bool = False
    nodes_max: int = 0
    want: tuple[str, ...] = ()
    deadline_ns: int = 0
    stop_long: bool = False
    reason: str = ""


class PauseRollout(CommandBase, tag=True, frozen=True, kw_only=True):
    """Drain no further node of it for now."""

    name: str
    reason: str = ""


class ResumeRollout(CommandBase, tag=True, frozen=True, kw_only=True):
    """Continue a paused rollout."""

    name: str


class CancelRollout(CommandBase, tag=True, frozen=True, kw_only=True):
    """End it; nodes that it has in hand take work again."""

    name: str


class FinishRolloutNode(CommandBase, tag=True, frozen=True, kw_only=True):
    """The node is upgraded: the rollout returns it."""

    name: str
    node: str


class SetIdlePolicies(CommandBase, tag=True, frozen=True, kw_only=True):
    """Let these be all policies of one scope ("global", "project:<name>", "user:<name>"); none: it has no say."""

    scope: str
    policies: tuple[IdlePolicy, ...]


class ApplyIdlePolicies(CommandBase, tag=True, frozen=True, kw_only=True):
    """The same for several scopes at once, {scope: all of its policies}: all of them or none."""

    scopes: dict[str, tuple[IdlePolicy, ...]]


class ExtendJob(CommandBase, tag=True, frozen=True, kw_only=True):
    """Let no policy act on what runs of the job for `for_ns` from now (0: for as long as its policy allows)."""

    job: str
    for_ns: int = 0


class AdmitPrincipal(CommandBase, tag=True, frozen=True, kw_only=True):
    """Make a principal active, new or after a suspension. Without `user`: by a sign-in, a directory or the set-up."""

    principal: str
    kind: PrincipalKind = "person"
    #: Refuse a suspended principal: a sign-in ends no suspension, however little its sender knows of it.
    first: bool = False


class SuspendPrincipal(CommandBase, tag=True, frozen=True, kw_only=True):
    """Take all rights from a principal, and end its tokens and sessions."""

    principal: str
    #: True for a principal that is forgotten: its memberships in groups and its own grants end as well.
    forget: bool = False


class RoleEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One grant, with what the gateway knows of the thing that its scope names."""

    subject: str
    role: Role
    scope: str
    #: Of a job or volume: its queue, pool, project and owner. Of a queue: its pool.
    queue: str = ""
    pool: str = ""
    project: str = ""
    owner: str = ""


class GrantRole(CommandBase, tag=True, frozen=True, kw_only=True):
    """Let the subject be a role in a scope."""

    grant: RoleEntry


class RevokeRole(CommandBase, tag=True, frozen=True, kw_only=True):
    """Take a grant back that a person gave; what a file states is taken back there."""

    grant: RoleEntry


class ApplyRoles(CommandBase, tag=True, frozen=True, kw_only=True):
    """Let these be all grants that a source states below a scope: all of them or none."""

    source: str
    scope: str
    grants: tuple[RoleEntry, ...]


class SyncGroup(CommandBase, tag=True, frozen=True, kw_only=True):
    """Change the members that a source gives a group; those of other sources stay. A large directory sends several."""

    group: str
    source: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class IssueToken(CommandBase, tag=True, frozen=True, kw_only=True):
    """Let a token act for a principal. Its text and digest are no part of the command."""

    token: str
    principal: str
    kind: TokenKind = "person"
    expires_ns: int
    verbs: tuple[Verb, ...] = ()
    scopes: tuple[str, ...] = ()


class RevokeToken(CommandBase, tag=True, frozen=True, kw_only=True):
    """Refuse a token from here on."""

    token: str


class OpenSession(CommandBase, tag=True, frozen=True, kw_only=True):
    """A principal signed in at a provider."""

    session: str
    principal: str
    provider: str
    expires_ns: int


class EndSession(CommandBase, tag=True, frozen=True, kw_only=True):
    """End a sign-in: signed out here, or at the provider."""

    session: str
    reason: EndReason = "signed_out"


class RaiseLevel(CommandBase, tag=True, frozen=True, kw_only=True):
    """Let events and fields of this level of the log's format be written. Its sender has seen that every process knows it."""

    level: int


class SetStorageClass(CommandBase, tag=True, frozen=True, kw_only=True):
    """Let volumes be made in a class, or change its bounds. StorageClassSet defines the fields."""

    name: str
    backend: Backend
    volume_bytes_max: int = 0
    user_bytes_max: int = 0


class RemoveStorageClass(CommandBase, tag=True, frozen=True, kw_only=True):
    """Let no volume be made in a class any more. It must have none."""

    name: str


class CreateVolume(CommandBase, tag=True, frozen=True, kw_only=True):
    """Make an empty volume. VolumeCreated defines the fields."""

    volume: str
    owner: str
    storage_class: str
    quota_bytes: int


class ResizeVolume(CommandBase, tag=True, frozen=True, kw_only=True):
    """Give a volume another quota."""

    volume: str
    quota_bytes: int


class DeleteVolume(CommandBase, tag=True, frozen=True, kw_only=True):
    """Remove a volume with all that is in it."""

    volume: str


class AddDataset(CommandBase, tag=True, frozen=True, kw_only=True):
    """Record a version of a dataset, whose files were stored before. DatasetAdded defines the fields."""

    dataset: str
    owner: str
    digest: str
    size_bytes: int
    files: int


class RetireDataset(CommandBase, tag=True, frozen=True, kw_only=True):
    """Let no job name a version of a dataset any more."""

    dataset: str


class ApplyService(CommandBase, tag=True, frozen=True, kw_only=True):
    """Let there be this service, or make it another one. ServiceApplied defines the fields."""

    service: str
    queue: str
    template: ReplicaJob
    rules: ServiceRules


class ScaleService(CommandBase, tag=True, frozen=True, kw_only=True):
    """Give a service another number of replicas: from and to; the same twice is a fixed number."""

    service: str
    replicas_min: int
    replicas_max: int


class ReportServiceLoad(CommandBase, tag=True, frozen=True, kw_only=True):
    """Record how many requests of a service an app proxy has in flight. Sent by gateways."""

    service: str
    proxy: str
    in_flight: int


class StopService(CommandBase, tag=True, frozen=True, kw_only=True):
    """End a service with all its replicas."""

    service: str


class IssueServiceKey(CommandBase, tag=True, frozen=True, kw_only=True):
    """Let programs use a service by a key. ServiceKeyIssued defines the fields."""

    service: str
    key: str
    name: str = ""
    per_minute: int = 0
    in_flight: int = 0
    expires_ns: int = 0


class RevokeServiceKey(CommandBase, tag=True, frozen=True, kw_only=True):
    """Revoke a key of a service."""

    service: str
    key: str


QueueCommand = (
    SubmitJob
    | CancelJob
    | RequeueJob
    | SignalJob
    | HoldJob
    | ReleaseJob
    | MoveJob
    | UpdateJob
    | ApplyQueues
    | HoldQueue
    | DrainQueue
    | ReleaseQueue
    | SetPrice
    | ApplyService
    | ScaleService
    | ReportServiceLoad
    | StopService
    | IssueServiceKey
    | RevokeServiceKey
)
PlacerCommand = (
    CordonNode
    | UncordonNode
    | DrainNode
    | TaintNode
    | UntaintNode
    | QuarantineNode
    | UnquarantineNode
    | RestoreGpu
    | ResetBreaker
    | ScheduleMaintenance
    | CancelMaintenance
    | StartRollout
    | PauseRollout
    | ResumeRollout
    | CancelRollout
    | FinishRolloutNode
    | DeclareNodeDead
    | RemoveNode
)
TelemetryCommand = SetIdlePolicies | ApplyIdlePolicies | ExtendJob
AccessCommand = (
    AdmitPrincipal
    | SuspendPrincipal
    | GrantRole
    | RevokeRole
    | ApplyRoles
    | SyncGroup
    | IssueToken
    | RevokeToken
    | OpenSession
    | EndSession
    | RaiseLevel
)
StorageCommand = (
    SetStorageClass | RemoveStorageClass | CreateVolume | ResizeVolume | DeleteVolume | AddDataset | RetireDataset
)

_encoder = msgspec.json.Encoder(order="deterministic")
_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    "queue": msgspec.json.Decoder(list[QueueCommand]),
    "placer": msgspec.json.Decoder(list[PlacerCommand]),
    "telemetry": msgspec.json.Decoder(list[TelemetryCommand]),
    "access": msgspec.json.Decoder(list[AccessCommand]),
    "storage": msgspec.json.Decoder(list[StorageCommand]),
}
_one: dict[str, msgspec.json.Decoder[Any]] = {
    "queue": msgspec.json.Decoder(QueueCommand),
    "placer": msgspec.json.Decoder(PlacerCommand),
    "telemetry": msgspec.json.Decoder(TelemetryCommand),
    "access": msgspec.json.Decoder(AccessCommand),
    "storage": msgspec.json.Decoder(StorageCommand),
}
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class Undecodable(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on an input that are no valid command or report: recorded as rejected, never retried."""

    digest: str
    message: str
    #: The command's id, where that much could be read.
    id: str = ""
    authority: ClassVar[None] = None


class _OnlyId(msgspec.Struct):
    id: str = ""


_id_decoder = msgspec.json.Decoder(_OnlyId)


def encode_commands(
    commands: "list[QueueCommand] | list[PlacerCommand] | list[TelemetryCommand] | list[AccessCommand] | list[StorageCommand]",
) -> bytes:
    """Encode commands as one message."""
    return _encoder.encode(commands)


def decode_commands(service: str, payload: bytes) -> "list[Any]":
    """The commands of one message, in order; what does not decode is an `Undecodable` in its place. A message over
    its bounds is one as a whole: what it leads to need not fit a commit."""
    if len(payload) > MESSAGE_BYTES_MAX:
        return [_undecodable(payload, f"expected at most {MESSAGE_BYTES_MAX} bytes, found {len(payload)}")]
    try:
        commands = decode(_decoders[service], payload)
        return commands if len(commands) <= MESSAGE_COMMANDS_MAX else [_too_many(payload, len(commands))]
    except msgspec.MsgspecError as error:
        whole = str(error)
    try:
        raws = decode(_list_decoder, payload)
    except msgspec.MsgspecError:
        return [_undecodable(payload, whole)]
    if len(raws) > MESSAGE_COMMANDS_MAX:
        return [_too_many(payload, len(raws))]
    return [_decode_one(service, bytes(raw)) for raw in raws]


def _too_many(payload: bytes, count: int) -> Undecodable:
    return _undecodable(payload, f"expected at most {MESSAGE_COMMANDS_MAX} commands in a message, found {count}")


def _undecodable(payload: bytes, message: str) -> Undecodable:
    return Undecodable(digest=digest_of(payload), message=message)


def _decode_one(service: str, raw: bytes) -> Any:
    try:
        return decode(_one[service], raw)
    except msgspec.MsgspecError as error:
        message = str(error)
    try:
        command_id = decode(_id_decoder, raw).id
    except msgspec.MsgspecError:
        command_id = ""
    return Undecodable(digest=digest_of(raw), message=message, id=command_id[:80])


def digest_of(payload: bytes) -> str:
    """SHA-256 (hex) that names bytes which are not repeated."""
    return hashlib.sha256(payload).hexdigest()
