"""Health codes of nodes and GPUs, and their consequences.

One closed table: the agent reports these codes, the placer acts on them, docs/reference/health.md and people's
views explain them.

The codes of XIDs are "xid" and their number, with the meaning that xids.py decides. An unknown code of a GPU
takes the GPU out of use: one GPU too few is better than work on a broken one.
"""

import re
from typing import Literal, NamedTuple

from fairlead_schemas import xids

#: What it takes until it is well again.
Back = Literal[
    "gone",  # the agent no longer sees it
    "tested",  # the GPU has passed a test, idle
    "booted",  # the node has booted anew, and then the same
    "person",  # somebody restores it
]
#: How much is done by itself.
Severity = Literal[
    "note",  # it is shown; work goes on
    "gpu",  # the GPU gets no new work
    "node",  # the node gets no new work
]


class Meaning(NamedTuple):
    """Consequences of a health code."""

    #: Of a GPU: it may not be used.
    fault: bool = True
    #: The run that holds the GPU cannot go on.
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
    "booted": "the node has booted anew and passed its preflight; or a person restores it",
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
    "engine_restarted": Meaning(False, False, False, "its container engine was started anew", "gone"),
    "spawner_gone": Meaning(False, False, False, "the parent of its runs has ended; another one is started", "gone"),
    "power_brake": Meaning(False, False, False, "its power supply holds GPUs down", "gone"),
    "pcie_narrow": Meaning(False, False, False, "GPUs have fewer PCI Express lanes, or slower ones, than they could", "gone"),
    "nvlink_errors": Meaning(False, False, False, "the links between its GPUs repeat themselves", "gone"),
}  # fmt: skip

_WORD = re.compile(r"[a-z0-9_-]{1,40}")
_XID = re.compile(r"xid(\d{1,4})")
_BY_DECISION: dict[xids.Decision, Meaning] = {
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
    return _BY_DECISION[xids.decision(number)]._replace(words=xids.words(number))


def meaning_of(gpu: str, code: str) -> Meaning:
    """Return the meaning of a code; `gpu` is "" for the node itself."""
    return meaning_of_gpu(code) if gpu else OF_NODES.get(code, Meaning(fault=False))
