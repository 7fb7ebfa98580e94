"""Choice of GPUs of a node: a look-up of results that were searched for once. One `Choices` serves all nodes of a shape."""

from typing import NamedTuple

from fairlead_placer.topology.domains import KINDS, NUMA, NVLINK, SOCKET, SWITCH, largest
from fairlead_placer.topology.exhaustive import GPUS_EXHAUSTIVE, Exhaustive
from fairlead_placer.topology.growing import Growing
from fairlead_placer.topology.ranking import numa_spanned
from fairlead_placer.topology.shapes import Shape, link_score

#: Answers kept for a shape; beyond this the cache starts empty. Eight GPUs have 256 · 9 without requirements.
ANSWERS_MAX = 8192

#: {scarce resource: its text}
SHORT = {
    "free": "GPUs free",
    "nvlink": "largest linked group free",
    "switch": "most GPUs free under one PCIe switch",
    "numa": "most GPUs free on one NUMA node",
    "socket": "most GPUs free on one socket",
    "domains": "most GPUs free within all that is required",
    "cpus": "CPUs free",
    "numa_cpus": "most CPUs free on one NUMA node",
    "numa_gpus_cpus": "most CPUs free on a NUMA node with GPUs enough",
}
_NAMES = {0: "free", NVLINK: "nvlink", SWITCH: "switch", NUMA: "numa", SOCKET: "socket"}


class Shortage(NamedTuple):
    """Scarce resource because of which a node does not fit now."""

    what: str  # of `SHORT`
    have: int  # now
    need: int
    #: Value with everything free, where values above `need` are not distinguished; below `need`, this node never
    #: fits.
    most: int

    @property
    def text(self) -> str:
        """ "largest linked group free: 3 of 4"."""
        return f"{SHORT[self.what]}: {self.have} of {self.need}"


class Choices:
    """Best sets of GPUs by what is free. Sets are masks. Answers depend on the questions alone, not on their order."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._search: Exhaustive | Growing | None = None
        self._answers: dict[tuple[int, int, int], int | Shortage] = {}
        #: {set: (its link score, NUMA nodes that it spans)}
        self._facts: dict[int, tuple[int, int]] = {}

    def choose(self, free: int, size: int, require: int = 0) -> int | Shortage:
        """`size` of the free GPUs within what is required (domains.py), or why not.

        Links first, then NUMA nodes, then what is left to others (exhaustive.py, growing.py). Raises ValueError when
        there is no such size or GPU.
        """
        key = (free, size, require)
        found = self._answers.get(key)
        if found is None:
            found = self._answer(free, size, require)
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            self._answers[key] = found
        return found

    def facts(self, mask: int) -> tuple[int, int]:
        """Return (link score of the set, number of NUMA nodes that it spans). The link score is the sum over its pairs by the
        published scores.
        """
        found = self._facts.get(mask)
        if found is None:
            found = link_score(self.shape, mask), numa_spanned(self.shape, mask)
            if len(self._facts) >= ANSWERS_MAX:
                self._facts.clear()
            self._facts[mask] = found
        return found

    def _answer(self, free: int, size: int, require: int) -> int | Shortage:
        if size < 0 or not 0 <= free < 1 << self.shape.gpus:
            raise ValueError(f"expected GPUs of {self.shape.gpus}, found a choice of {size} among {free:#b}")
        if size == 0:
            return 0
        if largest(self.shape, free, require) < size:
            return self._shortage(free, size, require)
        if self._search is None:
            self._search = Exhaustive(self.shape) if self.shape.gpus <= GPUS_EXHAUSTIVE else Growing(self.shape)
        found = self._search.best(free, size, require)
        assert found is not None, "there is an area with so many GPUs"
        return found

    def _shortage(self, free: int, size: int, require: int) -> Shortage:
        """Return the shortage of the first requirement that fails alone, or of all together if each alone would do."""
        asked = [kind for kind in (0, *KINDS) if kind & require == kind]
        short = next((kind for kind in asked if largest(self.shape, free, kind) < size), require)
        what = _NAMES.get(short, "domains")
        most = min(size, largest(self.shape, (1 << self.shape.gpus) - 1, short))
        return Shortage(what, largest(self.shape, free, short), size, most)
