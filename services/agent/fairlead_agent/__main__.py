"""`python -m fairlead_agent [--label KEY=VALUE]… [--taint KEY=VALUE:EFFECT]…`: one node's agent. Settings: see settings.py."""

import argparse
import os
import sys

import structlog

from fairlead_agent import admin, machine
from fairlead_agent.agent import Agent
from fairlead_agent.build import build_agent
from fairlead_agent.devices.port import DevicesUnfit
from fairlead_agent.drained import until_over
from fairlead_agent.journal import JournalDamaged, JournalHeld, JournalNewer
from fairlead_agent.runtimes.port import RuntimeUnfit
from fairlead_agent.settings import from_environment
from fairlead_bus.main import run
from fairlead_bus.port import Bus
from fairlead_schemas.conditions import EXIT_UNFIT


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m fairlead_agent", description="Run one node's agent.")
    admin.add_arguments(parser)
    return parser.parse_args()


def main() -> None:
    """Run until a signal; exit code 0. With a line that says why not: 78 where this node does not fit, else 1."""
    env = admin.with_arguments(os.environ, arguments())

    async def build(bus: Bus) -> Agent:
        settings = from_environment(env)
        await until_over(settings, machine.boot_id())  # what works on a drained node wants the devices for itself
        return await build_agent(bus, settings)

    try:
        run("agent", build, on_node=True)
    except (DevicesUnfit, RuntimeUnfit, JournalDamaged, JournalNewer, JournalHeld) as error:
        # The condition's name is what `fairlead up` and `fairlead doctor` look for in this line.
        structlog.get_logger().critical("the agent cannot work here", condition="agent_refuses", reason=str(error))
        sys.exit(EXIT_UNFIT)


if __name__ == "__main__":
    main()
