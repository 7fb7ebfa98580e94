"""A played driver: the functions of pynvml that the NVML adapter calls, over GPUs that are numbers."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml

SWITCH = "switch"


class Driver:
    """Functions of pynvml, over GPUs that are numbers. What is not set raises as an old driver does."""

    class NVMLError(Exception):
        """The base of its errors."""

    c_nvmlGpuFabricInfo_v2_t = pynvml.c_nvmlGpuFabricInfo_v2_t  # noqa: N815 -- the name is NVML's

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        #: {(GPU, link): the GPU at its far end, or SWITCH}; {(GPU, GPU): level}.
        self.links: dict[tuple[int, int], int | str] = {}
        self.levels: dict[tuple[int, int], int] = {}
        #: {name of a function: what answers in its place}.
        self.answers: dict[str, Callable[..., Any]] = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: len(addresses),
            "nvmlDeviceGetHandleByIndex": lambda i: i,
            "nvmlDeviceGetUUID": lambda i: f"GPU-{i}" if isinstance(i, int) else i.uuid,
            "nvmlDeviceGetName": lambda i: b"NVIDIA A100-SXM4-40GB" if isinstance(i, int) else i.name,
            "nvmlDeviceGetCudaComputeCapability": lambda i: (8, 0),
            "nvmlDeviceGetMemoryInfo": lambda i: SimpleNamespace(total=40960 << 20, used=0),
            "nvmlDeviceGetPciInfo": lambda i: SimpleNamespace(busId=f"0000{addresses[i].upper()}".encode()),
            "nvmlSystemGetDriverVersion": lambda: "550.54.15",
            "nvmlDeviceGetNvLinkState": lambda i, link: int(self._end(i, link) is not None),
            "nvmlDeviceGetNvLinkRemoteDeviceType": lambda i, link: 2 if self._end(i, link) == SWITCH else 0,
            "nvmlDeviceGetNvLinkRemotePciInfo": lambda i, link: SimpleNamespace(
                busId=f"0000{addresses[int(self._end(i, link))]}"
            ),
            "nvmlDeviceGetTopologyCommonAncestor": lambda i, j: self._or_error(self.levels, (i, j)),
        }

    def _end(self, gpu: int, link: int) -> Any:
        return self._or_error(self.links, (gpu, link))

    def _or_error(self, table: dict[Any, Any], key: Any) -> Any:
        if key not in table:
            raise self.NVMLError("Not Supported")
        return table[key]

    def __getattr__(self, name: str) -> Any:
        def answer(*arguments: Any, **_: Any) -> Any:
            return self._or_error(self.answers, name)(*arguments)

        return answer
