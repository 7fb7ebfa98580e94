"""Collection of this machine's facts for the checks, all in one place; and health facts added to GPU samples, from the
latest look at the GPUs. The calls block, so callers with real devices make them in a thread.
"""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from fairlead_agent.devices.port import SLOWDOWNS, Devices, GpuHealth
from fairlead_agent.node.health.checks import Clock, DiskHealth, EngineHealth, HealthFacts
from fairlead_agent.node.metrics.exposition import Xids
from fairlead_agent.runtimes.port import Runtime
from fairlead_agent.settings import Settings
from fairlead_schemas.wire.samples import GpuSample

ENGINE_TIMEOUT_S = 10
#: An answer of the engine is good for so long: many runs may fail at once.
FRESH_S = 1.0
VERSION_TIMEOUT_S = 10
ENGINE_PIDFILE = Path("/var/run/docker.pid")
#: The words of GPU feature discovery's label that has the driver's version.
DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"


class FactCollector:
    """Reader of one machine's facts. `engine_info` queries the container engine (tests simulate it); None: there is no engine."""

    def __init__(
        self,
        settings: Settings,
        devices: Devices,
        runtime: Runtime,
        engine_info: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self._settings, self._devices, self._runtime = settings, devices, runtime
        self._engine_info = engine_info or (_docker_info() if runtime.name == "docker" else None)
        #: Directories whose file systems count. The engine's own directory is added once the engine has reported it.
        self._directories = [settings.directory]
        self._engine: EngineHealth | None = None
        self._engine_at = 0.0
        #: The engine's newest description of itself.
        self._engine_facts: Mapping[str, Any] = {}

    @property
    def asks_engine(self) -> bool:
        """True where a container engine is asked, which may take its time."""
        return self._engine_info is not None

    def facts(self, *, gpus_expected: int, skew_ns: int | None, loads: Mapping[str, int]) -> HealthFacts:
        """Return all current facts, except for the agent's own knowledge of its runs."""
        return HealthFacts(
            now_ns=time.monotonic_ns(),
            gpus=tuple(self._devices.health()),
            loads=loads,
            gpus_expected=gpus_expected,
            disks=self._disks(),
            clock=Clock(time.time_ns(), time.monotonic_ns(), skew_ns),
            engine=self._engine_now(),
            spawner=getattr(self._runtime, "spawner_lives", None),
        )

    def versions(self) -> dict[str, str]:
        """Return the versions that versions.FLOORS judges, limited to those that can be read here."""
        found = {"driver": self._devices.labels().get(DRIVER_LABEL, "")}
        if self._engine_info is not None:
            found["runc"] = _word_after("version", _output("runc", "--version"))
            if not self._devices.simulated and self._devices.gpus():
                found["toolkit"] = _word_after("version", _output("nvidia-ctk", "--version"))
        return {name: version for name, version in found.items() if version}

    def _disks(self) -> tuple[DiskHealth, ...]:
        found: dict[int, DiskHealth] = {}
        for directory in self._directories:
            with contextlib.suppress(OSError):
                stat = os.statvfs(directory)
                blocks = stat.f_blocks - stat.f_bfree + stat.f_bavail  # without what is kept for root
                found.setdefault(
                    stat.f_fsid, DiskHealth(str(directory), blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)
                )
        return tuple(found.values())

    def _engine_now(self) -> EngineHealth | None:
        if self._engine_info is None:
            return None
        if self._engine is not None and time.monotonic() - self._engine_at < FRESH_S:
            return self._engine
        self._engine, self._engine_at = self._ask_engine(self._engine_info), time.monotonic()
        return self._engine

    def _ask_engine(self, info: Callable[[], Mapping[str, Any]]) -> EngineHealth:
        try:
            self._engine_facts = info()
        except Exception as error:  # noqa: BLE001 -- whatever it raises, it has not answered
            return EngineHealth(silent=f"the container engine does not answer: {error}"[:300])
        root = self._engine_facts.get("DockerRootDir")
        if isinstance(root, str) and Path(root) not in self._directories:
            self._directories.append(Path(root))
        return EngineHealth(started=_started(ENGINE_PIDFILE))


def _docker_info() -> Callable[[], Mapping[str, Any]]:
    import docker  # needs a package that others may not have

    clients: list[Any] = []

    def info() -> Mapping[str, Any]:
        if not clients:
            clients.append(docker.from_env(timeout=ENGINE_TIMEOUT_S))
        return clients[0].info()

    return info


def _started(pidfile: Path) -> str:
    """Return the engine's process id and its start (in ticks after boot), "" if unknown. A restart of the engine changes both."""
    try:
        pid = int(pidfile.read_text())
        return f"as {pid} at {Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]}"
    except (OSError, ValueError, IndexError):
        return ""


def _output(*words: str) -> str:
    """Return the standard output of a program; "" if it is missing or does not answer."""
    program = shutil.which(words[0])
    if program is None:
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [program, *words[1:]], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
        return done.stdout
    return ""


def _word_after(word: str, text: str) -> str:
    words = text.split()
    return words[words.index(word) + 1] if word in words[:-1] else ""


def with_health(samples: Iterable[GpuSample], gpus: Iterable[GpuHealth], xids: Mapping[str, Xids]) -> list[GpuSample]:
    """Return the samples with health facts added. `xids` is {UUID: its XIDs}.

    For a GPU without a look so far, and for MIG instances, no health is known; their samples are returned unchanged.
    """
    known = {gpu.uuid: gpu for gpu in gpus}
    return [
        _with_facts(sample, known[sample.uuid], xids.get(sample.uuid, Xids())) if sample.uuid in known else sample
        for sample in samples
    ]


def _with_facts(sample: GpuSample, health: GpuHealth, xids: Xids) -> GpuSample:
    held = health.slowdowns
    return msgspec.structs.replace(
        sample,
        ecc_correctable=health.ecc_volatile_correctable,
        ecc_uncorrectable=health.ecc_volatile_uncorrectable,
        slowdowns=None if held is None else sum(SLOWDOWNS[each] for each in held),
        xid=xids.newest,
        xids=xids.total,
    )
