"""Locations of a pool's nodes: racks, blocks, spines, NVLink domains, as columns by a number that each node has.

A node without a label for a level is in a domain of its own there: nothing is known to be near it.
"""

import numpy as np

from fairlead_placer.packing.policy import Ints
from fairlead_schemas.units.hardware import DOMAIN_LABELS, domain_of

LEVELS = tuple(DOMAIN_LABELS)  # smallest first


class Domains:
    """The columns. `rows` says in which row of the index each node is, -1 where in none."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.rows: Ints = np.full(64, -1, np.int64)
        #: [node's number]: what it has left.
        self.cpu: Ints = np.zeros(64, np.int64)
        self.memory: Ints = np.zeros(64, np.int64)
        #: {level: [node's number]: its domain's number there, or -1}
        self.of: dict[str, Ints] = {level: np.full(64, -1, np.int64) for level in LEVELS}
        #: {level: names of domains by number}
        self.domains: dict[str, list[str]] = {level: [] for level in LEVELS}
        self._numbers: dict[str, dict[str, int]] = {level: {} for level in LEVELS}
        self._vacant: list[int] = []
        #: Places in the order of names, made when asked for: {"": nodes, level: its domains}.
        self._ranks: dict[str, Ints] = {}
        #: What levels are to each other, likewise.
        self._nested: dict[tuple[str, str], bool] = {}
        self._within: dict[str, tuple[str, ...]] = {}
        self._rising: dict[str, tuple[str, ...]] = {}

    def add(self, name: str, labels: dict[str, str]) -> int:
        """A node of these labels; its number."""
        number = self._vacant.pop() if self._vacant else len(self.names)
        if number == len(self.names):
            self.names.append(name)
            if number >= len(self.rows):
                self._double()
        self.names[number] = name
        self._forget()
        for level in LEVELS:
            domain = domain_of(labels, level)
            self.of[level][number] = self._number(level, domain) if domain else -1
        return number

    def discard(self, number: int) -> None:
        """The node is gone; its number is given to another."""
        self.rows[number] = -1
        for column in self.of.values():
            column[number] = -1
        self._forget()
        self._vacant.append(number)

    def known(self, level: str) -> bool:
        """True when some node is in a domain of the level."""
        return bool(self.domains[level])

    def nested(self, level: str, outer: str) -> bool:
        """Return True if every domain of the level is inside one of the outer level, by the nodes' labels."""
        found = self._nested.get((level, outer))
        if found is None:
            inside = self.of[level][: len(self.names)] >= 0
            of, at = self.of[level][: len(self.names)][inside], self.of[outer][: len(self.names)][inside]
            lies = np.full(len(self.domains[level]), -1, np.int64)
            lies[of] = at  # one of several, if a domain is in several: not all of its nodes are there
            found = len(of) > 0 and bool((at >= 0).all()) and bool((lies[of] == at).all())
            self._nested[level, outer] = found
        return found

    def within(self, level: str) -> tuple[str, ...]:
        """The levels that may divide a domain of this one ("": the pool), largest first."""
        found = self._within.get(level)
        if found is None:
            smaller = LEVELS.index(level) if level in LEVELS else 0 if level else len(LEVELS)
            found = self._within[level] = tuple(
                each
                for at, each in reversed(tuple(enumerate(LEVELS)))
                if self.known(each) and (at < smaller or (at > smaller and not self.nested(level, each)))
            )
        return found

    def rising(self, required: str) -> tuple[str, ...]:
        """Return the levels to search for the domain of a gang, smallest first. The domain must be inside one of the level
        `required`; "" means the pool.
        """
        found = self._rising.get(required)
        if found is None:
            if required:
                below = LEVELS[: LEVELS.index(required)] if required in LEVELS else ()
                found = (*(level for level in below if self.nested(level, required)), required)
            else:
                found = (*filter(self.known, LEVELS), "")
            self._rising[required] = found
        return found

    def names_ranked(self) -> Ints:
        """[node's number]: its place in the order of names."""
        found = self._ranks.get("")
        if found is None:
            found = self._ranks[""] = _ranked(self.names)
        return found

    def ranks(self, level: str) -> Ints:
        """[domain's number]: its place in the order of names; then those of nodes, for the ones in no domain."""
        found = self._ranks.get(level)
        if found is None:
            domains = _ranked(self.domains[level])
            found = self._ranks[level] = np.concatenate([domains, self.names_ranked() + len(domains)])
        return found

    def _number(self, level: str, domain: str) -> int:
        numbers = self._numbers[level]
        number = numbers.get(domain)
        if number is None:
            number = numbers[domain] = len(numbers)
            self.domains[level].append(domain)
        return number

    def _forget(self) -> None:
        self._ranks.clear()
        self._nested.clear()
        self._within.clear()
        self._rising.clear()

    def _double(self) -> None:
        blank: Ints = np.full(len(self.rows), -1, np.int64)
        self.rows = np.concatenate([self.rows, blank])
        self.cpu, self.memory = np.concatenate([self.cpu, blank]), np.concatenate([self.memory, blank])
        self.of = {level: np.concatenate([column, blank]) for level, column in self.of.items()}


def _ranked(names: list[str]) -> Ints:
    ranks = np.zeros(len(names), np.int64)
    ranks[np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)] = np.arange(len(names))
    return ranks
