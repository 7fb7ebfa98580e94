"""`python -m fairlead_agent`: one node's agent. Settings: see settings.py."""

import os
import sys

import structlog

from fairlead_agent.agent import Agent
from fairlead_agent.build import build_agent
from fairlead_agent.devices.port import DevicesUnfit
from fairlead_agent.journal import JournalDamaged, JournalHeld
from fairlead_agent.runtimes.port import RuntimeUnfit
from fairlead_agent.settings import from_environment
from fairlead_bus.main import run
from fairlead_bus.port import Bus


async def _build(bus: Bus) -> Agent:
    return await build_agent(bus, from_environment(os.environ))


def main() -> None:
    """Run until a signal; exit code 0, or 1 with a line that says why not."""
    try:
        run("agent", _build)
    except (DevicesUnfit, RuntimeUnfit, JournalDamaged, JournalHeld) as error:
        structlog.get_logger().critical("the agent cannot work here", reason=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
