"""The cluster's map: who holds which GPU, why a node is closed, and what pools have left."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead_gateway.routes.documents import node_document
from fairlead_gateway.views.cluster_map import cluster_map, free_gpus, is_whole_node, pool_rooms
from fairlead_schemas.queries.cluster_map import ClusterMap, GpuHolder, MapGang, MapGpu, MapInstance, MapNode, OneNode
from fairlead_schemas.queuefile.settings import POOL_LABEL
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Gpu, Inventory, MigInstance
from tests.gateway.logbook import Logbook, joined, offered, placed, requeued, started, submitted
from tests.gateway.world import GatewayWorld, gpus


def states(found: ClusterMap) -> dict[str, str]:
    """{node: the first letters of its GPUs' states}"""
    return {node.id: "".join(gpu.state[:2] for gpu in node.gpus) for node in found.nodes}


def unclean(job: str, attempt: int = 1, *released: str) -> ev.RunEnded:
    """End a run without a clean report of its GPUs, except for those of the given nodes."""
    return ev.RunEnded(cause="r", job=job, attempt=attempt, outcome="exited", exit_code=0, released=released)


def test_each_gpu_names_its_holders() -> None:
    """Job, attempt, rank and share; a job's GPUs are summed, the largest job first."""
    book = Logbook()
    book.write(joined("n1", 2), joined("n2", 2))
    book.write(submitted("1", gpus=1, nodes=2, name="gang"), submitted("2", user="bob"), offered("1"), offered("2", 2))
    book.write(
        placed("1", "n2", "n1"),
        ev.JobPlaced(cause="2.0", job="2", attempt=1, parts=(ev.Part(node="n1", gpus=("GPU-n1-1",)),)),
    )
    found = cluster_map(book.views)
    holders = {gpu.uuid: gpu.holders for node in found.nodes for gpu in node.gpus}
    assert holders == {
        "GPU-n1-0": [GpuHolder(job="1", attempt=1, rank=1, milli=1000)],
        "GPU-n1-1": [GpuHolder(job="2", attempt=1, rank=0, milli=1000)],
        "GPU-n2-0": [GpuHolder(job="1", attempt=1, rank=0, milli=1000)],
        "GPU-n2-1": [],
    }
    assert [(j.id, j.name, j.user, j.queue, j.state, j.gpu_milli) for j in found.jobs] == [
        ("1", "gang", "ada", "default", "placed", 2000),
        ("2", "job-2", "bob", "default", "placed", 1000),
    ]
    assert (found.sequence, found.at) == (3, "2026-01-01T00:00:03.000Z")


def test_shares_and_instances_are_several_holders_of_one_gpu() -> None:
    """The rest of a partly held GPU is shown apart from free GPUs."""
    book = Logbook()
    book.write(joined("n1", 2), submitted("1"), submitted("2"), offered("1"), offered("2", 2))
    share = ev.Part(node="n1", gpus=("GPU-n1-0",), gpu_milli=250)
    cut = ev.Part(node="n1", gpus=("GPU-n1-0",), gpu_milli=500, instances=("MIG-1",))
    for job, part in (("1", share), ("2", cut)):
        book.write(ev.JobPlaced(cause="2.0", job=job, attempt=1, parts=(part,)))
    found = cluster_map(book.views)
    assert found.nodes[0].gpus[0].holders == [
        GpuHolder(job="1", attempt=1, rank=0, milli=250),
        GpuHolder(job="2", attempt=1, rank=0, milli=500, instance="MIG-1"),
    ]
    room = found.pools[0]
    assert (room.shares_free_milli, room.gpus_fragmented, room.states["held"]) == (250, 1, 1)
    book.write(unclean("1"))
    assert states(cluster_map(book.views)) == {"n1": "hefr"}, "the other run still holds it"


def test_a_gpu_in_mig_mode_is_not_free_as_a_whole() -> None:
    """Its instances are named; its node is no whole node, and the rest of it is fragmented."""
    book = Logbook()
    cut = MigInstance(uuid="MIG-1", profile="3g.20gb")
    devices = [
        Gpu(uuid=f"G{i}", index=i, model="A100", memory_mib=1, mig=not i, instances=() if i else (cut,)) for i in (0, 1)
    ]
    inventory = Inventory(gpus=tuple(devices), cpu_milli=1, memory_mib=1)
    book.write(ev.NodeJoined(cause="r", node="n1", incarnation="i", boot_id="b", inventory=inventory))
    found = cluster_map(book.views)
    assert states(found) == {"n1": "cufr"}
    assert found.nodes[0].gpus[0].instances == [MapInstance(uuid="MIG-1", profile="3g.20gb")]
    room = found.pools[0]
    assert (room.gpus_fragmented, room.largest_of_whole_nodes) == (1, {"pool": None})
    book.write(ev.NodeCordoned(cause="cmd:1", node="n1"))
    assert states(cluster_map(book.views)) == {"n1": "clcl"}


def test_devices_of_an_ended_run_are_shown_as_being_cleaned() -> None:
    """Until the evidence arrives, also if the job continues with another attempt or is no longer known."""
    book = Logbook()
    book.write(joined("n1", 1), joined("n2", 2), submitted(nodes=2), offered(), placed("1", "n1", "n2"), started())
    book.write(unclean("1", 1, "n1"))
    assert states(cluster_map(book.views)) == {"n1": "fr", "n2": "clfr"}
    book.write(requeued("1", "node_lost"), offered("1", attempt=2))
    book.write(ev.JobPlaced(cause="2.0", job="1", attempt=2, parts=(ev.Part(node="n2", gpus=("GPU-n2-1",)),)))
    found = cluster_map(book.views)
    assert states(found) == {"n1": "fr", "n2": "clhe"}
    assert found.nodes[1].gpus[0].holders == [GpuHolder(job="1", attempt=1, rank=1, milli=1000)]
    book.write(unclean("1", 2), ev.JobSucceeded(cause="1.0", job="1", attempt=2))
    book.write(ev.JobsRetired(cause="clock", jobs=("1",)))
    found = cluster_map(book.views)
    assert states(found) == {"n1": "fr", "n2": "clcl"}
    assert [(job.id, job.state, job.gpu_milli) for job in found.jobs] == [("1", "", 2000)]


def test_closed_and_kept_nodes_give_nothing() -> None:
    """Their GPUs are not free; what is held there is held."""
    book = Logbook()
    book.write(*(joined(node, 2) for node in ("n1", "n2", "n3", "n4")), submitted("1"), submitted("2"))
    book.write(offered("1"), placed("1", "n1"), offered("2", 2))
    book.write(
        ev.NodeCordoned(cause="cmd:1", node="n1", reason="fan"),
        ev.NodeLost(cause="clock", node="n2", silent_ns=1),
        ev.ReservationMade(cause="3.0", job="2", attempt=1, nodes=("n3",)),
    )
    found = cluster_map(book.views)
    assert states(found) == {"n1": "hecl", "n2": "clcl", "n3": "keke", "n4": "frfr"}
    assert [(n.state, n.reason, n.reserved_for) for n in found.nodes[:3]] == [
        ("cordoned", "fan", ""),
        ("lost", "", ""),
        ("ready", "", "2"),
    ]
    room = found.pools[0]
    assert {state: count for state, count in room.states.items() if count} == {
        "free": 2,
        "kept": 2,
        "closed": 3,
        "held": 1,
    }
    assert (room.gpus, room.gpus_fragmented, room.largest_on_one_node) == (8, 0, OneNode(node="n4", gpus=2))
    book.write(placed("2", "n3"))
    assert states(cluster_map(book.views))["n3"] == "hefr", "a place ends what was kept for it"


def test_a_faulted_gpu_is_unhealthy_and_its_tainted_node_closed() -> None:
    """Neither may be given, so neither is free or could start a job; a run that is still on a faulted GPU holds it."""
    book = Logbook()
    book.write(*(joined(node, 4) for node in ("n1", "n2", "n3")), submitted("1"), offered("1"), placed("1", "n1"))
    for uuid in ("GPU-n1-0", "GPU-n1-1", "GPU-n2-3"):
        book.write(ev.GpuFaulted(cause="r", node=uuid[4:6], gpu=uuid, code="xid79", reason="gone"))
    book.write(ev.NodeTainted(cause="r", node="n2", taint="fairlead/unhealthy=xid79:NoSchedule", setter="health"))
    found = cluster_map(book.views)
    assert states(found) == {"n1": "heunfrfr", "n2": "clclclun", "n3": "frfrfrfr"}
    assert [gpu.fault for gpu in found.nodes[0].gpus] == ["xid79", "xid79", "", ""]
    assert (found.nodes[1].access, found.nodes[1].taints) == ("closed", ["fairlead/unhealthy=xid79:NoSchedule"])
    room = found.pools[0]
    assert (room.states["free"], room.states["unhealthy"], room.gpus_fragmented) == (6, 2, 2)
    assert (room.largest_on_one_node, room.largest_of_whole_nodes["pool"]) == (
        OneNode(node="n3", gpus=4),
        MapGang(domain="default", nodes=1, gpus_per_node=4),
    )
    book.write(
        ev.GpuRestored(cause="r", node="n2", gpu="GPU-n2-3"),
        ev.NodeUntainted(cause="r", node="n2", taint="fairlead/unhealthy=xid79:NoSchedule", setter="health"),
    )
    assert states(cluster_map(book.views))["n2"] == "frfrfrfr"


def test_nodes_that_take_no_work_are_closed_whatever_the_reason() -> None:
    """In quarantine, silent, suspect with its one run, tainted by its own preflight; other taints and a suspicion close none."""
    book = Logbook()
    book.write(*(joined(f"n{i}", 2) for i in range(7)), submitted("1"), offered("1"), placed("1", "n2"))
    book.write(
        ev.NodeQuarantined(cause="cmd:1", node="n0", reason="smells"),
        ev.NodeSuspected(cause="1.0", node="n2", jobs=("1", "2")),
        ev.NodeSuspected(cause="1.0", node="n3", jobs=("1", "2")),
        ev.NodeTainted(cause="r", node="n4", taint="fairlead/preflight:NoSchedule", setter="health"),
        ev.NodeTainted(cause="cmd:2", node="n5", taint="team=a:NoSchedule", setter="person"),
        ev.NodeTainted(cause="cmd:3", node="n6", taint="team=a:PreferNoSchedule", setter="person"),
    )
    book.views.silent_s = lambda node: 90 if node == "n1" else 0
    found = cluster_map(book.views)
    assert states(found) == {
        "n0": "clcl",
        "n1": "clcl",
        "n2": "hecl",
        "n3": "frfr",
        "n4": "clcl",
        "n5": "tata",
        "n6": "frfr",
    }
    assert (found.nodes[1].state, found.nodes[1].silent_seconds) == ("silent", 90)
    assert [node_document(book.views, book.views.nodes.rows[node.id]).gpu_states for node in found.nodes[:4]] == [
        {"closed": 2},
        {"closed": 2},
        {"held": 1, "closed": 1},
        {"free": 2},
    ]


def test_the_largest_jobs_by_level() -> None:
    """On one node the most free GPUs; of whole nodes the most of one size within one domain; per pool."""
    book = Logbook()
    big = {"fairlead/rack": "r2", "fairlead/block": "b1"}
    small = {"fairlead/rack": "r1", "fairlead/block": "b1"}
    book.write(*(joined(f"a{i}", 8, small) for i in range(3)), *(joined(f"b{i}", 8, big) for i in range(4)))
    book.write(joined("c0", 16, big), joined("x", 4, {POOL_LABEL: "side"}), joined("cpu", 0))
    book.write(submitted("1"), offered("1"), placed("1", "b0"))
    main, side = cluster_map(book.views).pools
    assert main.pool == "default" and main.largest_on_one_node == OneNode(node="c0", gpus=16)
    assert main.largest_of_whole_nodes == {
        "rack": MapGang(domain="r1", nodes=3, gpus_per_node=8),
        "block": MapGang(domain="b1", nodes=6, gpus_per_node=8),
        "pool": MapGang(domain="default", nodes=6, gpus_per_node=8),
    }
    assert (main.gpus_fragmented, main.nodes) == (7, 9)
    assert side.largest_of_whole_nodes == {"pool": MapGang(domain="side", nodes=1, gpus_per_node=4)}
    book.write(ev.NodeCordoned(cause="cmd:1", node="x"))
    side = cluster_map(book.views, pool="side").pools[0]
    assert (side.largest_on_one_node, side.largest_of_whole_nodes) == (None, {"pool": None})


def test_filters_count_what_they_show() -> None:
    """Nodes, jobs and sums of one pool or rack only; none where there is none."""
    book = Logbook()
    book.write(
        joined("a", 2, {"fairlead/rack": "r1"}),
        joined("b", 2, {"topology.kubernetes.io/rack": "r2"}),
        joined("c", 2, {POOL_LABEL: "x"}),
    )
    book.write(submitted("1"), offered("1"), placed("1", "a"), submitted("2"), offered("2", 2), placed("2", "b"))
    found = cluster_map(book.views, rack="r2")
    assert ([n.id for n in found.nodes], [j.id for j in found.jobs], found.pools[0].gpus) == (["b"], ["2"], 2)
    assert [n.id for n in cluster_map(book.views, pool="x").nodes] == ["c"]
    assert cluster_map(book.views, pool="x", rack="r1").pools == []


@st.composite
def nodes(draw: st.DrawFn) -> list[MapNode]:
    """Any nodes at all, as consistent as the gateway makes them."""
    found: list[MapNode] = []
    for index in range(draw(st.integers(0, 12))):
        state = draw(st.sampled_from(("ready", "ready", "ready", "cordoned", "drained", "lost")))
        keeper = draw(st.sampled_from(("", "", "9")))
        unheld = "closed" if state != "ready" else "kept" if keeper else "free"
        devices = [
            MapGpu(
                uuid=f"{index}-{i}",
                index=i,
                model="A",
                state=draw(
                    st.sampled_from((unheld, "cut" if unheld == "free" else unheld, "held", "cleaning", "unhealthy"))
                ),
                holders=[],
            )  # type: ignore[arg-type] -- one of GpuState
            for i in range(draw(st.integers(0, 4)))
        ]
        domains = {
            level: draw(st.sampled_from(("a", "b"))) for level in ("rack", "block", "spine") if draw(st.booleans())
        }
        pool = draw(st.sampled_from(("p", "q")))
        found.append(
            MapNode(
                id=f"n{index}",
                pool=pool,
                domains=domains,
                state=state,
                reason="",
                simulated=False,
                reserved_for=keeper,
                gpus=devices,
            )
        )
    return found


@given(nodes())
def test_every_gpu_is_counted_once(found: list[MapNode]) -> None:
    """States add up; free GPUs are those of whole nodes and the fragmented; the largest jobs really fit."""
    rooms = pool_rooms(found)
    assert sum(room.gpus for room in rooms) == sum(len(node.gpus) for node in found)
    for room in rooms:
        own = [node for node in found if node.pool == room.pool]
        assert sum(room.states.values()) == room.gpus
        whole = [node for node in own if is_whole_node(node)]
        assert room.states["free"] == room.gpus_fragmented + sum(len(node.gpus) for node in whole)
        assert (room.largest_on_one_node.gpus if room.largest_on_one_node else 0) == max(map(free_gpus, own))
        for level, gang in room.largest_of_whole_nodes.items():
            inside = [n for n in whole if level == "pool" or n.domains.get(level)]
            assert (gang is None) == (not inside)
            if gang is not None:
                there = [n for n in inside if level == "pool" or n.domains[level] == gang.domain]
                assert gang.nodes == sum(len(n.gpus) == gang.gpus_per_node for n in there)


async def test_the_map_is_served_now_and_of_the_past() -> None:
    """`GET /v1/map` with its filters; a snapshot of the views gives the same map."""
    async with GatewayWorld() as world:
        await world.node("n1")
        job = await world.submit(resources=gpus(3))
        await world.in_state(job, "placed")
        now = (await world.http.get("/v1/map")).json()
        assert now["pools"][0]["states"]["held"] == 3 and now["jobs"][0]["id"] == job
        early = (await world.http.get("/v1/map?at=1")).json()
        assert (early["sequence"], early["jobs"]) == (1, [])
        refused = await world.http.get("/v1/map?rack=r1")
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "rack")
        assert (await world.http.get("/v1/map?racks=r1")).status_code == 422
        views = world.gateway.views
        again = type(views).restore(views.snapshot())
        assert again is not None and cluster_map(again) == cluster_map(views)
