"""Played MIG: a GPU that is cut as a driver would cut it, or refuses as one does. Everything says that it is simulated.

UUIDs follow from the GPU, the place and the number of the cut, so that equal histories have equal UUIDs, and an instance
that is made again has another one, as on a real GPU.
"""

import hashlib
import re
from collections.abc import Collection

import msgspec

from fairlead_agent.devices.repartition import CutFailed
from fairlead_schemas.wire.resources import Gpu, MigInstance

_PROFILE = re.compile(r"([1-7])g\.(\d+)gb(\+me)?\Z", re.ASCII)
#: Memory slices and compute slices of the models that are played.
MEMORY_SLICES, COMPUTE_SLICES = 8, 7
#: Compute capabilities of played GPUs that can be cut.
CAPABLE = (80, 90)


class SimulatedCutter:
    """Cutter of one simulated GPU. `gpu` is its current state."""

    def __init__(self, gpu: Gpu, number: int, refused: Collection[str] = ()) -> None:
        """`number`: of the cut, another one each time. `refused`: profiles that the played driver will not make."""
        self.gpu = gpu
        self._number = number
        self._refused = refused
        self._made = 0

    def instances(self) -> tuple[MigInstance, ...]:
        """By start."""
        return self.gpu.instances

    def is_on(self) -> bool:
        """Return True if MIG mode is on."""
        return self.gpu.mig

    def switch(self, on: bool) -> None:
        """Switch MIG mode as a driver would. Raises CutFailed for a GPU without MIG support, and for a GPU with instances."""
        if self.gpu.compute_capability not in CAPABLE:
            raise CutFailed("MIG mode: Not Supported (simulated)")
        if self.gpu.instances:
            raise CutFailed("MIG mode: In use by another client (simulated)")
        self.gpu = msgspec.structs.replace(self.gpu, mig=on)

    def destroy(self, instance: MigInstance) -> None:
        """Remove the instance. Raises CutFailed if the GPU does not have it."""
        stay = tuple(each for each in self.gpu.instances if each.uuid != instance.uuid)
        if len(stay) == len(self.gpu.instances):
            raise CutFailed(f"{instance.profile} at {instance.start}: Not Found (simulated)")
        self.gpu = msgspec.structs.replace(self.gpu, instances=stay)

    def create(self, profile: str, start: int) -> None:
        """Create an instance of the profile at `start`. Raises CutFailed if slices are missing or the profile is refused."""
        compute, first, size = self._slices(profile, start)
        taken = [self._slices(each.profile, each.start) for each in self.gpu.instances]
        overlap = any(first < other + length and other < first + size for _, other, length in taken)
        if profile in self._refused or overlap or sum(each for each, *_ in taken) + compute > COMPUTE_SLICES:
            raise CutFailed(f"{profile} at {start}: Insufficient Resources (simulated)")
        self._made += 1
        text = f"{self.gpu.uuid}/{profile}@{start}/{self._number}.{self._made}"
        instance = MigInstance(uuid=_uuid(text), profile=profile, start=start)
        instances = sorted([*self.gpu.instances, instance], key=lambda each: each.start)
        self.gpu = msgspec.structs.replace(self.gpu, instances=tuple(instances))

    def _slices(self, profile: str, start: int) -> tuple[int, int, int]:
        """Compute slices, first memory slice, memory slices: as the profile's name tells them. Instances begin at multiples
        of their size, and none so late that compute slices would be missing behind it: that gives the places that drivers
        list for these models."""
        match = _PROFILE.match(profile)
        size = max(1, round(int(match[2]) * 1024 * MEMORY_SLICES / self.gpu.memory_mib)) if match else 0
        if match is None or not self.gpu.mig or not 0 <= start <= MEMORY_SLICES - size:
            raise CutFailed(f"{profile} at {start}: Not Supported (simulated)")
        compute = int(match[1])
        if start % size or start + compute > COMPUTE_SLICES:
            raise CutFailed(f"{profile} at {start}: Invalid Argument (simulated)")
        return compute, start, size


def _uuid(text: str) -> str:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"MIG-{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"
