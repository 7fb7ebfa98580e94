"""An agent begins: what became of the runs that its journal holds open, and everything that looks after those that run goes on."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fairlead_agent.run import Found, RunKey

if TYPE_CHECKING:  # who begins
    from fairlead_agent.agent import Agent


async def take_over(agent: "Agent") -> Mapping[RunKey, Found]:
    """Ask the runtime, and say for each open run what was found. What runs is adopted, and what the journal does not know has gone when
    this returns. Raises RuntimeUnfit."""
    open_runs = {run.key: run for run in agent.ledger.runs.values() if run.open}
    found = await agent.runtime.adopt(open_runs.keys(), {key: run.epoch for key, run in open_runs.items()})
    agent.guard_said.forget({key.name for key in open_runs})
    for key, what in found.items():
        run = open_runs[key]
        if what.state in ("ended", "lost"):
            clean = not await agent.watching.left_over(run)
            agent.saving.hold(run)
            exit = agent.ending.explained(key, what.exit)
            found[key] = Found(what.state, exit, clean, word=agent.saving.let_go(key))
        if what.state != "never":
            agent.output.open(key, agent.runtime.output(key), adopted=True)
            if what.state != "running":
                agent.tasks.spawn(agent.output.ended(key))
        if what.state == "running":
            agent.measuring.hold(run)
            agent.saving.hold(run)
    return found
