"""Nodes to repartition for a job of several units: the cheapest set, against every possible one."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from fairlead_placer.scheduling.repartition_choice import RepartitionShare, Supply, share_out


def supplies(each: int) -> st.SearchStrategy[list[Supply]]:
    """Nodes that have the pieces of their ready units, and fewer than one unit's more."""
    one = st.builds(
        lambda ready, more, spare: Supply(ready, ready + more, ready * each + spare),
        st.integers(0, 3),
        st.integers(0, 3),
        st.integers(0, each - 1),
    )
    return st.lists(one, max_size=4)


def missing(supply: Supply, units: int, each: int) -> int:
    return max(0, units * each - supply.has) if units > supply.ready else 0


@given(st.integers(1, 3).flatmap(lambda each: st.tuples(st.just(each), supplies(each))), st.integers(1, 12))
def test_no_other_way_lacks_less(world: tuple[int, list[Supply]], wanted: int) -> None:
    """Of all ways to share the units out; and where there is one, one is found."""
    each, nodes = world
    ways = [way for way in product(*(range(one.most + 1) for one in nodes)) if sum(way) >= wanted]
    shares = share_out(nodes, wanted, each)
    if not ways:
        assert shares is None
        return
    assert shares is not None
    least = min(sum(missing(one, units, each) for one, units in zip(nodes, way, strict=True)) for way in ways)
    assert sum(share.missing for share in shares) == least
    more = {share.place: (share.missing + nodes[share.place].has) // each for share in shares}
    assert all(more[place] <= nodes[place].most for place in more)
    assert sum(more.get(place, one.ready) for place, one in enumerate(nodes)) >= wanted


def test_nodes_with_room_are_not_repartitioned_and_the_first_of_equals_is() -> None:
    """Units that lack fewer instances come before."""
    assert share_out([Supply(2, 3, 4)], 2, 2) == []
    assert share_out([Supply(0, 1, 0), Supply(0, 1, 0)], 1, 1) == [RepartitionShare(0, 1)]
    assert share_out([Supply(0, 2, 0), Supply(1, 2, 3)], 2, 2) == [RepartitionShare(1, 1)]
    assert share_out([Supply(0, 1, 0), Supply(0, 2, 0)], 2, 1) == [RepartitionShare(1, 2)]
    assert share_out([Supply(0, 2, 0)], 3, 1) is None
