"""AMD GPUs from what the amdgpu and kfd drivers show in /sys: an example of a device adapter, with the shape of a real one.

Written from the kernel's documentation of these files and tested over a tree that looks like them. NOT tried on an AMD GPU,
and not part of Fairlead: a start for users who have one. To use it, put it into a package with this entry point, install that
next to Fairlead on the node, and set FAIRLEAD_DEVICES=rocm:

    [project.entry-points."fairlead.devices"]
    rocm = "rocm_devices:open_devices"
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from fairlead_agent.devices.adapters import Machine
from fairlead_agent.devices.port import DevicesUnfit, GpuHealth, GpuProcess, Xid
from fairlead_agent.linux import machine
from fairlead_agent.linux.machine import describe, read_number, read_text
from fairlead_schemas.wire.desired import LayoutOrder, RunOrder
from fairlead_schemas.wire.resources import Gpu, NodeTopology
from fairlead_schemas.wire.samples import GpuSample

MIB = 2**20
AMD = "0x1002"
#: Memory that the driver itself uses on an idle GPU. An assumption: set it for your model.
FREE_MIB = 512
#: Transfers per second of a PCIe lane, as the kernel writes them, to generations.
GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}


def open_devices(node: Machine) -> "RocmDevices":
    """The entry point. The environment may say another bound for a free GPU's memory."""
    text = node.environment.get("ROCM_FREE_MIB", str(FREE_MIB))
    if not text.isdecimal():
        raise DevicesUnfit(f'ROCM_FREE_MIB: expected MiB as a whole number, found "{text}"')
    return RocmDevices(Path("/sys"), free_mib=int(text))


class _Card(NamedTuple):
    """One GPU: its directory below /sys/class/drm, and the number by which kfd calls it (0: kfd does not know it)."""

    home: Path
    gpu: Gpu
    kfd: int


class RocmDevices:
    """The AMD GPUs of a machine."""

    name = "rocm"
    simulated = False

    def __init__(self, sys: Path, *, free_mib: int = FREE_MIB) -> None:
        """Raises DevicesUnfit where there is none."""
        self._sys, self._free_mib = sys, free_mib
        homes = [
            card / "device"
            for card in sorted(sys.glob("class/drm/card*"), key=lambda card: (len(card.name), card.name))
            if re.fullmatch(r"card\d+", card.name) and read_text(card / "device/vendor") == AMD
        ]
        if not homes:
            raise DevicesUnfit(f"no AMD GPU in {sys}/class/drm; is the amdgpu driver loaded?")
        self._inside = describe(sys, machine.cpus(), [home.resolve().name for home in homes])
        kfd = self._kfd_numbers()
        self._cards = [self._describe(index, home, kfd) for index, home in enumerate(homes)]

    def _describe(self, index: int, home: Path, kfd: Mapping[str, int]) -> _Card:
        unique = read_text(home / "unique_id") or home.resolve().name
        gpu = Gpu(
            uuid=f"GPU-{unique}",
            index=index,
            model=read_text(home / "product_name") or f"AMD {read_text(home / 'device')}",
            memory_mib=max(0, read_number(home / "mem_info_vram_total")) // MIB,
            numa=self._inside.numa[index] if self._inside.numa else -1,
        )
        return _Card(home, gpu, kfd.get(unique, 0))

    def _kfd_numbers(self) -> dict[str, int]:
        """{unique id as amdgpu writes it: kfd's number} of the nodes of its topology that are GPUs."""
        found: dict[str, int] = {}
        for node in self._sys.glob("class/kfd/kfd/topology/nodes/*"):
            properties = dict(line.split(" ", 1) for line in read_text(node / "properties").splitlines() if " " in line)
            unique, number = properties.get("unique_id", "0"), read_number(node / "gpu_id")
            if unique.isdecimal() and int(unique) and number > 0:
                found[f"{int(unique):016x}"] = number
        return found

    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(card.gpu for card in self._cards)

    def inside(self) -> NodeTopology:
        return self._inside

    def labels(self) -> dict[str, str]:
        first = self._cards[0].gpu
        return {
            "amd.com/gpu.count": str(len(self._cards)),
            "amd.com/gpu.product-name": first.model.replace(" ", "_"),
            "amd.com/gpu.vram": f"{first.memory_mib // 1024}G",
        }

    def environment(self, order: RunOrder, *, contained: bool) -> dict[str, str]:
        """A run without GPUs sees none."""
        return {"ROCR_VISIBLE_DEVICES": ",".join(order.gpus)} if order.gpus else {"HIP_VISIBLE_DEVICES": "-1"}

    def sample(self, holders: Mapping[str, str]) -> list[GpuSample]:
        return [
            GpuSample(
                uuid=gpu.uuid,
                run=holders.get(gpu.uuid, ""),
                utilization_pct=min(100, max(0, read_number(home / "gpu_busy_percent"))),
                memory_used_mib=_used_mib(home),
                temperature_c=max(0, _sensor(home, "temp1_input") // 1000),
                power_mw=max(0, max(_sensor(home, "power1_average"), _sensor(home, "power1_input")) // 1000),
                sm_clock_mhz=max(0, _sensor(home, "freq1_input") // 1_000_000),
            )
            for home, gpu, _ in self._cards
            if _answers(home)
        ]

    def health(self) -> list[GpuHealth]:
        return [
            _health(home, gpu.uuid) if _answers(home) else GpuHealth(uuid=gpu.uuid, lost=True, why="nothing in /sys")
            for home, gpu, _ in self._cards
        ]

    def xids(self) -> list[Xid]:
        """None: what amdgpu says of faults is in the kernel's messages."""
        return []

    def processes(self) -> list[GpuProcess]:
        return [
            GpuProcess(uuid=gpu.uuid, pid=int(process.name), memory_mib=used // MIB)
            for _, gpu, kfd in self._cards
            for process in sorted(self._sys.glob("class/kfd/kfd/proc/*"), key=lambda path: path.name)
            if kfd and process.name.isdecimal() and (used := read_number(process / f"vram_{kfd}")) > 0
        ]

    def busy(self, uuids: Collection[str]) -> dict[str, str]:
        found = {uuid: self._occupied(uuid) for uuid in uuids}
        return {uuid: evidence for uuid, evidence in found.items() if evidence}

    def _occupied(self, uuid: str) -> str:
        card = next((card for card in self._cards if card.gpu.uuid == uuid), None)
        if card is None:
            return "this node has no such GPU"
        if not _answers(card.home):
            return "the GPU does not answer: nothing in /sys"
        if pids := [each.pid for each in self.processes() if each.uuid == uuid]:
            return "processes on it: " + ", ".join(map(str, pids[:8]))
        used_mib = _used_mib(card.home)
        if used_mib > self._free_mib:
            return f"{used_mib} MiB in use without a process, of a free GPU at most {self._free_mib}"
        return ""

    def cut(self, order: LayoutOrder) -> str:
        return "GPUs of this kind are not cut"

    def close(self) -> None:
        """Nothing to let go of."""


def _answers(home: Path) -> bool:
    return read_number(home / "mem_info_vram_total") > 0


def _used_mib(home: Path) -> int:
    return max(0, read_number(home / "mem_info_vram_used")) // MIB


def _sensor(home: Path, name: str) -> int:
    """-1 where there is none. The number of the hwmon directory changes from boot to boot."""
    return max((read_number(path) for path in home.glob(f"hwmon/hwmon*/{name}")), default=-1)


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _health(home: Path, uuid: str) -> GpuHealth:
    errors = dict(re.findall(r"^(ue|ce): (\d+)$", read_text(home / "ras/umc_err_count"), re.MULTILINE))
    speed, speed_max = (
        GENERATIONS.get(read_text(home / f"{which}_link_speed").partition(" ")[0]) for which in ("current", "max")
    )
    return GpuHealth(
        uuid=uuid,
        ecc_volatile_correctable=int(errors["ce"]) if "ce" in errors else None,
        ecc_volatile_uncorrectable=int(errors["ue"]) if "ue" in errors else None,
        temperature_c=_known(_sensor(home, "temp1_input") // 1000),
        temperature_slowdown_c=_known(_sensor(home, "temp1_crit") // 1000),
        pcie_width=_known(read_number(home / "current_link_width")),
        pcie_width_max=_known(read_number(home / "max_link_width")),
        pcie_generation=speed,
        pcie_generation_max=speed_max,
    )
