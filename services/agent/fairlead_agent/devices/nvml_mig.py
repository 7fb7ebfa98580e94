"""MIG over NVML: mode, instances and their places. A GPU instance is made with the one compute instance that fills it.

Not tried on a GPU yet; the calls are those of the NVML manual, played in the tests.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from fairlead_agent.devices import nvml_readings
from fairlead_agent.devices.repartition import CutFailed, MigTable
from fairlead_schemas.wire.resources import MigInstance

#: Kinds of GPU instances and of compute instances that NVML numbers; kinds that a GPU has not are passed over.
GPU_KINDS, COMPUTE_KINDS = 32, 16
PLACES_MAX = 32


def placements(nvml: Any, handle: Any, kind: int) -> list[Any]:
    """Return the places where the driver lets instances of that kind begin. Raises NVMLError."""
    places, count = (nvml.c_nvmlGpuInstancePlacement_t * PLACES_MAX)(), ctypes.c_uint(PLACES_MAX)
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, kind, places, ctypes.byref(count))
    return list(places[: count.value])


def tables(nvml: Any, handle: Any) -> tuple[MigTable, ...]:
    """Return all profiles of a GPU with their places, () for a GPU that cannot be cut. Without MIG mode, the result
    holds only the profiles that the driver lists then.
    """
    found: list[MigTable] = []
    for number in range(GPU_KINDS):
        info = nvml_readings.value_or(
            nvml, None, lambda number=number: nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number)
        )
        places = nvml_readings.value_or(nvml, [], lambda info=info: placements(nvml, handle, info.id)) if info else []
        if info and places:
            profile = nvml_readings.text(info.name).rpartition("MIG ")[2]
            starts = tuple(sorted(int(place.start) for place in places))
            found.append(MigTable(profile=profile, starts=starts, size=int(places[0].size)))
    return tuple(found)


class NvmlCutter:
    """Cutter of one GPU, by its handle."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def instances(self) -> tuple[MigInstance, ...]:
        """Return the instances that the driver shows now; none if MIG mode is off."""
        return nvml_readings.instances(self._nvml, self._handle) if self.is_on() else ()

    def is_on(self) -> bool:
        """Return True if the driver reports MIG mode as on."""
        return bool(nvml_readings.mig(self._nvml, self._handle))

    def switch(self, on: bool) -> None:
        """The driver resets the GPU for it where the model needs that; a mode that would only come with a reboot is a failure."""
        nvml = self._nvml
        status = self._call("MIG mode", lambda: nvml.nvmlDeviceSetMigMode(self._handle, int(on)))
        if status:
            self._call("MIG mode", lambda: nvml.nvmlDeviceSetMigMode(self._handle, int(not on)))
            raise CutFailed(f"MIG mode: it is not active, and must not wait for a reboot (NVML status {status})")

    def destroy(self, instance: MigInstance) -> None:
        """Destroy the compute instance of a MIG instance, then the instance itself. An instance that cannot be destroyed
        stays usable.
        """
        nvml, what = self._nvml, f"{instance.profile} at {instance.start}"

        def steps() -> None:
            device = nvml.nvmlDeviceGetHandleByUUID(instance.uuid)
            whole = nvml.nvmlDeviceGetGpuInstanceById(self._handle, nvml.nvmlDeviceGetGpuInstanceId(device))
            part = nvml.nvmlGpuInstanceGetComputeInstanceById(whole, nvml.nvmlDeviceGetComputeInstanceId(device))
            nvml.nvmlComputeInstanceDestroy(part)
            try:
                nvml.nvmlGpuInstanceDestroy(whole)
            except nvml.NVMLError:
                self._fill(whole, int(instance.profile[0]))  # it stays, so it shall stay usable
                raise

        self._call(what, steps)

    def create(self, profile: str, start: int) -> None:
        """With a compute instance of all its slices; nothing of it stays where that is refused."""
        nvml, what = self._nvml, f"{profile} at {start}"

        def steps() -> None:
            kind = self._kind(profile)
            placement = self._placement(kind, start)
            whole = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(self._handle, kind, ctypes.byref(placement))
            try:
                self._fill(whole, int(profile[0]))
            except (nvml.NVMLError, CutFailed):
                nvml.nvmlGpuInstanceDestroy(whole)
                raise

        self._call(what, steps)

    def _kind(self, profile: str) -> int:
        """The driver's number for the profile."""
        nvml = self._nvml
        for number in range(GPU_KINDS):
            info = nvml_readings.value_or(
                nvml, None, lambda number=number: nvml.nvmlDeviceGetGpuInstanceProfileInfo(self._handle, number)
            )
            if info is not None and nvml_readings.text(info.name).rpartition("MIG ")[2] == profile:
                return int(info.id)
        raise CutFailed(f"the driver knows no profile {profile}")

    def _placement(self, kind: int, start: int) -> Any:
        for place in placements(self._nvml, self._handle, kind):
            if place.start == start:
                return place
        raise CutFailed(f"the driver allows none at {start}")

    def _fill(self, whole: Any, slices: int) -> None:
        """The compute instance with all slices of the GPU instance."""
        nvml = self._nvml
        for number in range(COMPUTE_KINDS):
            info = nvml_readings.value_or(
                nvml, None, lambda number=number: nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(whole, number, 0)
            )
            if info is not None and info.sliceCount == slices:
                nvml.nvmlGpuInstanceCreateComputeInstance(whole, info.id)
                return
        raise CutFailed(f"the driver knows no compute instance of {slices} slices")

    def _call[T](self, what: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except (self._nvml.NVMLError, AttributeError) as error:
            raise CutFailed(f"{what}: {error}") from error
        except CutFailed as error:
            raise CutFailed(f"{what}: {error}") from error
