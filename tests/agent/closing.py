"""The end of a test's agents: nothing that they have started runs on, however slow the machine is."""

import asyncio
from collections.abc import Iterable

from fairlead_agent.agent import Agent

ENDED_S = 60.0


async def until_ended(agents: Iterable[tuple[Agent, asyncio.Task[int]]]) -> None:
    """Wait until these agents, who were told to end everything, have no run any more; an agent that has ended is passed over."""
    for agent, task in agents:
        async with asyncio.timeout(ENDED_S):
            while not task.done() and any(run.open for run in agent.ledger.runs.values()):  # noqa: ASYNC110 -- looks from outside
                await asyncio.sleep(0.02)
            if agent.runtime.name == "docker" and not task.done():
                from tests.agent.containers import of_journal

                await of_journal.until_gone(agent.ledger.incarnation)
