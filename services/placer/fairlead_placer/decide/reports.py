"""Meaning of reports, and the rules for accepting them; and validation of the inventory that an agent reports for its
node: bounds and consistency. Emits on a draft.

A report is accepted if it came under its own node's subject, from the incarnation that joined last, with the next
number, about a part that this node holds. Repetitions are skipped; a gap waits for the missing reports.
"""

from functools import lru_cache
from typing import NamedTuple, assert_never

import msgspec

from fairlead_bus.core import MESSAGE_CHARS_MAX, NOTHING, Decision, Input, encoded_bytes
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.apply.handlers import REPORT_CURSOR
from fairlead_placer.cluster.entities import ClusterNode, PlacedRun, RankVerdict, run_key
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.decide import fencing, health, membership, run_lifecycle
from fairlead_placer.topology.gpu_topology import TopologyError, checked
from fairlead_schemas.units.ids import is_token
from fairlead_schemas.units.selectors import KEY_CHARS_MAX, VALUE_CHARS_MAX
from fairlead_schemas.units.taints import TAINTS_MAX, NodeLabelError, parse_taint
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import digest_of
from fairlead_schemas.wire.reports import (
    AppSeen,
    CheckpointSeen,
    CleanSeen,
    ExitSeen,
    HealthSeen,
    InventorySeen,
    Report,
    ReportBatch,
    StartSeen,
    encode,
)
from fairlead_schemas.wire.resources import TOPOLOGY_BYTES_MAX, UNKNOWN_TOPOLOGY, Gpu, Inventory, NodeTopology

#: Amounts are added up, names repeated in every placement and order.
AMOUNT_MAX = 1 << 40
UUID_CHARS_MAX = 80
ADDRESS_CHARS_MAX = 255
LABELS_MAX = 256
INSTANCES_MAX = 16  # of a GPU
PROFILE_CHARS_MAX = 32
#: Different insides whose check is remembered.
INSIDES_KEPT_MAX = 64
#: Of the whole as JSON: one more inventory fits into a commit that is just not full (apply/draft.py), and into a message.
INVENTORY_BYTES_MAX = 48 * 1024


def fault_of_inventory(inventory: Inventory) -> str:
    """Return the fault of the inventory: the expectation and, for short values, the finding; "" if there is none."""
    if not 0 <= inventory.cpu_milli <= AMOUNT_MAX or not 0 <= inventory.memory_mib <= AMOUNT_MAX:
        return f"expected amounts of 0 to {AMOUNT_MAX}"
    if len(inventory.address) > ADDRESS_CHARS_MAX:
        return f"expected an address of at most {ADDRESS_CHARS_MAX} characters, found {len(inventory.address)}"
    wrong = _fault_of_gpus(inventory.gpus) or _fault_of_words(inventory) or _fault_of_inside(inventory)
    if not wrong and (size := len(msgspec.json.encode(inventory))) > INVENTORY_BYTES_MAX:
        return f"expected an inventory of at most {INVENTORY_BYTES_MAX} bytes, found {size}"
    return wrong


def _fault_of_gpus(gpus: tuple[Gpu, ...]) -> str:
    instances = [instance for gpu in gpus for instance in gpu.instances]
    uuids = [gpu.uuid for gpu in gpus] + [instance.uuid for instance in instances]
    if len(set(uuids)) < len(uuids):
        return "expected each GPU and each instance once"
    if any(len(uuid) > UUID_CHARS_MAX for uuid in uuids):
        return f"expected UUIDs of at most {UUID_CHARS_MAX} characters"
    if any(len(gpu.instances) > INSTANCES_MAX for gpu in gpus):
        return f"expected at most {INSTANCES_MAX} instances of a GPU"
    if any(not 0 < len(each.profile) <= PROFILE_CHARS_MAX or each.start < -1 for each in instances):
        return f"expected of an instance a profile of 1 to {PROFILE_CHARS_MAX} characters and a start of 0 or more"
    return ""


def _fault_of_words(inventory: Inventory) -> str:
    labels, taints = inventory.labels, inventory.taints
    if len(labels) > LABELS_MAX:
        return f"expected at most {LABELS_MAX} labels, found {len(labels)}"
    if any(len(key) > KEY_CHARS_MAX or len(value) > VALUE_CHARS_MAX for key, value in labels.items()):
        return f"expected labels with keys of at most {KEY_CHARS_MAX} and values of {VALUE_CHARS_MAX} characters"
    if len(taints) > TAINTS_MAX or len(set(taints)) < len(taints):
        return f"expected at most {TAINTS_MAX} taints, each once, found {len(taints)}"
    try:
        for taint in taints:
            parse_taint(taint)
    except NodeLabelError as error:
        return str(error)
    return ""


def _fault_of_inside(inventory: Inventory) -> str:
    inside, gpus = inventory.inside, len(inventory.gpus)
    if inside == UNKNOWN_TOPOLOGY:
        return ""
    if inside.gpus != gpus:
        return f"inside: numa: expected a NUMA node, or -1, of each of the {gpus} GPUs, found {inside.gpus}"
    return _fault_of_description(inside)


@lru_cache(INSIDES_KEPT_MAX)
def _fault_of_description(inside: NodeTopology) -> str:
    """Nodes of a kind are alike, and looking through one takes a millisecond."""
    if (size := len(msgspec.json.encode(inside))) > TOPOLOGY_BYTES_MAX:
        return f"inside: expected at most {TOPOLOGY_BYTES_MAX} bytes, found {size}"
    try:
        checked(inside)
    except TopologyError as error:
        return f"inside: {error}"
    return ""


INCARNATION_CHARS_MAX = 80
BOOT_ID_CHARS_MAX = 80


class RefusedReport(NamedTuple):
    """Bytes on a node's report subject that were no report of that node."""

    node: str
    code: str
    message: str
    digest: str


def fault_of(node: str, batch: ReportBatch) -> tuple[str, str] | None:
    """(code, message) when a decoded batch under the node's subject is out of contract, else None."""
    if batch.node != node:
        return "wrong_node", f'expected reports of the subject\'s node, found those of "{batch.node[:80]}"'
    if not is_token(node):
        return "bad_name", "expected a node id of a-z 0-9 _ -"
    if not 0 < len(batch.incarnation) <= INCARNATION_CHARS_MAX:
        return "bad_incarnation", f"expected 1 to {INCARNATION_CHARS_MAX} characters"
    if any(b.n != a.n + 1 for a, b in zip(batch.reports, batch.reports[1:], strict=False)):
        return "bad_numbers", "expected consecutive numbers"
    for report in batch.reports:
        if not isinstance(report, InventorySeen):
            continue
        if len(report.boot_id) > BOOT_ID_CHARS_MAX:
            return "bad_inventory", f"expected a boot id of at most {BOOT_ID_CHARS_MAX} characters"
        if wrong := fault_of_inventory(report.inventory):
            return "bad_inventory", wrong
    return None


def refused(draft: PlacerDraft, refusal: RefusedReport) -> None:
    """Record what was refused; its bytes are named, not repeated."""
    message = refusal.message[:MESSAGE_CHARS_MAX]
    event = ev.ReportRejected(
        cause="clock", node=refusal.node, code=refusal.code, message=message, digest=refusal.digest
    )
    draft.emit(event, encoded_bytes(message))


def batch(draft: PlacerDraft, body: ReportBatch) -> None:
    """Take up what is new of one message, in order, until the commit is full; the rest will be sent again."""
    for report in body.reports:
        if draft.roomy or draft.full or not _take(draft, body, report):
            return


def split(item: Input) -> list[Input]:
    """A batch as batches of one report each: every number is committed by itself."""
    body: ReportBatch = item.body
    return [Input(item.source, report.n, msgspec.structs.replace(body, reports=[report])) for report in body.reports]


def passed_over(state: ClusterState, body: ReportBatch, error: str, now_ns: int) -> Decision:
    """Record that the one report of a batch cannot be processed, and consume its number. Otherwise all later reports of the
    node would wait behind it forever. A report that would not be taken up in any case is skipped silently.
    """
    node, report = state.nodes.get(body.node), body.reports[0]
    if node is None or node.incarnation != body.incarnation or report.n != node.reported + 1:
        return NOTHING
    event = ev.ReportRejected(
        cause=f"report:{body.node}:{report.n}",
        node=body.node,
        code="not_decidable",
        message=error[:MESSAGE_CHARS_MAX],
        digest=digest_of(encode(body)),
    )
    return Decision([event], {REPORT_CURSOR + body.node: report.n})


def _take(draft: PlacerDraft, body: ReportBatch, report: Report) -> bool:
    """False when nothing after this report can be taken up now."""
    node = draft.state.nodes.get(body.node)
    cause = f"report:{body.node}:{report.n}"
    if node is None or node.incarnation != body.incarnation:
        if report.n != 1 or not isinstance(report, InventorySeen) or _is_over(draft.state, body):
            return False
        if not membership.joined(draft, body.node, body.incarnation, report, cause):
            return False
        draft.consume(draft.state.nodes[body.node], 1)
        return True
    if report.n <= node.reported:
        return True
    if report.n != node.reported + 1 or (node.lost and not fencing.may_return(draft, node)):
        return False
    membership.heard(draft, node.name, cause)
    if not _meaning(draft, node, report, cause):
        return False
    draft.consume(node, report.n)
    return True


def _is_over(state: ClusterState, body: ReportBatch) -> bool:
    """True for the journal of an agent that another one has replaced, or whose node was removed."""
    node, removed = state.nodes.get(body.node), state.removed.get(body.node)
    before = node.superseded if node is not None else removed.incarnations if removed is not None else ()
    return body.incarnation in before


def _meaning(draft: PlacerDraft, node: ClusterNode, report: Report, cause: str) -> bool:
    """False when the report must come again."""
    match report:  # the two of every run come first
        case StartSeen():
            run = _run_of(draft, node, report, cause)
            if run is not None:
                run_lifecycle.rank_started(draft, run, report, cause)
        case ExitSeen():
            run = _run_of(draft, node, report, cause)
            if run is not None:
                message = report.message[:MESSAGE_CHARS_MAX]
                blames = report.blames if report.outcome == "preflight" and _is_rank(run, report.blames) else None
                verdict = RankVerdict(
                    report.outcome,
                    report.exit_code,
                    report.signal,
                    report.rank,
                    message,
                    report.fault,
                    blames,
                    max(0, report.ran_ns),
                )
                ended_ns = run_lifecycle.node_clock(report.at_ns)
                run_lifecycle.rank_ended(draft, run, verdict, report.clean, cause, ended_ns)
        case CheckpointSeen():
            run = _run_of(draft, node, report, cause)
            if run is not None:
                run_lifecycle.said_saved(draft, run, report, cause)
        case AppSeen():
            run = _run_of(draft, node, report, cause)
            if run is not None:
                run_lifecycle.app_serves(draft, run, report, cause)
        case CleanSeen():
            run = _run_of(draft, node, report, cause)
            if run is not None and run.ended >> report.rank & 1:
                run_lifecycle.released(draft, run, report.rank, cause)
            elif run is not None:
                _disbelieved(draft, node, report, "not_ended", "expected the rank's end first", cause)
        case InventorySeen():
            return membership.seen_again(draft, node, report, cause)
        case HealthSeen():
            refusal = health.seen(draft, node, report, cause)
            if refusal is not None:
                _disbelieved(draft, node, report, refusal.code, refusal.message, cause)
        case _:
            assert_never(report)
    return True


def _run_of(
    draft: PlacerDraft,
    node: ClusterNode,
    report: StartSeen | AppSeen | CheckpointSeen | ExitSeen | CleanSeen,
    cause: str,
) -> PlacedRun | None:
    """The run whose part the node holds at that rank. A start of anything else was never authorised."""
    key = run_key(report.job, report.attempt)
    rank = node.held.get(key)
    if rank == report.rank:
        return draft.state.runs[key]
    if rank is not None or (key in draft.state.runs and not _was_here(draft.state.runs[key], node, report.rank)):
        _disbelieved(draft, node, report, "wrong_rank", f"rank {report.rank} of {key} is not on this node", cause)
    elif isinstance(report, StartSeen) and key not in draft.state.runs:
        _disbelieved(draft, node, report, "not_authorised", f"no part of {key} was placed on this node", cause)
    return None


def _is_rank(run: PlacedRun, rank: int | None) -> bool:
    return rank is not None and 0 <= rank < len(run.parts)


def _was_here(run: PlacedRun, node: ClusterNode, rank: int) -> bool:
    return 0 <= rank < len(run.parts) and run.parts[rank].node == node.name


def _disbelieved(draft: PlacerDraft, node: ClusterNode, report: Report, code: str, message: str, cause: str) -> None:
    digest = digest_of(encode(ReportBatch(node=node.name, incarnation=node.incarnation, reports=[report])))
    event = ev.ReportRejected(
        cause=cause, node=node.name, code=code, message=message[:MESSAGE_CHARS_MAX], digest=digest
    )
    draft.emit(event, 200)
