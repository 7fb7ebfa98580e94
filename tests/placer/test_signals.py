"""Signals of people in orders: numbered, for living ranks of runs that are not being stopped, and kept by a snapshot."""

from fairlead_placer.apply.runs import SIGNALS_MAX
from fairlead_placer.core import PlacerCore
from fairlead_placer.desired_state import OrderBook
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.desired import decode_desired
from tests.kit.placer_world import PlacerWorld, request, taken_marks


def gang() -> PlacerWorld:
    """Job 1 runs on a and b."""
    world = PlacerWorld()
    for node in ("a", "b"):
        world.join(node, 4)
    world.queue(*world.submitted(request(4, nodes=2)))
    for rank, node in enumerate(("a", "b")):
        world.start(node, "1", rank)
    return world


def send(world: PlacerWorld, signal: str = "SIGUSR1", attempt: int = 1) -> None:
    """The queue records a signal for job 1; the placer commits nothing upon it."""
    assert world.queue(ev.JobSignalRequested(cause="cmd:s", job="1", attempt=attempt, signal=signal, by="bob")) == []


def signals(world: PlacerWorld, node: str = "a") -> tuple[tuple[int, str], ...]:
    """Return those of the node's order."""
    return world.orders(node)["1.1"].signals


def test_signals_are_numbered_in_the_order_of_every_living_rank() -> None:
    """Two equal ones are two; a rank that has ended gets none."""
    world = gang()
    send(world)
    send(world)
    assert signals(world, "a") == signals(world, "b") == ((1, "SIGUSR1"), (2, "SIGUSR1"))
    world.exit("b", "1", rank=1, exit_code=0)
    send(world, "SIGINT")
    assert signals(world, "a")[-1] == (3, "SIGINT")
    assert "1.1" not in world.orders("b")


def test_an_order_carries_the_newest_only() -> None:
    """An agent that was away for long gets no more than these; their numbers continue."""
    world = gang()
    for _ in range(SIGNALS_MAX + 3):
        send(world)
    assert [number for number, _ in signals(world)] == list(range(4, SIGNALS_MAX + 4))


def test_a_signal_for_another_attempt_or_a_run_that_is_stopped_goes_nowhere() -> None:
    """Also where the queue decided it a moment before the end was ordered."""
    world = gang()
    send(world, attempt=2)
    assert signals(world) == ()
    send(world)
    world.queue(ev.JobStopRequested(cause="cmd:c", job="1", attempt=1, reason="cancelled", by="bob"))
    assert signals(world) == ()
    send(world)
    assert world.core.state.runs["1.1"].signals == ((1, "SIGUSR1"),)


def test_a_restarted_placer_writes_the_same_numbers() -> None:
    """From its snapshot: a signal that was delivered must not get another number."""
    world = gang()
    send(world)
    send(world, "SIGHUP")
    before = signals(world)
    world.core = PlacerCore.restore(world.core.snapshot())
    assert signals(world) == before == ((1, "SIGUSR1"), (2, "SIGHUP"))
    send(world)
    assert signals(world)[-1] == (3, "SIGUSR1")


def test_a_signal_is_written_though_the_order_was_encoded_before() -> None:
    """And marks the nodes whose orders are to be written."""
    world, book = gang(), OrderBook()
    nodes = world.core.state.nodes
    before = book.desired(world.core.state, nodes["a"])
    taken_marks(world.core)
    send(world)
    assert taken_marks(world.core)[0] == {"a", "b"}
    after = decode_desired(book.desired(world.core.state, nodes["a"]))
    assert decode_desired(before).runs[0].signals == () and after.runs[0].signals == ((1, "SIGUSR1"),)
