"""Run lengths as they are known at one moment: those that ended, and those that still run, which last longer than seen. Pure.

Jobs that were submitted together tend to be long or short together, and to differ from earlier ones: the first job of a sweep
tells little of the others before it has ended. So draws of one batch share most of their chance; without that, futures of a long
line are too sure of themselves.
"""

from zlib import crc32

from fairlead_replay.estimates.history import ClusterHistory, JobFacts, Keys
from fairlead_replay.whatif.survival import GROUP_MAX, OWN_ENDS_MIN, SeenLength, SurvivalCurve
from fairlead_schemas.units.timestamps import HOUR_NS, MINUTE_NS

#: Share of a batch's jobs that have one chance.
COMMON = 0.75
#: Jobs of a user, a queue and a size that come within so long are a batch.
BATCH_NS = 2 * HOUR_NS
#: Without anything to go by, a run is taken to have run so long.
SHORT_NS = MINUTE_NS
_MASK = (1 << 64) - 1


class LengthsNow:
    """Run lengths at a moment."""

    def __init__(self, history: ClusterHistory, now_ns: int) -> None:
        self._history = history
        self._cut: dict[tuple[str, ...], list[SeenLength]] = {}
        for facts in history.jobs.values():
            if facts.started_ns and facts.kind != "service":
                ran = SeenLength(facts.done_ns + max(1, now_ns - facts.started_ns), is_whole=False)
                for key in facts.keys:
                    self._cut.setdefault(key, []).append(ran)
        self._curves: dict[tuple[str, ...], SurvivalCurve] = {}

    def draw(self, keys: Keys, ran_ns: int, chance: float) -> int:
        """Return a length above `ran_ns`. Where a group has nothing to say of runs so long, a wider one does; where none has, what
        ran so long lasts as long again."""
        for key in keys:
            curve = self._curve(key)
            if curve.own_ends < OWN_ENDS_MIN or not curve.beyond(ran_ns):
                continue
            ends, left = curve.longest, curve.survives(ran_ns)
            if chance < 1 - left or key is keys[-1]:
                return curve.draw(ran_ns, chance) or ends
            ran_ns, chance = max(ran_ns, ends), (chance - 1 + left) / left
        for key in reversed(keys):
            drawn = self._curve(key).draw(ran_ns, chance)
            if drawn is not None:
                return drawn
        return round(max(ran_ns, SHORT_NS) / max(1e-3, 1 - chance)) + 1

    def _curve(self, key: tuple[str, ...]) -> SurvivalCurve:
        found = self._curves.get(key)
        if found is None:
            seen = [*self._history.lengths.seen(key), *self._cut.get(key, ())[-GROUP_MAX:]]
            found = self._curves[key] = SurvivalCurve(seen)
        return found


def chance_of(seed: str, future: int, id_: str, facts: JobFacts) -> float:
    """Return the chance of a job in a future: mostly that of its batch."""
    own = quick_uniform(seed, future, id_)
    if own >= COMMON:
        return (own - COMMON) / (1 - COMMON)
    batch = (facts.user, facts.queue, facts.request.gpu_milli_total, facts.submitted_ns // BATCH_NS)
    return quick_uniform(seed, future, *batch)


def quick_uniform(*parts: object) -> float:
    """Return a number from 0 to 1 (exclusive) that depends on its arguments only. There are thousands of draws in a question: this takes
    a tenth of the time of `survival.uniform`."""
    mixed = crc32("\0".join(map(str, parts)).encode()) * 0x9E3779B97F4A7C15 & _MASK
    mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 & _MASK
    return (mixed ^ mixed >> 32) / (1 << 64)
