"""Single facts of a GPU that NVML knows: ECC, MIG instances, the fabric that it is part of."""

import ctypes
import uuid
from collections.abc import Callable
from typing import Any, Literal

from fairlead_schemas.resources import MigInstance

_FABRIC_COMPLETED = 3


def text(value: "str | bytes") -> str:
    """What NVML says, which is bytes in some versions of its package."""
    return value.decode() if isinstance(value, bytes) else value


def asked[T](nvml: Any, absent: T, call: Callable[[], T]) -> T:
    """What the call answers; `absent` where this driver, package or GPU has no such thing."""
    try:
        return call()
    except (nvml.NVMLError, AttributeError):
        return absent


def ecc(nvml: Any, handle: Any) -> Literal["on", "off", ""]:
    """Whether ECC is on now; "" where the GPU has none."""
    mode = asked(nvml, None, lambda: nvml.nvmlDeviceGetEccMode(handle)[0])
    return "" if mode is None else "on" if mode else "off"


def mig(nvml: Any, handle: Any) -> bool | None:
    """Whether it is in MIG mode now; None where it can not be."""
    mode = asked(nvml, None, lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
    return None if mode is None else bool(mode)


def instances(nvml: Any, handle: Any) -> tuple[MigInstance, ...]:
    """The MIG instances on a GPU in MIG mode, by their first memory slice."""
    count = asked(nvml, 0, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle))
    found = [asked(nvml, None, lambda at=at: _instance(nvml, handle, at)) for at in range(count)]
    return tuple(sorted((each for each in found if each is not None), key=lambda each: (each.start, each.uuid)))


def _instance(nvml: Any, handle: Any, at: int) -> MigInstance:
    device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, at)
    # "NVIDIA A100-SXM4-80GB MIG 3g.40gb": the name ends with the profile.
    profile = text(nvml.nvmlDeviceGetName(device)).rpartition("MIG ")[2]
    start = asked(nvml, -1, lambda: _start(nvml, handle, device))
    return MigInstance(uuid=text(nvml.nvmlDeviceGetUUID(device)), profile=profile, start=start)


def _start(nvml: Any, handle: Any, device: Any) -> int:
    instance = nvml.nvmlDeviceGetGpuInstanceById(handle, nvml.nvmlDeviceGetGpuInstanceId(device))
    return int(nvml.nvmlGpuInstanceGetInfo(instance).placement.start)


def clique(nvml: Any, handle: Any) -> str:
    """ "<cluster's UUID>.<clique>" of a GPU whose NVLinks reach beyond its node; "" for others.

    A machine whose fabric ends at itself says a cluster of zeros: that is no name, or all of them would be one domain.
    """

    def ask() -> str:
        info = nvml.c_nvmlGpuFabricInfo_v2_t()
        nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        cluster = uuid.UUID(bytes=bytes(info.clusterUuid))
        return (
            f"{cluster}.{info.cliqueId}" if info.state == _FABRIC_COMPLETED and not info.status and cluster.int else ""
        )

    return asked(nvml, "", ask)
