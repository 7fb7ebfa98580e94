"""Versions below which a node gets no work, and why. Pure.

The floors are those of published advisories; whoever packages an older version with the fix in it says so to the agent
(FAIRLEAD_FLOORS=note), since a version number cannot.
"""

import re
from typing import NamedTuple


class Floor(NamedTuple):
    """The first good versions, one of each line that was mended: a version of a line between two of them is not."""

    name: str
    first_good: tuple[str, ...]
    why: str
    mend: str


FLOORS: dict[str, Floor] = {
    "toolkit": Floor(
        "NVIDIA container toolkit", ("1.17.8",), "CVE-2025-23266, CVE-2025-23267: a container takes over the host",
        "install nvidia-container-toolkit 1.17.8 or newer",
    ),
    "runc": Floor(
        "runc", ("1.2.8", "1.3.3", "1.4.0"), "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881: a container takes over the host",
        "install runc 1.2.8, 1.3.3 or newer; a distribution's older one may be mended, then set FAIRLEAD_FLOORS=note",
    ),
    "driver": Floor(
        "NVIDIA driver", ("525.60.13",), "older ones do not run CUDA 12", "install a driver of 525.60.13 or newer",
    ),
}  # fmt: skip


def below(floor: Floor, version: str) -> bool:
    """Whether the version is older than what is good. One that cannot be read is not judged.

    >>> [below(FLOORS["runc"], each) for each in ("1.1.15", "1.2.8", "1.3.0", "1.3.3", "1.4.0-rc.3")]
    [True, False, True, False, False]
    """
    found = parsed(version)
    if not found:
        return False
    good = [parsed(each) for each in floor.first_good]
    same_line = [each for each in good if each[:2] == found[:2]]
    return found < same_line[0] if same_line else found < min(good)


def parsed(version: str) -> tuple[int, ...]:
    """ "1.17.8-1" is (1, 17, 8); () for what has no number."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version.strip())
    return tuple(map(int, found[1].split("."))) if found else ()


def too_old(versions: dict[str, str]) -> list[str]:
    """A sentence for each of these, by the names of FLOORS, that is too old."""
    return [
        f"{floor.name} {versions[key]} is too old ({floor.why}): {floor.mend}"
        for key, floor in FLOORS.items()
        if key in versions and below(floor, versions[key])
    ]
