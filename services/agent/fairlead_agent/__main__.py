"""`python -m fairlead_agent [--label KEY=VALUE]… [--taint KEY=VALUE:EFFECT]…`: one node's agent. Settings: see
settings.py.

`python -m fairlead_agent --node NAME [SETTING=VALUE]… --node …`: agents of several played nodes in one process, as on a
laptop. They share the environment, except these settings, an interpreter and its libraries, which saves 20 MiB and more for each. They share nothing else:
each has its bus connection, journal, directory and spawner. An agent that fails is started again alone; a killed process is all of them.

Further parts:
- host resources that an engine may pin containers to: NUMA nodes with their CPUs and memory;
- from settings to an agent: which runtime, which devices, which journal.
"""

import argparse
import contextlib
import os
import re
import secrets
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from fairlead_bus.plain_structlog import structlog

# isort: split
from fairlead_agent import settings
from fairlead_agent.agent import Agent
from fairlead_agent.core.cpu_pinning import Host, NumaShare, Reserved
from fairlead_agent.devices.adapters import Machine, open_devices
from fairlead_agent.devices.port import Devices, DevicesUnfit
from fairlead_agent.files import refusal
from fairlead_agent.files.journal import Journal, JournalDamaged, JournalHeld, JournalNewer
from fairlead_agent.launch.plan import INHERITED_ENV
from fairlead_agent.linux import machine
from fairlead_agent.linux.machine import numa_nodes, read_text, verbs
from fairlead_agent.node.inventory import inventory_of
from fairlead_agent.runtimes.port import Runtime, RuntimeUnfit
from fairlead_agent.runtimes.process.runtime import ProcessRuntime
from fairlead_agent.settings import Settings, from_environment
from fairlead_agent.shell.drain_hook import until_over
from fairlead_bus.main import CannotRestart, run, run_apart
from fairlead_bus.port import Bus
from fairlead_schemas.units.hardware import parse_cpus
from fairlead_schemas.wire.conditions import EXIT_UNFIT

#: Errors of a node that only a person mends.
UNFIT = (DevicesUnfit, RuntimeUnfit, JournalDamaged, JournalNewer, JournalHeld)
_MEMORY = re.compile(r"MemTotal:\s+(\d+) kB")


def read_host(sys: Path, allowed: Collection[int], memory_mib: int, reserved: Reserved) -> Host:
    """Below `sys` it is as below /sys. `memory_mib`: of the whole machine, for a kernel without NUMA."""
    nodes = numa_nodes(sys, allowed)
    shares: dict[int, NumaShare] = {}
    for node in nodes:
        match = _MEMORY.search(read_text(sys / f"devices/system/node/node{node.node}/meminfo"))
        own_mib = int(match[1]) // 1024 if match else memory_mib // len(nodes)
        shares[node.node] = NumaShare(frozenset(parse_cpus(node.cpus)), own_mib)
    return Host(shares, reserved.of(nodes))


def build_devices(settings: Settings, env: Mapping[str, str]) -> Devices:
    """The devices that the settings name. Raises DevicesUnfit, except for "auto"."""
    machine = Machine(
        settings.node,
        settings.directory,
        env,
        profile=settings.profile,
        simulation=settings.simulation,
        recording=settings.recording,
        gpu_free_mib=settings.gpu_free_mib,
    )
    return open_devices(settings.devices, machine)


def build_runtime(settings: Settings, incarnation: str, devices: Devices) -> Runtime:
    """The runtime that the settings name."""
    if settings.runtime == "docker":
        from fairlead_agent.runtimes.docker.fitness import HostLimits
        from fairlead_agent.runtimes.docker.runtime import DockerRuntime  # needs a package that others may not have

        # What a played machine keeps for its system is not this host's.
        reserved = Reserved() if devices.simulated else settings.reserved
        host = read_host(Path("/sys"), machine.cpus(), machine.memory_mib(), reserved)
        return DockerRuntime(
            settings.directory,
            settings.node,
            incarnation,
            simulated=devices.simulated,
            grants=settings.grants,
            limits=HostLimits(host, machine.open_files_max(), verbs(Path("/sys"))),
            require_userns=settings.require_userns,
            socket=settings.docker_socket,
            gang_network=settings.gang_network,
            registries=settings.registries,
            keep=settings.keep,
        )
    return ProcessRuntime(settings.directory, settings.node, incarnation, keep=settings.keep)


async def build_agent(bus: Bus, settings: Settings, env: Mapping[str, str] = os.environ) -> Agent:
    """An agent, ready to `run`. Raises DevicesUnfit, BadSetting, JournalDamaged, JournalNewer, JournalHeld."""
    async with contextlib.AsyncExitStack() as failed:  # the process may live on, and try again
        devices = build_devices(settings, env)
        failed.callback(devices.close)
        journal = Journal.open(
            settings.directory, settings.node, secrets.token_hex(12), reserve_bytes=settings.reserve_mib * 2**20
        )
        failed.push_async_callback(journal.close)
        runtime = build_runtime(settings, journal.ledger.incarnation, devices)
        inventory_of(settings, devices, runtime)  # a setting that does not fit this machine is refused now
        inherited = {name: env[name] for name in INHERITED_ENV if name in env}
        inherited.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        agent = Agent(bus, settings, journal, runtime, devices, environment=inherited, boot_id=machine.boot_id())
        failed.pop_all()
    return agent


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m fairlead_agent", description="Run one node's agent.")
    settings.add_arguments(parser)
    parser.add_argument(
        "--node",
        action="append",
        nargs="+",
        default=[],
        metavar=("NAME", "SETTING=VALUE"),
        help="one of several nodes in this process, with settings of its own; the same name again adds settings",
    )
    return parser.parse_args()


async def build_on_node(bus: Bus, env: Mapping[str, str]) -> Agent:
    """An agent as the environment sets it, once the program of a drained node is over. Raises what `build_agent` raises."""
    settings = from_environment(env)
    await until_over(settings, machine.boot_id())  # what works on a drained node wants the devices for itself
    return await build_agent(bus, settings, env)


def main() -> None:
    """Run until a signal; exit code 0. With a line that says why not: 78 where this node does not fit, else 1."""
    found = arguments()
    env = settings.with_arguments(os.environ, found)
    if found.node:
        hosted = nodes(found.node, env)
        run_apart("agents", {f"agent-{node}": partial(HostedAgent.build, env=own) for node, own in hosted.items()})
    try:
        run("agent", partial(build_on_node, env=env), on_node=True)
    except UNFIT as error:
        log_refusal(error)
        sys.exit(EXIT_UNFIT)


def nodes(given: Sequence[Sequence[str]], env: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return {node: its environment} for the command line's nodes with their settings."""
    found: dict[str, dict[str, str]] = {}
    for node, *own in given:
        pairs = (text.partition("=") for text in own)
        found.setdefault(node, {**env, "FAIRLEAD_NODE": node}).update({name: value for name, _, value in pairs})
    return found


def log_refusal(error: Exception) -> None:
    """Log why an agent cannot work. `fairlead up` and `fairlead doctor` look for the condition's name in the line."""
    structlog.get_logger().critical("the agent cannot work here", condition="agent_refuses", reason=str(error))


class HostedAgent:
    """Agent of one of several nodes in a process. No exit code shows a refusal there, so `refusal.py` keeps it."""

    def __init__(self, directory: Path, agent: Agent | None) -> None:
        self._directory, self._agent = directory, agent

    @classmethod
    async def build(cls, bus: Bus, env: Mapping[str, str]) -> "HostedAgent":
        """Build it. Raises BadSetting; one whose agent refuses ends when it is run."""
        directory = from_environment(env).directory
        try:
            return cls(directory, await build_on_node(bus, env))
        except UNFIT as error:
            cls._refuse(directory, error)
            return cls(directory, None)

    async def run(self) -> int:
        """Work until `stop` or a failure; the exit code. Raises what the agent raises, and CannotRestart."""
        if self._agent is None:
            return EXIT_UNFIT
        try:
            return await self._agent.run()
        except UNFIT as error:
            self._refuse(self._directory, error)
            return EXIT_UNFIT
        finally:
            if not self._agent.closed:
                raise CannotRestart("the agent did not come to its end")

    async def stop(self) -> None:
        """End the agent; runs continue."""
        if self._agent is not None:
            await self._agent.stop()

    @staticmethod
    def _refuse(directory: Path, error: Exception) -> None:
        log_refusal(error)
        refusal.keep(directory, str(error))


if __name__ == "__main__":
    main()
