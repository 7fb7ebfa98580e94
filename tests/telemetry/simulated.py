"""Logs of whole simulated clusters; unless said otherwise their queues change all the time."""

from typing import Any

from fairlead_bus.port import Stored
from fairlead_replay.sim.bus import FaultyBus
from fairlead_replay.sim.people import Restless
from fairlead_replay.sim.workload import People
from fairlead_replay.sim.world import Parts, run_seed
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import decode_commit

COMMANDS = 60


def log_of(seed: int, people: type[People] = Restless) -> list[Stored]:
    """The whole log of a simulated world."""
    hubs: list[Any] = []

    class Seen(FaultyBus):
        def __init__(self, hub: Any, *more: Any) -> None:
            hubs.append(hub)
            super().__init__(hub, *more)

    assert run_seed(seed, parts=Parts(bus=Seen, people=people), commands=COMMANDS).violation is None
    messages = hubs[0].streams[subjects.LOG].messages
    return [
        Stored(sequence, subjects.log(decode_commit(message.payload).writer), message.payload)
        for sequence, message in enumerate(messages, 1)
    ]
