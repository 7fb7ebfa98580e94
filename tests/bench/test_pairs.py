"""Two things measured in pairs: the result on a machine that becomes slower all the time."""

from bench.agent.pairs import in_pairs


async def test_the_median_is_that_of_differences() -> None:
    """Each pair takes twice as long as the last one, and ours always 3 more than its neighbour: the result is 3,
    although the medians of either are far apart."""
    order: list[str] = []
    machine = [10.0 * 2**at for at in range(10)]

    async def bare(at: int) -> float:
        order.append(f"bare {at}")
        return machine[at]

    async def ours(at: int) -> float:
        order.append(f"ours {at}")
        return machine[at] + 3

    pairs = await in_pairs(bare, ours, 8, warm=2)
    assert (pairs.more(), pairs.more(0.25), pairs.more(0.75), str(pairs)) == (3.0, 3.0, 3.0, "8 pairs")
    assert order[:4] == ["ours 0", "bare 0", "bare 1", "ours 1"], "by turns, who is first"
    assert pairs.bare == machine[2:], "the first two warmed up"
