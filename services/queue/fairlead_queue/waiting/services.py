"""Services as the queue knows them, and the plan of what is to be done about one: which replicas are submitted, taken out and ended. Pure.

A replica is a job. It is *serving* once its application has answered, *retired* once it gets no new requests, and then it ends. A replica is *old*
when it is of an earlier revision or its node is drained; the others are *fresh*. The plan never has more than `surge` replicas beyond the
wanted number by its own doing, and takes out a serving one only where enough others serve. Start at `plan_of`.
"""

from collections.abc import Callable
from typing import NamedTuple

from fairlead_schemas.policies.services import LOAD_NS, ServiceRules
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.events.services import ReplicaJob, RetireReason

#: Delay before a replica takes the place of one that has failed, doubled with each that fails before one serves.
RESTART_NS, RESTART_DOUBLINGS_MAX = SECOND_NS, 8
#: States of a job that has no part in a service any more.
ENDING = frozenset(["stopping", "succeeded", "failed", "cancelled", ""])


class ServiceKey(NamedTuple):
    """Key of a service. `ServiceKeyIssued` defines the fields."""

    key: str
    name: str
    per_minute: int
    in_flight: int
    expires_ns: int


class LiveReplica:
    """Job that serves for a service."""

    __slots__ = ("is_ready", "job", "retired_ns", "revision")

    def __init__(self, job: str, revision: int, is_ready: bool = False, retired_ns: int = 0) -> None:
        self.job, self.revision = job, revision
        #: Its application has answered in its present attempt.
        self.is_ready = is_ready
        #: Log time from which it gets no new requests; 0: it may get them.
        self.retired_ns = retired_ns


class LiveService:
    """One service."""

    def __init__(
        self, name: str, queue: str, user: str, revision: int, template: ReplicaJob, rules: ServiceRules, wanted: int
    ) -> None:
        self.name, self.queue, self.user, self.revision = name, queue, user, revision
        self.template, self.rules, self.wanted = template, rules, wanted
        self.is_stopped, self.stopped_by = False, ""
        #: Replicas that have ended by themselves, or were refused, since one was ready; and until when none is submitted.
        self.failures = self.not_before_ns = 0
        #: Message of the last refusal of a replica; "": none was refused since.
        self.blocked = ""
        #: Log time at which the wanted number was last needed.
        self.needed_ns = 0
        self.replicas: dict[str, LiveReplica] = {}
        self.keys: dict[str, ServiceKey] = {}
        #: {app proxy: (requests in flight, log time of its report)}
        self.loads: dict[str, tuple[int, int]] = {}

    def in_flight(self, now_ns: int) -> int:
        """Return the requests in flight at all proxies that still report."""
        return sum(count for count, at_ns in self.loads.values() if now_ns < at_ns + LOAD_NS)

    def note_need(self, now_ns: int) -> None:
        """Note whether the wanted number of replicas is still needed; to be called before the load changes."""
        if self.rules.wanted(self.in_flight(now_ns)) >= self.wanted:
            self.needed_ns = now_ns

    def note_failure(self, now_ns: int) -> None:
        """Note that a replica has ended by itself, or was refused: the next one waits for longer each time."""
        self.not_before_ns = now_ns + (RESTART_NS << min(self.failures, RESTART_DOUBLINGS_MAX))
        self.failures += 1


class ServicePlan(NamedTuple):
    """What is to be done about a service now."""

    #: Another wanted number.
    scale: int | None = None
    retire: tuple[tuple[str, RetireReason], ...] = ()
    end: tuple[str, ...] = ()
    submit: int = 0
    #: When time alone brings something; None: it brings nothing.
    next_ns: int | None = None

    @property
    def is_empty(self) -> bool:
        """True where nothing is to be done now."""
        return self.scale is None and not (self.retire or self.end or self.submit)


def plan_of(
    service: LiveService, state_of: Callable[[str], str], is_drained: Callable[[str], bool], now_ns: int
) -> ServicePlan:
    """Return the plan of one service. `state_of` a job; `is_drained`: whether a job's run is on a node that is drained."""
    replicas = [each for each in service.replicas.values() if state_of(each.job) not in ENDING]
    if service.is_stopped:
        return ServicePlan(end=tuple(each.job for each in replicas))
    scale, scale_ns = _scale(service, now_ns)
    if scale is not None:
        return ServicePlan(scale=scale)
    over_ns = [each.retired_ns + service.rules.drain_ns for each in replicas if each.retired_ns]
    end = [each.job for each in replicas if each.retired_ns and each.retired_ns + service.rules.drain_ns <= now_ns]
    times = [at_ns for at_ns in (*over_ns, scale_ns) if at_ns > now_ns]

    alive = [each for each in replicas if not each.retired_ns]
    serving = {each.job for each in alive if each.is_ready and state_of(each.job) == "running"}
    why: dict[str, RetireReason] = {}
    for each in alive:
        if each.revision != service.revision:
            why[each.job] = "revision"
        elif is_drained(each.job):
            why[each.job] = "drain"
    fresh = [each.job for each in alive if each.job not in why]
    retire: list[tuple[str, RetireReason]] = []

    # The youngest end first, those that do not serve before those that do.
    fresh.sort(key=lambda job: (job in serving, -_number(job)))
    for job in fresh[: max(0, len(fresh) - service.wanted)]:
        fresh.remove(job)
        if job in serving:
            retire.append((job, "scale"))
        else:
            end.append(job)
    end += [job for job in why if job not in serving]
    old = sorted((job for job in why if job in serving), key=_number)
    spare = len(old) + sum(job in serving for job in fresh) - max(0, service.wanted - service.rules.unavailable)
    for job in old[: max(0, spare)]:
        old.remove(job)
        retire.append((job, why[job]))

    missing = min(service.wanted - len(fresh), service.wanted + service.rules.surge - len(fresh) - len(old))
    submit = max(0, missing)
    if submit and now_ns < service.not_before_ns:
        times.append(service.not_before_ns)
        submit = 0
    return ServicePlan(None, tuple(retire), tuple(end), submit, min(times, default=None))


def _scale(service: LiveService, now_ns: int) -> tuple[int | None, int]:
    """Return (another wanted number by the load or None, when time alone could bring one or 0)."""
    rules = service.rules
    if rules.is_fixed:
        return None, 0
    by_load = rules.wanted(service.in_flight(now_ns))
    if by_load > service.wanted:
        return by_load, 0
    ends_ns = [at_ns + LOAD_NS for count, at_ns in service.loads.values() if count and now_ns < at_ns + LOAD_NS]
    if by_load < service.wanted:
        if now_ns >= service.needed_ns + rules.calm_ns:
            return by_load, 0
        return None, service.needed_ns + rules.calm_ns
    return None, min(ends_ns, default=0) if service.wanted > rules.replicas_min else 0


def _number(job: str) -> int:
    return int(job)
