"""Played GPUs: the shape of a known machine without the machine. Everything says that it is simulated.

Profiles are data (`profiles.json`, which names its sources and what is assumed). UUIDs follow from the
node's name and the index, so a node keeps its GPUs over restarts. Utilisation is played: high with a slow
wave while a run holds the GPU, zero otherwise.
"""

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from fairlead_agent.devices.cutting import carry_out
from fairlead_agent.devices.labels import gpu_labels, inside_labels
from fairlead_agent.devices.port import DevicesUnfit
from fairlead_agent.devices.simulated_mig import SimulatedCutter
from fairlead_schemas.cpulists import list_cpus, parse_cpus
from fairlead_schemas.desired import LayoutOrder
from fairlead_schemas.inside import Description, Level, NumaNode
from fairlead_schemas.resources import Gpu
from fairlead_schemas.samples import GpuSample


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of machine."""

    machine: str
    product: str
    memory_mib: int
    compute_capability: int
    ecc: Literal["on", "off"]
    numa: tuple[int, ...]  # per GPU
    nvlinks: tuple[tuple[int, ...], ...]  # between GPU pairs
    pcie: tuple[tuple[Level, ...], ...]  # likewise; () where nobody has written it down
    #: CPU lists as published: the first thread of each core, then the second ones in the same order.
    numa_nodes: tuple[NumaNode, ...]
    threads: int  # per core
    nics: tuple[str, ...]
    nic_levels: tuple[tuple[Level, ...], ...]
    cpu_milli: int
    node_memory_mib: int
    source: str
    assumed: str = ""

    def inside(self) -> Description:
        """As an agent on such a machine would describe it. Its CPUs are the played machine's, not this one's."""
        return Description(
            numa=self.numa,
            nvlinks=self.nvlinks if any(map(any, self.nvlinks)) else (),
            pcie=self.pcie,
            numa_nodes=tuple(
                msgspec.structs.replace(node, cpus=_side_by_side(node.cpus, self.threads)) for node in self.numa_nodes
            ),
            nics=self.nics,
            nic_levels=self.nic_levels,
        )

    def gpus(self, node: str) -> tuple[Gpu, ...]:
        """Its GPUs, on a node of that name."""
        return tuple(
            Gpu(
                uuid=simulated_uuid(node, index), index=index, model=self.product, memory_mib=self.memory_mib,
                compute_capability=self.compute_capability, numa=numa, ecc=self.ecc,
            )
            for index, numa in enumerate(self.numa)
        )  # fmt: skip

    def labels(self, gpus: tuple[Gpu, ...], inside: Description) -> dict[str, str]:
        """GPU feature discovery's, and that they are simulated."""
        return {**gpu_labels(gpus, self.machine), **inside_labels(inside), "fairlead/simulated": "true"}


def _side_by_side(cpus: str, threads: int) -> str:
    """ "0-1,4-5" with two threads per core is "0,4,1,5"."""
    listed = parse_cpus(cpus)
    cores = len(listed) // threads
    return list_cpus(tuple(listed[core + cores * thread] for core in range(cores) for thread in range(threads)))


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


@cache
def played_inside(name: str) -> Description:
    """The inside of a profile: one object, however many nodes play it."""
    return profile_named(name).inside()


def simulated_uuid(node: str, index: int) -> str:
    """ "GPU-" and a UUID made from node and index: the same for ever, different on every node."""
    digest = hashlib.sha256(f"{node}/{index}".encode()).hexdigest()
    return f"GPU-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def _cut_before(gpus: tuple[Gpu, ...], kept: Path | None) -> tuple[Gpu, ...]:
    """The GPUs with what the file says of them; a file that cannot be read says nothing."""
    cut: dict[str, Gpu] = {}
    if kept is not None:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            cut = {gpu.uuid: gpu for gpu in msgspec.json.decode(kept.read_bytes(), type=list[Gpu])}
    return tuple(
        msgspec.structs.replace(gpu, mig=True, instances=cut[gpu.uuid].instances) if gpu.uuid in cut else gpu
        for gpu in gpus
    )


class SimulatedDevices:
    """The GPUs of one profile, played."""

    name = "simulated"
    simulated = True

    def __init__(
        self, node: str, profile: str, clock: Callable[[], float] = time.monotonic, kept: Path | None = None
    ) -> None:
        """`kept`: a file in which the played GPUs stay cut over restarts of the agent, as real ones do."""
        self.profile = profile_named(profile)
        self._clock = clock
        self._kept = kept
        self._gpus = _cut_before(self.profile.gpus(node), kept)
        self._inside = played_inside(profile)
        #: Profiles of MIG instances that the played driver refuses to make.
        self.refused: set[str] = set()

    def gpus(self) -> tuple[Gpu, ...]:
        """As many as the profile has, cut as they were cut last."""
        return self._gpus

    def inside(self) -> Description:
        """The profile's."""
        return self._inside

    def labels(self) -> dict[str, str]:
        """GPU feature discovery's, and that they are simulated."""
        return self.profile.labels(self._gpus, self._inside)

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
        known = {gpu.uuid for gpu in self._gpus} | {each.uuid for gpu in self._gpus for each in gpu.instances}
        return {uuid: "this node has no such GPU" for uuid in uuids if uuid not in known}

    def cut(self, order: LayoutOrder) -> str:
        """As a driver would; what it refuses is taken back."""
        gpu = next((gpu for gpu in self._gpus if gpu.uuid == order.gpu), None)
        if gpu is None:
            return f"this node has no GPU {order.gpu}"
        cutter = SimulatedCutter(gpu, order.plan, self.refused)
        failure = carry_out(cutter, order)
        self._gpus = tuple(cutter.gpu if each.uuid == order.gpu else each for each in self._gpus)
        if self._kept is not None:
            self._kept.write_bytes(msgspec.json.encode([gpu for gpu in self._gpus if gpu.mig]))
        return failure

    def close(self) -> None:
        """Nothing to let go of."""
