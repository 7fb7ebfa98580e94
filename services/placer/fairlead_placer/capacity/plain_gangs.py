"""In which domain a gang goes, of the ordinary kind: one kind of unit, each on a node of its own, two at the least.

The same domain as `gangs` would choose, found among the nodes that have room and not all of them. As there are two units,
a node that is in no domain of a level is never the domain to take there.
"""

from collections.abc import Sequence

import numpy as np

from fairlead_placer.capacity.domains import Domains
from fairlead_placer.capacity.kinds import Kind, Shortfall
from fairlead_placer.capacity.spreading import smallest
from fairlead_placer.packing.states import Ints


def is_plain(kinds: Sequence[Kind]) -> bool:
    """True when it is a gang such as this."""
    return len(kinds) == 1 and kinds[0].least > 1 and not kinds[0].ask.request.tasks


def nodes_for(domains: Domains, kind: Kind, levels: Sequence[str]) -> tuple[Ints, str] | Shortfall:
    """The nodes with room of the domain to take, and its level: with as many units as can be, smallest level first, filled
    best. The last one of `levels` is what the gang requires."""
    able, units = kind.able, kind.most
    if kind.least < units:
        most = int(_counted(_of(domains, levels[-1], able)).max())
        units = max(kind.least, min(units, most))
    most = 0
    for level in levels if len(able) >= units else levels[-1:]:
        of = _of(domains, level, able)
        counts = _counted(of)
        most = int(counts.max())
        if most >= units:
            return (able[of == smallest(counts[1:], domains.ranks(level), units) + 1] if level else able), level
    return Shortfall(min(len(able), kind.most), levels[-1], min(most, kind.most) if levels[-1] else 0)


def _of(domains: Domains, level: str, able: Ints) -> Ints:
    """Return one more than the number of each node's domain; 0 for a node that is a domain of its own."""
    if level in ("", "node"):
        return np.zeros(len(able), np.int64) if level else np.ones(len(able), np.int64)
    return domains.of[level].take(able) + 1


def _counted(of: Ints) -> Ints:
    """Return [one more than the number of a domain]: nodes in it. At 0: the nodes in one of the single-node domains."""
    counts = np.bincount(of, minlength=1)
    counts[0] = min(int(counts[0]), 1)
    return counts
