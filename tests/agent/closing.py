"""The end of a test's agents: nothing that they have started runs on, however slow the machine is."""

import asyncio
from collections.abc import Iterable

from fairlead_agent.agent import Agent
from tests.kit.eventually import eventually_async

ENDED_S = 60.0


async def until_ended(agents: Iterable[tuple[Agent, asyncio.Task[int]]]) -> None:
    """Wait until these agents, who were told to end everything, have no run any more; an agent that has ended is passed over."""
    for agent, task in agents:
        await eventually_async(
            lambda a=agent, t=task: t.done() or not any(run.open for run in a.ledger.runs.values()),
            "no run of the agent is open",
            within_s=ENDED_S,
        )
        if agent.runtime.name == "docker" and not task.done():
            from tests.agent.runtimes.docker import of_journal

            await of_journal.until_gone(agent.ledger.incarnation)
