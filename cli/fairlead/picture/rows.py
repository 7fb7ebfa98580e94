"""The rows of a picture: one cell per GPU, nodes side by side or each on a line of its own. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import batched

from fairlead.picture.letters import OTHERS, SEVERAL, Groups
from fairlead.picture.lines import Line, Piece, cut_left, harmless, line, padded
from fairlead_schemas.queries.cluster_map import GpuState, MapGpu, MapNode

#: Cells of GPUs that no run holds, with the reason why a GPU is not free.
FREE, KEPT, TAINTED, CUT, CLEANING, UNHEALTHY = ".", ":", ";", "/", "~", "*"
SIGNS: dict[GpuState, str] = {
    "cleaning": CLEANING, "unhealthy": UNHEALTHY, "kept": KEPT, "tainted": TAINTED, "cut": CUT, "free": FREE,
}  # fmt: skip
#: Marks before a node that takes no work, and in its GPUs that no run holds. A state without an entry is "-".
CLOSED = {"draining": "=", "drained": "=", "lost": "!", "silent": "!"}
_COLOURS = {
    "-": "yellow", "=": "yellow", "!": "red", UNHEALTHY: "red", CLEANING: "bright_black", KEPT: "bright_black", TAINTED: "bright_black",
}  # fmt: skip
#: Cells of a row's label at most, and of GPUs at least.
LABEL_MAX = 24
CELLS_MIN = 8


def cell(node: MapNode, gpu: MapGpu, groups: Groups) -> Piece:
    """Return the piece that draws one GPU."""
    if gpu.state == "held":
        group = groups.of(gpu.holders)
        return Piece(SEVERAL) if group is None else Piece(group.letter, "" if group.letter == OTHERS else group.colour)
    return _signed(SIGNS.get(gpu.state) or mark(node))


def mark(node: MapNode) -> str:
    """Return the sign before a node: why it takes no work, or not everybody's; a blank for most."""
    if node.access == "closed":
        return CLOSED.get(node.state, "-")
    return {"kept": KEPT, "tainted": TAINTED}.get(node.access, " ")


def _signed(sign: str) -> Piece:
    return Piece(sign, _COLOURS.get(sign, ""))


def each_on_its_line(nodes: Sequence[MapNode], groups: Groups, width: int) -> Iterator[Line]:
    """Yield a line per node, with its name and a note; more lines where its GPUs do not fit on one."""
    label = min(max(len(node.id) for node in nodes), LABEL_MAX, width - CELLS_MIN - 4)
    room = width - label - 4
    widest = min(room, max(len(node.gpus) for node in nodes))
    for node in nodes:
        name = padded(cut_left(node.id, label), label)
        for index, gpus in enumerate(list(batched(node.gpus, room)) or [()]):
            cells = [cell(node, gpu, groups) for gpu in gpus]
            head = f"  {name} " if index == 0 else " " * (label + 3)
            note = _note(node) if index == 0 else ""
            gap = " " * (widest - len(cells) + 2)
            left = width - label - 4 - widest - 2
            yield line(head, _signed(mark(node)), *cells, gap, padded(note, left) if note and left > 0 else "")


def _note(node: MapNode) -> str:
    said = [node.state] if node.state != "ready" else []
    if node.silent_seconds:
        said.append(f"for {node.silent_seconds} s")
    said += [f"taint {harmless(taint)}" for taint in node.taints]
    if node.reserved_for:
        since = f" from about {node.reserved_from}" if node.reserved_from else ""
        said.append(f"kept for job {node.reserved_for}{since}")
    if not node.gpus:
        said.append("no GPUs")
    return f"{', '.join(said)}{f': {harmless(node.reason)}' if node.reason else ''}"


def side_by_side(nodes: Sequence[MapNode], groups: Groups, width: int) -> Iterator[Line]:
    """Yield lines with as many nodes each as fit, a rack's nodes together. A label names the rack, else the line's first node.

    Each node is preceded by its mark, which separates it from the previous node.
    """
    drawn = [node for node in nodes if node.gpus]
    if not drawn:
        return
    racks: defaultdict[str, list[MapNode]] = defaultdict(list)
    for node in drawn:
        racks[node.domains.get("rack", "")].append(node)
    label = min(
        max(len(name) for name in (*racks, *(n.id for n in racks.get("", ())))), LABEL_MAX, width - CELLS_MIN - 4
    )
    block = 1 + max(len(node.gpus) for node in drawn)
    if block > width - label - 3:
        yield from each_on_its_line(drawn, groups, width)
        return
    most = (width - label - 3) // block
    for rack in sorted(racks):
        found = racks[rack]
        lines = -(-len(found) // most)
        for index, some in enumerate(batched(found, -(-len(found) // lines))):
            name = rack if rack and index == 0 else "" if rack else some[0].id
            blocks = (piece for node in some for piece in _block(node, groups, block))
            yield line(f"  {padded(cut_left(name, label), label)} ", *blocks)


def _block(node: MapNode, groups: Groups, size: int) -> Iterator[Piece]:
    yield _signed(mark(node))
    for gpu in node.gpus:
        yield cell(node, gpu, groups)
    yield Piece(" " * (size - 1 - len(node.gpus)))
