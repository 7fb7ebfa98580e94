"""Logs for tests: what a simulated world wrote, as stored messages and as exports."""

import asyncio
import logging
from functools import cache
from itertools import count
from pathlib import Path

import structlog

from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Stored
from fairlead_replay.export import write_export
from fairlead_replay.sim import loop
from fairlead_replay.sim.world import Parts, World
from fairlead_schemas.wire import subjects

#: Tests cut, change and seal logs of this length.
COMMITS_MIN = 120
#: A log of before queues had settings, and one of a world with trees of queues, yielding, claims and deadlines.
GOLDEN = Path(__file__).parent / "golden"
GOLDEN_QUEUES = Path(__file__).parent / "golden-queues"


def hub_of(seed: int, commits_min: int = COMMITS_MIN) -> MemoryHub:
    """The server of the first world from this seed on that has enough to say, after its end: every change of the
    services' shell makes another story of a seed, and some are short."""
    return _first_of(
        seed, commits_min
    )  # one key of the cache, however it is called: a world cannot be played inside an event loop


@cache
def _first_of(seed: int, commits_min: int) -> MemoryHub:
    hubs = map(_hub_of, count(seed))
    return next(hub for hub in hubs if hub.streams[subjects.LOG].last >= commits_min)


def _hub_of(seed: int) -> MemoryHub:
    return _played(seed, Parts())


def recorded(seed: int, parts: Parts) -> list[Stored]:
    """The log of one world, whatever its length."""
    return list(_played(seed, parts).streams[subjects.LOG].messages)


def _played(seed: int, parts: Parts) -> MemoryHub:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    hubs: list[MemoryHub] = []

    async def live() -> None:
        world = World(seed, parts, 12)
        hubs.append(world.context.hub)
        await world.run()
        await asyncio.sleep(0)

    try:
        loop.run(live())
    finally:
        structlog.configure(**before)
    return hubs[0]


def log_of(seed: int, commits_min: int = COMMITS_MIN) -> list[Stored]:
    """Its whole log."""
    return list(hub_of(seed, commits_min).streams[subjects.LOG].messages)


def write_golden(directory: Path, seed: int) -> None:
    """Make a golden log (the old ones stay: they must remain readable)."""
    write_export(directory, log_of(seed), created="golden")


def write_states() -> None:
    """Record what the golden logs fold to, after a wanted change of the folded state."""
    import msgspec

    from fairlead_replay.live_comparison import fold_export

    for directory in (GOLDEN, GOLDEN_QUEUES):
        hashes = msgspec.json.format(msgspec.json.encode(fold_export(directory).state_hashes()))
        (directory / "states.json").write_bytes(hashes)


if __name__ == "__main__":
    write_states()
