"""The states that nodes of a pool are in, or would be in after one more job, numbered as they are met.

What a job leaves on one node is where other jobs begin on another, so that there are far fewer states than pairs of states
and jobs: whatever is worked out per state is worked out once.
"""

from typing import NamedTuple

from fairlead_placer.packing.states import State, States, columns_of

#: (what is left of the GPU before, GPUs after) of each choice that differs.
type Choices = list[tuple[int, "Gpus"]]


class Grain(NamedTuple):
    """Low bits of CPU and memory that are ignored: while some of a node's GPUs is free, and when all of it is used."""

    cpu: int = 0
    memory: int = 0
    cpu_full: int = 0
    memory_full: int = 0


class Gpus:
    """GPUs of a node in any order, with their model and the grain of the CPU and memory of the node."""

    __slots__ = ("_choices", "_lattice", "cpu_low", "grain", "memory_low", "model", "rests")

    def __init__(self, lattice: "Lattice", model: int, grain: Grain, rests: tuple[int, ...]) -> None:
        self._lattice, self.model, self.grain, self.rests = lattice, model, grain, rests
        self.cpu_low, self.memory_low = grain[:2] if rests else grain[2:]
        self._choices: dict[tuple[int, int], Choices] = {}

    def choices(self, count: int, milli: int) -> Choices:
        """Return the possible choices for `count` GPUs with `milli` thousandths of each; none if they do not fit. A share may go
        to each GPU with a different remainder. Several GPUs go to the fullest that fit, and then the remainder before is 0.
        """
        found = self._choices.get((count, milli))
        if found is None:
            found = self._choices[count, milli] = self._moved(count, milli)
        return found

    def _moved(self, count: int, milli: int) -> Choices:
        rests = self.rests
        if count == 0:
            return [(0, self)]
        first = sum(each < milli for each in rests)
        if len(rests) - first < count:
            return []
        if count == 1:
            differ = [at for at in range(first, len(rests)) if at == 0 or rests[at - 1] != rests[at]]
            return [(rests[at], self._with((*rests[:at], *rests[at + 1 :]), [rests[at] - milli])) for at in differ]
        taken = [each - milli for each in rests[first : first + count]]
        return [(0, self._with((*rests[:first], *rests[first + count :]), taken))]

    def _with(self, others: tuple[int, ...], changed: list[int]) -> "Gpus":
        rests = tuple(sorted([*others, *(each for each in changed if each)]))
        return self._lattice.gpus(self.model, self.grain, rests)


class Lattice:
    """Table of states. A state represents the most CPU and memory of all nodes that the grain does not distinguish from it."""

    def __init__(self, gpus_max: int = 8) -> None:
        self._gpus: dict[tuple[int, Grain, tuple[int, ...]], Gpus] = {}
        self._numbers: dict[tuple[Gpus, int, int], int] = {}
        #: How many GPUs any node has.
        self.gpus_max = gpus_max
        #: By number.
        self.each: list[State] = []

    def __len__(self) -> int:
        return len(self.each)

    def gpus(self, model: int, grain: Grain, rests: tuple[int, ...]) -> Gpus:
        """GPUs with so much left of each, ascending, those left out that nothing is left of."""
        key = (model, grain, rests)
        found = self._gpus.get(key)
        if found is None:
            self.gpus_max = max(self.gpus_max, len(rests))
            found = self._gpus[key] = Gpus(self, *key)
        return found

    def number(self, gpus: Gpus, cpu: int, memory: int) -> int:
        """The number of the state of a node with so much left."""
        key = (gpus, cpu | gpus.cpu_low, memory | gpus.memory_low)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.each)
            self.each.append(State(key[1], key[2], gpus.model, gpus.rests))
        return found

    def states(self, first: int = 0) -> States:
        """All from that number on, as columns."""
        return columns_of(self.each[first:], self.gpus_max)
