"""Culprits in a gang: from each rank's measurements with the others to the ranks to blame. Pure.

A pair is bad when either side could not talk to the other, or only at a small part of the usual rate. A rank in more
bad pairs than good ones is named, the worst first, and its pairs are then left out: one broken node spoils one pair of
every other rank, which names no other rank. A bad pair that remains is a fault of the path between its ends, and names
neither.
"""

from collections.abc import Mapping
from typing import NamedTuple

#: A pair that is so many times slower than the median one is bad.
SLOWER = 8
#: A rank tries those again that are half so many times slower than its own median.
SLOWER_TRIED = SLOWER // 2
#: {rank: {peer: MiB/s that it measured; 0: it could not reach it}}; no rank received a row that is missing.
type Rows = Mapping[int, Mapping[int, int]]


class FaultVerdict(NamedTuple):
    """Blame for failed communication: ranks, and paths between ranks."""

    #: Ranks, the worst first.
    culprits: tuple[int, ...] = ()
    #: Pairs whose path is bad, and nothing says which end.
    paths: tuple[tuple[int, int], ...] = ()
    #: {culprit: its bad pairs, and all pairs that were tried}.
    counts: Mapping[int, tuple[int, int]] = {}

    @property
    def clean(self) -> bool:
        """True when everybody could talk to everybody whom he tried."""
        return not self.culprits and not self.paths


def verdict(ranks: int, rows: Rows) -> FaultVerdict:
    """Return the verdict about ranks 0 to `ranks` - 1. Equal rows give equal verdicts on every node."""
    rates = _pairs(ranks, rows)
    usual = sorted(rate for rate in rates.values() if rate)
    slow = usual[len(usual) // 2] // SLOWER if usual else 0
    tried: dict[int, set[int]] = {rank: set() for rank in range(ranks)}
    bad: dict[int, set[int]] = {rank: set() for rank in range(ranks)}
    for (one, other), rate in rates.items():
        for rank, peer in ((one, other), (other, one)):
            tried[rank].add(peer)
            if rate <= slow:
                bad[rank].add(peer)
    named: list[int] = []
    counts: dict[int, tuple[int, int]] = {}
    while (worst := _worst(bad, tried)) is not None:
        named.append(worst)
        counts[worst] = len(bad[worst]), len(tried[worst])
        for sets in (bad, tried):
            for peer in sets.pop(worst):
                sets[peer].discard(worst)
    left = sorted({(min(a, b), max(a, b)) for a, peers in bad.items() for b in peers})
    return FaultVerdict(tuple(named), tuple(left), counts)


def _worst(bad: Mapping[int, set[int]], tried: Mapping[int, set[int]]) -> int | None:
    """Return the rank in most bad pairs, if these are more than its good pairs; None without a clear one.

    A single bad pair is not enough: of two ranks that fail with each other alone, either may be to blame.
    """
    most = max(map(len, bad.values()), default=0)
    candidates = [rank for rank, peers in bad.items() if len(peers) == most and 2 * most > len(tried[rank])]
    if not most or not candidates:
        return None
    # Of equals the one with the larger part of bad pairs.
    best = min(candidates, key=lambda rank: (len(tried[rank]), rank))
    tie = [rank for rank in candidates if len(tried[rank]) == len(tried[best])]
    return None if most == 1 and len(tie) > 1 else best


def _pairs(ranks: int, rows: Rows) -> dict[tuple[int, int], int]:
    """Return {(lower rank, higher rank): the lower of the rates that either has measured}.

    A rank without a row has failed with every rank that has one.
    """
    rates: dict[tuple[int, int], int] = {}
    for rank in range(ranks):
        row = rows.get(rank, dict.fromkeys(rows, 0))
        for peer, rate in row.items():
            if peer != rank and 0 <= peer < ranks:
                pair = min(rank, peer), max(rank, peer)
                rates[pair] = min(rate, rates.get(pair, rate))
    return rates


def worth_another_try(row: Mapping[int, int]) -> list[int]:
    """Return the peers in one rank's own row with a rate that might count as slow.

    A second try tells the causes apart: a process that paused for a moment proves nothing about its network, and a slow
    link is slow the next time, too.
    """
    usual = sorted(rate for rate in row.values() if rate)
    return [peer for peer, rate in row.items() if rate and rate * SLOWER_TRIED <= usual[len(usual) // 2]]


def describe(found: FaultVerdict, hosts: tuple[str, ...]) -> str:
    """A sentence for people; `hosts` are the addresses in rank order."""
    parts = [
        f"rank {rank} ({hosts[rank]}) failed with {found.counts[rank][0]} of {found.counts[rank][1]} others"
        for rank in found.culprits[:4]
    ]
    parts += [f"ranks {a} ({hosts[a]}) and {b} ({hosts[b]}) failed with each other" for a, b in found.paths[:4]]
    more = max(0, len(found.culprits) - 4) + max(0, len(found.paths) - 4)
    return "the network was tried before the start: " + "; ".join(parts) + (f"; and {more} more" if more else "")


def partners(rank: int, ranks: int, most: int) -> list[int]:
    """Return the peers that a rank tries, in order.

    These are all other ranks or, if there are more than `most`, the ranks at distances 1, 2, 4 … to either side, so that
    each rank has enough witnesses. The relation is symmetric: a rank's partners try it, too.
    """
    if ranks - 1 <= most:
        return [(rank + step) % ranks for step in range(1, ranks)]
    distances = [1 << power for power in range(max(2, most // 2)) if 1 << power < ranks]
    found = dict.fromkeys((rank + sign * step) % ranks for step in distances for sign in (1, -1))
    return [peer for peer in found if peer != rank]
