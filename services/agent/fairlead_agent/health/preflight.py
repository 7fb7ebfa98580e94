"""The preflight's judgement: what keeps a node from taking work, and which of its GPUs. Pure; `examining.py` tries things out."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from fairlead_agent.health.checks import Finding, all_findings
from fairlead_agent.health.facts import Facts
from fairlead_agent.health.versions import too_old
from fairlead_schemas.health import meaning_of

#: What a node says of itself while it has not passed.
TAINT = "fairlead/preflight:NoSchedule"
#: What keeps a node out when it is found at this moment, whatever it was before.
NODE_CODES = ("disk_full", "clock_far", "engine_gone")
#: Evidence that is told of one failure.
EVIDENCE_CHARS_MAX = 400


class Examination(NamedTuple):
    """What was found out."""

    facts: Facts
    #: {"driver": "580.65.06"}, of what could be read (versions.FLOORS).
    versions: Mapping[str, str] = {}
    #: {GPU: why it has failed its test}, of those that were tested: "" where it has passed.
    tests: Mapping[str, str] = {}
    #: Pairs of GPUs that could not copy to each other.
    peers: tuple[str, ...] = ()


class Verdict(NamedTuple):
    """What follows."""

    #: Why the node takes no work; "" where it has passed.
    failure: str
    #: {GPU: why}; the node takes work on its others.
    gpus: dict[str, str]


def judged(found: Examination, *, floors: bool, only: Collection[str] = ()) -> Verdict:
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
    kept = {gpu: why for gpu, why in gpus.items() if not only or gpu in only}
    return Verdict("; ".join(reasons)[:EVIDENCE_CHARS_MAX], kept)


def _keeps_out(finding: Finding) -> bool:
    # A hot GPU cools down; `watch.py` says when it has been hot for too long.
    return finding.code != "thermal" and meaning_of(finding.gpu, finding.code).fault
