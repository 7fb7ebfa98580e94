"""Reduction of findings to reports. Pure: no clock, files or bus.

A finding must hold for a while before it is reported, and be absent for a while before it is over, so that reports do
not flap. A GPU is well again only on the evidence that its fault asks for (`Meaning.back`): an absence, a test, a boot
and a test, or a person's decision, which the placer has and this module never reports. For a GPU only its gravest open
finding is reported, for the node itself every finding.

XIDs caused by a program's own error are reported to the user with the end of the run that held the GPU.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fairlead_agent.core.ledger import RunEntry
from fairlead_agent.core.runs import Exit, RunKey
from fairlead_agent.node.health.checks import HealthFinding
from fairlead_schemas.units.timestamps import MINUTE_NS, SECOND_NS
from fairlead_schemas.wire import health
from fairlead_schemas.wire.health import meaning_of


class Hold(NamedTuple):
    """Minimum time that a finding holds before it is reported, and is absent before it is over."""

    opens_ns: int = 0
    closes_ns: int = 2 * MINUTE_NS


#: All other codes are reported at once, and are over after two minutes.
HOLDS: dict[str, Hold] = {
    "thermal": Hold(5 * MINUTE_NS, 5 * MINUTE_NS),
    "power_brake": Hold(5 * MINUTE_NS, 5 * MINUTE_NS),
    "pcie_narrow": Hold(MINUTE_NS, 10 * MINUTE_NS),
    "nvlink_errors": Hold(0, 10 * MINUTE_NS),
    "disk_low": Hold(10 * SECOND_NS, 2 * MINUTE_NS),
    "disk_full": Hold(0, MINUTE_NS),
    "clock_step": Hold(0, 10 * MINUTE_NS),
    "clock_skew": Hold(MINUTE_NS, 5 * MINUTE_NS),
    "clock_far": Hold(30 * SECOND_NS, MINUTE_NS),
    "engine_gone": Hold(20 * SECOND_NS, 10 * SECOND_NS),
    "engine_restarted": Hold(0, 10 * MINUTE_NS),
    "spawner_gone": Hold(20 * SECOND_NS, MINUTE_NS),
    "zombie_memory": Hold(0, 0),
    "kill_failed": Hold(0, 0),
}
USUAL = Hold()
#: A repeated XID is reported again after this time: a person may have restored the GPU meanwhile.
XID_AGAIN_NS = MINUTE_NS


class Change(NamedTuple):
    """A report to be made: HealthSeen's fields."""

    gpu: str
    code: str
    evidence: str = ""
    over: bool = False


class _Open:
    __slots__ = ("absent_ns", "boot_id", "evidence", "mark", "reported_ns")

    def __init__(self, boot_id: str, evidence: str, mark: int, reported_ns: int) -> None:
        self.boot_id = boot_id
        self.evidence = evidence
        self.mark = mark
        self.reported_ns = reported_ns
        #: Since when it is not found any more; None while it is.
        self.absent_ns: int | None = None


class HealthWatch:
    """Findings that are open now. `opened`: {(GPU, code): the boot in which it was found}, as reported by an earlier process."""

    def __init__(self, boot_id: str, opened: Mapping[tuple[str, str], str]) -> None:
        self._boot_id = boot_id
        self._open = {key: _Open(boot, "", 0, 0) for key, boot in opened.items()}
        #: {GPU: its last reported code}.
        self._reported = {gpu: code for gpu, code in opened if gpu}
        #: {(GPU, code): since when it is found}, for findings not reported yet.
        self._held: dict[tuple[str, str], int] = {}

    @property
    def suspects(self) -> tuple[str, ...]:
        """GPUs that a passed test would give back."""
        return tuple(sorted({gpu for gpu, code in self._open if gpu and self._waits_for_test(gpu, code)}))

    def look(self, findings: Iterable[HealthFinding], now_ns: int) -> list[Change]:
        """Apply the current findings of all checks and return the changes to report. A finding that is not given is absent."""
        changes: list[Change] = []
        found = {(each.gpu, each.code): each for each in findings}
        for key in [key for key in self._held if key not in found]:
            del self._held[key]
        for key, finding in found.items():
            changes += self._seen(key, finding, now_ns)
        for key in [key for key in self._open if key not in found]:
            changes += self._unseen(key, now_ns)
        return changes

    def xid(self, gpu: str, number: int, evidence: str, now_ns: int) -> list[Change]:
        """The driver has reported an error; what is a note at most changes nothing here."""
        if health.xid_decision(number) in ("nothing", "note"):
            return []
        key = gpu, f"xid{number}"
        known = self._open.get(key)
        if known is None:
            return self._begin(HealthFinding(*key, evidence), now_ns)
        known.boot_id = self._boot_id
        if now_ns - known.reported_ns < XID_AGAIN_NS:
            return []
        known.reported_ns = now_ns
        return [Change(*key, evidence)]

    def tested(self, gpu: str, failure: str, now_ns: int) -> list[Change]:
        """Apply the result of a test of an idle GPU and return the changes to report. `failure` is "" if the GPU has passed."""
        if failure:
            key = gpu, "gpu_test"
            return [] if key in self._open else self._begin(HealthFinding(*key, failure), now_ns)
        over = [key for key in self._open if key[0] == gpu and self._waits_for_test(*key)]
        for key in over:
            del self._open[key]
        return self._say(gpu) if over else []

    def report(self, code: str, evidence: str, now_ns: int) -> list[Change]:
        """Something of the node itself that no check finds: a preflight, a meeting. With "" it is over."""
        key = "", code
        if evidence and key not in self._open:
            return self._begin(HealthFinding(*key, evidence), now_ns)
        return self._end(key) if not evidence and key in self._open else []

    def _seen(self, key: tuple[str, str], finding: HealthFinding, now_ns: int) -> list[Change]:
        known = self._open.get(key)
        if known is None:
            since_ns = self._held.setdefault(key, now_ns)
            if now_ns - since_ns < HOLDS.get(finding.code, USUAL).opens_ns:
                return []
            del self._held[key]
            return self._begin(finding, now_ns)
        known.absent_ns, known.boot_id = None, self._boot_id
        if finding.mark <= known.mark:
            return []
        again, known.mark, known.evidence = known.mark > 0, finding.mark, finding.evidence
        return [Change(finding.gpu, finding.code, finding.evidence)] if again else []

    def _unseen(self, key: tuple[str, str], now_ns: int) -> list[Change]:
        gpu, code = key
        if (
            code.startswith("xid")
            or code in ("gpu_test", "preflight", "meeting")
            or meaning_of(gpu, code).back != "gone"
        ):
            return []  # an absence says nothing of these
        known = self._open[key]
        if known.absent_ns is None:
            known.absent_ns = now_ns
        return self._end(key) if now_ns - known.absent_ns >= HOLDS.get(code, USUAL).closes_ns else []

    def _waits_for_test(self, gpu: str, code: str) -> bool:
        back = meaning_of(gpu, code).back
        return back == "tested" or (back == "booted" and self._open[(gpu, code)].boot_id != self._boot_id)

    def _begin(self, finding: HealthFinding, now_ns: int) -> list[Change]:
        gpu, code, evidence, mark = finding
        self._open[(gpu, code)] = _Open(self._boot_id, evidence, mark, now_ns)
        return self._say(gpu) if gpu else [Change(gpu, code, evidence)]

    def _end(self, key: tuple[str, str]) -> list[Change]:
        gpu, code = key
        del self._open[key]
        return self._say(gpu) if gpu else [Change(gpu, code, over=True)]

    def _say(self, gpu: str) -> list[Change]:
        """Return the GPU's gravest finding, if it differs from the last one reported. Among equals the one open for longest wins."""
        codes = [code for each, code in self._open if each == gpu]
        gravest = max(codes, key=lambda code: meaning_of(gpu, code)[:3][::-1], default="")
        if gravest == self._reported.get(gpu, ""):
            return []
        self._reported[gpu] = gravest
        evidence = self._open[(gpu, gravest)].evidence if gravest else ""
        return [Change(gpu, gravest, evidence)]


#: Different errors that are reported to one run.
NOTES_MAX = 4


class XidNotes:
    """{run: what its GPUs have reported}."""

    def __init__(self) -> None:
        self._notes: dict[RunKey, list[str]] = {}

    def add(self, gpu: str, number: int, runs: Iterable[RunEntry]) -> None:
        """Add an XID of a GPU as a note to each open run that holds the GPU."""
        if health.xid_decision(number) == "nothing":
            return
        for run in runs:
            if run.open and gpu in run.gpus:
                notes = self._notes.setdefault(run.key, [])
                note = f"{gpu} reported {health.xid_words(number)}"
                if note not in notes and len(notes) < NOTES_MAX:
                    notes.append(note)

    def annotated(self, key: RunKey, exit: Exit) -> Exit:
        """Return the run's exit with the notes about its GPUs added to the message. The notes are then forgotten."""
        notes = self._notes.pop(key, [])
        return exit._replace(message="; ".join([*([exit.message] if exit.message else []), *notes])) if notes else exit
