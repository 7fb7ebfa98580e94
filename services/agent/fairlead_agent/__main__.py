"""`python -m fairlead_agent [--label KEY=VALUE]… [--taint KEY=VALUE:EFFECT]…`: one node's agent. Settings: see
settings.py.

Further parts:
- host resources that an engine may pin containers to: NUMA nodes with their CPUs and memory;
- from settings to an agent: which runtime, which devices, which journal.
"""

import argparse
import os
import re
import secrets
import sys
from collections.abc import Collection
from pathlib import Path

from fairlead_bus.plain_structlog import structlog

# isort: split
from fairlead_agent import settings
from fairlead_agent.agent import Agent
from fairlead_agent.core.cpu_pinning import Host, NumaShare, Reserved
from fairlead_agent.devices.adapters import Machine, open_devices
from fairlead_agent.devices.port import Devices, DevicesUnfit
from fairlead_agent.files.journal import Journal, JournalDamaged, JournalHeld, JournalNewer
from fairlead_agent.launch.plan import INHERITED_ENV
from fairlead_agent.linux import machine
from fairlead_agent.linux.machine import numa_nodes, read_text, verbs
from fairlead_agent.node.inventory import inventory_of
from fairlead_agent.runtimes.port import Runtime, RuntimeUnfit
from fairlead_agent.runtimes.process.runtime import ProcessRuntime
from fairlead_agent.settings import Settings, from_environment
from fairlead_agent.shell.drain_hook import until_over
from fairlead_bus.main import run
from fairlead_bus.port import Bus
from fairlead_schemas.units.hardware import parse_cpus
from fairlead_schemas.wire.conditions import EXIT_UNFIT

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


def build_devices(settings: Settings) -> Devices:
    """The devices that the settings name. Raises DevicesUnfit, except for "auto"."""
    machine = Machine(
        settings.node,
        settings.directory,
        os.environ,
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


async def build_agent(bus: Bus, settings: Settings) -> Agent:
    """An agent, ready to `run`. Raises DevicesUnfit, BadSetting, JournalDamaged, JournalNewer, JournalHeld."""
    devices = build_devices(settings)
    journal = Journal.open(
        settings.directory, settings.node, secrets.token_hex(12), reserve_bytes=settings.reserve_mib * 2**20
    )
    runtime = build_runtime(settings, journal.ledger.incarnation, devices)
    inventory_of(settings, devices, runtime)  # a setting that does not fit this machine is refused now
    inherited = {name: os.environ[name] for name in INHERITED_ENV if name in os.environ}
    inherited.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return Agent(bus, settings, journal, runtime, devices, environment=inherited, boot_id=machine.boot_id())


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m fairlead_agent", description="Run one node's agent.")
    settings.add_arguments(parser)
    return parser.parse_args()


def main() -> None:
    """Run until a signal; exit code 0. With a line that says why not: 78 where this node does not fit, else 1."""
    env = settings.with_arguments(os.environ, arguments())

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
