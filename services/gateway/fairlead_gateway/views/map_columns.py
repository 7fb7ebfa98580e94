"""The map as columns, and what has changed in it since an earlier answer. Pure.

Further parts:
- `columns`: nodes and jobs of a map as columns;
- `MapHistory`: the nodes as they were at the newest look, and the look at which each had last changed. A look makes only those
  nodes again that may have changed, so that many pages cost little more than one.
"""

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter

import msgspec

from fairlead_gateway.views.cluster_map import map_node, pool_rooms
from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.rows import JobRow, NodeRow
from fairlead_schemas.queries.cluster_map import WHOLE_MILLI, MapNode, PoolRoom
from fairlead_schemas.queries.map_columns import STATE_LETTERS, JobColumns, MapColumns, NodeColumns
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339_or_none

_index = attrgetter("index")


class _Places(dict[str, int]):
    """{text: its place in a list}, in the order in which they were first asked for."""

    def __missing__(self, text: str) -> int:
        place = self[text] = len(self)
        return place


class HolderFacts(msgspec.Struct, frozen=True, gc=False):
    """What the map says about a job that holds GPUs."""

    id: str
    name: str = ""
    user: str = ""
    queue: str = ""
    state: str = ""
    placed_at: int = 0


def job_facts(views: Views, job: str) -> HolderFacts:
    """Return what the map says about a job; of an element that is not known any more, about its array."""
    row = views.jobs.rows.get(job) or views.jobs.rows.get(array_of(job) or "")
    if row is None:
        return HolderFacts(job)
    return HolderFacts(job, row.name, views.name_of(row.user), row.queue, row.state, row.placed_ns // SECOND_NS)


def columns(
    nodes: Collection[MapNode],
    pools: list[PoolRoom],
    facts: Callable[[str], HolderFacts],
    *,
    sequence: int,
    at_ns: int,
    cursor: str = "",
    whole: bool = True,
) -> MapColumns:
    """Return nodes as columns. `pools`: the room of all pools; `facts`: of a job that holds a GPU of the nodes."""
    texts, jobs = _Places(), _Places()
    levels = list(dict.fromkeys(level for node in nodes for level in node.domains))
    return MapColumns(
        sequence=sequence,
        at=rfc3339_or_none(at_ns),
        cursor=cursor,
        whole=whole,
        pools=pools,
        nodes=_node_columns(nodes, levels, texts, jobs),
        jobs=_job_columns([facts(job) if job else HolderFacts("") for job in jobs], texts),
        texts=list(texts),
    )


def _node_columns(nodes: Collection[MapNode], levels: list[str], texts: _Places, jobs: _Places) -> NodeColumns:
    holders: list[int] = []
    shares: list[tuple[int, int, int, int, int]] = []
    for place, node in enumerate(nodes):
        for number, gpu in enumerate(node.gpus):
            held = gpu.holders
            if len(held) == 1 and held[0].milli == WHOLE_MILLI and not held[0].instance:
                holders.append(jobs[held[0].job])
                continue
            holders.append(-1)
            profiles = {each.uuid: each.profile for each in gpu.instances}
            shares += (
                (place, number, jobs[each.job], each.milli, texts[profiles.get(each.instance, "")]) for each in held
            )
    gpus = [(place, number, gpu) for place, node in enumerate(nodes) for number, gpu in enumerate(node.gpus)]
    return NodeColumns(
        id=[node.id for node in nodes],
        pool=[texts[node.pool] for node in nodes],
        state=[texts[node.state] for node in nodes],
        reason=[texts[node.reason] for node in nodes],
        access=[texts[node.access] for node in nodes],
        reserved_for=[texts[node.reserved_for] for node in nodes],
        reserved_from=[texts[node.reserved_from or ""] for node in nodes],
        taints=[texts[", ".join(node.taints)] for node in nodes],
        silent=[node.silent_seconds > 0 for node in nodes],
        simulated=[node.simulated for node in nodes],
        domains={level: [texts[node.domains.get(level, "")] for node in nodes] for level in levels},
        model=[texts[node.gpus[0].model if node.gpus else ""] for node in nodes],
        gpus=["".join([STATE_LETTERS[gpu.state] for gpu in node.gpus]) for node in nodes],
        indices=[
            [place, *map(_index, node.gpus)]
            for place, node in enumerate(nodes)
            if any(gpu.index != number for number, gpu in enumerate(node.gpus))
        ],
        holders=holders,
        shares=shares,
        faults=[(place, number, texts[gpu.fault]) for place, number, gpu in gpus if gpu.fault],
        instances=[(place, number, texts[one.profile]) for place, number, gpu in gpus for one in gpu.instances],
    )


def _job_columns(jobs: list[HolderFacts], texts: _Places) -> JobColumns:
    return JobColumns(
        id=[job.id for job in jobs],
        name=[job.name for job in jobs],
        user=[texts[job.user] for job in jobs],
        queue=[texts[job.queue] for job in jobs],
        state=[texts[job.state] for job in jobs],
        placed_at=[job.placed_at for job in jobs],
    )


#: What a node's map depends on besides its row: silence, the job that it is kept for and from when on, its live runs.
type _Key = tuple[int, bool, str, int, tuple[bool, ...]]


class MapHistory:
    """The map at the newest look, and the look at which each node had last changed. `name`: begins every cursor, so that no cursor of
    another process is taken for one of ours.
    """

    def __init__(self, views: Views, name: str) -> None:
        self._views = views
        self._name = name
        self._look = 0
        #: In order of name.
        self._nodes: dict[str, tuple[_Key, MapNode, int]] = {}
        self._jobs: dict[str, HolderFacts] = {}
        #: {job: nodes that it holds GPUs of}
        self._places: dict[str, set[str]] = {}
        #: Cursors before this look are of no use: a node has gone since, or is in another pool.
        self._floor = 1
        #: Of all nodes.
        self.pools: list[PoolRoom] = []
        #: Counts changes of rights that were seen.
        self._rights, self._epoch = 0, views.access.epoch
        #: As of the newest look.
        self.sequence, self.at_ns = -1, 0

    def look(self) -> bool:
        """Take up what has changed in the views. Return False where nothing has."""
        views = self._views
        if views.sequence == self.sequence and not self._silence_changed():
            return False
        self.sequence, self.at_ns = views.sequence, views.at_ns
        self._look += 1
        keepers = views.waiting.keepers()
        if self._look_at_nodes(keepers):
            self.pools = pool_rooms(node for _, node, _ in self._nodes.values())
        self._look_at_jobs()
        return True

    def _silence_changed(self) -> bool:
        silent = self._views.silent_s
        return any(key[1] != (silent(node) > 0) for node, (key, _, _) in self._nodes.items())

    def _look_at_nodes(self, keepers: Mapping[str, str]) -> bool:
        views, changed = self._views, False
        rows = views.nodes.rows
        for gone in self._nodes.keys() - rows.keys():
            self._move(self._nodes.pop(gone)[1], None)
            self._floor, changed = self._look, True
        joined = len(rows) > len(self._nodes)
        for name, row in rows.items():
            known, keeper = self._nodes.get(name), keepers.get(name, "")
            key = _key(views, row, keeper)
            if known is not None and known[0] == key:
                continue
            node = map_node(views, row, keeper)
            if known is not None and known[1].pool != node.pool:
                self._floor = self._look
            self._move(None if known is None else known[1], node)
            self._nodes[name] = (key, node, self._look)
            changed = True
        if joined:
            self._nodes = dict(sorted(self._nodes.items()))
        return changed

    def _look_at_jobs(self) -> None:
        """Take up changes of the jobs that hold GPUs: their nodes count as changed."""
        for job, nodes in self._places.items():
            facts = job_facts(self._views, job)
            if facts == self._jobs.get(job):
                continue
            self._jobs[job] = facts
            for name in nodes:
                key, node, _ = self._nodes[name]
                self._nodes[name] = (key, node, self._look)

    def _move(self, before: MapNode | None, after: MapNode | None) -> None:
        """Note which jobs hold GPUs of a node now."""
        for job in () if before is None else _holders(before):
            self._places[job].discard(before.id)  # type: ignore[union-attr] -- it has holders
            if not self._places[job]:
                del self._places[job]
                self._jobs.pop(job, None)
        for job in () if after is None else _holders(after):
            self._places.setdefault(job, set()).add(after.id)  # type: ignore[union-attr] -- it has holders

    def changed_since(self, look: int) -> list[MapNode]:
        """Return the nodes that have changed after a look; all for 0."""
        return [node for _, node, last in self._nodes.values() if last > look]

    def facts(self, job: str) -> HolderFacts:
        """Return what the map says about a job that held GPUs at the newest look."""
        return self._jobs.get(job) or HolderFacts(job)

    def cursor(self) -> str:
        """Return the cursor of an answer that is made now."""
        return f"{self._name}-{self._look}-{self._rights_now()}"

    def parse_cursor(self, text: str, *, whole: bool) -> int:
        """Return the look that a cursor is of; 0 where its reader needs everything. `whole`: the reader sees all, so that changes of rights
        change nothing for it.
        """
        name, _, rest = text.partition("-")
        look, _, rights = rest.partition("-")
        if name != self._name or not (_is_number(look) and _is_number(rights)):
            return 0
        if not whole and int(rights) != self._rights_now():
            return 0
        return int(look) if self._floor <= int(look) <= self._look else 0

    def _rights_now(self) -> int:
        if self._views.access.epoch is not self._epoch:
            self._epoch = self._views.access.epoch
            self._rights += 1
        return self._rights


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


def _holders(node: MapNode) -> set[str]:
    return {one.job for gpu in node.gpus for one in gpu.holders}


def _key(views: Views, row: NodeRow, keeper: str) -> _Key:
    live = tuple(_lives(views.jobs.rows, run) for run in row.held) if row.held else ()
    kept_from = views.waiting.kept_from_ns(keeper) if keeper else 0
    return row.changed_seq, views.silent_s(row.id) > 0, keeper, kept_from, live


def _lives(rows: Mapping[str, JobRow], run: str) -> bool:
    job, _, attempt = run.rpartition(".")
    row = rows.get(job)
    return row is not None and row.attempt == int(attempt) and not row.run_ended
