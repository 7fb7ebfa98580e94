"""What runs on this node from its directory, and is in no journal: it is ended before the node is reported as free, since the placer would
put other work beside it.
"""

import asyncio
import signal
from collections.abc import Collection
from typing import NamedTuple

import structlog

from fairlead_agent.runtimes.port import RuntimeUnfit
from fairlead_agent.runtimes.process.conversation import Conversation
from fairlead_agent.runtimes.process.sweeping import SWEEP_S
from fairlead_agent.runtimes.processes import end_exactly, left_by_others

#: They are killed; a process that takes longer to go hangs in the kernel.
STRANGERS_S = 30.0

_log = structlog.get_logger()


class Whose(NamedTuple):
    """One node's agent in one directory, under one journal."""

    node: str
    incarnation: str
    home: str


async def end_strangers(talk: Conversation, whose: Whose, known: Collection[str]) -> None:
    """All but the runs of these names. Where the directory was moved away, another spawner, there, is the parent of what its agent has
    started: only the tag finds it. Raises RuntimeUnfit where something does not end."""
    strangers: Collection[str] = ()
    try:
        async with asyncio.timeout(STRANGERS_S):
            while strangers := (await talk.listing()).running.keys() - known:
                _log.warning("runs that are in no journal are killed", runs=sorted(strangers))
                for name in strangers:
                    talk.send({"op": "signal", "key": name, "number": signal.SIGKILL})
                await asyncio.sleep(SWEEP_S)
            while left := left_by_others(*whose):
                strangers = [f"{process.run} (process {process.pid})" for process in left]
                _log.warning("processes of an earlier journal are killed", processes=strangers)
                await asyncio.gather(*map(end_exactly, left))
                await asyncio.sleep(SWEEP_S)
    except TimeoutError as error:
        raise RuntimeUnfit(
            f"these run without a journal in {whose.home} and do not end when killed: {', '.join(sorted(strangers))}; "
            "the node cannot be used before they are gone: see what they hang in, or boot it anew"
        ) from error
