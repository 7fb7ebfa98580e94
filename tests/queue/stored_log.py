"""The log of a queue on a bus."""

from collections.abc import Callable

from fairlead_bus.port import Bus
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import Commit, decode_commit
from tests.kit.eventually import eventually_async


async def commits(bus: Bus, until: Callable[[list[Commit]], bool]) -> list[Commit]:
    """The whole log, once it says what is waited for."""

    async def log() -> list[Commit]:
        last = (await bus.state(subjects.LOG)).last
        stored = [await bus.read(subjects.LOG, sequence) for sequence in range(1, last + 1)]
        found = [decode_commit(each.payload) for each in stored if each is not None]
        return found if until(found) else []

    return await eventually_async(log)
