"""Logs for tests: what a simulated world wrote, as stored messages and as exports."""

import asyncio
import logging
from functools import cache
from pathlib import Path

import structlog

from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Stored
from fairlead_replay.export import write_export
from fairlead_replay.sim import loop
from fairlead_replay.sim.world import Parts, World
from fairlead_schemas import subjects

GOLDEN = Path(__file__).parent / "golden"


@cache
def hub_of(seed: int) -> MemoryHub:
    """The server of a simulated world, after its end."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    hubs: list[MemoryHub] = []

    async def live() -> None:
        world = World(seed, Parts(), 12)
        hubs.append(world.hub)
        await world.run()
        await asyncio.sleep(0)

    try:
        loop.run(live())
    finally:
        structlog.configure(**before)
    return hubs[0]


def log_of(seed: int) -> list[Stored]:
    """Its whole log."""
    return list(hub_of(seed).streams[subjects.LOG].messages)


def write_golden(seed: int = 7) -> None:
    """Make the golden log anew (only when the log's format changes: old logs must stay readable)."""
    import msgspec

    from fairlead_replay.compare import fold_export

    write_export(GOLDEN, log_of(seed), created="golden")
    (GOLDEN / "states.json").write_bytes(msgspec.json.format(msgspec.json.encode(fold_export(GOLDEN).state_hashes())))


if __name__ == "__main__":
    write_golden()
