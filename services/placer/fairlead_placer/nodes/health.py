"""GPUs by what agents report of their health. Emits on a draft.

A fault always takes the GPU out of use: that rests on evidence from the very device. Some faults also stop the run that
holds it, and taint the node until it is well; the taint asks the breaker first, because it may come for many at once.
"""

import re
from typing import NamedTuple

from fairlead_placer.draft import EVENT_BYTES, Draft, encoded_bytes
from fairlead_placer.entities import Node
from fairlead_placer.nodes import breaker
from fairlead_placer.nodes.answers import MESSAGE_CHARS_MAX, Refusal
from fairlead_schemas import events as ev
from fairlead_schemas.commands import RestoreGpu
from fairlead_schemas.reports import HealthSeen

UNHEALTHY = "fairlead/unhealthy"


class Meaning(NamedTuple):
    """What a code asks for."""

    fault: bool = True
    #: The run that holds the GPU cannot go on.
    stop: bool = False
    #: The whole node wants a look before it gets more work.
    node: bool = False


#: After NVIDIA's catalogue of XIDs as gpud reads it. A code that is not here takes the GPU out of use and no more.
MEANINGS: dict[str, Meaning] = {
    **{f"xid{number}": Meaning(fault=False) for number in (13, 31, 63, 94)},  # a program's error, or a note
    **{f"xid{number}": Meaning(stop=True, node=True) for number in (48, 64, 79, 95, 119, 120)},
    "remap_pending": Meaning(),  # row remapping; mended by a reset once it is idle
    "remap_failed": Meaning(),
    "thermal": Meaning(),
    "kill_failed": Meaning(node=True),
}
_CODE = re.compile(r"[a-z0-9_-]{1,40}")


def seen(draft: Draft, node: Node, report: HealthSeen, cause: str) -> Refusal | None:
    """Take up one report; what is known already changes nothing. A refusal says why it is not believed."""
    known = node.faulted.get(report.gpu)
    if report.gpu not in node.left.at and known is None:
        return Refusal("unknown_gpu", f'expected a GPU of this node, found "{report.gpu[:80]}"')
    if not report.code:
        if known is not None:
            draft.emit(ev.GpuRestored(cause=cause, node=node.name, gpu=report.gpu))
        return None
    if not _CODE.fullmatch(report.code):
        return Refusal("bad_code", f'expected 1 to 40 of a-z 0-9 _ -, found "{report.code[:80]}"')
    meaning = MEANINGS.get(report.code, Meaning())
    if meaning.fault and known != report.code:
        reason = report.evidence[:MESSAGE_CHARS_MAX]
        draft.emit(
            ev.GpuFaulted(
                cause=cause, node=node.name, gpu=report.gpu, code=report.code, reason=reason, stop=meaning.stop
            ),
            EVENT_BYTES + encoded_bytes(reason),
        )  # fmt: skip
    return None


def restore(draft: Draft, asked: RestoreGpu, cause: str) -> Refusal | None:
    """A person says that the GPU is well."""
    if asked.gpu not in draft.state.nodes[asked.node].faulted:
        return Refusal("not_faulted", f'expected a faulted GPU of {asked.node}, found "{asked.gpu[:80]}"')
    draft.emit(ev.GpuRestored(cause=cause, node=asked.node, gpu=asked.gpu, by=asked.user))
    return None


def taint(draft: Draft) -> None:
    """Bring the taints that health sets to what the GPUs say. Driven by state: what the breaker held back comes after
    its reset."""
    state = draft.state
    for name in sorted(state.ailing):
        if draft.full:
            return
        node = state.nodes[name]
        wanted = wanted_taint(node)
        has = _has(node)
        if wanted and wanted != has and breaker.allows(draft, name):
            draft.emit(ev.NodeTainted(cause="clock", node=name, taint=wanted, setter="health"))
        elif has and not wanted:
            draft.emit(ev.NodeUntainted(cause="clock", node=name, taint=has, setter="health"))


def wanted_taint(node: Node) -> str:
    """The taint that the faults of its GPUs ask for, "" for none. The first code by name stands for all."""
    codes = [code for uuid, code in node.faulted.items() if uuid in node.left.at and MEANINGS.get(code, Meaning()).node]
    return f"{UNHEALTHY}={min(codes)}:NoSchedule" if codes else ""


def _has(node: Node) -> str:
    return next((taint for taint, setter in node.tainted if setter == "health"), "")
