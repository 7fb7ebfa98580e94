"""The whole picture: each pool's sums and rows, then what its letters and signs mean. Pure.

No line is wider than the width asked for (WIDTH_MIN at least), and every GPU is one cell. Only signs that appear are
explained.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import batched

from fairlead.picture import rows
from fairlead.picture.letters import OTHERS, SEVERAL, By, Group, Groups
from fairlead.picture.lines import Line, Piece, cut, harmless, line, padded, wrapped
from fairlead_schemas.queries.cluster_map import WHOLE_MILLI, ClusterMap, GpuState, MapNode, PoolRoom
from fairlead_schemas.queuefile.amounts import thousandths_word
from fairlead_schemas.units.hardware import DOMAIN_LABELS

WIDTH_MIN = 40
#: With more nodes than these they stand side by side.
SINGLE_MAX = 40
#: Nodes named per state that take no work, in the layout with several nodes in a row.
NAMED_MAX = 6
#: A legend is two columns from this width on.
TWO_COLUMNS = 76

_WORDS: dict[GpuState, str] = {
    "kept": "kept for waiting jobs",
    "tainted": "on tainted nodes",
    "cut": "cut by MIG and idle",
    "closed": "idle on closed nodes",
    "cleaning": "being cleaned",
}
_SIGNS = {
    rows.FREE: "free", rows.KEPT: "kept for a waiting job", rows.TAINTED: "for jobs that tolerate its taints", rows.CUT: "MIG instances, none in use",
    "-": "takes no work", "=": "draining or drained", "!": "lost or silent", rows.CLEANING: "being cleaned", rows.UNHEALTHY: "unhealthy", SEVERAL: "shared by several",
}  # fmt: skip


def draw(facts: ClusterMap, by: By, width: int, *, each: bool = False) -> list[Line]:
    """Pools by name; `each`: a line for every node, however many there are."""
    width = max(width, WIDTH_MIN)
    groups = Groups(facts, by)
    single = each or len(facts.nodes) <= SINGLE_MAX
    found = list(_head(facts, width))
    for room in facts.pools:
        nodes = [node for node in facts.nodes if node.pool == room.pool]
        found += [(), *_sums(room, width), *_rows(nodes, groups, width, single=single)]
    found += [(), *_legend(groups, by, width)]
    return [*found, *_signs(facts, groups, width)]


def _head(facts: ClusterMap, width: int) -> Iterator[Line]:
    gpus = sum(room.gpus for room in facts.pools)
    as_of = f"as of sequence {facts.sequence}" + (f", {facts.at}" if facts.at else "")
    yield from wrapped([_count(len(facts.nodes), "node"), _count(gpus, "GPU"), as_of], width)


# --------------------------------------------------------------------------- a pool


def _sums(room: PoolRoom, width: int) -> Iterator[Line]:
    played = f" ({room.nodes_simulated} simulated)" if room.nodes_simulated else ""
    free = room.states["free"]
    parts = [
        f"pool {room.pool}", f"{_count(room.nodes, 'node')}{played}", _count(room.gpus, "GPU"),
        f"{free} free{f' ({room.gpus_fragmented} fragmented)' if free else ''}",
        *(f"{count} {_WORDS.get(state, state)}" for state, count in room.states.items() if count and state != "free"),
    ]  # fmt: skip
    if room.shares_free_milli:
        parts.append(f"{_gpus(room.shares_free_milli)} free in shared ones")
    yield from wrapped(parts, width, "  ")
    yield from wrapped(["could start now:", *_largest(room)], width, "  ")


def _largest(room: PoolRoom) -> Iterator[str]:
    one = room.largest_on_one_node
    yield f"{_count(one.gpus, 'GPU')} on one node ({one.node})" if one else "nothing that needs a whole GPU"
    if one is None:
        return
    for level, gang in room.largest_of_whole_nodes.items():
        where = f"the {level}" if level == "pool" else f"one {level}"
        if gang is None:
            yield f"no whole node in {where}"
        else:
            named = "" if level == "pool" else f" ({gang.domain})"
            yield f"{gang.nodes} x {gang.gpus_per_node} GPUs in {where}{named}"


def _rows(nodes: Sequence[MapNode], groups: Groups, width: int, *, single: bool) -> Iterator[Line]:
    """By spine and block, then by rack."""
    levels = [level for level in reversed(DOMAIN_LABELS) if level in ("spine", "block", *(("rack",) if single else ()))]
    areas: defaultdict[tuple[str, ...], list[MapNode]] = defaultdict(list)
    for node in nodes:
        areas[tuple(node.domains.get(level, "") for level in levels)].append(node)
    for area in sorted(areas):
        named = [f"{level} {domain}" for level, domain in zip(levels, area, strict=True) if domain]
        if named:
            yield from wrapped(named, width, "  ")
        if single:
            yield from rows.each_on_its_line(areas[area], groups, width)
        else:
            yield from rows.side_by_side(areas[area], groups, width)
    if not single:
        yield from _named(nodes, width)


def _named(nodes: Sequence[MapNode], width: int) -> Iterator[Line]:
    """Yield lines with the names of nodes that take no work, since rows name few nodes, and the count of nodes without GPUs."""
    states: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if node.state != "ready":
            states[node.state].append(node.id)
        elif node.access == "closed":
            states["closed by a taint"].append(node.id)
        elif node.access == "tainted":
            states["tainted"].append(node.id)
        elif node.reserved_for:
            states[f"kept for job {node.reserved_for}"].append(node.id)
    for state in sorted(states):
        names = states[state]
        more = [f"and {len(names) - NAMED_MAX} more"] if len(names) > NAMED_MAX else []
        yield from wrapped([f"{len(names)} {state}:", *names[:NAMED_MAX], *more], width, "  ")
    if bare := sum(not node.gpus for node in nodes):
        yield line(cut(f"{_count(bare, 'node')} without GPUs", width))


# --------------------------------------------------------------------------- what it means


def _legend(groups: Groups, by: By, width: int) -> Iterator[Line]:
    lettered = [group for group in groups.all if group.letter != OTHERS]
    if not lettered:
        return
    columns = 2 if width >= TWO_COLUMNS else 1
    size = (width - 2 * (columns - 1)) // columns
    key = min(max(len(group.key) for group in lettered), size // 3)
    amount = max(len(_gpus(group.gpu_milli)) for group in lettered)
    yield line(cut(f"by {by}{' (an array is one job)' if by is By.job else ''}", width))
    for some in batched(lettered, columns):
        pieces: list[Piece] = []
        for group in some:
            unit = "GPU " if group.gpu_milli == WHOLE_MILLI else "GPUs"
            text = f" {padded(group.key, key)}  {_gpus(group.gpu_milli):>{amount}} {unit}  {_about(group, by)}"
            pieces += [Piece(group.letter, group.colour), Piece(padded(text, size - 1)), Piece("  ")]
        yield line(*pieces)
    if others := [group for group in groups.all if group.letter == OTHERS]:
        held = _gpus(sum(group.gpu_milli for group in others))
        yield line(cut(f"{OTHERS} {_count(len(others), f'other {by}')}, {held} GPUs", width))


def _about(group: Group, by: By) -> str:
    first = group.jobs[0]
    if by is By.job:
        return f"{harmless(first.name)} ({first.user or '?'}, {first.queue or '?'})"
    return _count(len(group.jobs), "job")


def _signs(facts: ClusterMap, groups: Groups, width: int) -> Iterator[Line]:
    seen = Counter(_signs_of(facts.nodes, groups))
    yield from wrapped([f"{sign} {meaning}" for sign, meaning in _SIGNS.items() if seen[sign]], width)


def _signs_of(nodes: Iterable[MapNode], groups: Groups) -> Iterator[str]:
    for node in nodes:
        yield rows.mark(node)
        for gpu in node.gpus:
            yield rows.cell(node, gpu, groups).text


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _gpus(milli: int) -> str:
    return str(thousandths_word(milli))
