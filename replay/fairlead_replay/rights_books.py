"""Places of jobs, queues, nodes, plans, volumes and datasets at every past sequence, by the events alone: what the scopes of rights are compared with.

These books share no code with the services: the audit and the simulator judge commands by them. Start at `RightsBooks.at`.
"""

from bisect import bisect_right
from typing import NamedTuple

from fairlead_rights.access_list import Target
from fairlead_rights.command_rights import owned_target
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, POOL_LABEL
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev


class Timeline[V]:
    """A value that changes at sequences; None before the first."""

    __slots__ = ("sequences", "values")

    def __init__(self) -> None:
        self.sequences: list[int] = []
        self.values: list[V] = []

    def set(self, sequence: int, value: V) -> None:
        """Let this be the value from a sequence on. Sequences never fall."""
        if self.values and self.values[-1] == value:
            return
        if self.sequences and self.sequences[-1] == sequence:
            self.values[-1] = value
            return
        self.sequences.append(sequence)
        self.values.append(value)

    def at(self, sequence: int) -> V | None:
        """Return the value at a sequence."""
        index = bisect_right(self.sequences, sequence)
        return self.values[index - 1] if index else None


class JobPlace(NamedTuple):
    """A job or array: the sequence since which it is there, its owner, and where it was submitted."""

    sequence: int
    owner: str
    project: str
    queue: str


class RightsBooks:
    """Books of a whole log. A job leaves them when the log retires it; no command can change it after that."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobPlace] = {}
        #: {job: its queue}, of jobs that were moved.
        self._moved: dict[str, Timeline[str]] = {}
        #: {queue at the top: its pool}
        self._pools: dict[str, Timeline[str]] = {}
        #: {node: its pool; "" once it is removed}
        self._nodes: dict[str, Timeline[str]] = {}
        self._rollouts: dict[str, Timeline[tuple[str, ...]]] = {}
        self._windows: dict[str, Timeline[tuple[str, ...]]] = {}
        #: {volume or dataset: its owner; None once it is gone}
        self._volumes: dict[str, Timeline[str | None]] = {}
        #: {service: its owner, project and queue; None once it is stopped}
        self._services: dict[str, Timeline[JobPlace | None]] = {}
        #: Queues that exist now.
        self.queues: set[str] = set()

    def fold(self, sequence: int, event: ev.Event) -> None:
        """Take the next event of the log, with the sequence of its commit."""
        match event:
            case ev.JobSubmitted():
                self._jobs[event.job] = JobPlace(sequence, event.user, event.project, event.queue)
            case ev.JobsRetired():
                for job in event.jobs:
                    self._jobs.pop(job, None)
                    self._moved.pop(job, None)
            case ev.JobMoved():
                self._move(sequence, event.job, event.queue)
            case ev.QueueConfigured():
                self.queues.add(event.path)
                if "/" not in event.path:
                    pool = event.settings.pool if event.settings is not None else ""
                    self._pools.setdefault(event.path, Timeline()).set(sequence, pool or DEFAULT_POOL)
            case ev.QueueRemoved():
                self._remove_queue(sequence, event)
            case ev.NodeJoined() | ev.NodeChanged():
                pool = event.inventory.labels.get(POOL_LABEL, DEFAULT_POOL)
                self._nodes.setdefault(event.node, Timeline()).set(sequence, pool)
            case ev.NodeRemoved():
                self._nodes.setdefault(event.node, Timeline()).set(sequence, "")
            case ev.RolloutStarted():
                self._rollouts.setdefault(event.name, Timeline()).set(sequence, event.nodes)
            case ev.VolumeCreated():
                self._own(sequence, event.volume, event.owner)
            case ev.VolumeDeleted():
                self._own(sequence, event.volume, None)
            case ev.DatasetAdded() if (name := event.dataset.partition("@")[0]) not in self._volumes:
                self._own(sequence, name, event.owner)
            case ev.ServiceApplied():
                place = JobPlace(sequence, event.user, event.template.project, event.queue)
                self._services.setdefault(event.service, Timeline()).set(sequence, place)
            case ev.ServiceStopped():
                self._services.setdefault(event.service, Timeline()).set(sequence, None)
            case ev.MaintenanceScheduled():
                self._windows.setdefault(event.name, Timeline()).set(sequence, event.nodes)
            case _:
                pass

    def _move(self, sequence: int, job: str, queue: str) -> None:
        place = self._jobs.get(job)
        if place is None:
            return
        if job not in self._moved:
            self._moved[job] = Timeline()
            self._moved[job].set(place.sequence, place.queue)
        self._moved[job].set(sequence, queue)

    def _own(self, sequence: int, volume: str, owner: str | None) -> None:
        self._volumes.setdefault(volume, Timeline()).set(sequence, owner)

    def _remove_queue(self, sequence: int, event: ev.QueueRemoved) -> None:
        self.queues.discard(event.path)
        for name, owner in self._volumes.items():
            if owner.values[-1] == f"queue:{event.path}":
                self._own(sequence, name, "")
        if not event.move_to:
            return
        for job, place in self._jobs.items():
            moved = self._moved.get(job)
            if (moved.values[-1] if moved is not None else place.queue) == event.path:
                self._move(sequence, job, event.move_to)

    def at(self, sequence: int) -> "PlacesAt":
        """Return the places at a sequence."""
        return PlacesAt(self, sequence)

    def pool_of(self, path: str, sequence: int) -> str:
        """Return the pool of a queue, existing or not: that of the one at the top."""
        top = self._pools.get(path.partition("/")[0])
        return (top.at(sequence) if top is not None else None) or DEFAULT_POOL

    def job_at(self, job: str, sequence: int) -> Target | None:
        """Return the target of a job, an array or an element at a sequence; None if it was not there."""
        id_ = job if job in self._jobs else array_of(job) or ""
        place = self._jobs.get(id_)
        if place is None or place.sequence > sequence:
            return None
        moved = self._moved.get(id_)
        queue = (moved.at(sequence) if moved is not None else None) or place.queue
        return Target(queue, self.pool_of(queue, sequence), place.project, job, "", place.owner)

    def node_at(self, node: str, sequence: int) -> Target | None:
        """Return the target of a node at a sequence; None if it was not there."""
        pool = self._nodes[node].at(sequence) if node in self._nodes else None
        return Target(pool=pool) if pool else None

    def owner_at(self, volume: str, sequence: int) -> str | None:
        """Return the owner of a volume or dataset at a sequence; None if it was not there."""
        return self._volumes[volume].at(sequence) if volume in self._volumes else None

    def service_at(self, name: str, sequence: int) -> Target | None:
        """Return the target of a service at a sequence; None if it was not there."""
        place = self._services[name].at(sequence) if name in self._services else None
        if place is None:
            return None
        return Target(place.queue, self.pool_of(place.queue, sequence), place.project, "", "", place.owner)

    def plan_at(self, kind: str, name: str, sequence: int) -> tuple[str, ...] | None:
        """Return the nodes of a "rollout" or "window" at a sequence, also of one that has ended; None for none."""
        plans = self._rollouts if kind == "rollout" else self._windows
        return plans[name].at(sequence) if name in plans else None


class PlacesAt:
    """`command_rights.Things` at one sequence."""

    __slots__ = ("books", "sequence")

    def __init__(self, books: RightsBooks, sequence: int) -> None:
        self.books = books
        self.sequence = sequence

    def queue(self, path: str) -> Target:
        """Return the target of a queue, whether it exists or not."""
        return Target(queue=path, pool=self.books.pool_of(path, self.sequence))

    def job(self, job: str) -> Target | None:
        """Return the target of a job, an array or an element."""
        return self.books.job_at(job, self.sequence)

    def node(self, node: str) -> Target | None:
        """Return the target of a node."""
        return self.books.node_at(node, self.sequence)

    def rollout(self, name: str) -> tuple[str, ...] | None:
        """Return the nodes of a rollout."""
        return self.books.plan_at("rollout", name, self.sequence)

    def window(self, name: str) -> tuple[str, ...] | None:
        """Return the nodes of a maintenance window."""
        return self.books.plan_at("window", name, self.sequence)

    def volume(self, name: str) -> Target | None:
        """Return the target of a volume or dataset."""
        owner = self.books.owner_at(name, self.sequence)
        return None if owner is None else owned_target(owner, self, name)

    def service(self, name: str) -> Target | None:
        """Return the target of a service."""
        return self.books.service_at(name, self.sequence)
