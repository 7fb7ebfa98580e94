"""RDMA devices of this machine, in the order that people count them: mlx5_2 before mlx5_10."""

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


def _natural(name: str) -> list[tuple[bool, int, str]]:
    return [(piece.isdecimal(), int(piece) if piece.isdecimal() else 0, piece) for piece in _NUMBER.split(name)]
