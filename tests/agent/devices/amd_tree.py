"""A /sys as the amdgpu and kfd drivers write it, for the example adapter of docs/examples."""

import shutil
from pathlib import Path

from tests.agent.linux.sysfs_tree import Tree

IDS = ("4f1a2b3c4d5e6f70", "4f1a2b3c4d5e6f71")
KFD = (45_123, 7_654)


def two_cards(root: Path) -> Tree:
    """Two MI250X and a display card of another maker; card1 and card2 are AMD's."""
    tree = Tree(root)
    tree.numa(0, "0-3").numa(1, "4-7")
    _card(tree, 0, "pci0000:00/0000:00:01.0/0000:01:00.0", 0, {"vendor": "0x10de"})
    for at in range(2):
        path = f"pci0000:{at}0/0000:{at}0:02.0/0000:{at}2:00.0"
        _card(
            tree,
            at + 1,
            path,
            at,
            {
                "vendor": "0x1002",
                "device": "0x7408",
                "unique_id": IDS[at],
                "product_name": "AMD INSTINCT MI250X",
                "mem_info_vram_total": str(64 << 30),
                "mem_info_vram_used": str(11 << 20),
                "gpu_busy_percent": "37",
                "current_link_width": "16",
                "max_link_width": "16",
                "current_link_speed": "16.0 GT/s PCIe",
                "max_link_speed": "16.0 GT/s PCIe",
                "ras/umc_err_count": "ue: 0\nce: 2",
                f"hwmon/hwmon{at + 3}/temp1_input": "41000",
                f"hwmon/hwmon{at + 3}/temp1_crit": "100000",
                f"hwmon/hwmon{at + 3}/power1_average": "92000000",
                f"hwmon/hwmon{at + 3}/freq1_input": "1700000000",
            },
        )
        tree._write(f"class/kfd/kfd/topology/nodes/{at + 1}/gpu_id", str(KFD[at]))
        tree._write(
            f"class/kfd/kfd/topology/nodes/{at + 1}/properties",
            f"simd_count 440\nunique_id {int(IDS[at], 16)}\ndomain 0",
        )
    tree._write("class/kfd/kfd/topology/nodes/0/gpu_id", "0")
    tree._write("class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 8\nunique_id 0")
    (root / "class/drm/card1-DP-1").mkdir()
    return tree


def _card(tree: Tree, number: int, path: str, numa: int, files: dict[str, str]) -> None:
    tree.device(path, numa)
    for name, text in files.items():
        tree._write(f"devices/{path}/{name}", text)
    Tree._link(tree.root / f"class/drm/card{number}/device", tree.root / "devices" / path)


def computes(root: Path, at: int, pid: int, mib: int) -> None:
    """A process on one of the two."""
    Tree(root)._write(f"class/kfd/kfd/proc/{pid}/vram_{KFD[at]}", str(mib << 20))


def falls_off(root: Path, at: int) -> None:
    """The card's directory is gone."""
    shutil.rmtree((root / f"class/drm/card{at + 1}/device").resolve())
