"""RDMA devices of this machine, in the order that people count them: mlx5_2 before mlx5_10; and the files they are used by."""

import re
from pathlib import Path

from fairlead_agent.inside.pci import Place, place_of
from fairlead_schemas.inside import NIC_CHARS_MAX, NICS_MAX

_NUMBER = re.compile(r"(\d+)", re.ASCII)


def nics(sys: Path) -> dict[str, Place]:
    """{name: its place} of those on PCIe, the first NICS_MAX. Virtual functions are their card's, and left out."""
    try:
        entries = sorted((sys / "class/infiniband").iterdir(), key=lambda entry: _natural(entry.name))
    except OSError:
        return {}
    found: dict[str, Place] = {}
    for entry in entries:
        device = entry / "device"
        place = place_of(device)
        if place is not None and not (device / "physfn").exists() and len(entry.name) <= NIC_CHARS_MAX:
            found[entry.name] = place
    return dict(list(found.items())[:NICS_MAX])


def verbs(sys: Path) -> dict[str, tuple[str, ...]]:
    """{name: the files below /dev through which programs use it}: its own, as the kernel numbers them, and the one for
    connections that all share."""
    shared = ("/dev/infiniband/rdma_cm",) if (sys / "class/misc/rdma_cm").exists() else ()
    found: dict[str, tuple[str, ...]] = {}
    try:
        for entry in sorted((sys / "class/infiniband_verbs").iterdir()):
            name = (entry / "ibdev").read_text().strip() if (entry / "ibdev").exists() else ""
            if name and re.fullmatch(r"uverbs\d+", entry.name, re.ASCII):
                found[name] = (f"/dev/infiniband/{entry.name}", *shared)
    except OSError:
        return {}
    return found


def _natural(name: str) -> list[tuple[bool, int, str]]:
    return [(piece.isdecimal(), int(piece) if piece.isdecimal() else 0, piece) for piece in _NUMBER.split(name)]
