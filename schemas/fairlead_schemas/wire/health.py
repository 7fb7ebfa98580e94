"""Health codes of nodes and GPUs, and their consequences; and Fairlead's decision on each XID, the numbers by which
NVIDIA's driver reports errors of a GPU.

One closed table: the agent reports these codes, the placer acts on them, docs/reference/health.md and people's
views explain them.

The codes of XIDs are "xid" and their number, with the meaning of the table below. An unknown code of a GPU
takes the GPU out of use: one GPU too few is better than work on a broken one.

One table serves the agent that sees XIDs, the placer that acts on them, and docs/reference/health.md that
explains them.

The catalogue (xid_catalog.csv) holds names and resolutions of NVIDIA's XID catalogue of October 2025 and gpud's
judgement of them, both in the form of leptonai/gpud (Apache-2.0), and the XIDs that NVIDIA/k8s-device-plugin
ignores (Apache-2.0); unchanged. Fairlead's decision follows from NVIDIA's immediate resolution by `RULES`,
except for the codes in `OURS`, each with its reason.
"""

import csv
import re
from functools import cache
from importlib import resources
from typing import Literal, NamedTuple

#: Each does what those before it do, and more.
XidDecision = Literal[
    "nothing",  # not reported
    "note",  # reported to the user whose run held the GPU
    "gpu",  # the GPU gets no new work; the run that holds it continues
    "stop",  # the run that holds it is stopped and waits again
    "node",  # the whole node gets no new work before a person has looked
    "reboot",  # the whole node gets no new work before it has rebooted
]
XID_DECISIONS: tuple[XidDecision, ...] = ("nothing", "note", "gpu", "stop", "node", "reboot")
#: Of a number that no catalogue lists.
UNKNOWN_XID: XidDecision = "gpu"

#: {NVIDIA's immediate resolution: what we do}; the workflows, which are papers to read, and codes without one are in `OURS`.
XID_RULES: dict[str, XidDecision] = {
    "IGNORE": "nothing",
    "RESTART_APP": "note",
    "RESET_GPU": "stop",
    "CONTACT_SUPPORT": "gpu",
    "CHECK_MECHANICALS": "node",
    "UPDATE_SWFW": "node",
    "RESTART_VM": "reboot",
    "RESTART_BM": "reboot",
}

_DISPLAY = "Of the display engine, which no compute work uses."
_LINK = (
    "NVIDIA's paper on NVLink errors ends in a reset for most of its branches, and work over the link has lost data."
)
_GSP = "The GPU's own processor no longer answers; a reset needs every GPU of the machine idle, so the node is emptied first."
_ENGINE = "gpud reboots for it; NVIDIA and we take it for the program's error: the engine is reset by the driver."
_SMOOTHING = "About power smoothing: no error of work. gpud notes it, too."
_CRYPTO = (
    "No resolution is published. Work on the GPU was cut off; the test that follows shows whether it is fit again."
)

#: {XID: (what we do, why)}: where NVIDIA says nothing definite, where the sources disagree, or where we differ.
XID_OVERRIDES: dict[int, tuple[XidDecision, str]] = {
    **dict.fromkeys((16, 19, 56, *range(112, 119)), ("nothing", _DISPLAY)),
    13: ("note", "A program's error by NVIDIA and the device plugin; gpud also looks at the GPU. Its next test does that for us."),
    31: ("note", "A program's error by NVIDIA and the device plugin; gpud inspects the hardware when it repeats. We count it per user."),
    32: ("note", "gpud reboots; NVIDIA attributes it to invalid data from the program. A fault of the bus also shows as other codes."),
    38: ("stop", "NVIDIA ignores it, gpud reboots. Firmware that timed out has lost the work: the run ends, and a test decides."),
    43: ("note", "NVIDIA and the device plugin ignore it: the program was ended by its own error. Its user should know."),
    44: ("stop", "NVIDIA ignores it, gpud reboots. The context is lost, so the run ends; a test decides about the GPU."),
    45: ("nothing", "It only reports that work was removed because of another error, which is reported separately."),
    48: ("reboot", "Memory has lost data. The node is emptied, since the rows are remapped by a reset only."),
    54: ("node", "The auxiliary power is not plugged in: a technician has to go there. gpud warns and does nothing."),
    60: ("note", _ENGINE),
    63: ("nothing", "A row was remapped as it should be; gpud reboots for it. What is still pending is a check of its own (remap_pending)."),
    64: ("reboot", "A row could not be remapped: the next error there loses data. Reset, then look at remap_failed."),
    65: ("gpu", "Unused by NVIDIA, a reboot for gpud: not enough is known to stop a run for it."),
    66: ("note", "An illegal access that NVIDIA asks to have looked at; a driver's or a program's bug, no broken GPU."),
    68: ("note", _ENGINE),
    69: ("note", _ENGINE),
    74: ("stop", _LINK),
    79: ("reboot", "The GPU has fallen off the bus; a second time requires a repair."),
    94: ("note", "Contained: the driver has ended the program that was hit, and needs no further action. gpud reboots; NVIDIA restarts the program."),
    95: ("reboot", "Uncontained: other programs may be hit, so everything on the GPU ends and the node is emptied for a reset."),
    108: ("nothing", "NVIDIA ignores it; what follows from it is 137."),
    109: ("stop", "NVIDIA resets the GPU, the device plugin ignores it, gpud warns. Often caused by the program; the run cannot continue, and a test decides."),
    119: ("reboot", _GSP),
    120: ("reboot", _GSP),
    121: ("note", "NVIDIA ignores it, gpud reboots. A link to the CPU has repeated something; data is whole."),
    136: ("stop", "A link was not trained. NVIDIA resets; gpud only warns. Without the link, work would be slow, or wrong of its place."),
    137: ("note", "NVIDIA ignores it, gpud has the program looked at: a program reached where it may not."),
    140: ("reboot", "Memory has lost data and the owner is unknown: as 95."),
    142: ("note", "An encoder's error like 65 and 73; NVIDIA asks for a call, gpud warns. No compute work uses it."),
    143: ("reboot", "The GPU did not come up: there is nothing to test before a reset."),
    **dict.fromkeys(range(144, 151), ("stop", _LINK)),
    154: ("nothing", "It reports that the recovery action has changed: the action is read separately (recovery)."),
    155: ("stop", _LINK),
    156: ("gpu", "Part of the GPU was retired. NVIDIA resets, gpud reboots; what runs there is not hit, so it ends in peace first."),
    157: ("gpu", "Retiring has failed. NVIDIA ignores it; we would not start new work on what should have been retired."),
    158: ("reboot", "The GPU has timed out for good."),
    159: ("note", "NVIDIA's resolution looks at other errors; alone it is a note."),
    160: ("note", "A channel was retired; the program on it has ended. NVIDIA ignores it, but asks to have it looked at."),
    161: ("gpu", "A channel could not be retired. NVIDIA ignores it; the next program could get it."),
    162: ("nothing", _SMOOTHING),
    163: ("nothing", "About power smoothing: no error of work. gpud would reboot; work continues without one."),
    164: ("nothing", _SMOOTHING),
    165: ("node", "The power smoothing's hardware is worn out: its repair has to be planned."),
    166: ("stop", _CRYPTO),
    167: ("reboot", "PCI Express has timed out for good: as 79."),
    168: ("gpu", "Part of the memory is lost to errors; a job may not fit any more."),
    169: ("stop", "A controller of the GPU has halted; no resolution is published. As 62."),
    170: ("stop", _CRYPTO),
    171: ("nothing", "Only adds to 48."),
    172: ("nothing", "Only adds to 48."),
}  # fmt: skip


class XidEntry(NamedTuple):
    """Row of the XID catalogue."""

    number: int
    mnemonic: str
    name: str
    immediate: str
    investigatory: str
    gpud_level: str
    gpud_actions: str
    plugin_ignores: bool


@cache
def xid_catalog() -> dict[int, XidEntry]:
    """{number: its row}, by rising number."""
    text = resources.files("fairlead_schemas").joinpath("xid_catalog.csv").read_text("utf-8")
    rows = list(csv.reader(text.splitlines()))[1:]
    return {
        int(number): XidEntry(int(number), mnemonic, name, at_once, then, level, actions, ignored == "yes")
        for number, mnemonic, name, at_once, then, level, actions, ignored in rows
    }


def xid_decision(number: int) -> XidDecision:
    """Return Fairlead's decision on an XID."""
    if number in XID_OVERRIDES:
        return XID_OVERRIDES[number][0]
    row = xid_catalog().get(number)
    return UNKNOWN_XID if row is None else XID_RULES[row.immediate]


def is_xid_disputed(row: XidEntry) -> bool:
    """Return True if the sources disagree on an XID.

    The sources disagree if NVIDIA calls it light and gpud fatal, or NVIDIA calls it grave and another source light.
    An XID that NVIDIA calls unused is never disputed.
    """
    if row.name == "Unused":
        return False
    rule = XID_RULES.get(row.immediate)
    light, reboots = rule in ("nothing", "note"), "RebootSystem" in row.gpud_actions
    return rule is None or (light and reboots) or (not light and (row.plugin_ignores or not row.gpud_actions))


def xid_words(number: int) -> str:
    """ "XID 79, GPU has fallen off the bus"."""
    row = xid_catalog().get(number)
    return f"XID {number}" if row is None or row.name == "Unused" else f"XID {number}, {row.name}"


#: What it takes until it is well again.
Back = Literal[
    "gone",  # the agent no longer sees it
    "tested",  # the GPU has passed a test, idle
    "booted",  # the node has rebooted, and then the same
    "person",  # a person restores it
]
#: How much is done by itself.
Severity = Literal[
    "note",  # it is shown; work continues
    "gpu",  # the GPU gets no new work
    "node",  # the node gets no new work
]


class Meaning(NamedTuple):
    """Consequences of a health code."""

    #: Of a GPU: it may not be used.
    fault: bool = True
    #: The run that holds the GPU cannot continue.
    stop: bool = False
    #: The whole node gets no new work.
    node: bool = False
    #: What is wrong, for people.
    words: str = ""
    back: Back = "gone"

    @property
    def severity(self) -> Severity:
        """Extent of the consequences: the whole node, the GPU, or a note only."""
        return "node" if self.node else "gpu" if self.fault else "note"

    @property
    def returns(self) -> str:
        """`back`, for people."""
        return _BACK[self.back]


_BACK: dict[Back, str] = {
    "gone": "it is over",
    "tested": "the GPU is idle and has passed a test",
    "booted": "the node has rebooted and passed its preflight; or a person restores it",
    "person": "a person restores it",
}

#: About one GPU.
OF_GPUS: dict[str, Meaning] = {
    "gpu_lost": Meaning(True, True, True, "it does not answer any more, or is gone", "booted"),
    "gpu_test": Meaning(True, False, False, "it has failed a test of computing or memory", "tested"),
    "ecc_uncorrectable": Meaning(True, True, True, "its memory has lost data since the driver was loaded", "booted"),
    "remap_pending": Meaning(True, False, False, "rows of its memory wait for a reset to be remapped", "gone"),
    "remap_failed": Meaning(True, False, False, "rows of its memory could not be remapped", "person"),
    "recovery": Meaning(True, False, False, "the driver asks for a reset or a reboot", "gone"),
    "thermal": Meaning(True, False, False, "it has been slowed down by heat or hardware for minutes", "gone"),
    "zombie_memory": Meaning(True, False, False, "its memory is not free, minutes after its run has ended", "gone"),
    "kill_failed": Meaning(True, False, True, "a program on it does not end, though it was killed", "gone"),
}  # fmt: skip
#: About the node itself (or several of its GPUs, where none is taken away for it).
OF_NODES: dict[str, Meaning] = {
    "preflight": Meaning(False, False, False, "its preflight has failed; it takes no work before one has passed", "gone"),
    "drained_hook": Meaning(False, False, False, "the program that its admin has set for drained nodes has failed there", "gone"),
    "meeting": Meaning(False, False, False, "it was named as the one that others of a gang could not talk to, or only slowly", "gone"),
    "kill_failed": Meaning(False, False, True, "a run does not end, though it was killed", "gone"),
    "disk_low": Meaning(False, False, False, "its disk has less than 10 % left", "gone"),
    "disk_full": Meaning(False, False, True, "its disk has less than 5 % left", "gone"),
    "clock_step": Meaning(False, False, False, "its clock has jumped", "gone"),
    "clock_skew": Meaning(False, False, False, "its clock differs from the server's by more than half a second", "gone"),
    "clock_far": Meaning(False, False, True, "its clock differs from the server's by more than 5 seconds", "gone"),
    "engine_gone": Meaning(False, False, True, "its container engine does not answer", "gone"),
    "engine_restarted": Meaning(False, False, False, "its container engine was restarted", "gone"),
    "spawner_gone": Meaning(False, False, False, "the parent of its runs has ended; another one is started", "gone"),
    "power_brake": Meaning(False, False, False, "its power supply holds GPUs down", "gone"),
    "pcie_narrow": Meaning(False, False, False, "GPUs have fewer PCI Express lanes, or slower ones, than they could", "gone"),
    "nvlink_errors": Meaning(False, False, False, "the links between its GPUs repeat themselves", "gone"),
}  # fmt: skip

_WORD = re.compile(r"[a-z0-9_-]{1,40}")
_XID = re.compile(r"xid(\d{1,4})")
_BY_DECISION: dict[XidDecision, Meaning] = {
    "nothing": Meaning(False, back="gone"),
    "note": Meaning(False, back="gone"),
    "gpu": Meaning(True, back="booted"),
    "stop": Meaning(True, True, back="tested"),
    "node": Meaning(True, True, True, back="person"),
    "reboot": Meaning(True, True, True, back="booted"),
}


def is_code(text: str) -> bool:
    """True for something that may be the code of a GPU's fault."""
    return _WORD.fullmatch(text) is not None


def meaning_of_gpu(code: str) -> Meaning:
    """Return the meaning of a GPU's code; unknown codes have one, too."""
    known = OF_GPUS.get(code)
    if known is not None:
        return known
    found = _XID.fullmatch(code)
    if found is None:
        return Meaning(back="person")
    number = int(found[1])
    return _BY_DECISION[xid_decision(number)]._replace(words=xid_words(number))


def meaning_of(gpu: str, code: str) -> Meaning:
    """Return the meaning of a code; `gpu` is "" for the node itself."""
    return meaning_of_gpu(code) if gpu else OF_NODES.get(code, Meaning(fault=False))
