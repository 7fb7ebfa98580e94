"""Health of nodes and GPUs as agents report it. Emits on a draft. The meaning of the codes is in the contracts
(wire/health.py).

A fault always takes the GPU out of use: that rests on evidence from the very device. Some faults also stop the run that
holds it, and taint the node until it is well. The taint asks the breaker first, because it may hit many nodes at once.
"""

from fairlead_bus.core import MESSAGE_CHARS_MAX, CommandRefusal, encoded_bytes
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.cluster.entities import ClusterNode
from fairlead_placer.decide import circuit_breaker
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import RestoreGpu
from fairlead_schemas.wire.health import OF_NODES, is_code, meaning_of_gpu
from fairlead_schemas.wire.reports import HealthSeen

UNHEALTHY = "fairlead/unhealthy"
#: Faulted GPUs that one refusal names.
SHOWN_MAX = 4


def seen(draft: PlacerDraft, node: ClusterNode, report: HealthSeen, cause: str) -> CommandRefusal | None:
    """Take up one report; what is known already changes nothing. A refusal says why it is not believed."""
    if not report.gpu:
        return _of_node(draft, node, report, cause)
    known = node.faulted.get(report.gpu)
    if report.gpu not in node.left.at and known is None:
        return CommandRefusal("unknown_gpu", f'expected a GPU of this node, found "{report.gpu[:80]}"')
    if not report.code:
        if known is not None:
            draft.emit(ev.GpuRestored(cause=cause, node=node.name, gpu=report.gpu))
        return None
    if not is_code(report.code):
        return CommandRefusal("bad_code", f'expected 1 to 40 of a-z 0-9 _ -, found "{report.code[:80]}"')
    meaning = meaning_of_gpu(report.code)
    if meaning.fault and known != report.code:
        reason = report.evidence[:MESSAGE_CHARS_MAX]
        draft.emit(
            ev.GpuFaulted(
                cause=cause, node=node.name, gpu=report.gpu, code=report.code, reason=reason, stop=meaning.stop
            ),
            encoded_bytes(reason),
        )
    return None


def _of_node(draft: PlacerDraft, node: ClusterNode, report: HealthSeen, cause: str) -> CommandRefusal | None:
    code, reason = report.code, report.evidence[:MESSAGE_CHARS_MAX]
    if code not in OF_NODES:
        return CommandRefusal("bad_code", f'expected a code of a node\'s health, found "{code[:80]}"')
    if report.over and code in node.ills:
        draft.emit(ev.NodeRecovered(cause=cause, node=node.name, code=code))
    elif not report.over and code not in node.ills:
        ailed = ev.NodeUnhealthy(cause=cause, node=node.name, code=code, reason=reason, closes=OF_NODES[code].node)
        draft.emit(ailed, encoded_bytes(reason))
    return None


def restore(draft: PlacerDraft, asked: RestoreGpu, cause: str) -> CommandRefusal | None:
    """A person says that the GPU, or without one the node itself, is well."""
    node = draft.state.nodes[asked.node]
    if not asked.gpu:
        ills = node.ills
        for code in ills:
            draft.emit(ev.NodeRecovered(cause=cause, node=node.name, code=code, by=asked.user))
        return None if ills else CommandRefusal("not_faulted", _nothing_of_node(node))
    if asked.gpu not in node.faulted:
        return CommandRefusal("not_faulted", f'expected a faulted GPU of {asked.node}, found "{asked.gpu[:80]}"')
    draft.emit(ev.GpuRestored(cause=cause, node=asked.node, gpu=asked.gpu, by=asked.user))
    return None


def _nothing_of_node(node: ClusterNode) -> str:
    if not node.faulted and node.quarantined:
        return (
            f"expected a node that is not well, found {node.name} in quarantine only: fairlead unquarantine {node.name}"
        )
    if not node.faulted:
        return f"expected a node that is not well, found {node.name} well"
    shown = ", ".join(f"{gpu} ({node.faulted[gpu]})" for gpu in sorted(node.faulted)[:SHOWN_MAX])
    more = len(node.faulted) - SHOWN_MAX
    return f"expected one of the faulted GPUs of {node.name}: {shown}" + (f" and {more} more" if more > 0 else "")


def taint(draft: PlacerDraft) -> None:
    """Bring the taints that health sets to what is known of nodes and GPUs. Driven by state: what the breaker held back comes
    after its reset."""
    state = draft.state
    for name in sorted(state.ailing):
        if draft.full:
            return
        node = state.nodes[name]
        wanted = wanted_taint(node)
        has = _has(node)
        if wanted and wanted != has and circuit_breaker.allows(draft, name):
            draft.emit(ev.NodeTainted(cause="clock", node=name, taint=wanted, setter="health"))
        elif has and not wanted:
            draft.emit(ev.NodeUntainted(cause="clock", node=name, taint=has, setter="health"))


def wanted_taint(node: ClusterNode) -> str:
    """Return the taint due for the node's own ills, or else for the faults of its GPUs; "" for none. The first code by name
    represents all.
    """
    codes = [code for code in node.ills if code in OF_NODES and OF_NODES[code].node]
    codes = codes or [code for uuid, code in node.faulted.items() if uuid in node.left.at and meaning_of_gpu(code).node]
    return f"{UNHEALTHY}={min(codes)}:NoSchedule" if codes else ""


def _has(node: ClusterNode) -> str:
    return next((taint for taint, setter in node.tainted if setter == "health"), "")
