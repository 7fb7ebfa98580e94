"""Fault localization: every culprit is named and no other rank, whatever it does to its pairs."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fairlead_agent.node.health.fault_localization import FaultVerdict, describe, partners, verdict, worth_another_try

GOOD = 900


def matrix(ranks: int, bad: Sequence[tuple[int, int]], *, rate: int = 0) -> dict[int, dict[int, int]]:
    pairs = {frozenset(pair) for pair in bad}
    return {a: {b: rate if frozenset((a, b)) in pairs else GOOD for b in range(ranks) if b != a} for a in range(ranks)}


def test_a_healthy_gang_blames_no_rank() -> None:
    """Also if rates differ by a little, and if there is no peer."""
    assert verdict(8, matrix(8, [])).clean
    assert verdict(4, {a: {b: 100 * (1 + a + b) for b in range(4) if b != a} for a in range(4)}).clean
    assert verdict(1, {0: {}}).clean


def test_a_rank_that_no_other_reaches_is_blamed() -> None:
    """Its own row claims that all others are gone; they are the majority. The sentence has its address."""
    found = verdict(4, matrix(4, [(2, 0), (2, 1), (2, 3)]))
    assert found == FaultVerdict((2,), (), {2: (3, 3)})
    hosts = tuple(f"10.0.0.{n}" for n in range(4))
    assert (
        describe(found, hosts) == "the network was tried before the start: rank 2 (10.0.0.2) failed with 3 of 3 others"
    )


def test_a_rank_whose_row_never_arrived_is_blamed() -> None:
    """No other rank received it."""
    rows = matrix(4, [(2, 0), (2, 1), (2, 3)])
    del rows[2]
    assert verdict(4, rows).culprits == (2,)
    assert verdict(4, {rank: {peer: GOOD for peer in row if peer != 2} for rank, row in rows.items()}).culprits == (2,)


def test_one_that_is_slow_is_named() -> None:
    """A link that came up at a tenth of its rate."""
    assert verdict(8, matrix(8, [(5, peer) for peer in range(8) if peer != 5], rate=GOOD // 10)).culprits == (5,)


def test_a_slow_peer_is_retried() -> None:
    """Long before others would call it slow; a peer without any answer has used up its time."""
    assert worth_another_try({1: GOOD, 2: GOOD, 3: GOOD // 4, 4: GOOD // 8, 5: 0, 6: GOOD, 7: GOOD // 3}) == [3, 4]
    assert worth_another_try({}) == worth_another_try({1: 0}) == worth_another_try({1: GOOD}) == []


def test_a_bad_path_between_two_names_neither() -> None:
    """Both are well with everybody else."""
    found = verdict(8, matrix(8, [(1, 6)]))
    assert (found.culprits, found.paths) == ((), ((1, 6),))
    assert "ranks 1 (a) and 6 (a) failed with each other" in describe(found, ("a",) * 8)


def test_of_two_ranks_neither_is_blamed() -> None:
    """Either may be at fault."""
    assert verdict(2, matrix(2, [(0, 1)])) == FaultVerdict((), ((0, 1),), {})


def test_one_that_reaches_some_only_is_named_by_most() -> None:
    """A lossy link: five of seven pairs are bad."""
    assert verdict(8, matrix(8, [(3, peer) for peer in (0, 1, 2, 4, 5)])).culprits == (3,)


@given(st.integers(3, 40), st.data())
def test_a_minority_of_culprits_is_named_exactly(ranks: int, data: st.DataObject) -> None:
    """For any gang in which fewer than half are broken and reach no other, however rows are lost with them: exactly
    these are blamed, and ranks with the same rows reach the same verdict."""
    broken = data.draw(st.sets(st.integers(0, ranks - 1), max_size=(ranks - 1) // 2))
    rows = matrix(ranks, [(a, b) for a in broken for b in range(ranks) if a != b])
    for silent in data.draw(st.sets(st.sampled_from(sorted(broken)))) if broken else ():
        del rows[silent]
    found = verdict(ranks, rows)
    assert set(found.culprits) == broken
    assert found.paths == ()
    assert verdict(ranks, dict(reversed(rows.items()))) == found


@given(st.integers(4, 30), st.data())
def test_no_rank_is_blamed_for_a_few_bad_paths(ranks: int, data: st.DataObject) -> None:
    """Each rank reaches more than half of the others: the paths are at fault, and all of them are named."""
    one = data.draw(st.integers(0, ranks - 1))
    peers = data.draw(st.sets(st.integers(0, ranks - 1).filter(lambda peer: peer != one), max_size=(ranks - 1) // 2))
    found = verdict(ranks, matrix(ranks, [(one, peer) for peer in peers]))
    assert found.culprits == ()
    assert found.paths == tuple(sorted((min(one, peer), max(one, peer)) for peer in peers))


@given(st.integers(2, 600), st.integers(8, 20))
def test_peer_checks_are_symmetric(ranks: int, most: int) -> None:
    """Never with oneself, each peer once; enough witnesses, and a bounded number."""
    chosen = {rank: partners(rank, ranks, most) for rank in {0, 1, ranks // 2, ranks - 1}}
    for rank, peers in chosen.items():
        assert rank not in peers and len(set(peers)) == len(peers) <= max(
            most, ranks if ranks - 1 <= most else 2 * most
        )
        assert all(rank in partners(peer, ranks, most) for peer in peers)
        assert len(peers) >= min(ranks - 1, 4)


@given(st.integers(17, 200), st.data())
def test_a_large_gang_with_few_witnesses_finds_its_culprit(ranks: int, data: st.DataObject) -> None:
    """If each rank checks only some of the others."""
    broken = data.draw(st.integers(0, ranks - 1))
    rows = {
        rank: {peer: 0 if broken in (rank, peer) else GOOD for peer in partners(rank, ranks, 16)}
        for rank in range(ranks)
    }
    assert verdict(ranks, rows).culprits == (broken,)
    del rows[broken]
    assert verdict(ranks, rows).culprits == (broken,)
