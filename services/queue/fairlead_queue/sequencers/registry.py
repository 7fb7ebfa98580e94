"""Sequencers by name: our own, and those that installed packages offer by an entry point in `fairlead.sequencers`.

What is installed is read once for each process; a package that comes later is seen after a restart.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

from fairlead_queue.fairness.ordering import Sequencer
from fairlead_queue.fairness.past_use import HALF_LIFE_DEFAULT_NS, PastUse
from fairlead_queue.fairness.tree import QueueTree
from fairlead_queue.sequencers.custom import CustomSequencer, QueueOrder
from fairlead_queue.sequencers.drf import Drf, FairShare
from fairlead_queue.sequencers.fifo import Fifo, Lifo, Promised
from fairlead_schemas.queuefile.settings import PoolSettings

GROUP = "fairlead.sequencers"

type _Make = Callable[[QueueTree, PastUse, PoolSettings], Sequencer]

OURS: dict[str, _Make] = {
    "drf": lambda tree, past, settings: Drf(tree, past, settings.past_percent),
    "fairshare": lambda tree, past, settings: FairShare(tree, past, settings.past_percent),
    "fifo": lambda tree, past, settings: Fifo(),
    "lifo": lambda tree, past, settings: Lifo(),
    "promised": lambda tree, past, settings: Promised(),
}


def sequencer_named(name: str, tree: QueueTree, settings: PoolSettings) -> Sequencer:
    """A sequencer for a pool's tree. Raises ValueError when there is none of this name, or it cannot be loaded."""
    past = PastUse(tree, settings.half_life_ns or HALF_LIFE_DEFAULT_NS)
    make = OURS.get(name)
    if make is not None:
        return make(tree, past, settings)
    return CustomSequencer(tree, _found(name)(), past)


def known_sequencers() -> list[str]:
    """Every name that `sequencer_named` takes."""
    return sorted(OURS.keys() | _installed().keys() | _offered.keys())


def sequencer_problem(name: str) -> str:
    """Return the reason for which a known name cannot be used; "" when it can be."""
    if name in OURS:
        return ""
    try:
        _found(name)
    except ValueError as error:
        return str(error)
    return ""


#: Orders that this process offers by name, for plays of a log with an order that is in no package.
_offered: dict[str, type[QueueOrder]] = {}


def offer(name: str, order: type[QueueOrder]) -> None:
    """Let a name mean an order in this process. Raises ValueError for a name that is taken."""
    if name in OURS or name in _installed():
        raise ValueError(f'expected a name that is free, found "{name}"')
    _offered[name] = order


@cache
def _installed() -> Mapping[str, list[EntryPoint]]:
    """{name: the entry points that take it}; our own names cannot be taken."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        if point.name not in OURS:
            found.setdefault(point.name, []).append(point)
    return MappingProxyType(found)


def _found(name: str) -> type[QueueOrder]:
    return _offered.get(name) or _order(name)


@cache
def _order(name: str) -> type[QueueOrder]:
    points = _installed().get(name, [])
    if not points:
        raise ValueError(f'unknown sequencer "{name}"; known are {", ".join(known_sequencers())}')
    if len(points) > 1:
        values = sorted(point.value for point in points)
        raise ValueError(f'sequencer "{name}" is offered by more than one package: {", ".join(values)}')
    point = points[0]
    try:
        found = point.load()
    except Exception as error:
        raise ValueError(f'sequencer "{name}" ({point.value}) cannot be loaded: {error!r}') from error
    if not (isinstance(found, type) and issubclass(found, QueueOrder)):
        raise ValueError(f'sequencer "{name}" ({point.value}) is no class derived from {QueueOrder.__name__}')
    return found
