"""Rights that commands need, as one table for the gateway's guard and for invariant I13; and the same table read backwards, from
the events that answer them.

A need is a verb and the name of a thing. Where the thing is (a job's queue and owner, a node's pool) is known to a reader of the log: the
gateway's views now, the audit's books at a past sequence. Both answer `Things`. Start at `COMMAND_NEEDS` and `targets_of`.

A thing that is not known has the target of the whole cluster: only a right over all of it reaches a thing that may be anywhere.
"""

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, Protocol

from fairlead_rights.access_list import Target
from fairlead_schemas.jobfile.agent_fields import DEFAULT_PROJECT
from fairlead_schemas.policies.rights import Role, Verb
from fairlead_schemas.policies.storage import StorageWordError, parse_owner
from fairlead_schemas.units.ids import is_queue_path
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.authority import Authority

CLUSTER = Target()
PROJECT = "project:"
#: Projects of jobs that name none: they need no right of their own. A job of any other may use the project's secrets and volumes, and counts
#: for its policies, so it is submitted by those alone who may submit in the project.
FREE_PROJECTS = frozenset(("", DEFAULT_PROJECT))

type Kind = Literal[
    "cluster", "pool", "project", "queue", "job", "node", "rollout", "window", "volume", "owner", "own", "service"
]


class Need(NamedTuple):
    """Right that a command needs."""

    verb: Verb
    kind: Kind
    name: str = ""
    #: Of a queue to which a job is submitted: the job's project. Of one to which a job is moved: that job. Of a queue that is set: the
    #: pool into which it goes.
    project: str = ""
    job: str = ""
    pool: str = ""


class RoleNeed(NamedTuple):
    """Right to give or take a role in a scope. Nobody grants more than they hold (`AccessList.may_grant`)."""

    role: Role
    scope: str


class Things(Protocol):
    """Places of things, as of now or of a past sequence. None: it is not known."""

    def queue(self, path: str) -> Target:
        """Return the target of a queue, whether it exists or not."""
        ...

    def job(self, job: str) -> Target | None:
        """Return the target of a job, an array or an element."""
        ...

    def node(self, node: str) -> Target | None:
        """Return the target of a node."""
        ...

    def rollout(self, name: str) -> tuple[str, ...] | None:
        """Return the nodes of a rollout."""
        ...

    def window(self, name: str) -> tuple[str, ...] | None:
        """Return the nodes of a maintenance window."""
        ...

    def volume(self, name: str) -> Target | None:
        """Return the target of a volume or dataset."""
        ...

    def service(self, name: str) -> Target | None:
        """Return the target of a service."""
        ...


def owned_target(owner: str, things: Things, volume: str = "") -> Target:
    """Return the target of what belongs to an owner ("user:ann", "project:llm", "queue:research"); the cluster for any other text.
    `volume`: the name of the volume, if there is one already.
    """
    try:
        kind, name = parse_owner(owner)
    except StorageWordError:
        return Target(volume=volume)
    if kind == "queue":
        return things.queue(name)._replace(volume=volume)
    return Target(volume=volume, owner=name if kind == "user" else "", project=name if kind == "project" else "")


def targets_of(need: Need, things: Things, user: str) -> list[Target]:
    """Return the targets on all of which the verb is needed. `user`: the owner of a job that is submitted."""
    kind, name = need.kind, need.name
    if kind == "queue":
        if not is_queue_path(name):
            return [CLUSTER]
        found = things.queue(name)
        if need.job:
            job = things.job(need.job) or CLUSTER
            return [found._replace(project=job.project, owner=job.owner)]
        if need.verb == "job:submit":
            here = found._replace(project=need.project, owner=user)
            return [here] if need.project in FREE_PROJECTS else [here, Target(project=need.project)]
        return [found, found._replace(pool=need.pool)] if need.pool else [found]
    if kind == "job":
        return [things.job(name) or CLUSTER]
    if kind == "node":
        return [things.node(name) or CLUSTER]
    if kind == "volume":
        return [things.volume(name) or CLUSTER]
    if kind == "service":
        service = things.service(name)
        return [] if service is None else [service]  # there is none yet: it is made in a queue, by that queue's right
    if kind == "owner":
        return [owned_target(name, things)]
    if kind in ("rollout", "window"):
        nodes = things.rollout(name) if kind == "rollout" else things.window(name)
        return [CLUSTER] if nodes is None else [things.node(node) or CLUSTER for node in nodes]
    return [Target(pool=name if kind == "pool" else "", project=name if kind == "project" else "")]


# ------------------------------------------------------------------------------- commands


def _submit(command: cmd.SubmitJob | ev.JobSubmitted) -> list[Need]:
    wanted = [Need("job:submit", "queue", command.queue, command.project)]
    return wanted + [Need("job:read", "job", each.job) for each in command.after]


def _job(item: Any) -> list[Need]:
    return [Need("job:cancel", "job", item.job)]


def _move(item: cmd.MoveJob | ev.JobMoved) -> list[Need]:
    return [Need("job:cancel", "job", item.job), Need("job:submit", "queue", item.queue, job=item.job)]


def _update(item: cmd.UpdateJob | ev.JobUpdated) -> list[Need]:
    """A limit that is raised while the job holds something takes from others, as the settings of their queue do."""
    return [*_job(item), *([Need("queue:set", "job", item.job)] if item.extends else [])]


def _set_queue(path: str, pool: str) -> Need:
    return Need("queue:set", "queue", path, pool=pool)


def _apply_queues(command: cmd.ApplyQueues) -> list[Need]:
    if command.prune:
        return [Need("queue:set", "cluster")]
    needs = [Need("queue:set", "pool", each.pool) for each in command.pools]
    needs += [_set_queue(each.path, each.settings.pool) for each in command.queues]
    for each in command.remove:
        needs += _remove_queue(each.path, each.move_to)
    return needs


def _remove_queue(path: str, move_to: str) -> list[Need]:
    moved = [Need("job:submit", "queue", move_to)] if move_to else []
    return [_set_queue(path, ""), *moved]


def _close_queue(item: Any) -> list[Need]:
    return [_set_queue(item.path, "")]


def _set_price(item: Any) -> list[Need]:
    return [Need("queue:set", "cluster")]


def _node(item: Any) -> list[Need]:
    return [Need("node:operate", "node", item.node)]


def _selected(nodes: Iterable[str], *, any_node: bool) -> list[Need]:
    """Nodes that are chosen by their labels may be any."""
    if any_node:
        return [Need("node:operate", "cluster")]
    return [Need("node:operate", "node", node) for node in nodes]


def _rollout(item: Any) -> list[Need]:
    return [Need("node:operate", "rollout", item.name)]


def _window(item: Any) -> list[Need]:
    return [Need("node:operate", "window", item.name)]


def _idle(scopes: Iterable[str]) -> list[Need]:
    """Policies of a project are its queue admins'; those of single users and of all are the cluster's."""
    return [
        Need("queue:set", "project", scope.removeprefix(PROJECT))
        if scope.startswith(PROJECT)
        else Need("queue:set", "cluster")
        for scope in scopes
    ]


def _people(item: object) -> list[Need]:
    return [Need("rights:grant", "cluster")]


def _role(item: cmd.GrantRole | cmd.RevokeRole) -> list[RoleNeed]:
    return [RoleNeed(item.grant.role, item.grant.scope)]


def _own(principal: str) -> list[Need]:
    """What is a principal's own is that one's without a grant, else the cluster's."""
    return [Need("rights:grant", "own", principal)]


def _storage(item: object) -> list[Need]:
    return [Need("volume:manage", "cluster")]


def _own_volume(item: Any) -> list[Need]:
    return [Need("volume:manage", "owner", item.owner)]


def _volume(item: Any) -> list[Need]:
    return [Need("volume:manage", "volume", item.volume)]


def _dataset(item: Any) -> list[Need]:
    return [Need("volume:manage", "volume", item.dataset.partition("@")[0])]


def _none(item: object) -> list[Need]:
    return []


def _apply_service(item: cmd.ApplyService | ev.ServiceApplied) -> list[Need]:
    """Whoever puts another one in the place of a service ends the runs of that."""
    submit = Need("job:submit", "queue", item.queue, item.template.project)
    return [submit, Need("job:cancel", "service", item.service)]


def _service(item: Any) -> list[Need]:
    return [Need("job:cancel", "service", item.service)]


def _scaled(event: ev.ServiceScaled) -> list[Need]:
    return _service(event) if event.reason == "asked" else []


def _service_key(item: Any) -> list[Need]:
    """A key lets others in, as a shared session does."""
    return [Need("session:share", "service", item.service)]


type Needs = list[Need] | list[RoleNeed]

#: {type of command: the rights that it needs}. An owner's right over its own token or session is checked by the kind "own".
COMMAND_NEEDS: dict[type, Callable[[Any], Needs]] = {
    cmd.SubmitJob: _submit,
    cmd.CancelJob: _job,
    cmd.RequeueJob: _job,
    cmd.SignalJob: _job,
    cmd.HoldJob: _job,
    cmd.ReleaseJob: _job,
    cmd.MoveJob: _move,
    cmd.UpdateJob: _update,
    cmd.ApplyQueues: _apply_queues,
    cmd.HoldQueue: _close_queue,
    cmd.DrainQueue: _close_queue,
    cmd.ReleaseQueue: _close_queue,
    cmd.SetPrice: _set_price,
    cmd.ApplyService: _apply_service,
    cmd.ScaleService: _service,
    cmd.StopService: _service,
    cmd.ReportServiceLoad: _none,  # a gateway's own, without a user
    cmd.IssueServiceKey: _service_key,
    cmd.RevokeServiceKey: _service_key,
    cmd.CordonNode: _node,
    cmd.UncordonNode: _node,
    cmd.DrainNode: _node,
    cmd.TaintNode: _node,
    cmd.UntaintNode: _node,
    cmd.QuarantineNode: _node,
    cmd.UnquarantineNode: _node,
    cmd.RestoreGpu: _node,
    cmd.DeclareNodeDead: _node,
    cmd.RemoveNode: _node,
    cmd.ResetBreaker: lambda command: [Need("node:operate", "cluster")],
    cmd.ScheduleMaintenance: lambda command: _selected(command.nodes, any_node=bool(command.selector)),
    cmd.CancelMaintenance: _window,
    cmd.StartRollout: lambda command: _selected(command.nodes, any_node=bool(command.selector) or command.every),
    cmd.PauseRollout: _rollout,
    cmd.ResumeRollout: _rollout,
    cmd.CancelRollout: _rollout,
    cmd.FinishRolloutNode: lambda command: [*_rollout(command), *_node(command)],
    cmd.SetIdlePolicies: lambda command: _idle((command.scope,)),
    cmd.ApplyIdlePolicies: lambda command: _idle(command.scopes),
    cmd.ExtendJob: _job,
    cmd.AdmitPrincipal: _people,
    cmd.SuspendPrincipal: _people,
    cmd.SyncGroup: _people,
    cmd.RaiseLevel: _people,
    cmd.GrantRole: _role,
    cmd.RevokeRole: _role,
    cmd.ApplyRoles: lambda command: [RoleNeed(each.role, each.scope) for each in command.grants],
    cmd.IssueToken: lambda command: _own(command.principal),
    cmd.RevokeToken: _none,  # its own principal's, or the cluster's: only the access service knows whose it is
    cmd.EndSession: _none,
    cmd.SetStorageClass: _storage,
    cmd.RemoveStorageClass: _storage,
    cmd.CreateVolume: _own_volume,
    cmd.ResizeVolume: _volume,
    cmd.DeleteVolume: _volume,
    cmd.AddDataset: _own_volume,
    cmd.RetireDataset: _dataset,
    cmd.OpenSession: _none,  # a sign-in's alone, without a user
}

# ------------------------------------------------------------------------------- events that answer


def _withdrawn(event: ev.OfferWithdrawn) -> list[Need]:
    return _job(event) if event.reason == "hold" else []


def _set(event: ev.QueueConfigured) -> list[Need]:
    return [_set_queue(event.path, event.settings.pool if event.settings is not None else "")]


#: {type of event: the rights of the command that it answers}. Refusals and repeats carry out nothing and are not in it; neither are
#: events that accompany one of these.
EVENT_NEEDS: dict[type, Callable[[Any], Needs]] = {
    ev.JobSubmitted: _submit,
    ev.JobCancelled: _job,
    ev.JobStopRequested: _job,
    ev.JobSignalRequested: _job,
    ev.JobHeld: _job,
    ev.OfferWithdrawn: _withdrawn,
    ev.JobReleased: _job,
    ev.JobMoved: _move,
    ev.JobUpdated: _update,
    ev.PoolConfigured: lambda event: [Need("queue:set", "pool", event.pool)],
    ev.PoolRemoved: lambda event: [Need("queue:set", "pool", event.pool)],
    ev.QueueConfigured: _set,
    ev.QueueRemoved: lambda event: _remove_queue(event.path, event.move_to),
    ev.QueueHeld: _close_queue,
    ev.QueueDrained: _close_queue,
    ev.QueueReleased: _close_queue,
    ev.PriceSet: _set_price,
    ev.ServiceApplied: _apply_service,
    ev.ServiceScaled: _scaled,
    ev.ServiceStopped: _service,
    ev.ServiceKeyIssued: _service_key,
    ev.ServiceKeyRevoked: _service_key,
    ev.NodeCordoned: _node,
    ev.NodeUncordoned: _node,
    ev.NodeDraining: _node,
    ev.NodeTainted: _node,
    ev.NodeUntainted: _node,
    ev.NodeQuarantined: _node,
    ev.NodeUnquarantined: _node,
    ev.GpuRestored: _node,
    ev.NodeRecovered: _node,
    ev.NodeDeclaredDead: _node,
    ev.NodeRemoved: _node,
    ev.BreakerReset: lambda event: [Need("node:operate", "cluster")],
    ev.MaintenanceScheduled: lambda event: _selected(event.nodes, any_node=False),
    ev.MaintenanceEnded: _window,
    ev.RolloutStarted: lambda event: _selected(event.nodes, any_node=False),
    ev.RolloutPaused: _rollout,
    ev.RolloutResumed: _rollout,
    ev.RolloutEnded: _rollout,
    ev.RolloutAdvanced: _rollout,
    ev.IdlePoliciesSet: lambda event: _idle((event.scope,)),
    ev.JobExtended: _job,
    ev.PrincipalAdmitted: _people,
    ev.PrincipalSuspended: _people,
    ev.LevelRaised: _people,
    ev.GroupSynced: _people,
    ev.RoleGranted: lambda event: [RoleNeed(event.role, event.scope)],
    ev.RoleRevoked: lambda event: [RoleNeed(event.role, event.scope)],
    ev.TokenIssued: lambda event: _own(event.principal),
    ev.StorageClassSet: _storage,
    ev.StorageClassRemoved: _storage,
    ev.VolumeCreated: _own_volume,
    ev.VolumeResized: _volume,
    ev.VolumeDeleted: _volume,
    ev.DatasetAdded: _own_volume,
    ev.DatasetRetired: _dataset,
}
#: Events that answer a command and carry out nothing by themselves.
ACCOMPANYING: tuple[type, ...] = (
    ev.QueuesApplied,
    ev.ServiceLoad,
    ev.RolesApplied,
    ev.AllocationReleased,
    ev.TokenRevoked,
    ev.SessionEnded,
    ev.SessionOpened,
)
REFUSALS: tuple[type, ...] = (
    ev.JobRejected,
    ev.CommandRejected,
    ev.CommandRepeated,
    ev.NodeCommandRejected,
    ev.TelemetryCommandRejected,
    ev.AccessCommandRejected,
    ev.StorageCommandRejected,
)


def user_of(authority: Authority) -> str:
    """Return the user of a command with this authority: the principal, or the one for whom it acts."""
    return authority.act_as or authority.principal
