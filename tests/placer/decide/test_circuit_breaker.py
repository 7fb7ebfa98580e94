"""Nodes that fail different jobs fast, proof and suspicion, and the breaker."""

import msgspec
import pytest

from fairlead_bus.core import Input
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import CordonNode, QuarantineNode, ResetBreaker, UncordonNode, UnquarantineNode
from fairlead_schemas.wire.reports import ExitSeen
from fairlead_schemas.wire.resources import Request
from tests.kit.placer_world import SECOND, PlacerWorld, cluster, names, placed, request


def offer(world: PlacerWorld, wanted: Request, user: str, job: str = "", file: str = "") -> list[ev.Event]:
    """A job of the user's; `file`: what its job file holds (by default every job has another one)."""
    file = file or f"job {world.jobs + 1}"
    submitted, offered = world.submitted(wanted, job=job, user=user, spec=msgspec.json.encode({"command": [file]}))
    return world.queue(submitted, offered)


def on(node: str) -> Request:
    """One GPU of that node."""
    return request(1, selector=(f"kubernetes.io/hostname={node}",))


def run(world: PlacerWorld, node: str, user: str, *, code: int = 1, lasting: int = 5, file: str = "") -> list[ev.Event]:
    """A job of the user's that must go to the node, and what comes of its end there."""
    offer(world, on(node), user, file=file)
    job = str(world.jobs)
    world.start(node, job)
    world.now += lasting * SECOND
    return world.exit(node, job, exit_code=code)


def again(world: PlacerWorld, job: str, attempt: int) -> dict[str, list[str]]:
    """The queue lets the job try again; where it goes."""
    requeued = ev.JobRequeued(cause="clock", job=job, reason="retry", attempt=attempt)
    return placed(world.queue(requeued, ev.JobOffered(cause="clock", job=job, attempt=attempt, rank=1)))


def hurt(world: PlacerWorld, *users: str, code: int = 1) -> None:
    """A job of each user's, of a whole node, fails on n1, while the other nodes are busy."""
    for user in users:
        assert placed(offer(world, request(8), user)) == {str(world.jobs): ["n1"]}
        world.start("n1", str(world.jobs))
        world.now += SECOND
        world.exit("n1", str(world.jobs), exit_code=code)


def refuse(world: PlacerWorld, node: str, job: str) -> list[ev.Event]:
    """A job that must go to the node, which cannot start it."""
    offer(world, on(node), "ann", job)
    end = ExitSeen(n=0, job=job, attempt=1, rank=0, outcome="start_failed", fault="node", clean=True)
    return world.report(node, end)


def lost(node: str) -> Input:
    """No word from the node for its whole lease."""
    return Input("silent", 0, (node, 120 * SECOND))


def labelled(count: int) -> PlacerWorld:
    """Nodes that can be asked for by name."""
    world = PlacerWorld()
    for i in range(1, count + 1):
        world.join(f"n{i}", 8, labels={"kubernetes.io/hostname": f"n{i}"})
    return world


@pytest.mark.parametrize("code", [1, 2, 126, 127, 9])
def test_nobodys_mistake_closes_a_node(code: int) -> None:
    """Different users' jobs that fail fast, and nothing that tells whether they would do so elsewhere: one run at a time
    after the second, a rest after the third, and work again after that."""
    world = labelled(3)
    assert names(run(world, "n1", "ann", code=code)) == ["RunEnded"]
    assert names(run(world, "n1", "bob", code=code)) == ["RunEnded", "NodeSuspected"]
    assert placed(offer(world, on("n1"), "cem")) == {"3": ["n1"]}
    [refused] = offer(world, on("n1"), "dee")
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons["suspect"] == 1
    world.start("n1", "3")
    ended, rests = world.exit("n1", "3", exit_code=code)
    assert names([ended]) == ["RunEnded"]
    assert rests == ev.NodeSuspected(
        cause="clock", node="n1", jobs=("1", "2", "3"), rests_until_ns=world.now + 30 * SECOND
    )
    world.now += 30 * SECOND - 1
    assert world.step() == []
    assert world.core.wake_at() == world.now + 1
    world.now += 1
    over, next_one = world.step()
    assert over == ev.NodeSuspected(cause="clock", node="n1", jobs=("1", "2", "3"))
    assert placed([next_one]) == {"4": ["n1"]}


def test_rests_grow_and_a_run_that_does_well_ends_all() -> None:
    """A node that fails whatever it gets has failed seven in ten minutes; one good run, and it is ready."""
    world, rests = labelled(1), list[int]()
    for user in ("ann", "bob", "cem", "dee", "eva", "fay"):
        events = run(world, "n1", user)
        [until_ns] = [e.rests_until_ns for e in events if isinstance(e, ev.NodeSuspected)] or [0]
        if until_ns:
            rests.append((until_ns - world.now) // SECOND)
            world.now = until_ns
            world.step()
    assert rests == [30, 60, 120, 240]
    assert names(run(world, "n1", "gus", code=0)) == ["RunEnded", "NodeCleared"]
    node = world.core.state.nodes["n1"]
    assert (node.suspect, node.resting, node.rest_ns) == (False, False, 0)


def test_invented_user_names_quarantine_no_node() -> None:
    """User names are not verified: without a job that succeeded elsewhere the node is only avoided."""
    world = labelled(3)
    for at in range(8):
        events = run(world, "n1", f"nobody-{at}")
        assert "NodeQuarantined" not in names(events)
        world.now = max(world.now, world.core.state.nodes["n1"].rest_ns)
        world.step()
    assert world.core.state.nodes["n1"].open


def test_three_jobs_that_failed_here_and_succeed_elsewhere_quarantine_the_node() -> None:
    """For any exit code: the next attempt of each job is the evidence."""
    world = labelled(3)
    for node in ("n2", "n3"):
        offer(world, request(8, selector=(f"kubernetes.io/hostname={node}",)), "zoe")
    hurt(world, "ann", "bob", "cem", code=127)
    assert world.core.state.nodes["n1"].resting
    events = [*world.exit("n2", "1"), *world.exit("n3", "2")]
    for job in ("3", "4", "5"):
        assert "NodeQuarantined" not in names(events)
        [node] = again(world, job, 2)[job]
        assert node != "n1"
        world.start(node, job, attempt=2)
        events = world.exit(node, job, attempt=2)
    assert events[1] == ev.NodeQuarantined(
        cause="clock",
        node="n1",
        setter="health",
        reason="3 different jobs failed fast here and not elsewhere",
        jobs=("3", "4", "5"),
    )
    assert world.core.state.nodes["n1"].held == {}


def test_next_attempts_that_run_on_elsewhere_are_proof_before_they_end() -> None:
    """A training run of weeks is none the worse a witness."""
    world = cluster(4)
    for node in ("n2", "n3", "n4"):
        assert placed(world.command(CordonNode(id=f"c-{node}", node=node))) == {}
    hurt(world, "ann", "bob", "cem")
    for at, node in enumerate(("n2", "n3", "n4"), 1):
        world.command(UncordonNode(id=f"u-{node}", node=node))
        assert again(world, str(at), 2) == {str(at): [node]}
        world.start(node, str(at), attempt=2)
    world.now += 119 * SECOND
    assert "NodeQuarantined" not in names(offer(world, request(8), "dee"))
    world.now += SECOND
    assert "NodeQuarantined" in names(offer(world, request(8), "eva"))


def test_the_same_job_file_that_does_well_elsewhere_is_proof() -> None:
    """A person who submits it again, or an array whose other elements do well; another user's may need other files."""
    world = labelled(2)
    for user in ("ann", "bob", "cem"):
        run(world, "n1", user, file=f"{user}'s")
    run(world, "n2", "ann", code=0, file="ann's")
    run(world, "n2", "dee", code=0, file="bob's")
    assert [fail.blame for fail in world.core.state.failing["n1"]] == ["node", "", ""]
    run(world, "n2", "bob", code=0, file="bob's")
    assert "NodeQuarantined" in names(run(world, "n2", "cem", code=0, file="cem's"))


def test_a_job_that_fails_alike_elsewhere_is_to_blame_itself() -> None:
    """By a retry or submitted again, it counts against neither node; until it does well on a third."""
    world = labelled(4)
    run(world, "n1", "ann", code=3)
    run(world, "n1", "bob", file="bob's")
    assert world.core.state.nodes["n1"].suspect
    assert names(run(world, "n2", "bob", file="bob's")) == ["RunEnded"]
    blames = {name: [fail.blame for fail in fails] for name, fails in world.core.state.failing.items()}
    assert blames == {"n1": ["", "job"], "n2": ["job"]}
    assert names(run(world, "n2", "cem", code=4)) == ["RunEnded"]
    run(world, "n3", "bob", code=0, file="bob's")
    blames = {name: [fail.blame for fail in fails] for name, fails in world.core.state.failing.items()}
    assert blames == {"n1": ["", "node"], "n2": ["node", ""]}


@pytest.mark.parametrize(("outcome", "fault"), [("start_failed", "node"), ("preflight", "")])
def test_a_node_that_refuses_jobs_by_itself_needs_no_other_witness(
    outcome: ev.RunOutcome, fault: ev.StartFault
) -> None:
    """A full disk or a failed check of its own: three different jobs, be they one user's."""
    world, events = labelled(2), list[ev.Event]()
    for at in (1, 2, 3):
        offer(world, on("n1"), "ann", str(at))
        end = ExitSeen(n=0, job=str(at), attempt=1, rank=0, outcome=outcome, fault=fault, clean=True)
        events = world.report("n1", end)
    assert names(events) == ["RunEnded", "NodeQuarantined"]


@pytest.mark.parametrize(
    ("wanted", "nodes"),
    [
        (request(1), ["n2"]),
        (request(8, nodes=2), ["n2", "n3"]),
        (request(8, nodes=3), ["n1", "n2", "n3"]),
        (request(8, nodes=3, nodes_min=2), ["n2", "n3"]),
        (request(8, also=(request(2),)), ["n2", "n3"]),
    ],
    ids=["one", "gang", "whole cluster", "elastic", "kinds"],
)
def test_a_suspect_node_is_chosen_last(wanted: Request, nodes: list[str]) -> None:
    """The first by name among equal nodes, it is used only where the others have no place for all units."""
    world = labelled(3)
    run(world, "n1", "ann")
    assert names(run(world, "n1", "bob")) == ["RunEnded", "NodeSuspected"]
    [chosen] = placed(offer(world, wanted, "cem")).values()
    assert sorted(chosen) == nodes


def test_a_suspect_node_is_chosen_where_the_others_are_full() -> None:
    """Work does not wait while a node would take it."""
    world = labelled(2)
    run(world, "n1", "ann")
    run(world, "n1", "bob")
    assert placed(offer(world, request(8), "cem")) == {"3": ["n2"]}
    assert placed(offer(world, request(8), "dee")) == {"4": ["n1"]}


def test_a_suspect_node_that_is_kept_for_a_job_takes_it_after_its_one_run() -> None:
    """There is room for both, but one run at a time is all that it gets."""
    world = labelled(1)
    run(world, "n1", "ann")
    assert names(run(world, "n1", "bob")) == ["RunEnded", "NodeSuspected"]
    offer(world, request(1), "cem")
    offer(world, request(1), "cem")
    asked = ev.ReservationRequested(cause="clock", job="4", attempt=1, waited_ns=1)
    assert names(world.queue(asked)) == ["ReservationMade"]
    world.start("n1", "3")
    assert placed(world.exit("n1", "3")) == {"4": ["n1"]}


def test_a_canary_that_does_well_clears_the_node() -> None:
    """Exit 0, or two minutes of work: what failed before is forgotten, and the next in line is placed."""
    for code, lasting in ((0, 1), (1, 120)):
        world = labelled(2)
        run(world, "n1", "ann")
        run(world, "n1", "bob")
        assert names(run(world, "n1", "cem", code=code, lasting=lasting)) == ["RunEnded", "NodeCleared"]
        assert world.core.state.failing == {}


def test_one_users_failures_count_once_unless_his_runs_do_well_elsewhere() -> None:
    """Then the node is suspect, and not more: what did well there was another job."""
    world = labelled(2)
    for _ in range(4):
        assert names(run(world, "n1", "ann")) == ["RunEnded"]
    [_, rests] = run(world, "n2", "ann", code=0)
    assert isinstance(rests, ev.NodeSuspected) and rests.jobs == ("1", "2", "3", "4")


def test_elements_of_an_array_count_as_one_job() -> None:
    """The number of failed elements does not matter."""
    world = cluster(1)
    submitted, _ = world.submitted(request(1), job="7")
    offers = [ev.JobOffered(cause="clock", job=f"7_{i}", attempt=1, rank=i) for i in range(4)]
    world.queue(msgspec.structs.replace(submitted, array=(0, 3)), *offers)
    for i in range(4):
        assert "NodeSuspected" not in names(world.exit("n1", f"7_{i}", exit_code=1))


def test_old_failures_do_not_count() -> None:
    """Ten minutes later they are history."""
    world = labelled(1)
    run(world, "n1", "ann")
    world.now += 600 * SECOND
    assert names(run(world, "n1", "bob")) == ["RunEnded"]


def test_a_stop_or_a_loss_says_nothing_of_the_node() -> None:
    """Cancelled work and lost nodes are no failures."""
    world = cluster(2)
    offer(world, request(8), "ann")
    world.queue(ev.JobStopRequested(cause="cmd:9", job="1", attempt=1, reason="cancelled"))
    world.exit("n1", "1", exit_code=143)
    offer(world, request(8), "bob")
    world.silent("n1")
    world.silent("n2")
    assert (world.core.state.failing, world.core.state.failed_on) == ({}, {})


def test_a_user_releases_a_quarantined_node_and_an_uncordon_does_not() -> None:
    """Its failure history starts again from zero."""
    world = labelled(1)
    for job in ("1", "2", "3"):
        refuse(world, "n1", job)
    world.command(UncordonNode(id="u", node="n1"))
    assert not world.core.state.nodes["n1"].open
    [released] = world.command(UnquarantineNode(id="r", user="ops", node="n1"))
    assert released == ev.NodeUnquarantined(cause="cmd:r", node="n1", by="ops")
    assert world.core.state.nodes["n1"].open
    assert names(run(world, "n1", "ann")) == ["RunEnded"]
    [rejected] = world.command(UnquarantineNode(id="s", node="n1"))
    assert isinstance(rejected, ev.NodeCommandRejected)
    assert rejected.code == "not_quarantined"


def test_a_user_quarantines_beyond_any_breaker() -> None:
    """Commands of users are never held back."""
    world = cluster(3)
    for i in (1, 2, 3):
        assert names(world.command(QuarantineNode(id=f"q{i}", node=f"n{i}"))) == ["NodeQuarantined"]
    [refused] = world.offer(request(1))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"quarantined": 3}


def test_the_breaker_stops_mass_quarantine_until_a_person_resets_it() -> None:
    """One of ten in five minutes; the second node stays suspect. Time alone changes nothing."""
    world = labelled(10)
    for job in ("1", "2", "3"):
        refuse(world, "n1", job)
    for job in ("4", "5"):
        refuse(world, "n2", job)
    events = refuse(world, "n2", "6")
    assert names(events) == ["RunEnded", "BreakerTripped"]
    assert events[1] == ev.BreakerTripped(cause="clock", kind="nodes", found=2, allowed=1, of=10)
    world.now += 3600 * SECOND
    assert world.step() == []
    assert names(world.command(ResetBreaker(id="b", user="ops"))) == ["BreakerReset"]
    [rejected] = world.command(ResetBreaker(id="c"))
    assert isinstance(rejected, ev.NodeCommandRejected)


def test_a_job_that_fails_on_every_node_is_no_evidence_against_the_third() -> None:
    """From the second node on the job is to blame: its failures count against no node."""
    world = cluster(4)
    world.offer(request(8))
    for attempt, node in ((1, "n1"), (2, "n2"), (3, "n3")):
        world.exit(node, "1", attempt=attempt, exit_code=1)
        requeued = ev.JobRequeued(cause="clock", job="1", reason="retry", attempt=attempt + 1)
        world.queue(requeued, ev.JobOffered(cause="clock", job="1", attempt=attempt + 1, rank=1))
    blames = {fail.blame for fails in world.core.state.failing.values() for fail in fails}
    assert (sorted(world.core.state.failing), blames) == (["n1", "n2", "n3"], {"job"})
    assert world.core.state.failed_on == {"1": tuple((node, "exited 1") for node in ("n1", "n2", "n3"))}


def test_many_losses_at_once_hold_the_ends_of_what_ran_there() -> None:
    """More than a fifth at once: nodes are lost and get no work, but their runs are not ended until a person says so."""
    world = cluster(10)
    for _ in range(10):
        world.offer(request(8))
    events = world.step(*(lost(f"n{i}") for i in range(1, 6)))
    assert names(events) == ["NodeLost"] * 5 + ["BreakerTripped"]
    assert sum(node.live for node in world.core.state.nodes.values()) == 10
    assert names(world.heard("n1")) == ["NodeReturned"]
    assert names(world.exit("n1", "1")) == ["RunEnded"]
    assert names(world.exit("n2", "3")) == ["NodeReturned", "RunEnded"]
    events = world.command(ResetBreaker(id="b", user="ops"))
    assert names(events) == ["BreakerReset"] + ["RunEnded"] * 3
    assert "RunEnded" in names(world.silent("n9"))


def test_few_losses_end_their_runs_as_ever() -> None:
    """Two nodes of four, and one after the other over more than a minute, are ordinary losses."""
    world = cluster(4)
    for _ in range(4):
        world.offer(request(8))
    assert names(world.step(lost("n1"), lost("n2"))) == ["NodeLost", "NodeLost", "RunEnded", "RunEnded"]
    world.now += 61 * SECOND
    assert names(world.silent("n3")) == ["NodeLost", "RunEnded"]


def test_a_start_that_fails_by_the_jobs_own_fault_says_nothing_of_the_node() -> None:
    """An image that does not exist: no node is suspected for it, however many try it."""
    world = labelled(2)
    for at, user in enumerate(("ann", "bob", "cem"), 1):
        offer(world, request(1, selector=("kubernetes.io/hostname=n1",)), user)
        end = ExitSeen(n=0, job=str(at), attempt=1, rank=0, outcome="start_failed", fault="job", clean=True)
        ended, *others = world.report("n1", end)
        assert not others and isinstance(ended, ev.RunEnded) and ended.fault == "job"
    assert world.core.state.failing == {}
