"""The preflight's judgement: what keeps a node from taking work, and which of its GPUs; and version floors: a node with an
older version gets no work, for the stated reason. Pure; `probe.py` tries things out.

The floors are those of published advisories. A packager of an older version that contains the fix sets
FAIRLEAD_FLOORS=note for the agent, since a version number cannot show that.
"""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from fairlead_agent.node.health.checks import HealthFacts, HealthFinding, all_findings
from fairlead_schemas.wire.health import meaning_of


class Floor(NamedTuple):
    """The first good versions, one of each line that was mended: a version of a line between two of them is not."""

    name: str
    first_good: tuple[str, ...]
    why: str
    mend: str


FLOORS: dict[str, Floor] = {
    "toolkit": Floor(
        "NVIDIA container toolkit",
        ("1.17.8",),
        "CVE-2025-23266, CVE-2025-23267: a container takes over the host",
        "install nvidia-container-toolkit 1.17.8 or newer",
    ),
    "runc": Floor(
        "runc",
        ("1.2.8", "1.3.3", "1.4.0"),
        "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881: a container takes over the host",
        "install runc 1.2.8, 1.3.3 or newer; a distribution's older one may be mended, then set FAIRLEAD_FLOORS=note",
    ),
    "driver": Floor(
        "NVIDIA driver",
        ("525.60.13",),
        "older ones do not run CUDA 12",
        "install a driver of 525.60.13 or newer",
    ),
}


def below(floor: Floor, version: str) -> bool:
    """Return True if the version is older than the first good one. A version that cannot be read is not judged.

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
    """Return a version as numbers: (1, 17, 8) for "1.17.8-1", () where it does not begin with a number."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version.strip())
    return tuple(map(int, found[1].split("."))) if found else ()


def too_old(versions: dict[str, str]) -> list[str]:
    """A sentence for each of these, by the names of FLOORS, that is too old."""
    return [
        f"{floor.name} {versions[key]} is too old ({floor.why}): {floor.mend}"
        for key, floor in FLOORS.items()
        if key in versions and below(floor, versions[key])
    ]


#: What a node says of itself while it has not passed.
TAINT = "fairlead/preflight:NoSchedule"
#: What keeps a node out when it is found at this moment, whatever it was before.
NODE_CODES = ("disk_full", "clock_far", "engine_gone")
#: Characters of evidence that is reported for one failure.
EVIDENCE_CHARS_MAX = 400


class Examination(NamedTuple):
    """Results of an examination."""

    facts: HealthFacts
    #: {"driver": "580.65.06"}, of what could be read (versions.FLOORS).
    versions: Mapping[str, str] = {}
    #: {GPU: reason why it failed its test}, for tested GPUs; "" if it passed.
    tests: Mapping[str, str] = {}
    #: Pairs of GPUs that could not copy to each other.
    peers: tuple[str, ...] = ()


class PreflightVerdict(NamedTuple):
    """Conclusions from an examination."""

    #: Why the node takes no work; "" where it has passed.
    failure: str
    #: {GPU: why}; the node takes work on its others.
    gpus: dict[str, str]


def judged(found: Examination, *, floors: bool, only: Collection[str] = ()) -> PreflightVerdict:
    """`floors`: versions that are too old keep the node out. `only`: the GPUs that are meant, of all there are if none is named."""
    facts = found.facts
    gpus = {gpu: failure for gpu, failure in found.tests.items() if failure}
    reasons = too_old(dict(found.versions)) if floors else []
    there = sum(not gpu.lost for gpu in facts.gpus)
    if there < facts.gpus_expected:
        reasons.append(f"{there} GPUs answer, {facts.gpus_expected} are expected (FAIRLEAD_GPU_COUNT)")
    for finding in all_findings(facts, None):
        if finding.gpu and _keeps_out(finding):
            gpus.setdefault(finding.gpu, finding.evidence)
        elif not finding.gpu and finding.code in NODE_CODES:
            reasons.append(finding.evidence)
    reasons += found.peers
    failures = {gpu: why for gpu, why in gpus.items() if not only or gpu in only}
    return PreflightVerdict("; ".join(reasons)[:EVIDENCE_CHARS_MAX], failures)


def _keeps_out(finding: HealthFinding) -> bool:
    # A hot GPU cools down; `finding_reports.py` says when it has been hot for too long.
    return finding.code != "thermal" and meaning_of(finding.gpu, finding.code).fault
