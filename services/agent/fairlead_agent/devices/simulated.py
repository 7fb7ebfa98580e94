"""Played GPUs: the shape of a known machine without the machine. Everything says that it is simulated.

Profiles are data (`profiles.json`, which names its sources and what is assumed). UUIDs follow from the
node's name and the index, so a node keeps its GPUs over restarts. Utilisation is played: high with a slow
wave while a run holds the GPU, zero otherwise.
"""

import hashlib
import math
import time
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import resources

import msgspec

from fairlead_agent.devices.labels import gpu_labels
from fairlead_agent.devices.port import DevicesUnfit
from fairlead_schemas.resources import Gpu
from fairlead_schemas.samples import GpuSample


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of machine."""

    machine: str
    product: str
    memory_mib: int
    compute_capability: int
    numa: list[int]  # per GPU
    nvlinks: list[list[int]]  # between GPU pairs
    cpu_milli: int
    node_memory_mib: int
    source: str
    assumed: str = ""

    @property
    def nvlink_domains(self) -> int:
        """Groups of GPUs joined by NVLink, directly or over others; a GPU without a link is one of its own."""
        left, groups = set(range(len(self.nvlinks))), 0
        while left:
            groups += 1
            reached = [left.pop()]
            while reached:
                row = self.nvlinks[reached.pop()]
                joined = {other for other in left if row[other]}
                left -= joined
                reached.extend(joined)
        return groups


class _Profiles(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    licence: str
    note: str
    profiles: dict[str, Profile]


@cache
def profiles() -> dict[str, Profile]:
    """Every profile that ships with the package, by name."""
    data = resources.files("fairlead_agent.devices").joinpath("profiles.json").read_bytes()
    return msgspec.json.decode(data, type=_Profiles).profiles


def profile_named(name: str) -> Profile:
    """One profile. Raises DevicesUnfit naming those that there are."""
    try:
        return profiles()[name]
    except KeyError:
        raise DevicesUnfit(f"no profile {name!r}; expected one of {', '.join(sorted(profiles()))}") from None


def simulated_uuid(node: str, index: int) -> str:
    """ "GPU-" and a UUID made from node and index: the same for ever, different on every node."""
    digest = hashlib.sha256(f"{node}/{index}".encode()).hexdigest()
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


class SimulatedDevices:
    """The GPUs of one profile, played."""

    name = "simulated"
    simulated = True

    def __init__(self, node: str, profile: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.profile = profile_named(profile)
        self._clock = clock
        p = self.profile
        self._gpus = tuple(
            Gpu(
                uuid=simulated_uuid(node, index), index=index, model=p.product, memory_mib=p.memory_mib,
                compute_capability=p.compute_capability, numa=numa,
            )
            for index, numa in enumerate(p.numa)
        )  # fmt: skip
        self._uuids = {gpu.uuid for gpu in self._gpus}

    def gpus(self) -> tuple[Gpu, ...]:
        """As many as the profile has."""
        return self._gpus

    def labels(self) -> dict[str, str]:
        """GPU feature discovery's, and that they are simulated."""
        labels = gpu_labels(self._gpus, self.profile.machine)
        labels["fairlead/simulated"] = "true"
        labels["fairlead/numa"] = str(len(set(self.profile.numa)))
        labels["fairlead/nvlink-domains"] = str(self.profile.nvlink_domains)
        return labels

    def sample(self, holders: Mapping[str, str]) -> list[GpuSample]:
        """Played numbers, in plausible ranges; no measurement."""
        now = self._clock()
        return [self._play(gpu, holders.get(gpu.uuid, ""), now) for gpu in self._gpus]

    def _play(self, gpu: Gpu, run: str, now: float) -> GpuSample:
        if not run:
            return GpuSample(
                uuid=gpu.uuid, utilization_pct=0, memory_used_mib=4, power_mw=55_000, temperature_c=32, sm_clock_mhz=210
            )
        wave = math.sin(now / 20 + gpu.index)
        utilization = round(88 + 8 * wave)
        return GpuSample(
            uuid=gpu.uuid, utilization_pct=utilization, memory_used_mib=gpu.memory_mib * 3 // 5,
            power_mw=250_000 + round(40_000 * wave), temperature_c=58 + round(6 * wave), sm_clock_mhz=1410, run=run,
        )  # fmt: skip

    def busy(self, uuids: Collection[str]) -> dict[str, str]:
        """A played GPU is free as soon as its run has ended; one of another node is not known to be."""
        return {uuid: "this node has no such GPU" for uuid in uuids if uuid not in self._uuids}

    def close(self) -> None:
        """Nothing to let go of."""
