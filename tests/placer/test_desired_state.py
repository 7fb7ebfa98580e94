"""Orders of large gangs: the members of all ranks in few bytes, and in full for the agent."""

import msgspec

from fairlead_placer.desired_state import FOLDED_MIN, OrderBook
from fairlead_schemas.wire.desired import decode_desired
from fairlead_schemas.wire.resources import Inventory
from tests.kit.placer_world import PlacerWorld, inventory, request


def machine(name: str, address: str) -> Inventory:
    """Eight GPUs at this address."""
    return msgspec.structs.replace(inventory(name, 8), address=address)


def gang(nodes: int, gpus: int = 1, address: str = "10.0.0.{}") -> PlacerWorld:
    """Place a gang on all nodes of a cluster."""
    world = PlacerWorld()
    world.joined({f"n{at:04}": machine(f"n{at:04}", address.format(at)) for at in range(nodes)})
    world.offer(request(gpus, nodes=nodes))
    return world


def test_the_orders_of_a_large_gang_grow_slowly_with_its_ranks() -> None:
    """Written in full, the members of a gang of n ranks take n² names; the agent has them in the order of the ranks."""
    sizes: dict[int, int] = {}
    for nodes in (FOLDED_MIN, 8 * FOLDED_MIN):
        world = gang(nodes)
        state, book = world.core.state, OrderBook()
        values = [book.desired(state, state.nodes[f"n{at:04}"]) for at in range(nodes)]
        sizes[nodes] = max(map(len, values))
        run = state.runs["1.1"]
        for rank, value in enumerate(values):
            [order] = decode_desired(value).runs
            assert order.rank == rank
            assert order.nodes == tuple(part.node for part in run.parts)
            assert order.hosts == run.hosts == tuple(f"10.0.0.{at}" for at in range(nodes))
    assert sizes[8 * FOLDED_MIN] < sizes[FOLDED_MIN] + 100


def test_equal_slots_of_a_large_gang_are_left_to_its_agents() -> None:
    """An agent without slots takes its order's GPUs on every node; other slots are written."""
    assert gang(FOLDED_MIN, 8).orders("n0003")["1.1"].slots == ()
    assert gang(FOLDED_MIN - 1, 8).orders("n0003")["1.1"].slots == (8,) * (FOLDED_MIN - 1)
    assert gang(FOLDED_MIN, 0).orders("n0003")["1.1"].slots == ()
    tasks = PlacerWorld()
    tasks.joined({f"n{at:04}": inventory(f"n{at:04}", 8) for at in range(FOLDED_MIN)})
    tasks.offer(request(4, nodes=2 * FOLDED_MIN, tasks=True))
    assert tasks.orders("n0003")["1.1"].slots == (2,) * FOLDED_MIN


def test_addresses_that_no_hostlist_can_hold_are_written_in_full() -> None:
    """Brackets have a meaning there."""
    world = gang(FOLDED_MIN, address="[fd00::{}]")
    assert world.orders("n0001")["1.1"].hosts[:2] == ("[fd00::0]", "[fd00::1]")
    assert world.orders("n0001")["1.1"].nodes[:2] == ("n0000", "n0001")
