"""Services in the queue: replicas come, are replaced and go by events of the queue, and enough of them serve meanwhile."""

from random import Random
from typing import Any

import msgspec
import pytest

from fairlead_queue.waiting.services import RESTART_NS
from fairlead_schemas.policies.services import CALM_NS, DRAIN_NS, LOAD_NS, ServiceRules, faults_of
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, kinds, request

SPEC = msgspec.Raw(b'{"app":"http","command":["serve"],"kind":"service"}')
OTHER = msgspec.Raw(b'{"app":"http","command":["serve","--new"],"kind":"service"}')


class ServiceWorld(QueueWorld):
    """A queue with nodes n1 and n2, and a service "chat"."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        for node in ("n1", "n2"):
            self.node(node)

    def put(self, spec: msgspec.Raw = SPEC, *, queue: str = "default", gpus: int = 1, **rules: Any) -> Any:
        """Submit the service, again if it is there."""
        template = ev.ReplicaJob(request=request(gpus), spec=spec)
        command = cmd.ApplyService(
            id=self._id(), user="ada", service="chat", queue=queue, template=template, rules=ServiceRules(**rules)
        )
        answer = self.one(command)
        self.settle()
        return answer

    def scale(self, low: int, high: int | None = None) -> Any:
        more = low if high is None else high
        command = cmd.ScaleService(id=self._id(), user="bob", service="chat", replicas_min=low, replicas_max=more)
        answer = self.one(command)
        self.settle()
        return answer

    def load(self, in_flight: int, proxy: str = "p1") -> Any:
        command = cmd.ReportServiceLoad(id=self._id(), service="chat", proxy=proxy, in_flight=in_flight)
        answer = self.one(command)
        self.settle()
        return answer

    @property
    def service(self) -> Any:
        return self.state.services["chat"]

    def replicas(self, *states: str) -> list[str]:
        """Replicas in these states; without any, all that have not been asked to end."""
        return [
            job for job in self.service.replicas if (self.of(job) in states if states else self.of(job) != "stopping")
        ]

    def bring_up(self, *jobs: str, node: str = "n1") -> None:
        """Place, start and serve: these, or all that wait."""
        for job in jobs or self.replicas("offered"):
            self.place_on(node, 1, job)
            self.says(ev.AppReady(cause="1.0", job=job, attempt=self.attempt(job)))
        self.settle()


def test_replicas_are_jobs_of_their_user_in_their_queue() -> None:
    """As many as are wanted, each with the service and its revision, and nothing more once they are there."""
    world = ServiceWorld()
    applied = world.put(replicas_min=2, replicas_max=2)
    assert isinstance(applied, ev.ServiceApplied) and applied.revision == 1
    submitted = world.said(ev.JobSubmitted)
    assert [(each.service, each.revision, each.kind, each.user, each.name) for each in submitted] == [
        ("chat", 1, "service", "ada", "chat")
    ] * 2
    assert [bytes(each.spec) for each in submitted] == [bytes(SPEC)] * 2
    world.bring_up()
    assert world.pass_time(3600) == []
    assert sorted(world.replicas("running")) == sorted(each.job for each in submitted)


def test_a_replica_that_ends_is_replaced_later_each_time_until_one_serves() -> None:
    """1 s, 2 s, 4 s; after one has served, 1 s again. A person's cancel is no failure."""
    world = ServiceWorld()
    world.put()
    for doublings in range(3):
        (job,) = world.replicas()
        world.place_on("n1", 1, job)
        world.end(job, 1)
        assert "JobFailed" in kinds(world.settle())
        wait_s = (RESTART_NS << doublings) / SECOND
        assert world.pass_time(wait_s - 0.5) == []
        assert "JobSubmitted" in kinds(world.pass_time(0.5))
    world.bring_up()
    (job,) = world.replicas()
    world.end(job, 0)
    world.settle()
    assert "JobSubmitted" in kinds(world.pass_time(1))
    (job,) = world.replicas()
    assert isinstance(world.cancel(job), ev.JobStopRequested | ev.JobCancelled)
    world.settle()
    assert len(world.replicas()) == 1 and world.replicas() != [job]


def test_another_job_file_replaces_replicas_one_by_one_and_none_before_a_new_one_serves() -> None:
    """One more than wanted at a time; an old one gets no new requests, and ends once its drain time is over."""
    world = ServiceWorld()
    world.put(replicas_min=2, replicas_max=2)
    old = world.replicas()
    world.bring_up()
    assert world.put(OTHER, replicas_min=2, replicas_max=2).revision == 2
    (first,) = world.replicas("offered")
    assert world.pass_time(30) == [] and world.replicas("running") == old
    world.bring_up()
    retired = world.said(ev.ReplicaRetired)
    assert [(each.job, each.reason) for each in retired] == [(old[0], "revision")]
    assert world.of(old[0]) == "running"  # it answers what it has
    assert kinds(world.pass_time(DRAIN_NS / SECOND)) == ["JobStopRequested"]
    world.end(old[0], 143, "stopped")
    world.settle()
    world.bring_up()
    world.pass_time(DRAIN_NS / SECOND)
    world.end(old[1], 143, "stopped")
    world.settle()
    assert first in world.replicas() and len(world.replicas()) == 2
    assert {each.revision for each in world.service.replicas.values()} == {2}
    assert world.put(OTHER, replicas_min=2, replicas_max=2).revision == 2
    assert world.pass_time(3600) == []


def test_a_new_revision_that_never_serves_leaves_the_old_one_alone() -> None:
    """Its replicas fail again and again, later each time; the old ones answer on."""
    world = ServiceWorld()
    world.put(replicas_min=2, replicas_max=2)
    old = world.replicas()
    world.bring_up()
    world.put(OTHER, replicas_min=2, replicas_max=2)
    for _ in range(5):
        (job,) = world.replicas("offered")
        world.place_on("n1", 1, job)
        world.end(job, 1)
        world.settle()
        world.pass_time(60)
    assert world.replicas("running") == old and world.said(ev.ReplicaRetired) == []
    world.put(SPEC, replicas_min=2, replicas_max=2)  # back: it is a revision, too
    world.bring_up()
    assert [each.job for each in world.said(ev.ReplicaRetired)] == [old[0]]


def test_without_room_for_one_more_an_old_one_goes_first() -> None:
    """surge 0, unavailable 1: the gap is one replica, and never two."""
    world = ServiceWorld()
    world.put(replicas_min=2, replicas_max=2, surge=0, unavailable=1)
    world.bring_up()
    world.put(OTHER, replicas_min=2, replicas_max=2, surge=0, unavailable=1)
    assert len(world.said(ev.ReplicaRetired)) == 1
    assert len(world.replicas("offered")) == 1
    assert world.pass_time(1) == []


def test_a_drained_nodes_replica_is_replaced_before_it_ends() -> None:
    """Another one serves elsewhere first; a drain that is taken back ends the youngest of what is too much."""
    world = ServiceWorld()
    world.put()
    (job,) = world.replicas()
    world.bring_up()
    world.says(ev.NodeDraining(cause="cmd:d", node="n1"))
    assert "JobSubmitted" in kinds(world.settle())
    assert world.replicas("running") == [job]
    (other,) = world.replicas("offered")
    world.says(ev.NodeUncordoned(cause="cmd:u", node="n1"))
    world.settle()
    assert world.replicas() == [job] and world.of(other) in ("stopping", "cancelled")
    world.give_back(other)
    world.settle()
    world.says(ev.NodeDraining(cause="cmd:d", node="n1"))
    world.settle()
    world.bring_up(node="n2")
    assert [(each.job, each.reason) for each in world.said(ev.ReplicaRetired)] == [(job, "drain")]
    assert "JobStopRequested" in kinds(world.pass_time(DRAIN_NS / SECOND))


def test_scaling_ends_those_that_do_not_serve_first() -> None:
    """Up at once, down by the youngest; to none, with nothing left."""
    world = ServiceWorld()
    world.put()
    (first,) = world.replicas()
    world.bring_up()
    assert world.scale(3).wanted == 3
    assert len(world.replicas()) == 3
    world.scale(1)
    assert world.replicas() == [first] and world.said(ev.ReplicaRetired) == []
    world.scale(0)
    assert [(each.job, each.reason) for each in world.said(ev.ReplicaRetired)] == [(first, "scale")]
    world.pass_time(DRAIN_NS / SECOND)
    world.end(first, 143, "stopped")
    world.settle()
    assert world.pass_time(3600) == []


def test_load_wakes_a_service_and_lets_it_sleep_again_after_a_calm_time() -> None:
    """Between none and three replicas, one for each two requests in flight, over all proxies."""
    world = ServiceWorld()
    world.put(replicas_min=0, replicas_max=3, requests=2)
    assert world.replicas() == [] and world.pass_time(3600) == []
    world.load(1)
    assert [(each.wanted, each.reason) for each in world.said(ev.ServiceScaled)] == [(1, "load")]
    world.bring_up()
    world.load(2, "p2")
    assert world.service.wanted == 2 and len(world.replicas()) == 2
    world.load(100)
    assert world.service.wanted == 3
    world.bring_up()
    world.load(0)
    world.load(0, "p2")
    assert world.pass_time(CALM_NS / SECOND - 1) == []
    world.pass_time(1)
    assert world.service.wanted == 0 and len(world.said(ev.ReplicaRetired)) == 3


def test_the_load_of_a_proxy_that_is_gone_does_not_count_for_ever() -> None:
    """It is repeated while the proxy lives."""
    world = ServiceWorld()
    world.put(replicas_min=0, replicas_max=1, requests=1)
    world.load(5)
    world.bring_up()
    world.pass_time(LOAD_NS / SECOND - 1)
    world.load(5)
    assert world.pass_time(LOAD_NS / SECOND - 1) == []
    world.pass_time(CALM_NS / SECOND)
    assert world.service.wanted == 0


def test_a_replica_that_is_refused_is_an_event_and_is_tried_again() -> None:
    """A drained queue accepts no replica; once it is released the service has its number again."""
    world = ServiceWorld()
    world.put()
    (job,) = world.replicas()
    world.bring_up()
    world.drain_queue("default")
    world.end(job, 1)
    world.settle()
    world.pass_time(1)
    (blocked,) = world.said(ev.ServiceBlocked)
    assert blocked.code == "queue_drained" and world.service.blocked == blocked.message
    assert world.pass_time(1) == []
    world.release_queue("default")
    assert "JobSubmitted" in kinds(world.pass_time(60)) and world.service.blocked == ""


def test_a_stopped_service_ends_all_and_its_name_is_free_again() -> None:
    """At once, whatever serves; until the last has ended, commands are refused."""
    world = ServiceWorld()
    world.put(replicas_min=2, replicas_max=2)
    first, second = world.replicas()
    world.bring_up(first)
    stop = cmd.StopService(id=world._id(), user="bob", service="chat")
    assert world.one(stop) == ev.ServiceStopped(cause=f"cmd:{stop.id}", service="chat", by="bob")
    assert set(kinds(world.settle())) == {"JobStopRequested"}
    assert world.put().code == "conflict"
    world.end(first, 143, "stopped")
    world.give_back(second)
    world.settle()
    assert "chat" not in world.state.services and {world.of(first), world.of(second)} == {"cancelled"}
    assert world.put().revision == 1


def test_keys_are_of_a_service_and_go_with_it() -> None:
    """Issued once under an id, with bounds; revoked once; and none of a service that is not there."""
    world = ServiceWorld()
    world.put()
    issue = cmd.IssueServiceKey(id=world._id(), user="ada", service="chat", key="k1", per_minute=60, in_flight=2)
    issued = world.one(issue)
    assert (issued.key, issued.per_minute, issued.in_flight, issued.by) == ("k1", 60, 2, "ada")
    again = msgspec.structs.replace(issue, id=world._id())
    assert world.one(again).code == "invalid"
    for refused in (
        msgspec.structs.replace(issue, id=world._id(), key="k2", per_minute=-1),
        msgspec.structs.replace(issue, id=world._id(), key="k2", expires_ns=1),
        msgspec.structs.replace(issue, id=world._id(), key="k2", name="a\nb"),
    ):
        assert world.one(refused).code == "invalid"
    revoke = cmd.RevokeServiceKey(id=world._id(), user="ada", service="chat", key="k1")
    assert isinstance(world.one(revoke), ev.ServiceKeyRevoked)
    assert world.one(msgspec.structs.replace(revoke, id=world._id())).code == "not_found"
    assert world.one(msgspec.structs.replace(issue, id=world._id(), service="none")).code == "not_found"


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        ({"replicas_min": -1}, "service.replicas"),
        ({"replicas_min": 3, "replicas_max": 2}, "service.replicas"),
        ({"replicas_max": 101}, "service.replicas"),
        ({"replicas_min": 0, "replicas_max": 2}, "service.requests"),
        ({"surge": 0}, "service.surge"),
        ({"drain_ns": -1}, "service.drain"),
        ({"calm_ns": 10**15}, "service.calm"),
    ],
)
def test_rules_out_of_range_are_refused_with_their_field(rules: dict[str, Any], field: str) -> None:
    """And no service comes into being."""
    world = ServiceWorld()
    refused = world.put(**rules)
    assert isinstance(refused, ev.CommandRejected) and refused.code == "invalid" and refused.about == "chat"
    assert "chat" not in world.state.services and faults_of(ServiceRules(**rules))[0].field == field


def test_names_and_queues_are_guarded() -> None:
    """A name is a part of a host; it belongs to one queue; and a queue with a service is not removed."""
    world = ServiceWorld()
    world.tree(a={}, b={})
    template = ev.ReplicaJob(request=request(), spec=SPEC)
    for name in ("", "Chat", "a_b", "-a", "a-", "a" * 41, "1a"):
        command = cmd.ApplyService(
            id=world._id(), user="ada", service=name, queue="a", template=template, rules=ServiceRules()
        )
        assert world.one(command).code == "invalid", name
    assert isinstance(world.put(queue="a", replicas_min=0, replicas_max=0), ev.ServiceApplied)
    assert world.put(queue="b").code == "conflict"
    refused = world.remove("a")
    assert refused.code == "conflict" and "service chat is in it" in refused.message


def _serving(world: ServiceWorld) -> int:
    return sum(
        each.is_ready and not each.retired_ns and world.of(each.job) == "running"
        for each in world.service.replicas.values()
    )


@pytest.mark.parametrize("seed", range(30))
def test_no_decision_takes_out_a_replica_that_is_needed_or_adds_more_than_may_be(seed: int) -> None:
    """Whatever people, nodes and programs do: a decision never leaves fewer serving than wanted less the allowed gap by its own
    doing, never has more than the allowed number beyond the wanted ones, and comes to rest with the wanted number.
    """
    rng = Random(seed)
    world = ServiceWorld(careful=seed < 4)
    rules: dict[str, Any] = {"surge": rng.choice((1, 2)), "unavailable": rng.choice((0, 0, 1))}
    specs = [SPEC, OTHER]
    number = 2
    world.put(replicas_min=number, replicas_max=number, **rules)
    for _ in range(80):
        act = rng.randrange(10)
        jobs = world.replicas("offered")
        running = world.replicas("running")
        if act <= 2 and jobs:
            job = rng.choice(jobs)
            world.place_on(rng.choice(("n1", "n2")), 1, job)
        elif act <= 5 and running:
            job = rng.choice(running)
            world.says(ev.AppReady(cause="1.0", job=job, attempt=world.attempt(job)))
        elif act == 6 and running:
            job = rng.choice(running)
            if rng.random() < 0.5:
                world.end(job, 1)
            else:
                world.end(job, None, "node_lost")
        elif act == 7:
            node, kind = rng.choice(("n1", "n2")), rng.choice((ev.NodeDraining, ev.NodeUncordoned))
            world.says(kind(cause="cmd:x", node=node))
        elif act == 8:
            number = rng.choice((0, 1, 2, 4))
            template = ev.ReplicaJob(request=request(1), spec=rng.choice(specs))
            more = ServiceRules(replicas_min=number, replicas_max=number, **rules)
            world.one(
                cmd.ApplyService(
                    id=world._id(), user="a", service="chat", queue="default", template=template, rules=more
                )
            )
        else:
            world.now += rng.choice((1, 5, 300)) * SECOND
        for job in world.replicas("stopping"):
            if world.state.jobs[job].open:
                world.give_back(job)
            elif rng.random() < 0.5:
                world.end(job, 143, "stopped")
        _judge(world, rules)
    for node in ("n1", "n2"):
        world.says(ev.NodeUncordoned(cause="cmd:x", node=node))
    for _ in range(60):
        world.bring_up()
        world.says(
            *(ev.AppReady(cause="1.0", job=job, attempt=world.attempt(job)) for job in world.replicas("running"))
        )
        world.pass_time(300)
        for job in world.replicas("stopping"):
            world.give_back(job) if world.state.jobs[job].open else world.end(job, 143, "stopped")
    assert _serving(world) == number == len(world.replicas())


def _judge(world: ServiceWorld, rules: dict[str, Any]) -> None:
    """Let the queue decide to its end, commit by commit, and hold each commit against the promises."""
    for _ in range(100):
        before = _serving(world)
        events = world.step()
        if not events:
            return
        wanted = world.service.wanted
        if any(isinstance(each, ev.ReplicaRetired) for each in events):
            assert _serving(world) >= min(before, wanted - rules["unavailable"])
        if any(isinstance(each, ev.JobSubmitted) for each in events):
            alive = [each for each in world.service.replicas.values() if not each.retired_ns]
            assert sum(world.of(each.job) != "stopping" for each in alive) <= wanted + rules["surge"]
    raise AssertionError("the queue decides without end")
