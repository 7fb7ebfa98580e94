"""A played driver whose one GPU can be cut: it keeps the commands that it got, and refuses as a real one does."""

from types import SimpleNamespace
from typing import Any

import pynvml

from tests.agent.devices.nvml_driver import Driver

#: {profile: (NVML's kind, id, memory slices, starts)} of an A100 with 40 GB.
PROFILES = {
    "1g.5gb": (0, 19, 1, range(7)),
    "2g.10gb": (1, 14, 2, (0, 2, 4)),
    "3g.20gb": (2, 9, 4, (0, 4)),
    "1g.5gb+me": (7, 20, 1, range(7)),
}


class MigDriver(Driver):
    """One GPU that keeps the commands that it got; GPU instances are dictionaries."""

    c_nvmlGpuInstancePlacement_t = pynvml.c_nvmlGpuInstancePlacement_t  # noqa: N815 -- the name is NVML's

    def __init__(self) -> None:
        super().__init__(["0000:01:00.0"])
        self.mode, self.waits_for_reset = 1, False
        self.whole: list[dict[str, Any]] = []
        self.calls: list[str] = []
        self.refused: set[str] = set()
        self.number = 0
        self.answers |= {
            "nvmlDeviceGetMigMode": lambda i: [self.mode, self.mode],
            "nvmlDeviceSetMigMode": self._set_mode,
            "nvmlDeviceGetMaxMigDeviceCount": lambda i: 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": self._shown,
            "nvmlDeviceGetHandleByUUID": self._by_uuid,
            "nvmlDeviceGetGpuInstanceId": lambda device: device.whole["id"],
            "nvmlDeviceGetComputeInstanceId": lambda device: 0,
            "nvmlDeviceGetGpuInstanceById": lambda i, at: next(each for each in self.whole if each["id"] == at),
            "nvmlGpuInstanceGetComputeInstanceById": lambda whole, at: whole,
            "nvmlGpuInstanceGetInfo": lambda whole: SimpleNamespace(placement=SimpleNamespace(start=whole["start"])),
            "nvmlDeviceGetGpuInstanceProfileInfo": self._profile,
            "nvmlDeviceGetGpuInstancePossiblePlacements": self._placements,
            "nvmlDeviceCreateGpuInstanceWithPlacement": self._create,
            "nvmlGpuInstanceGetComputeInstanceProfileInfo": lambda whole, kind, engine: SimpleNamespace(
                id=kind, sliceCount=self._or_error({0: 1, 1: 2, 2: 3, 3: 4}, kind)
            ),
            "nvmlGpuInstanceCreateComputeInstance": self._fill,
            "nvmlComputeInstanceDestroy": self._empty,
            "nvmlGpuInstanceDestroy": self._destroy,
            "nvmlDeviceGetComputeRunningProcesses": lambda device: [],
        }

    def _call(self, name: str, what: str = "") -> None:
        self.calls.append(f"{name} {what}".strip())
        if name in self.refused or what in self.refused:
            raise self.NVMLError("Insufficient Resources")

    def _set_mode(self, _: int, mode: int) -> int:
        self._call("mode", str(mode))
        self.mode = self.mode if self.waits_for_reset else mode
        return 1 if self.waits_for_reset and mode else 0

    def _device(self, whole: dict[str, Any]) -> SimpleNamespace:
        name = f"NVIDIA A100-SXM4-40GB MIG {whole['profile']}"
        return SimpleNamespace(uuid=f"MIG-{whole['id']}", name=name, whole=whole)

    def _shown(self, _: int, at: int) -> SimpleNamespace:
        shown = [each for each in self.whole if each["filled"]]
        return self._or_error({at: self._device(each) for at, each in enumerate(shown)}, at)

    def _by_uuid(self, uuid: str) -> SimpleNamespace:
        return self._or_error({f"MIG-{each['id']}": self._device(each) for each in self.whole}, uuid)

    def _profile(self, _: int, kind: int) -> SimpleNamespace:
        found = {row[0]: SimpleNamespace(id=row[1], name=f"MIG {name}".encode()) for name, row in PROFILES.items()}
        return self._or_error(found, kind)

    def _placements(self, _: int, number: int, places: Any, count: Any) -> None:
        size, starts = next((row[2], row[3]) for row in PROFILES.values() if row[1] == number)
        for at, start in enumerate(starts):
            places[at].start, places[at].size = start, size
        count._obj.value = len(starts)

    def _create(self, _: int, number: int, placement: Any) -> dict[str, Any]:
        profile = next(name for name, row in PROFILES.items() if row[1] == number)
        start, size = placement._obj.start, placement._obj.size
        self._call("create", f"{profile}@{start}")
        taken = {slice for each in self.whole for slice in range(each["start"], each["start"] + each["size"])}
        if taken & set(range(start, start + size)):
            raise self.NVMLError("Insufficient Resources")
        self.number += 1
        made = {"id": self.number, "profile": profile, "start": start, "size": size, "filled": False}
        self.whole.append(made)
        return made

    def _fill(self, whole: dict[str, Any], kind: int) -> None:
        self._call("fill")
        whole["filled"] = True

    def _empty(self, whole: dict[str, Any]) -> None:
        self._call("empty", f"{whole['profile']}@{whole['start']}")
        whole["filled"] = False

    def _destroy(self, whole: dict[str, Any]) -> None:
        self._call("destroy")
        self.whole.remove(whole)
