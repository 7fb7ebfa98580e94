"""The whole picture: each pool's sums and rows, then what its letters and signs mean. Pure.

Further parts:
- groups of GPUs in a picture, by job, user, queue or state, each with a letter and a colour;
- the rows of a picture: one cell per GPU, nodes side by side or each on a line of its own.

No line is wider than the width asked for (WIDTH_MIN at least), and every GPU is one cell. Only signs that appear are
explained.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import batched
from string import ascii_lowercase, ascii_uppercase
from typing import NamedTuple

from fairlead.render.terminal import STATE_COLOURS, Line, TextPiece, cut, cut_left, harmless, line, padded, wrapped
from fairlead_schemas.queries.cluster_map import (
    WHOLE_MILLI,
    ClusterMap,
    GpuHolder,
    GpuState,
    MapGpu,
    MapJob,
    MapNode,
    PoolRoom,
)
from fairlead_schemas.queuefile.amounts import thousandths_word
from fairlead_schemas.units.hardware import DOMAIN_LABELS
from fairlead_schemas.units.ids import array_of


class By(StrEnum):
    """Criterion by which GPUs are grouped."""

    job = "job"
    user = "user"
    queue = "queue"
    state = "state"


#: Held by jobs beyond those that have a letter; by several groups.
OTHERS, SEVERAL = "+", "%"
#: A user, queue or state of jobs that are not known any more.
UNKNOWN = "?"

_LETTERS = ascii_uppercase + ascii_lowercase
_COLOURS = (
    "cyan",
    "green",
    "magenta",
    "yellow",
    "blue",
    "bright_red",
    "bright_cyan",
    "bright_green",
    "bright_magenta",
    "bright_yellow",
    "bright_blue",
)


class OwnerGroup(NamedTuple):
    """Group of GPUs: `key` names it (an array's id for its elements), `letter` is OTHERS where there were too many groups."""

    key: str
    letter: str
    colour: str
    gpu_milli: int
    jobs: tuple[MapJob, ...]


class OwnerGroups:
    """Groups, the one with the most GPUs first, and whose a GPU is."""

    def __init__(self, facts: ClusterMap, by: By) -> None:
        self._key_of: dict[str, str] = {}
        key = _KEYS[by]
        jobs: defaultdict[str, list[MapJob]] = defaultdict(list)
        for job in facts.jobs:
            self._key_of[job.id] = key(job)
            jobs[key(job)].append(job)
        amounts = Counter({name: sum(job.gpu_milli for job in found) for name, found in jobs.items()})
        ordered = sorted(jobs, key=lambda name: (-amounts[name], _natural(name)))
        letters = _letters(ordered)
        self.all = [
            OwnerGroup(name, letters.get(name, OTHERS), _colour(by, name, index), amounts[name], tuple(jobs[name]))
            for index, name in enumerate(ordered)
        ]
        self._groups = {group.key: group for group in self.all}

    def of(self, holders: list[GpuHolder]) -> OwnerGroup | None:
        """The one group that holds a GPU; None where several do."""
        keys = {self._key_of[holder.job] for holder in holders}
        return self._groups[keys.pop()] if len(keys) == 1 else None


def _job(job: MapJob) -> str:
    return array_of(job.id) or job.id


_KEYS: dict[By, Callable[[MapJob], str]] = {
    By.job: _job,
    By.user: lambda job: job.user or UNKNOWN,
    By.queue: lambda job: job.queue or UNKNOWN,
    By.state: lambda job: job.state or UNKNOWN,
}


def _natural(name: str) -> tuple[int, str]:
    """Numbers by their size, before words."""
    return (len(name), name) if name.isdecimal() else (1000, name)


def _letters(names: list[str]) -> dict[str, str]:
    """{name: its letter}: its own initial if that is left, else the first one that is; the first 52 have one."""
    free = list(_LETTERS)
    found: dict[str, str] = {}
    for name in names[: len(_LETTERS)]:
        wanted = (name[:1].upper(), name[:1].lower(), free[0])
        found[name] = next(letter for letter in wanted if letter in free)
        free.remove(found[name])
    return found


def _colour(by: By, name: str, index: int) -> str:
    if by is By.state and name in STATE_COLOURS:
        return STATE_COLOURS[name]
    return _COLOURS[index % len(_COLOURS)]


#: Cells of GPUs that no run holds, with the reason why a GPU is not free.
FREE, KEPT, TAINTED, CUT, CLEANING, UNHEALTHY = ".", ":", ";", "/", "~", "*"
SIGNS: dict[GpuState, str] = {
    "cleaning": CLEANING,
    "unhealthy": UNHEALTHY,
    "kept": KEPT,
    "tainted": TAINTED,
    "cut": CUT,
    "free": FREE,
}
#: Marks before a node that takes no work, and in its GPUs that no run holds. A state without an entry is "-".
CLOSED = {"draining": "=", "drained": "=", "lost": "!", "silent": "!"}
_STATE_COLOURS = {
    "-": "yellow",
    "=": "yellow",
    "!": "red",
    UNHEALTHY: "red",
    CLEANING: "bright_black",
    KEPT: "bright_black",
    TAINTED: "bright_black",
}
#: Cells of a row's label at most, and of GPUs at least.
LABEL_MAX = 24
CELLS_MIN = 8


def cell(node: MapNode, gpu: MapGpu, groups: OwnerGroups) -> TextPiece:
    """Return the piece that draws one GPU."""
    if gpu.state == "held":
        group = groups.of(gpu.holders)
        return (
            TextPiece(SEVERAL)
            if group is None
            else TextPiece(group.letter, "" if group.letter == OTHERS else group.colour)
        )
    return _signed(SIGNS.get(gpu.state) or mark(node))


def mark(node: MapNode) -> str:
    """Return the sign before a node: why it takes no work, or not everybody's; a blank for most."""
    if node.access == "closed":
        return CLOSED.get(node.state, "-")
    return {"kept": KEPT, "tainted": TAINTED}.get(node.access, " ")


def _signed(sign: str) -> TextPiece:
    return TextPiece(sign, _STATE_COLOURS.get(sign, ""))


def each_on_its_line(nodes: Sequence[MapNode], groups: OwnerGroups, width: int) -> Iterator[Line]:
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
    notes = [node.state] if node.state != "ready" else []
    if node.silent_seconds:
        notes.append(f"for {node.silent_seconds} s")
    notes += [f"taint {harmless(taint)}" for taint in node.taints]
    if node.reserved_for:
        since = f" from about {node.reserved_from}" if node.reserved_from else ""
        notes.append(f"kept for job {node.reserved_for}{since}")
    if not node.gpus:
        notes.append("no GPUs")
    return f"{', '.join(notes)}{f': {harmless(node.reason)}' if node.reason else ''}"


def side_by_side(nodes: Sequence[MapNode], groups: OwnerGroups, width: int) -> Iterator[Line]:
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


def _block(node: MapNode, groups: OwnerGroups, size: int) -> Iterator[TextPiece]:
    yield _signed(mark(node))
    for gpu in node.gpus:
        yield cell(node, gpu, groups)
    yield TextPiece(" " * (size - 1 - len(node.gpus)))


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
    FREE: "free",
    KEPT: "kept for a waiting job",
    TAINTED: "for jobs that tolerate its taints",
    CUT: "MIG instances, none in use",
    "-": "takes no work",
    "=": "draining or drained",
    "!": "lost or silent",
    CLEANING: "being cleaned",
    UNHEALTHY: "unhealthy",
    SEVERAL: "shared by several",
}


def draw(facts: ClusterMap, by: By, width: int, *, each: bool = False) -> list[Line]:
    """Pools by name; `each`: a line for every node, however many there are."""
    width = max(width, WIDTH_MIN)
    groups = OwnerGroups(facts, by)
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
        f"pool {room.pool}",
        f"{_count(room.nodes, 'node')}{played}",
        _count(room.gpus, "GPU"),
        f"{free} free{f' ({room.gpus_fragmented} fragmented)' if free else ''}",
        *(f"{count} {_WORDS.get(state, state)}" for state, count in room.states.items() if count and state != "free"),
    ]
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


def _rows(nodes: Sequence[MapNode], groups: OwnerGroups, width: int, *, single: bool) -> Iterator[Line]:
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
            yield from each_on_its_line(areas[area], groups, width)
        else:
            yield from side_by_side(areas[area], groups, width)
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


def _legend(groups: OwnerGroups, by: By, width: int) -> Iterator[Line]:
    lettered = [group for group in groups.all if group.letter != OTHERS]
    if not lettered:
        return
    columns = 2 if width >= TWO_COLUMNS else 1
    size = (width - 2 * (columns - 1)) // columns
    key = min(max(len(group.key) for group in lettered), size // 3)
    amount = max(len(_gpus(group.gpu_milli)) for group in lettered)
    yield line(cut(f"by {by}{' (an array is one job)' if by is By.job else ''}", width))
    for some in batched(lettered, columns):
        pieces: list[TextPiece] = []
        for group in some:
            unit = "GPU " if group.gpu_milli == WHOLE_MILLI else "GPUs"
            text = f" {padded(group.key, key)}  {_gpus(group.gpu_milli):>{amount}} {unit}  {_about(group, by)}"
            pieces += [TextPiece(group.letter, group.colour), TextPiece(padded(text, size - 1)), TextPiece("  ")]
        yield line(*pieces)
    if others := [group for group in groups.all if group.letter == OTHERS]:
        held = _gpus(sum(group.gpu_milli for group in others))
        yield line(cut(f"{OTHERS} {_count(len(others), f'other {by}')}, {held} GPUs", width))


def _about(group: OwnerGroup, by: By) -> str:
    first = group.jobs[0]
    if by is By.job:
        return f"{harmless(first.name)} ({first.user or '?'}, {first.queue or '?'})"
    return _count(len(group.jobs), "job")


def _signs(facts: ClusterMap, groups: OwnerGroups, width: int) -> Iterator[Line]:
    seen = Counter(_signs_of(facts.nodes, groups))
    yield from wrapped([f"{sign} {meaning}" for sign, meaning in _SIGNS.items() if seen[sign]], width)


def _signs_of(nodes: Iterable[MapNode], groups: OwnerGroups) -> Iterator[str]:
    for node in nodes:
        yield mark(node)
        for gpu in node.gpus:
            yield cell(node, gpu, groups).text


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _gpus(milli: int) -> str:
    return str(thousandths_word(milli))
