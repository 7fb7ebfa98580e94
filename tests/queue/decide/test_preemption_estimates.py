"""Victims among the cheapest runs scattered over nodes: those on one node if a unit needs room."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead_queue.decide.preemption_estimates import DepartingRun, clearing_order, units_freed
from fairlead_queue.limits import REVIEW_NS, STARVING_MAX, VICTIMS_MAX
from fairlead_schemas.wire import events as ev
from tests.kit.queue_world import SECOND, QueueWorld, request
from tests.queue.yielding import SOON

GOINGS = st.builds(
    DepartingRun,
    st.integers(0, 3),
    st.integers(1, 4),
    st.lists(st.sampled_from(["n1", "n2", "n3"]), min_size=1, max_size=3).map(tuple),
)


# ---------------------------------------------------------------------------------------- the order alone


def test_the_cheapest_node_comes_first_with_as_many_as_make_room() -> None:
    """Then the next, then one on which they do not suffice, then those that need not go."""
    runs = [
        DepartingRun(1, 1, ["far"]),
        DepartingRun(1, 2, ["a"]),
        DepartingRun(2, 2, ["b"]),
        DepartingRun(3, 2, ["a"]),
        DepartingRun(3, 2, ["b"]),
        DepartingRun(9, 4, ["a"]),
    ]
    assert clearing_order(runs, 4) == [1, 3, 2, 4, 0, 5]


def test_a_run_on_several_nodes_goes_once() -> None:
    """It makes room on each of them."""
    runs = [DepartingRun(1, 2, ["a", "b"]), DepartingRun(2, 2, ["b"]), DepartingRun(2, 2, ["a"])]
    assert clearing_order(runs, 4) == [0, 1, 2]
    assert units_freed(runs, 4, shared=False) == 2


def test_units_that_share_nodes_take_all_that_fits() -> None:
    """One to a node otherwise, and only where they fit."""
    runs = [DepartingRun(1, 8, ["a"]), DepartingRun(1, 1, ["b"])]
    assert (units_freed(runs, 2, shared=True), units_freed(runs, 2, shared=False)) == (4, 1)


@given(runs=st.lists(GOINGS, max_size=8), unit=st.integers(1, 6))
def test_all_are_in_the_order_once_and_no_other_order_frees_a_unit_with_the_first_so_cheaply(
    runs: list[DepartingRun], unit: int
) -> None:
    """The first node that is cleared is the cheapest that can be."""
    runs = sorted(runs, key=lambda run: run.cost)
    order = clearing_order(runs, unit)
    assert sorted(order) == list(range(len(runs)))
    able = [cost for node in ("n1", "n2", "n3") if (cost := _cost_of(runs, node, unit)) is not None]
    if able:
        paid = next(
            sum(runs[at].cost for at in order[:many])
            for many in range(1, len(order) + 1)
            if units_freed([runs[at] for at in order[:many]], unit, shared=False)
        )
        assert paid <= min(able)


def _cost_of(runs: list[DepartingRun], node: str, unit: int) -> int | None:
    """Return the loss of the cheapest runs there that free room for a unit."""
    cost = held = 0
    for run in runs:
        if held < unit and node in run.nodes:
            held += run.held * run.nodes.count(node)
            cost += run.cost
    return cost if held >= unit else None


# ---------------------------------------------------------------------------------------- who is named


def scattered(nodes: int, gpus: int = 8) -> tuple[QueueWorld, dict[str, list[str]]]:
    """Nodes full of one-GPU runs of a queue that borrows all of it, placed in turn: {node: its runs}. Those who started
    last, whom it costs least to ask, lie on all nodes."""
    world = QueueWorld(careful=False)
    for number in range(nodes):
        world.node(f"n{number}", gpus=gpus)
    world.tree(fill={"preemption": SOON}, owner={"guaranteed": {"gpu": nodes * gpus * 1000}, "preemption": SOON})
    runs: dict[str, list[str]] = {f"n{number}": [] for number in range(nodes)}
    for _ in range(gpus):
        for node, here in runs.items():
            here.append(world.submit(1, queue="fill"))
            world.place_on(node, 1, here[-1])
        world.now += SECOND
    return world, runs


def named(world: QueueWorld) -> list[set[str]]:
    return [{victim.job for victim in each.victims} for each in world.said(ev.PreemptionRequested)]


def test_a_gang_names_enough_of_them_on_as_many_nodes_as_it_needs() -> None:
    """The cheapest alone would be one or two on every node."""
    world, runs = scattered(80)
    job = world.submit(5, queue="owner", request=request(5, nodes=10))
    world.refuse(job)
    world.pass_time(REVIEW_NS / SECOND)
    (victims,) = named(world)
    assert sum(len(victims.intersection(here)) >= 5 for here in runs.values()) >= 10
    assert len(victims) >= max(VICTIMS_MAX, 50)


def test_a_job_without_enough_victims_waits_for_the_next_review() -> None:
    """The placer takes half of the victims nominated for the first: the rest suffices for the second."""
    world, runs = scattered(16)
    jobs = [world.submit(5, queue="owner", request=request(5, nodes=8)) for _ in range(2)]
    world.refuse(jobs[0])
    world.pass_time(REVIEW_NS / SECOND)
    (victims,) = named(world)
    cleared = [node for node, here in runs.items() if len(victims.intersection(here)) >= 5][:8]
    going: list[tuple[str, ev.YieldRule]] = [(run, "over_guarantee") for node in cleared for run in runs[node][-5:]]
    world.preempt(jobs[0], *going)
    world.pass_time(REVIEW_NS / SECOND)
    assert len(named(world)) == 2
    assert sum(len(named(world)[1].intersection(here)) >= 5 for here in runs.values()) >= 8


def test_no_victims_are_nominated_until_the_placer_has_answered_the_earlier_request() -> None:
    """The second request would nominate the same ones."""
    world, _ = scattered(2 * VICTIMS_MAX // 8 + 2)
    first = world.submit(1, queue="owner")
    world.refuse(first)
    world.pass_time(REVIEW_NS / SECOND)
    world.submit(1, queue="owner")
    world.pass_time(2)
    (plea,) = world.said(ev.PreemptionRequested)
    world.preempt(first, (plea.victims[0].job, "over_guarantee"))
    world.pass_time(REVIEW_NS / SECOND)
    assert plea.victims[0] not in world.said(ev.PreemptionRequested)[1].victims


def test_jobs_with_a_reservation_do_not_delay_help_for_others() -> None:
    """During the grace of the first, the next ones send their requests."""
    world, _ = scattered(2 * VICTIMS_MAX // 8 + 2)
    jobs = [world.submit(1, queue="owner") for _ in range(STARVING_MAX + 2)]
    world.refuse(jobs[0])
    asked: list[str] = []
    while len(asked) < len(jobs):
        world.pass_time(REVIEW_NS / SECOND)
        pleas = world.said(ev.PreemptionRequested)[len(asked) :]
        assert pleas
        for plea in pleas:
            world.preempt(plea.job, (plea.victims[0].job, "over_guarantee"))
            asked.append(plea.job)
    assert asked == jobs


def test_the_nodes_of_runs_survive_a_restart() -> None:
    """Each unit's node, until the run has ended."""
    world, runs = scattered(2)
    first = runs["n0"][0]
    world.restart()
    assert world.state.jobs[first].nodes == ("n0",)
    world.end(first)
    assert first not in world.state.jobs or world.state.jobs[first].nodes == ()
