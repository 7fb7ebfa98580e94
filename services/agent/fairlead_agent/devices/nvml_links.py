"""What NVML says of the links between GPUs: NVLinks and PCIe levels per pair. A question without an answer says none."""

from collections.abc import Sequence
from typing import Any

from fairlead_agent.inside.describe import Levels, Links
from fairlead_schemas.inside import NVLINKS_MAX, Level

#: Values of nvmlGpuTopologyLevel_t and nvmlNvLinkDeviceType_t; a driver never changes them.
_LEVELS: dict[int, Level] = {0: "SAME_BOARD", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_TO_GPU, _TO_SWITCH = 0, 2
#: Links that a GPU may have; asking for one that is not there costs little.
_LINKS_MAX = 36


def pcie_levels(nvml: Any, handles: Sequence[Any]) -> Levels:
    """[gpu][gpu], "" where the driver does not say (in many virtual machines)."""

    def level(i: int, j: int) -> Level:
        if i == j:
            return "X"
        try:
            return _LEVELS.get(nvml.nvmlDeviceGetTopologyCommonAncestor(handles[i], handles[j]), "")
        except nvml.NVMLError:
            return ""

    # One triangle is asked, so that both ways are the same.
    count = range(len(handles))
    return tuple(tuple(level(min(i, j), max(i, j)) for j in count) for i in count)


def nvlinks(nvml: Any, handles: Sequence[Any], bus_ids: Sequence[str]) -> Links:
    """[gpu][gpu] active links between the two; () where there are none. `bus_ids` as NVML writes them.

    Two GPUs on NVSwitches reach each other over as many links as the one with fewer of them has.
    """
    direct = [[0] * len(handles) for _ in handles]
    switched = [0] * len(handles)
    index = {bus_id.lower(): i for i, bus_id in enumerate(bus_ids)}
    for i, handle in enumerate(handles):
        for link in range(_LINKS_MAX):
            end = _far_end(nvml, handle, link)
            if end == _TO_SWITCH:
                switched[i] += 1
            elif isinstance(end, str) and (j := index.get(end, i)) != i:
                direct[i][j] += 1
    count = range(len(handles))
    rows = tuple(
        tuple(
            0 if i == j else min(NVLINKS_MAX, min(direct[i][j], direct[j][i]) + min(switched[i], switched[j]))
            for j in count
        )
        for i in count
    )
    return rows if any(map(any, rows)) else ()


def _far_end(nvml: Any, handle: Any, link: int) -> int | str | None:
    """_TO_SWITCH, a GPU's bus id, or None for a link that is down, absent, or leads elsewhere."""
    try:
        if not nvml.nvmlDeviceGetNvLinkState(handle, link):
            return None
        kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
        if kind != _TO_GPU:
            return kind if kind == _TO_SWITCH else None
        bus_id = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId
    except nvml.NVMLError:
        return None
    return (bus_id.decode() if isinstance(bus_id, bytes) else bus_id).lower()
