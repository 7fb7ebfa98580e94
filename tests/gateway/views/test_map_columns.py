"""The map as columns: it says what the map says, and a reader that takes up changes has what a reader of the whole has."""

import gzip
import random
from typing import Any

import msgspec

from fairlead_gateway.access.caller import OPEN_CALLER
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.routes.map_columns import MapAnswers
from fairlead_gateway.views.cluster_map import cluster_map
from fairlead_gateway.views.fold import Views
from fairlead_schemas.queries.cluster_map import ClusterMap
from fairlead_schemas.queries.map_columns import STATE_LETTERS, MapColumns
from fairlead_schemas.queuefile.settings import POOL_LABEL
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Gpu, Inventory, MigInstance
from tests.gateway.logbook import Logbook, ended, joined, offered, placed, requeued, started, submitted
from tests.gateway.world import GatewayWorld, gpus

_WORDS = {letter: state for state, letter in STATE_LETTERS.items()}
RACK = "fairlead/rack"


class Reader:
    """What a page keeps: nodes by name, as they were last told."""

    def __init__(self) -> None:
        self.cursor = ""
        self.sequence = -1
        self.nodes: dict[str, Any] = {}
        self.pools: Any = None

    def take(self, found: MapColumns) -> int:
        """Take up an answer; the number of its nodes."""
        if found.whole:
            self.nodes.clear()
        self.nodes |= told(found)
        self.cursor, self.sequence, self.pools = found.cursor, found.sequence, found.pools
        return len(found.nodes.id)


def told(found: MapColumns) -> dict[str, Any]:
    """{node: everything that the columns say about it}"""
    texts, nodes, jobs = found.texts, found.nodes, found.jobs
    holders = iter(nodes.holders)
    indices = {row[0]: row[1:] for row in nodes.indices}
    said: dict[str, Any] = {}

    def job(place: int) -> tuple[Any, ...]:
        named = (texts[column[place]] for column in (jobs.user, jobs.queue, jobs.state))
        return (jobs.id[place], jobs.name[place], *named)

    for place, node in enumerate(nodes.id):
        devices = []
        for number, letter in enumerate(nodes.gpus[place]):
            holder = next(holders)
            held = [(*job(holder), 1000, "")] if holder >= 0 else []
            held += [
                (*job(which), milli, texts[profile])
                for where, gpu, which, milli, profile in nodes.shares
                if (where, gpu) == (place, number)
            ]
            faults = [texts[fault] for where, gpu, fault in nodes.faults if (where, gpu) == (place, number)]
            cut = [texts[profile] for where, gpu, profile in nodes.instances if (where, gpu) == (place, number)]
            devices.append((indices.get(place, range(99))[number], _WORDS[letter], held, "".join(faults), cut))
        columns = (nodes.pool, nodes.state, nodes.reason, nodes.access, nodes.reserved_for, nodes.taints, nodes.model)
        domains = {level: texts[column[place]] for level, column in nodes.domains.items() if texts[column[place]]}
        said[node] = ([texts[column[place]] for column in columns], domains, nodes.simulated[place], devices)
    return said


def expected(found: ClusterMap) -> dict[str, Any]:
    """The same of a map."""
    jobs = {job.id: (job.id, job.name, job.user, job.queue, job.state) for job in found.jobs}
    said: dict[str, Any] = {}
    for node in found.nodes:
        devices = []
        for gpu in node.gpus:
            profiles = {one.uuid: one.profile for one in gpu.instances}
            held = [(*jobs[each.job], each.milli, profiles.get(each.instance, "")) for each in gpu.holders]
            devices.append((gpu.index, gpu.state, held, gpu.fault, [one.profile for one in gpu.instances]))
        model = node.gpus[0].model if node.gpus else ""
        words = [node.pool, node.state, node.reason, node.access, node.reserved_for, ", ".join(node.taints), model]
        said[node.id] = (words, node.domains, node.simulated, devices)
    return said


class Pages:
    """A gateway's answers; its clock stands unless it is moved."""

    def __init__(self, views: Views) -> None:
        self.views = views
        self.seconds = 0.0
        self._answers = MapAnswers(views, "a", lambda: 0.0, lambda: self.seconds)

    def ask(self, since: str) -> MapColumns:
        """One answer, as of now."""
        body = self._answers.answer(Sight(self.views, OPEN_CALLER), since)
        return msgspec.json.decode(gzip.decompress(body), type=MapColumns)


def cut_node(node: str) -> ev.NodeJoined:
    """A node whose first GPU is in MIG mode, and whose indices begin at 4."""
    cut = MigInstance(uuid=f"MIG-{node}", profile="3g.20gb")
    devices = [
        Gpu(uuid=f"GPU-{node}-{i}", index=4 + i, model="A100", memory_mib=1, mig=not i, instances=() if i else (cut,))
        for i in (0, 1)
    ]
    inventory = Inventory(gpus=tuple(devices), cpu_milli=1, memory_mib=1)
    return ev.NodeJoined(cause="r", node=node, incarnation="i", boot_id="b", inventory=inventory)


def test_columns_equal_the_map() -> None:
    """Whole GPUs, shares, instances, odd indices, faults, racks, a node without GPUs."""
    book = Logbook()
    book.write(joined("n1", 2, {RACK: "r1"}), joined("n2", 2), joined("n3", 0), cut_node("n4"))
    book.write(submitted("1", nodes=2), submitted("2", user="bob"), submitted("3"))
    book.write(offered("1"), offered("2", 2), offered("3", 3))
    share = ev.Part(node="n1", gpus=("GPU-n1-1",), gpu_milli=250)
    instance = ev.Part(node="n4", gpus=("GPU-n4-0",), gpu_milli=500, instances=("MIG-n4",))
    book.write(
        placed("1", "n1", "n2"),
        *(ev.JobPlaced(cause="2.0", job=j, attempt=1, parts=(p,)) for j, p in (("2", share), ("3", instance))),
    )
    book.write(_fault("n2"))
    found = Pages(book.views).ask("")
    assert found.whole and told(found) == expected(cluster_map(book.views))
    assert found.pools == cluster_map(book.views).pools
    assert [list(row) for row in found.nodes.indices] == [[3, 4, 5]]


class RandomDay:
    """A log of steps drawn at random: jobs come, run and end, clean or not, and nodes fall ill, go and join."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.book = Logbook()
        self.free = [f"n{i}" for i in range(6)]
        self.book.write(*(joined(node, 4) for node in self.free))
        self.running: dict[str, str] = {}
        self.started: set[str] = set()
        self.jobs = 0

    def step(self) -> None:
        """One thing happens; or nothing, where it cannot."""
        what = self.dice.randrange(8)
        if what <= 2 and self.free:
            self._place(self.free.pop())
        elif what <= 5 and self.running:
            job = self.dice.choice(list(self.running))
            if job not in self.started:
                self.started.add(job)
                self.book.write(started(job))
                return
            node = self.running.pop(job)
            self.book.write(_unclean(job) if what == 5 else ended(job, 0, node))
            if what != 5:
                self.free.append(node)
            else:
                self.book.write(requeued(job))
        elif what == 6:
            self.book.write(self._illness(f"n{self.dice.randrange(6)}"))
        elif what == 7 and self.dice.random() < 0.2:
            self.book.write(joined(f"n{6 + self.dice.randrange(9)}", 2))

    def _place(self, node: str) -> None:
        self.jobs += 1
        job = str(self.jobs)
        self.book.write(submitted(job), offered(job, self.jobs))
        self.book.write(placed(job, node, gpus=self.dice.randint(1, 4)))
        self.running[job] = node

    def _illness(self, node: str) -> ev.Event:
        return self.dice.choice(
            [
                ev.NodeCordoned(cause="c", node=node, reason="disk"),
                ev.NodeUncordoned(cause="c", node=node),
                ev.NodeLost(cause="clock", node=node, silent_ns=5),
                ev.NodeReturned(cause="r", node=node),
                _fault(node),
            ]
        )


def _unclean(job: str) -> ev.RunEnded:
    return ev.RunEnded(cause="r", job=job, attempt=1, outcome="exited", exit_code=1, released=())


def _fault(node: str) -> ev.GpuFaulted:
    return ev.GpuFaulted(cause="r", node=node, gpu=f"GPU-{node}-1", code="xid79")


def test_changes_lead_to_the_whole_map() -> None:
    """A random log, looked at after any number of steps: after each answer the nodes and pools are those of the map."""
    for seed in range(30):
        day = RandomDay(random.Random(seed))
        pages, reader, answers, sent = Pages(day.book.views), Reader(), 0, 0
        for _ in range(60):
            day.step()
            if day.dice.random() < 0.5:
                pages.seconds += 1000
                answers += 1
                sent += reader.take(pages.ask(reader.cursor))
                whole = cluster_map(day.book.views)
                assert reader.nodes == expected(whole)
                assert (reader.sequence, reader.pools) == (whole.sequence, whole.pools)
        assert sent < 3 * answers, "most answers are of few nodes"


def test_a_useless_cursor_brings_everything() -> None:
    """None, another process's, one of the future, nonsense, one before a node went or changed its pool."""
    book = Logbook()
    book.write(joined("n1"), joined("n2"))
    pages = Pages(book.views)
    first = pages.ask("").cursor
    assert not pages.ask(first).whole and pages.ask(first).nodes.id == []
    for bad in (
        "",
        "b-1-0",
        "a-99-0",
        "a-0-0",
        "a--",
        "a-1",
        "a-١-0",
        "a-" + "9" * 40 + "-0",
        "-",
        "a-1-0-0",
        "a--1-0",
    ):
        assert pages.ask(bad).whole, bad
    book.write(ev.NodeRemoved(cause="c", node="n2"))
    pages.seconds += 1000
    after = pages.ask(first)
    assert after.whole and after.nodes.id == ["n1"]
    moved = joined("n1", labels={POOL_LABEL: "b"}).inventory
    book.write(ev.NodeChanged(cause="r", node="n1", boot_id="b", inventory=moved))
    pages.seconds += 1000
    assert pages.ask(after.cursor).whole


def test_many_readers_cost_one_look() -> None:
    """Until the pause after a look is over, answers are as of that look, and say so."""
    book = Logbook()
    book.write(joined("n1"))
    pages = Pages(book.views)

    def slow(_node: str) -> int:
        pages.seconds += 0.01
        return 0

    book.views.silent_s = slow
    first = pages.ask("")
    book.write(joined("n2"))
    assert pages.ask("").sequence == first.sequence and pages.ask(first.cursor).nodes.id == []
    pages.seconds += 10
    after = pages.ask(first.cursor)
    assert (after.sequence, after.nodes.id) == (first.sequence + 1, ["n2"])


async def test_columns_and_ticks_are_served() -> None:
    """Compressed only for those who take it; of the past; with refusals; ticks tell the newest sequence."""
    async with GatewayWorld() as world:
        await world.node("n1")
        job = await world.submit(resources=gpus(3))
        await world.in_state(job, "placed")
        whole = await world.http.get("/v1/map/columns")
        assert whole.headers["content-encoding"] == "gzip"
        plain = await world.http.get("/v1/map/columns", headers={"accept-encoding": "identity"})
        assert "content-encoding" not in plain.headers
        for found in (whole, plain):
            document = msgspec.json.decode(found.content, type=MapColumns)
            assert told(document) == expected(cluster_map(world.gateway.views))
        early = msgspec.json.decode((await world.http.get("/v1/map/columns?at=1")).content, type=MapColumns)
        assert (early.sequence, early.cursor, early.jobs.id) == (1, "", [])
        for query, field in (("since=a&at=1", "since"), (f"since={'a' * 65}", "since"), ("sinc=a", "sinc")):
            refused = await world.http.get(f"/v1/map/columns?{query}")
            assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, field)
        ticks = world.gateway.ticks
        stream = ticks.watch()
        first = await anext(stream)
        sequence = world.gateway.views.sequence
        assert b'event: tick\ndata: {"sequence":%d,"pause_ms":1000}' % sequence in first
        await world.submit(resources=gpus(1))
        assert int((await anext(stream)).split(b"\n")[0].removeprefix(b"id: ")) > sequence
        ticks.close()
        rest = [each async for each in stream]
        assert len(rest) <= 1
        assert ticks.readers == 0
