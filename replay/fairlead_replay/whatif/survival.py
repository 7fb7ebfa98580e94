"""Run lengths that a log does not have, drawn from those that it has: conditional Kaplan-Meier. Pure.

A job that was cut (preempted for good, drained, lost, cancelled, or still running where the record ends) ran longer than
was seen. Cut runs are the long ones, so leaving them out, or ending them where they were cut, makes every queue look
emptier than it was. They count here for as long as they were seen.
"""

import hashlib
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

#: Own ends that a group must have among its last GROUP_MAX lengths before it is asked.
OWN_ENDS_MIN, GROUP_MAX = 8, 64


class SeenLength(NamedTuple):
    """Length of a job's run in ns, and whether it came to its own end."""

    length_ns: int
    is_whole: bool


def uniform(*parts: object) -> float:
    """Return a number from 0 to 1 (exclusive) that depends on its arguments only, so that draws are paired and repeatable."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:7]) / (1 << 56)


class SurvivalCurve:
    """Kaplan-Meier estimate of how long runs of a group last."""

    def __init__(self, seen: Sequence[SeenLength]) -> None:
        self.own_ends = sum(each.is_whole for each in seen)
        self._lengths: list[int] = []
        #: Share of runs that last longer than the length of the same place.
        self._survival: list[float] = []
        at_risk, survival = len(seen), 1.0
        # At equal lengths ends come before cuts: a run that was cut there had not ended.
        for each in sorted(seen, key=lambda each: (each.length_ns, not each.is_whole)):
            if each.is_whole:
                survival *= 1 - 1 / at_risk
                self._lengths.append(each.length_ns)
                self._survival.append(survival)
            at_risk -= 1

    def beyond(self, ran_ns: int) -> int:
        """Return the number of own ends that are longer."""
        return len(self._lengths) - bisect_right(self._lengths, ran_ns)

    @property
    def longest(self) -> int:
        """The longest own end; 0: there is none."""
        return self._lengths[-1] if self._lengths else 0

    def survives(self, ran_ns: int) -> float:
        """Return the share of those that lasted so long which last longer than every own end that was seen."""
        first = bisect_right(self._lengths, ran_ns)
        alive = self._survival[first - 1] if first else 1.0
        return self._survival[-1] / alive if self._survival and alive else 0.0

    def draw(self, ran_ns: int, chance: float) -> int | None:
        """Return a length above `ran_ns`, by the share of runs that lasted so long; None where none is known to have. What
        lasts longer than every own end is given the longest of them."""
        first = bisect_right(self._lengths, ran_ns)
        if first == len(self._lengths):
            return None
        alive = self._survival[first - 1] if first else 1.0
        wanted = alive * (1 - chance)
        for at in range(first, len(self._lengths)):
            if self._survival[at] <= wanted:
                return self._lengths[at]
        return self._lengths[-1]


class Groups:
    """Lengths by group, the most alike first: a user's jobs of a name, of a size, a queue's of a size, the pool's."""

    def __init__(self, groups_max: int = 0) -> None:
        """`groups_max`: of more groups the one is forgotten that was added to longest ago; 0: none is."""
        self._groups_max = groups_max
        self._seen: dict[tuple[str, ...], deque[SeenLength]] = {}
        self._curves: dict[tuple[str, ...], SurvivalCurve] = {}

    def add(self, keys: Sequence[tuple[str, ...]], seen: SeenLength) -> None:
        """Take note of a length, in the order of the log."""
        for key in keys:
            lengths = self._seen.pop(key, None) or deque(maxlen=GROUP_MAX)
            lengths.append(seen)
            self._seen[key] = lengths
            self._curves.pop(key, None)
        while self._groups_max and len(self._seen) > self._groups_max:
            oldest = next(iter(self._seen))
            del self._seen[oldest]
            self._curves.pop(oldest, None)

    def last(self, keys: Sequence[tuple[str, ...]], count: int) -> list[SeenLength]:
        """Return the newest lengths of the most alike group that has so many, the newest last; [] where none has."""
        for key in keys:
            if len(seen := self._seen.get(key, ())) >= count:
                return list(seen)[-count:]
        return []

    def seen(self, key: tuple[str, ...]) -> list[SeenLength]:
        """Return a group's lengths, the newest last."""
        return list(self._seen.get(key, ()))

    def kept(self) -> list[tuple[tuple[str, ...], list[SeenLength]]]:
        """Return every group with its lengths, in the order in which they are forgotten."""
        return [(key, list(seen)) for key, seen in self._seen.items()]

    def draw(self, keys: Sequence[tuple[str, ...]], ran_ns: int, chance: float) -> int:
        """Return a length above `ran_ns`. Without a longer own end in any group, it comes to where the middle one of those that were
        seen for longer is cut, and lasts as long again: of lengths without a scale that is the median."""
        for key in keys:
            curve = self._curve(key)
            drawn = curve.draw(ran_ns, chance) if curve.own_ends >= OWN_ENDS_MIN else None
            if drawn is not None:
                return drawn
        for key in reversed(keys):
            drawn = self._curve(key).draw(ran_ns, chance)
            if drawn is not None:
                return drawn
        return max(2 * self._seen_beyond(keys, ran_ns), ran_ns + 1)

    def _seen_beyond(self, keys: Sequence[tuple[str, ...]], ran_ns: int) -> int:
        """Return the middle length beyond `ran_ns` of the most alike runs that were seen for longer; itself where none was."""
        for key in keys:
            longer = sorted(each.length_ns for each in self._seen.get(key, ()) if each.length_ns > ran_ns)
            if longer:
                return longer[len(longer) // 2]
        return ran_ns

    def _curve(self, key: tuple[str, ...]) -> SurvivalCurve:
        found = self._curves.get(key)
        if found is None:
            found = self._curves[key] = SurvivalCurve(list(self._seen.get(key, ())))
        return found
