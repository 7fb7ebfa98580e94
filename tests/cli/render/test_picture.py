"""The picture of a cluster: exact where it is small, and true whatever the cluster."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from fairlead.render import cluster_map
from fairlead.render.cluster_map import OTHERS, SEVERAL, WIDTH_MIN, By, OwnerGroups, draw
from fairlead.render.terminal import cut, cut_left, line_text
from fairlead_schemas.queries.cluster_map import ClusterMap, MapNode
from tests.cli.mapped import facts, job, node

HELD = {"a": ("812",), "b": ("813_1",), "c": ("813_2",), "s": ("812", "813_1"), "h": ("814",)}
THREE = facts(
    [
        node("n1", "aaaaaaaa", HELD, simulated=True),
        node("n2", "aabbcs..", HELD),
        node("n3", "h-------", HELD, state="drained", reason="new driver"),
    ],
    job("812", "train-llm"),
    job("813_1", "sweep", "bob"),
    job("813_2", "sweep", "bob", state="placed"),
    job("814", "eval"),
)


def text(found: ClusterMap, by: By = By.job, width: int = 80, *, each: bool = False) -> str:
    """The picture without its colours."""
    return "".join(f"{line_text(one)}\n" for one in draw(found, by, width, each=each))


def test_three_nodes() -> None:
    """Every node has its line; an array is one job; a GPU of several jobs says so; only signs that appear are explained."""
    assert text(THREE) == (
        "3 nodes  24 GPUs  as of sequence 40, 2026-01-01T00:00:03.000Z\n"
        "\n"
        "pool default  3 nodes (1 simulated)  24 GPUs  2 free (2 fragmented)\n"
        "  7 idle on closed nodes  15 held\n"
        "could start now:  2 GPUs on one node (n2)  no whole node in the pool\n"
        "  n1  AAAAAAAA\n"
        "  n2  AABBB%..\n"
        "  n3 =C=======  drained: new driver\n"
        "\n"
        "by job (an array is one job)\n"
        "A 812  10.5 GPUs  train-llm (ada, res..  B 813   3.5 GPUs  sweep (bob, research)\n"
        "C 814     1 GPU   eval (ada, research)\n"
        ". free  = draining or drained  % shared by several\n"
    )


def test_other_groups() -> None:
    """Users, queues and states have their initial where it is left; who shares a GPU with himself is one."""
    assert [one for one in text(THREE, By.user).splitlines() if one.startswith(("  n2", "by", "A", "B"))] == [
        "  n2  AABBB%..",
        "by user",
        "A ada  11.5 GPUs  2 jobs                 B bob   3.5 GPUs  2 jobs",
    ]
    assert "  n2  RRRRRR..\n" in text(THREE, By.queue)
    states = text(THREE, By.state)
    assert "  n2  RRRRPR..\n" in states
    assert "R running  14 GPUs  3 jobs               P placed    1 GPU   1 job\n" in states


def test_racks_blocks_and_pools() -> None:
    """Nodes stand with their rack; each pool has its own sums."""
    found = facts(
        [
            node("a1", "....", block="b1", rack="r1"),
            node("a2", "....", block="b1", rack="r1"),
            node("a3", "~*::", block="b1", rack="r2", reserved_for="31"),
            node("b1", "../", pool="side"),
            node("cpu", "", pool="side"),
        ]
    )
    assert text(found) == (
        "5 nodes  15 GPUs  as of sequence 40, 2026-01-01T00:00:03.000Z\n"
        "\n"
        "pool default  3 nodes  12 GPUs  8 free (0 fragmented)  2 kept for waiting jobs\n"
        "  1 being cleaned  1 unhealthy\n"
        "could start now:  4 GPUs on one node (a1)  2 x 4 GPUs in one rack (r1)\n"
        "  2 x 4 GPUs in one block (b1)  2 x 4 GPUs in the pool\n"
        "block b1  rack r1\n"
        "  a1  ....\n"
        "  a2  ....\n"
        "block b1  rack r2\n"
        "  a3 :~*::  kept for job 31\n"
        "\n"
        "pool side  2 nodes  3 GPUs  2 free (2 fragmented)  1 cut by MIG and idle\n"
        "could start now:  2 GPUs on one node (b1)  no whole node in the pool\n"
        "  b1   ../\n"
        "  cpu       no GPUs\n"
        "\n"
        ". free  : kept for a waiting job  / MIG instances, none in use  ~ being cleaned\n"
        "* unhealthy\n"
    )


def test_many_nodes_are_drawn_side_by_side() -> None:
    """A rack to a row, wrapped evenly if it does not fit; marks before nodes; closed nodes are named."""
    many = [node(f"n{i:02}", "aa......", HELD, rack=f"r{i // 20}") for i in range(60)]
    many[1] = node("n01", "--------", rack="r0", state="lost")
    many[59] = node("n59", "::::::::", rack="r2", reserved_for="31")
    found = text(facts(many)).splitlines()
    assert [one for one in found if one.startswith(("  r", "     "))] == [
        "  r0  AA......!!!!!!!!! AA...... AA...... AA...... AA...... AA......",
        "      AA...... AA...... AA...... AA...... AA...... AA...... AA......",
        "      AA...... AA...... AA...... AA...... AA...... AA......",
        "  r1  AA...... AA...... AA...... AA...... AA...... AA...... AA......",
        "      AA...... AA...... AA...... AA...... AA...... AA...... AA......",
        "      AA...... AA...... AA...... AA...... AA...... AA......",
        "  r2  AA...... AA...... AA...... AA...... AA...... AA...... AA......",
        "      AA...... AA...... AA...... AA...... AA...... AA...... AA......",
        "      AA...... AA...... AA...... AA...... AA......:::::::::",
    ]
    assert found[found.index("1 kept for job 31:  n59") + 1] == "1 lost:  n01"
    assert "  n59 :::::::::  kept for job 31" in text(facts(many), each=True).splitlines()


def test_fourteen_thousand_gpus_fit() -> None:
    """Racks of eight nodes take a line each at 80 columns; the largest jobs have the letters, the others a sum."""
    holders = {chr(256 + i): (str(1000 + i),) for i in range(100)}
    nodes = [node(f"n{i:04}", chr(256 + i % 100) * (8 - i % 3), holders, rack=f"r{i // 8:03}") for i in range(1750)]
    found = text(facts(nodes)).splitlines()
    assert sum(one.startswith("  r") for one in found) == 219
    assert len(found) < 300
    assert max(map(len, found)) <= 80
    assert any(one.startswith("+ 48 other jobs, ") for one in found)


def test_no_fact_is_shown_by_colour_alone() -> None:
    """The text has the same information; shortened text is marked."""
    colours = {(piece.text[:1], piece.colour) for one in draw(THREE, By.job, 80) for piece in one if piece.colour}
    assert {("A", "cyan"), ("B", "green"), ("=", "yellow")} <= colours
    assert (cut("abcdef", 4), cut_left("abcdef", 4), cut("a\x1bb", 4), cut("漢字", 3)) == ("ab..", "..ef", "a b", " ..")


# --------------------------------------------------------------------------- whatever the cluster

WORDS = st.text(max_size=60)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=1, max_size=63)


@st.composite
def clusters(draw_: st.DrawFn) -> ClusterMap:
    """Any cluster: nodes of any size with names, racks and reasons of any length, jobs of anybody."""
    jobs = [
        job(str(100 + i), draw_(WORDS), draw_(NAMES), draw_(NAMES), draw_(st.sampled_from(("running", "stopping", ""))))
        for i in range(draw_(st.integers(0, 5)))
    ]
    some = st.lists(st.sampled_from([one.id for one in jobs]), min_size=1, max_size=3, unique=True).map(tuple)
    holders = {letter: draw_(some) for letter in "abcdef"} if jobs else {}
    nodes: list[MapNode] = []
    for name in sorted(draw_(st.sets(NAMES, max_size=60))):
        state = draw_(st.sampled_from(("ready", "ready", "cordoned", "drained", "lost", "quarantined")))
        keeper = draw_(st.sampled_from(("", "9" * 18)))
        unheld = "-" if state != "ready" else ":" if keeper else "."
        gpus = draw_(st.text([unheld, "/", "~", "*", *holders], max_size=draw_(st.sampled_from((8, 8, 130)))))
        domains = {level: draw_(NAMES) for level in ("rack", "block", "spine") if draw_(st.booleans())}
        nodes.append(
            node(
                name,
                gpus,
                holders,
                state=state,
                reason=draw_(WORDS),
                reserved_for=keeper,
                pool=draw_(st.sampled_from("pq")),
                **domains,
            )
        )
    return facts(nodes, *jobs)


@settings(max_examples=60, deadline=None)
@given(clusters(), st.sampled_from(By), st.integers(WIDTH_MIN, 200), st.booleans())
def test_no_line_is_too_wide(found: ClusterMap, by: By, width: int, each: bool) -> None:
    """In cells of a terminal, however long names and reasons are; nothing steers the terminal."""
    lines = list(draw(found, by, width, each=each))
    assert lines
    for one in lines:
        assert cell_len(line_text(one)) <= width
        assert line_text(one).isprintable()


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(WIDTH_MIN, 200), st.booleans(), st.sampled_from(By))
def test_each_gpu_is_drawn_once(data: st.DataObject, width: int, single: bool, by: By) -> None:
    """Rows have as many of each sign as there are GPUs (and marks) of it. Names here are digits, which are no signs."""
    holders = {"a": ("100",), "b": ("101",), "c": ("100", "101")}
    nodes: list[MapNode] = []
    for index in range(data.draw(st.integers(1, 30))):
        # A line of its own also says in words what is the matter: of such nodes the other kind of row is tested.
        state = "ready" if single else data.draw(st.sampled_from(("ready", "cordoned", "lost")))
        gpus = data.draw(st.text(["-" if state != "ready" else ".", "/", "~", "*", *holders], min_size=1, max_size=20))
        domains = {"rack": str(data.draw(st.integers(0, 3)))} if data.draw(st.booleans()) else {}
        nodes.append(node(str(index), gpus, holders, state=state, **domains))
    found = facts(nodes, job("100", user="x", queue="y"), job("101", user="z", queue="w", state="placed"))
    groups = OwnerGroups(found, by)
    lines = (cluster_map.each_on_its_line if single else cluster_map.side_by_side)(nodes, groups, width)
    signs = Counter("".join(map(line_text, lines)))
    expected = Counter(cluster_map.cell(one, gpu, groups).text for one in nodes for gpu in one.gpus)
    expected.update(mark for one in nodes if (mark := cluster_map.mark(one)) != " ")
    assert {sign: count for sign, count in signs.items() if sign != " " and not sign.isdecimal()} == expected


@given(st.lists(NAMES, unique=True, max_size=80), st.sampled_from(By))
def test_letters_identify_groups(names: list[str], by: By) -> None:
    """No two groups have one letter; the largest have them; no letter is a sign."""
    held = {chr(1000 + i): (str(i + 1),) for i in range(len(names))}
    found = facts(
        [node("n", "".join(held), held)], *(job(str(i + 1), user=name, queue=name) for i, name in enumerate(names))
    )
    groups = OwnerGroups(found, by).all
    letters = [group.letter for group in groups if group.letter != OTHERS]
    assert len(set(letters)) == len(letters) == min(52, len(groups))
    assert all(letter.isascii() and letter.isalpha() for letter in letters)
    assert SEVERAL not in letters
    assert sum(group.gpu_milli for group in groups) == 1000 * len(names)
