"""From settings to an agent: which runtime, which devices, which journal. Wiring only."""

import os
import secrets
from pathlib import Path

from fairlead_agent import machine
from fairlead_agent.agent import Agent
from fairlead_agent.devices.named import Machine, open_devices
from fairlead_agent.devices.port import Devices
from fairlead_agent.inside.host_shares import read_host
from fairlead_agent.inside.nics import verbs
from fairlead_agent.introducing import inventory_of
from fairlead_agent.journal import Journal
from fairlead_agent.launch import INHERITED_ENV
from fairlead_agent.reserving import Reserved
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.runtimes.process.runtime import ProcessRuntime
from fairlead_agent.settings import Settings
from fairlead_bus.port import Bus


def build_devices(settings: Settings) -> Devices:
    """The devices that the settings name. Raises DevicesUnfit, except for "auto"."""
    machine = Machine(
        settings.node, settings.directory, os.environ, profile=settings.profile, simulation=settings.simulation,
        recording=settings.recording, gpu_free_mib=settings.gpu_free_mib,
    )  # fmt: skip
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
            settings.directory, settings.node, incarnation, simulated=devices.simulated, grants=settings.grants,
            limits=HostLimits(host, machine.open_files_max(), verbs(Path("/sys"))), require_userns=settings.require_userns,
            socket=settings.docker_socket, gang_network=settings.gang_network,
            registries=settings.registries, keep=settings.keep,
        )  # fmt: skip
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
