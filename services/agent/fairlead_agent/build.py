"""From settings to an agent: which runtime, which devices, which journal. Wiring only."""

import os
import secrets

from fairlead_agent import machine
from fairlead_agent.agent import Agent
from fairlead_agent.devices.none import NoDevices
from fairlead_agent.devices.port import Devices, DevicesUnfit
from fairlead_agent.devices.simulated import SimulatedDevices
from fairlead_agent.journal import Journal
from fairlead_agent.launch import INHERITED_ENV
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.runtimes.process import ProcessRuntime
from fairlead_agent.settings import Settings
from fairlead_bus.port import Bus


def build_devices(settings: Settings) -> Devices:
    """The devices that the settings name. Raises DevicesUnfit, except for "auto"."""
    if settings.devices == "simulated":
        return SimulatedDevices(settings.node, settings.profile, kept=settings.directory / "simulated-mig.json")
    if settings.devices == "none":
        return NoDevices()
    from fairlead_agent.devices.nvml import NvmlDevices  # needs a package that CPU-only nodes may not have

    try:
        return NvmlDevices(free_mib=settings.gpu_free_mib)
    except DevicesUnfit:
        if settings.devices == "nvml":
            raise
        return NoDevices()


def build_runtime(settings: Settings, incarnation: str, devices: Devices) -> Runtime:
    """The runtime that the settings name."""
    if settings.runtime == "docker":
        from fairlead_agent.runtimes.docker import DockerRuntime  # needs a package that others may not have

        return DockerRuntime(settings.directory, settings.node, incarnation, simulated=devices.simulated)
    return ProcessRuntime(settings.directory, settings.node, incarnation)


async def build_agent(bus: Bus, settings: Settings) -> Agent:
    """An agent, ready to `run`. Raises DevicesUnfit, JournalDamaged, JournalHeld."""
    devices = build_devices(settings)
    journal = Journal.open(settings.directory, settings.node, secrets.token_hex(12))
    runtime = build_runtime(settings, journal.ledger.incarnation, devices)
    inherited = {name: os.environ[name] for name in INHERITED_ENV if name in os.environ}
    inherited.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    return Agent(bus, settings, journal, runtime, devices, environment=inherited, boot_id=machine.boot_id())
