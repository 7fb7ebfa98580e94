"""The product's own policy: what does a choice leave unusable for the work that is seen?

Three losses are added: GPUs stranded by lack of CPU and of memory (`stranding.py`), rests of shared GPUs that nothing fits
(`remainders.py`), and room of which there is little for those who need it (`scarcity.py`).
"""

import numpy as np

from fairlead_placer.packing.policy import POINTS, Held
from fairlead_placer.packing.population import Population
from fairlead_placer.packing.remainders import remainder_values
from fairlead_placer.packing.scarcity import Kind, kinds, room, room_of, scarcity_prices
from fairlead_placer.packing.shapes import WHOLE_MILLI
from fairlead_placer.packing.states import Ints, State, States
from fairlead_placer.packing.stranding import Need, need, stranded, stranded_by
from fairlead_placer.packing.typical import TypicalWork

#: A rest that is lost is lost for certain; the other losses are expected ones. It weighs so much more.
REST_WEIGHT = 4


class Fragmentation:
    """Least expected loss."""

    name = "fragmentation"
    absolute = False
    steps: tuple[int, ...] = ()

    def __init__(self) -> None:
        self._cpu, self._memory = Need(), Need()
        self._kinds: list[Kind] = []
        self._value_each(np.arange(WHOLE_MILLI + 1) * POINTS)

    def learn(self, pool: Population, work: TypicalWork) -> None:
        """Relearn needs, kinds and the values of remainders."""
        self._cpu, self._memory = need(work, "cpu_milli"), need(work, "memory_mib")
        self._kinds = kinds(pool, work)
        self._value_each(remainder_values(pool, work))

    def held(self, states: States) -> Held:
        """Expected losses per state, and the room for each kind."""
        useful = self._values[states.gpus].sum(axis=1)
        rests = states.free_milli * POINTS - useful
        useful_milli = useful // POINTS
        fixed = REST_WEIGHT * rests
        fixed += stranded(self._cpu, useful_milli, states.cpu) + stranded(self._memory, useful_milli, states.memory)
        return Held(fixed, room(self._kinds, states))

    def held_by(self, state: State) -> tuple[int, list[int]]:
        """The same for one state."""
        gpus = state.gpus
        found = self._gpus.get(gpus)
        if found is None:
            useful = sum(self._value[each] for each in gpus)
            found = self._gpus[gpus] = sum(gpus), gpus.count(WHOLE_MILLI), useful
        free, whole, useful = found
        milli = useful // POINTS
        fixed = REST_WEIGHT * (free * POINTS - useful)
        fixed += stranded_by(self._cpu, milli, state.cpu) + stranded_by(self._memory, milli, state.memory)
        return fixed, room_of(self._kinds, state, free, whole)

    def prices(self, pool: Population, work: TypicalWork, slots: Ints) -> Ints:
        """Return the current scarcity price of each kind's room."""
        return scarcity_prices(self._kinds, pool, slots)

    def _value_each(self, values: Ints) -> None:
        self._values, self._value = values, values.tolist()
        #: {rests of GPUs: (what is free of them, number of unused ones, their worth)}
        self._gpus: dict[tuple[int, ...], tuple[int, int, int]] = {}
