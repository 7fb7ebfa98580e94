"""Carrying out a layout order: step by step, looked at afterwards, and taken back where a step fails. Knows no driver.

All that is to go is destroyed before the first instance is made, so every step leaves a part of a legal layout.

A simulated GPU stands for a real one: it is repartitioned as a driver would do it, or refuses as one does, and everything says that
it is simulated. UUIDs of its instances follow from the GPU, the place and the number of the repartition, so that equal histories have
equal UUIDs, and an instance that is made again has another one, as on a real GPU. Pure.
"""

import hashlib
import re
from collections.abc import Callable, Collection
from typing import Annotated, Protocol

import msgspec

from fairlead_schemas.wire.desired import LayoutOrder
from fairlead_schemas.wire.resources import Gpu, MigInstance


class MigTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """MIG profile that a GPU can be cut into: its possible start slices, and its size in memory slices."""

    profile: str
    starts: tuple[int, ...]
    size: Annotated[int, msgspec.Meta(ge=1)]


class CutFailed(Exception):
    """A step was refused; the message is the driver's."""


class Cutter(Protocol):
    """Interface of one GPU for changes of its MIG layout. Each step raises CutFailed."""

    def instances(self) -> tuple[MigInstance, ...]:
        """Return the GPU's present instances; none if MIG mode is off."""
        ...

    def is_on(self) -> bool:
        """Return True if MIG mode is on."""
        ...

    def switch(self, on: bool) -> None:
        """Turn MIG mode on or off. The GPU must not be in use."""
        ...

    def destroy(self, instance: MigInstance) -> None:
        """Remove an instance. The instance must not be in use."""
        ...

    def create(self, profile: str, start: int) -> None:
        """Make an instance at that memory slice."""
        ...


def carry_out(cutter: Cutter, order: LayoutOrder) -> str:
    """Cut the GPU as ordered. "", or why it was not done: then what was there is put back, or the words say what was not."""
    undo: list[Callable[[], None]] = []
    try:
        _steps(cutter, order, undo)
        _verify(cutter, order)
    except CutFailed as error:
        return f"{error}{_take_back(undo)}"
    return ""


def _steps(cutter: Cutter, order: LayoutOrder, undo: list[Callable[[], None]]) -> None:
    there = {each.uuid: each for each in cutter.instances()}
    unknown = [each.uuid for each in order.destroy if each.uuid not in there]
    if unknown:
        raise CutFailed(f"there is no instance {unknown[0]}")
    if order.mode == "off" and len(order.destroy) < len(there):
        raise CutFailed("other instances are on the GPU")
    if order.mode == "on":
        cutter.switch(True)
        undo.append(lambda: cutter.switch(False))
    for each in order.destroy:
        cutter.destroy(each)
        undo.append(lambda each=each: cutter.create(each.profile, each.start))
    for place in order.create:
        cutter.create(place.profile, place.start)
        undo.append(lambda place=place: _destroy_at(cutter, place.profile, place.start))
    if order.mode == "off":
        cutter.switch(False)
        undo.append(lambda: cutter.switch(True))


def _destroy_at(cutter: Cutter, profile: str, start: int) -> None:
    for each in cutter.instances():
        if (each.profile, each.start) == (profile, start):
            cutter.destroy(each)


def _verify(cutter: Cutter, order: LayoutOrder) -> None:
    """Verify the new layout by the driver's present state, not by its answers. Raises CutFailed."""
    if cutter.is_on() == (order.mode == "off"):
        raise CutFailed(f"MIG mode is {'still on' if cutter.is_on() else 'not on'}")
    remaining = {each.uuid for each in cutter.instances()}
    stayed = [each for each in order.destroy if each.uuid in remaining]
    if stayed:
        raise CutFailed(f"{stayed[0].profile} was destroyed, and is still at {stayed[0].start}")
    there = {(each.profile, each.start) for each in cutter.instances()}
    missing = [each for each in order.create if (each.profile, each.start) not in there]
    if missing:
        raise CutFailed(f"{missing[0].profile} was made, and is not at {missing[0].start}")


def _take_back(undo: list[Callable[[], None]]) -> str:
    """Undo the steps in reverse order and return the failures as words to be added, "" if none. A failed step does not
    keep the others from being tried.
    """
    failed: list[str] = []
    for step in reversed(undo):
        try:
            step()
        except CutFailed as error:
            failed.append(str(error))
    return f"; and what was there could not be put back: {'; '.join(failed)}" if failed else ""


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
