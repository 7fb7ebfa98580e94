"""Targets of rights: jobs, queues, pools, nodes and volumes as the views have them now; and which of many rows a caller may see. Reads only.

A queue that does not exist has the target of its path, so that an answer about it says as much as one about a queue that the
caller may not see.
"""

from collections.abc import Mapping
from typing import Any

from fairlead_gateway.access.caller import CLUSTER, Caller
from fairlead_gateway.views.cluster_map import pool_of as pool_of_node
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, NodeRow
from fairlead_gateway.views.storage import owned_target
from fairlead_rights.access_list import Target
from fairlead_schemas.policies.rights import Verb
from fairlead_schemas.queuefile.settings import DEFAULT_POOL
from fairlead_schemas.units.ids import array_of, is_queue_path

_new_tuple = tuple.__new__


def pool_of_queue(views: Views, path: str) -> str:
    """Return the pool of a queue, existing or not: that of the one at the top."""
    top = views.queues.rows.get(path.partition("/")[0])
    return (top.settings.pool if top is not None and top.settings else "") or DEFAULT_POOL


def queue_target(views: Views, path: str) -> Target:
    """Return the target of a queue; the cluster for text that is no queue's path."""
    return Target(queue=path, pool=pool_of_queue(views, path)) if is_queue_path(path) else CLUSTER


def submit_target(views: Views, queue: str, project: str, owner: str) -> Target:
    """Return the target of a job that is to be submitted."""
    # `pool_of_queue` and the class's own constructor in place: this is called for every submit.
    top = views.queues.rows.get(queue.partition("/")[0])
    pool = (top.settings.pool if top is not None and top.settings else "") or DEFAULT_POOL
    return _new_tuple(Target, (queue, pool, project, "", "", owner))


def job_target(views: Views, row: JobRow, job: str = "") -> Target:
    """Return the target of a job. `job`: the element that is meant, where `row` is its array's."""
    return Target(row.queue, pool_of_queue(views, row.queue), row.project, job or row.id, "", row.user)


def document_target(views: Views, document: Mapping[str, Any]) -> Target:
    """Return the target of a job that has left the views, by its document."""
    queue = str(document.get("queue", ""))
    return Target(
        queue,
        pool_of_queue(views, queue),
        str(document.get("project", "")),
        str(document.get("id", "")),
        "",
        str(document.get("user", "")),
    )


def node_target(row: NodeRow) -> Target:
    """Return the target of a node: its pool."""
    return Target(pool=pool_of_node(row))


def volume_target(views: Views, name: str) -> Target | None:
    """Return the target of a volume, or of all versions of a dataset; None where there is none of the name."""
    target = views.storage.target(name)
    return None if target is None else _in_pool(views, target)


def service_target(views: Views, name: str) -> Target | None:
    """Return the target of a service: that of its replicas; None where there is none of the name."""
    row = views.services.rows.get(name)
    return None if row is None else Target(row.queue, pool_of_queue(views, row.queue), row.project, "", "", row.user)


def owner_target(views: Views, owner: str) -> Target:
    """Return the target of what is to belong to an owner such as "queue:research"; the cluster for text that names none."""
    return _in_pool(views, owned_target(owner))


def _in_pool(views: Views, target: Target) -> Target:
    return target._replace(pool=pool_of_queue(views, target.queue)) if target.queue else target


class Sight:
    """Rows that a caller may see now, for one answer: many rows share a queue, and are judged together.

    `then`: views of the past that the answer is about. A thing that exists now is judged as it is now; one that is gone, as it was
    then, by the rights of now.
    """

    def __init__(self, views: Views, caller: Caller, then: Views | None = None) -> None:
        self.views = views
        self.caller = caller
        self.then = views if then is None else then
        #: True where nothing of a kind is hidden.
        self.all_jobs = caller.may("job:read", CLUSTER)
        self.all_queues = caller.may("queue:read", CLUSTER)
        self.all_nodes = caller.may("node:read", CLUSTER)
        #: Jobs that have left the views, where the asker knows what they were.
        self.retired: dict[str, Target] = {}
        self._queues: dict[tuple[str, str], bool] = {}
        self._paths: dict[str, bool] = {}
        self._pools: dict[tuple[Verb, str], bool] = {}

    @property
    def is_whole(self) -> bool:
        """True where the caller sees all jobs, queues and nodes."""
        return self.all_jobs and self.all_queues and self.all_nodes

    def job(self, row: JobRow) -> bool:
        """Return True if the caller may read the job."""
        if self.all_jobs:
            return True
        if self.then is not self.views:
            row = self.views.jobs.rows.get(row.id, row)
        return self.jobs_of(row.queue, row.project) or self.caller.may("job:read", job_target(self.views, row))

    def jobs_of(self, queue: str, project: str = "") -> bool:
        """Return True if the caller may read every job of a queue, of a project where one is named."""
        key = queue, project
        if (found := self._queues.get(key)) is None:
            target = Target(queue=queue, pool=self._pool_of(queue), project=project)
            found = self._queues[key] = self.all_jobs or self.caller.may("job:read", target)
        return found

    def job_id(self, job: str) -> bool:
        """Return True if the caller may read the job with an id; of one that has left the views only if it may read all, or it is one
        of `retired`.
        """
        if self.all_jobs:
            return True
        row = self._row(self.views, job) or self._row(self.then, job)
        if row is None and (target := self.retired.get(job)) is not None:
            return self.caller.may("job:read", target)
        return row is not None and (self.job(row) or self.caller.may("job:read", job_target(self.views, row, job)))

    @staticmethod
    def _row(views: Views, job: str) -> JobRow | None:
        return views.jobs.rows.get(job) or views.jobs.rows.get(array_of(job) or "")

    def _pool_of(self, queue: str) -> str:
        """Return the pool of a queue as it is now; of one that is gone, as it was then."""
        top = self.views.queues.rows.get(queue.partition("/")[0])
        return pool_of_queue(self.views if top is not None and top.exists else self.then, queue)

    def queue(self, path: str) -> bool:
        """Return True if the caller may read the queue."""
        if self.all_queues:
            return True
        if (found := self._paths.get(path)) is None:
            target = queue_target(self.views, path)
            if target is not CLUSTER:
                target = target._replace(pool=self._pool_of(path))
            found = self._paths[path] = self.caller.may("queue:read", target)
        return found

    def node(self, row: NodeRow) -> bool:
        """Return True if the caller may read the node."""
        if self.all_nodes:
            return True
        return self._pool("node:read", pool_of_node(self.views.nodes.rows.get(row.id, row)))

    def node_id(self, node: str) -> bool:
        """Return True if the caller may read the node with a name; one that is not in the views only if it may read all."""
        row = self.views.nodes.rows.get(node) or self.then.nodes.rows.get(node)
        return self.all_nodes or (row is not None and self.node(row))

    def pool(self, pool: str) -> bool:
        """Return True if the caller may read the pool's queues or nodes."""
        return self._pool("node:read", pool) or self._pool("queue:read", pool)

    def project(self, project: str) -> bool:
        """Return True if the caller may read every job of a project."""
        return self.all_jobs or self.caller.may("job:read", Target(project=project))

    def jobs_of_pool(self, pool: str) -> bool:
        """Return True if the caller may read every job of a pool."""
        return self._pool("job:read", pool)

    def _pool(self, verb: Verb, pool: str) -> bool:
        key = verb, pool
        if (found := self._pools.get(key)) is None:
            found = self._pools[key] = self.caller.may(verb, Target(pool=pool))
        return found
