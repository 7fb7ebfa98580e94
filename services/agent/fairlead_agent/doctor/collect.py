"""Reads what `node/health/checks.py` judges: files, programs, the engine, the bus. Nothing here raises, and each wait is bounded."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairlead_agent.doctor.checks import (
    KERNEL_LEAST,
    DiskSetup,
    DriverSetup,
    EngineSetup,
    MachineSetup,
    Mode,
    NodeSetup,
)
from fairlead_agent.settings import Settings, from_environment
from fairlead_agent.setup import layout
from fairlead_bus import nkey
from fairlead_bus.environment_settings import BadSetting
from fairlead_bus.port import Bus, BusError

PROGRAM_S, ENGINE_S = 10.0, 10
TOOLKIT_CONFIG = Path("/etc/nvidia-container-runtime/config.toml")
_LIMITS = {"MemoryLimit": "memory", "SwapLimit": "swap", "PidsLimit": "pids", "CpuCfsQuota": "cpu", "CPUSet": "cpuset"}


def read(root: Path = Path("/")) -> MachineSetup:
    """Return the facts of the machine under this root. Its settings are read from the agent.env there."""
    from fairlead_bus.main import DEFAULT_NATS  # brings all of NATS along, which the command mostly does without

    env_file = root / layout.ENV_FILE.lstrip("/")
    settings, bad, env = _settings(env_file)
    url = env.get("FAIRLEAD_NATS", DEFAULT_NATS)
    return MachineSetup(
        python=sys.version_info[:3],
        settings_from=str(env_file),
        node=_node(settings, env),
        bad_setting=bad,
        engine=engine() if settings is not None and settings.runtime == "docker" else None,
        driver=_driver() if settings is not None and settings.devices in ("nvml", "auto") else DriverSetup(),
        disks=_disks(settings),
        clock_synchronised=_clock(),
        bus=_bus(root, url, env) if settings is not None else "",
        bus_url=_shown(url),
        keyed=bool(env.get(nkey.SETTING)),
        modes=_modes(root),
        agent_runs=_held(settings.directory / "lock") if settings else None,
        guard_runs=_held(settings.data / "guard.lock") if settings else None,
        spawner_runs=_held(settings.directory / "spawner.lock") if settings else None,
        kernel=_kernel(),
    )


def _settings(path: Path) -> tuple[Settings | None, str, dict[str, str]]:
    """Return the settings, the reason that they cannot be used, and the environment that contains them."""
    try:
        env = layout.read_settings(path.read_text())
    except FileNotFoundError:
        return None, "", {}
    except (OSError, UnicodeDecodeError) as error:
        return None, f"{path}: {error}", {}
    try:
        return from_environment(env), "", env
    except BadSetting as error:
        return None, str(error), env


def _node(settings: Settings | None, env: Mapping[str, str]) -> NodeSetup | None:
    if settings is None:
        return None
    return NodeSetup(
        settings.node,
        settings.runtime,
        settings.devices,
        env.get("FAIRLEAD_FLOORS", "").lower() == "note",
        settings.address,
        settings.gang_network,
    )


def _shown(url: str) -> str:
    """The addresses of the bus without their token."""
    return ", ".join(each.rpartition("@")[2].strip().removeprefix("nats://") for each in url.split(","))


def _bus(root: Path, url: str, env: Mapping[str, str]) -> str:
    """Return the reason that the bus refuses the connection; "" if it accepts it."""
    from fairlead_bus.main import with_bus  # as above

    async def nothing(bus: Bus) -> None:
        return None

    try:
        key = nkey.read_file(root / env[nkey.SETTING].lstrip("/")) if env.get(nkey.SETTING) else None
        with_bus(url, "doctor", nothing, key=key)
    except (BusError, BadSetting, nkey.BadKey) as error:
        return str(error)
    return ""


def engine() -> EngineSetup:
    """Return the Docker engine's description of itself. Raises nothing."""
    import docker  # only where runs are containers

    try:
        client = docker.from_env(timeout=ENGINE_S)
        info: dict[str, Any] = client.info()
        version: dict[str, Any] = client.version()
    except Exception as error:  # noqa: BLE001 -- whatever keeps it from answering is the finding
        return EngineSetup(silent=f"the engine does not answer: {str(error)[:200]}")
    parts = {part["Name"]: part.get("Version", "") for part in version.get("Components") or []}
    options = info.get("SecurityOptions") or []
    return EngineSetup(
        version=version.get("Version", ""),
        runc=parts.get("runc", ""),
        live_restore=bool(info.get("LiveRestoreEnabled")),
        userns_remap=any("name=userns" in option for option in options),
        seccomp=any("name=seccomp" in option for option in options),
        cgroup=str(info.get("CgroupVersion") or ""),
        missing_limits=tuple(word for key, word in _LIMITS.items() if not info.get(key)),
        cdi=bool(info.get("CDISpecDirs")),
        by_systemd=info.get("CgroupDriver") == "systemd",
    )


def _driver() -> DriverSetup:
    lines = _output_lines("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    config: bool | None = None
    try:
        read = tomllib.loads(TOOLKIT_CONFIG.read_text())
        config = bool(read.get("accept-nvidia-visible-devices-envvar-when-unprivileged", True))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        pass
    toolkit = re.search(r"\d+\.\d+\.\d+", " ".join(_output_lines("nvidia-ctk", "--version") or []))
    there = [line.strip() for line in lines or [] if re.match(r"\d+\.", line.strip())]
    return DriverSetup(
        version=there[0] if there else "",
        silent="" if there or lines is None else f"nvidia-smi printed: {' '.join(lines)[:200] or 'nothing'}",
        gpus=len(there),
        toolkit=toolkit[0] if toolkit else "",
        environment_opens=config,
        unlinked=unlinked(Path("/dev")),
    )


def unlinked(dev: Path) -> tuple[str, ...]:
    """NVIDIA's device files there that have no link in `char`, by their numbers."""
    found: list[str] = []
    for path in sorted(dev.glob("nvidia*")):
        numbers = path.stat()
        name = f"{os.major(numbers.st_rdev)}:{os.minor(numbers.st_rdev)}"
        if stat.S_ISCHR(numbers.st_mode) and not (dev / "char" / name).exists():
            found.append(path.name)
    return tuple(found)


def _output_lines(program: str, *words: str) -> list[str] | None:
    """The lines that a program says; None where there is none."""
    path = shutil.which(program)
    if path is None:
        return None
    try:
        done = subprocess.run([path, *words], capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [str(error)]
    return (done.stdout or done.stderr).strip().splitlines()


def _disks(settings: Settings | None) -> tuple[DiskSetup, ...]:
    wanted = [settings.data if settings else Path(layout.DATA)]
    if settings is not None and settings.runtime == "docker":
        wanted.append(Path("/var/lib/docker"))
    found: dict[int, DiskSetup] = {}
    for path in wanted:
        there = next(each for each in (path, *path.parents) if each.is_dir())
        figures = os.statvfs(there)
        size = figures.f_frsize
        found.setdefault(there.stat().st_dev, DiskSetup(str(path), figures.f_blocks * size, figures.f_bavail * size))
    return tuple(found.values())


def _clock() -> bool | None:
    lines = _output_lines("timedatectl", "show", "-p", "NTPSynchronized", "--value")
    return {"yes": True, "no": False}.get(lines[0] if lines else "")


def _modes(root: Path) -> tuple[Mode, ...]:
    wanted = [(path, forbidden) for path, forbidden in layout.SECRETS]
    wanted += [(each.path, ~each.mode & 0o022) for each in layout.DIRECTORIES]
    found: list[Mode] = []
    for name, forbidden in wanted:
        path = root / name.lstrip("/")
        if path.exists():
            status = path.stat()
            found.append(Mode(str(path), stat.S_IMODE(status.st_mode), status.st_uid, forbidden))
    return tuple(found)


def _held(lock: Path) -> bool | None:
    """Return True if a living process holds the lock file; None if that cannot be read.

    The kernel's list of locks is read instead of trying the lock: a try could keep an agent from starting at the same
    moment.
    """
    try:
        inode = lock.stat().st_ino
        held = Path("/proc/locks").read_text().splitlines()
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return any(f":{inode} " in line and " FLOCK " in line for line in held)


def _kernel() -> dict[str, int]:
    found: dict[str, int] = {}
    for name in KERNEL_LEAST:
        try:
            found[name] = int((Path("/proc/sys") / name.replace(".", "/")).read_text())
        except (OSError, ValueError):
            continue
    return found
