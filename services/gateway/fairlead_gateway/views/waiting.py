"""The view of waiting: the last reasons of the queue and the placer why a job has no place, and which jobs make room
for which.

A reason counts for the job that it names and for all that are like it: of the same queue and with the same request
(the queue's), or with the same request anywhere (the placer's). It counts until one of these jobs moves on.
"""

from fairlead_gateway.views.jobs import JobsView
from fairlead_gateway.views.queues import QueuesView
from fairlead_gateway.views.rows import DeferralRow, JobRow, PlacementRefusal, PreemptionRow, StarvationRow
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request

#: Refused and deferred classes remembered; beyond it the oldest is forgotten (its jobs then just wait their turn).
REFUSALS_MAX = 10_000
#: Guests of a job's kept nodes that are remembered, the newest.
GUESTS_MAX = 64

#: Queue, request, and whom of these it is about ("": all; else one user's, or one array's).
DeferralClass = tuple[str, Request, str]


class WaitingView:
    """The newest refusal of each refused class, the newest deferral of each deferred one, and rooms in the making."""

    def __init__(self, jobs: JobsView, queues: QueuesView) -> None:
        self.refusals: dict[Request, PlacementRefusal] = {}
        self.deferrals: dict[DeferralClass, DeferralRow] = {}
        #: Jobs for which room was made since they waited, some of them long placed or ended (derived).
        self.rooms: set[str] = set()
        self._jobs = jobs
        self._queues = queues
        self.handlers = {
            ev.JobDeferred: self._deferred,
            ev.JobOffered: self._offered,
            ev.JobHeld: self._clear_deferral,
            ev.JobRequeued: self._clear_deferral,
            ev.JobUnplaceable: self._unplaceable,
            ev.JobPlaced: self._placed,
            ev.ReservationRequested: self._reservation_requested,
            ev.ReservationMade: self._reservation_made,
            ev.ReservationEnded: self._reservation_ended,
            ev.PreemptionRequested: self._preemption_requested,
            ev.PreemptionDeclined: self._preemption_declined,
            ev.PreemptionStarted: self._preemption_started,
            ev.JobStopRequested: self._stop_requested,
            ev.RunEnded: self._run_ended,
        }

    def deferral_of(self, row: JobRow) -> DeferralRow | None:
        """The queue's newest word on this job, or on one like it."""
        if row.deferral is not None:
            return row.deferral
        if not self.deferrals:
            return None
        return next((found for one in _classes(row) if (found := self.deferrals.get(one)) is not None), None)

    # ------------------------------------------------------------------ the queue's and the placer's no

    def _deferred(self, e: ev.JobDeferred, seq: int, at_ns: int) -> None:
        row = self._jobs.rows.get(e.job) or self._jobs.rows.get(array_of(e.job) or "")
        if row is None:
            raise KeyError(f"job {e.job!r} was deferred but never submitted")
        user = row.user if e.reason == "user_limit" else ""
        array = (row.array_id or row.id) if e.reason == "array_limit" else ""
        deferral = DeferralRow(
            e.job, seq, at_ns, e.reason, e.queue, e.resource, e.held, e.needed, e.ceiling, e.holder, user, array
        )
        if row.id == e.job:
            row.deferral = deferral
        like = row.queue, row.request, _of_user(user) if user else _of_array(array) if array else ""
        self.deferrals.pop(like, None)
        self.deferrals[like] = deferral
        if len(self.deferrals) > REFUSALS_MAX:
            del self.deferrals[next(iter(self.deferrals))]

    def _offered(self, e: ev.JobOffered, seq: int, _at_ns: int) -> None:
        row = self._jobs.rows[e.job]
        if row.offered_seq != seq:
            return  # another rank for an open offer: the offer lets no further job in
        row.deferral = None
        if row.array_id and (array := self._jobs.rows.get(row.array_id)) is not None:
            array.deferral = None
        if self.deferrals:
            for one in _classes(row):
                self.deferrals.pop(one, None)

    def _clear_deferral(self, e: ev.JobHeld | ev.JobRequeued, _seq: int, _at_ns: int) -> None:
        self._jobs.rows[e.job].deferral = None

    def _unplaceable(self, e: ev.JobUnplaceable, seq: int, at_ns: int) -> None:
        request = self._jobs.rows[e.job].request
        self.refusals.pop(request, None)
        self.refusals[request] = PlacementRefusal(
            request,
            e.job,
            e.attempt,
            seq,
            at_ns,
            e.reasons,
            e.nodes,
            e.fitting,
            e.gpu_milli_free,
            e.gpu_milli_total,
            e.near,
            e.level,
            e.best,
            e.windows,
        )
        if len(self.refusals) > REFUSALS_MAX:
            del self.refusals[next(iter(self.refusals))]

    def _placed(self, e: ev.JobPlaced, _seq: int, _at_ns: int) -> None:
        row = self._jobs.rows[e.job]
        row.room = None
        self.rooms.discard(e.job)
        if self.refusals:
            self.refusals.pop(row.request, None)
        host = self._jobs.rows.get(e.guest_of) if e.guest_of else None
        if host is not None and host.room is not None:
            host.room.guests = (*host.room.guests, e.job)[-GUESTS_MAX:]

    # ------------------------------------------------------------------ room in the making

    def _room(self, job: str, attempt: int) -> StarvationRow:
        """Return the room of a job's attempt. For a job that is unknown, or known no longer, return a new one that no row
        keeps.
        """
        row = self._jobs.rows.get(job)
        room = row.room if row is not None else None
        if room is None or room.attempt != attempt:
            room = StarvationRow(attempt)
            if row is not None:
                row.room = room
                self.rooms.add(job)
        return room

    def keepers(self) -> dict[str, str]:
        """{node that is kept: the job that it is kept for}"""
        rows = [row for job in sorted(self.rooms) if (row := self._jobs.rows.get(job)) is not None]
        kept = [(row.id, row.room) for row in rows if row.room is not None and row.state == "offered"]
        return {node: job for job, room in kept for node in room.nodes}

    def kept_from_ns(self, job: str) -> int:
        """Return when the job will have room on the nodes that are kept for it (Unix ns), 0 where that is not known."""
        row = self._jobs.rows.get(job)
        return row.room.start_ns if row is not None and row.room is not None else 0

    def kept_nodes(self, job: str) -> set[str]:
        """Nodes that are kept for others than this job."""
        return {node for node, keeper in self.keepers().items() if keeper != job}

    def _reservation_requested(self, e: ev.ReservationRequested, _seq: int, _at_ns: int) -> None:
        self._room(e.job, e.attempt).waited_ns = e.waited_ns

    def _reservation_made(self, e: ev.ReservationMade, _seq: int, _at_ns: int) -> None:
        room = self._room(e.job, e.attempt)
        room.nodes, room.start_ns, room.basis, room.waits_for = e.nodes, e.start_ns, e.basis, e.waits_for

    def _reservation_ended(self, e: ev.ReservationEnded, _seq: int, _at_ns: int) -> None:
        row = self._jobs.rows.get(e.job)
        if row is not None and row.room is not None:
            row.room.nodes, row.room.waited_ns, row.room.start_ns = (), 0, 0

    def _preemption_requested(self, e: ev.PreemptionRequested, _seq: int, _at_ns: int) -> None:
        room = self._room(e.job, e.attempt)
        room.named, room.declined = len(e.victims), {}

    def _preemption_declined(self, e: ev.PreemptionDeclined, _seq: int, _at_ns: int) -> None:
        room = self._room(e.job, e.attempt)
        room.named, room.declined = 0, e.reasons

    def _preemption_started(self, e: ev.PreemptionStarted, seq: int, _at_ns: int) -> None:
        row, other = self._jobs.rows[e.job], self._jobs.rows.get(e.beneficiary)
        if other is not None:
            room = self._room(e.beneficiary, other.attempt)
            room.named, room.victims = 0, (*room.victims, e.job)
        resource = "gpu" if row.request.gpu_milli_total else "cpu"
        queue, over = self.over(row.queue, other.queue if other is not None else "", resource)
        row.yielding = PreemptionRow(
            e.attempt,
            seq,
            e.beneficiary,
            e.rule,
            row.priority,
            other.priority if other is not None else 0,
            queue,
            over,
            resource,
            other.queue if other is not None else "",
        )

    def _run_ended(self, e: ev.RunEnded, _seq: int, _at_ns: int) -> None:
        """Remove an ended run from the rooms: no job waits any more for a run that has yielded, and a guest has gone."""
        for job in self.rooms:
            host = self._jobs.rows.get(job)
            if host is not None and host.room is not None and e.job in host.room.guests:
                host.room.guests = tuple(guest for guest in host.room.guests if guest != e.job)
        row = self._jobs.rows.get(e.job)
        if row is None or row.yielding is None or row.yielding.attempt != e.attempt:
            return
        other = self._jobs.rows.get(row.yielding.beneficiary)
        if other is not None and other.room is not None:
            other.room.victims = tuple(job for job in other.room.victims if job != e.job)

    def _stop_requested(self, e: ev.JobStopRequested, seq: int, _at_ns: int) -> None:
        """Record that a queue takes back what it holds over its maximum: the run yields to no particular job."""
        if e.reason == "reclaimed":
            row = self._jobs.rows[e.job]
            row.yielding = PreemptionRow(e.attempt, seq, "", "reclaimed", row.priority, queue=row.queue)

    def over(self, own: str, other: str, resource: str) -> tuple[str, int]:
        """Return the queue where the paths to two queues part, on the path to `own`, and its placed use beyond its guarantee."""
        line = self._queues.line(own)[::-1]
        names = other.split("/")
        at = next((i for i, row in enumerate(line) if "/".join(names[: i + 1]) != row.path), len(line) - 1)
        row = line[at]
        guaranteed = self._queues.guaranteed(row.path).get(resource, 0)
        return row.path, max(0, row.used.get(resource, 0) - guaranteed)


def _of_user(user: str) -> str:
    return f"user {user}"


def _of_array(array: str) -> str:
    return f"array {array}"


def _classes(row: JobRow) -> tuple[DeferralClass, DeferralClass, DeferralClass]:
    """Return the classes whose deferral may be about this job, the narrowest first: its array, its user, its queue."""
    queue, request = row.queue, row.request
    return (
        (queue, request, _of_array(row.array_id or row.id)),
        (queue, request, _of_user(row.user)),
        (queue, request, ""),
    )
