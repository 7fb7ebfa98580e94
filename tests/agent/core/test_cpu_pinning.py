"""CPUs and memory of containers: those of the order, system CPUs kept free, simulated CPUs left alone."""

from pathlib import Path

import pytest

from fairlead_agent.__main__ import read_host
from fairlead_agent.core.cpu_pinning import (
    BadReservation,
    Host,
    NumaShare,
    Pinning,
    Reserved,
    Unpinnable,
    parse_reserved,
    pin,
    without_reserved,
)
from fairlead_schemas.wire.resources import Inventory, NodeTopology, NumaNode

GIB = 1024
#: Two NUMA nodes of eight CPUs and 64 GiB each.
TWO = Host({0: NumaShare(frozenset(range(8)), 64 * GIB), 1: NumaShare(frozenset(range(8, 16)), 64 * GIB)})


@pytest.mark.parametrize(
    ("cpus", "memory_gib", "expected"),
    [
        ("0-3", 32, ("0-3", "0")),
        ("8,9", 16, ("8-9", "1")),
        ("6-9", 32, ("6-9", "0-1")),
        ("0-3", 33, ("0-3", "")),  # more than its CPUs' share: it would starve others of node 0, or be killed by them
        ("0-15", 500, ("0-15", "0-1")),  # all nodes: no wall
        ("", 4, ("", "")),
    ],
)
def test_cpus_and_their_memory_are_pinned(cpus: str, memory_gib: int, expected: tuple[str, str]) -> None:
    """The order's CPUs exactly; memory of their nodes where all such shares fit together."""
    assert pin(cpus, memory_gib * GIB, TWO, simulated=False)[:2] == expected


def test_an_unpinned_run_is_kept_off_the_systems_cpus() -> None:
    """If some are reserved."""
    reserved = TWO._replace(reserved=frozenset({0, 1}))
    assert pin("", GIB, reserved, simulated=False).cpus == "2-15"


def test_simulated_cpus_are_not_pinned_and_this_is_reported() -> None:
    """CPUs that the host has are pinned; a real order for missing CPUs is refused."""
    played = pin("0-63", GIB, TWO, simulated=True)
    assert played == Pinning("", "", "not pinned: this host has not all of the played machine's CPUs 0-63", played=True)
    assert pin("0-3", GIB, TWO, simulated=True).cpus == "0-3"
    with pytest.raises(Unpinnable, match=r"names CPU 16, which this machine has not or has offline \(it has 0-15\)"):
        pin("0-63", GIB, TWO, simulated=False)
    with pytest.raises(Unpinnable, match="cannot be read"):
        pin("0-3;rm", GIB, TWO, simulated=False)


def test_an_engine_without_cpusets_pins_nothing() -> None:
    """And says so."""
    assert pin("0-3", GIB, Host(), simulated=False).summary == "not pinned: this engine has no cpusets"


def write(sys: Path, name: str, text: str) -> None:
    (sys / name).parent.mkdir(parents=True, exist_ok=True)
    (sys / name).write_text(text)


def test_the_host_is_read_from_the_kernel(tmp_path: Path) -> None:
    """NUMA nodes with their memory; without NUMA one node with all of it."""
    for node, cpus in (0, "0-1"), (1, "2-3"):
        write(tmp_path, f"devices/system/node/node{node}/cpulist", cpus)
        write(tmp_path, f"devices/system/node/node{node}/meminfo", f"Node {node} MemTotal:       2097152 kB\n")
    expected = {0: NumaShare(frozenset({0, 1}), 2048), 1: NumaShare(frozenset({2}), 2048)}
    assert read_host(tmp_path, {0, 1, 2}, 9999, Reserved(number=1)) == Host(expected, frozenset({0}))
    write(tmp_path / "flat", "devices/system/cpu/online", "0-3")
    assert read_host(tmp_path / "flat", range(4), 4096, Reserved()).nodes == {0: NumaShare(frozenset(range(4)), 4096)}


# ---------------------------------------------------------------------------- reserved


NODE = Inventory(
    cpu_milli=8000,
    inside=NodeTopology(numa_nodes=(NumaNode(node=0, cpus="0,4,1,5"), NumaNode(node=1, cpus="2,6,3,7"))),
)


@pytest.mark.parametrize(
    ("setting", "milli", "cpus"),
    [
        ("", 8000, ("0,4,1,5", "2,6,3,7")),
        ("2", 6000, ("1,5", "2,6,3,7")),
        ("0,2", 6000, ("4,1,5", "6,3,7")),
        ("3-3", 7000, ("0,4,1,5", "2,6-7")),
    ],
)
def test_reserved_cpus_are_not_offered(setting: str, milli: int, cpus: tuple[str, ...]) -> None:
    """So many, whole cores first; or these."""
    left = without_reserved(NODE, parse_reserved(setting))
    assert (left.cpu_milli, tuple(each.cpus for each in left.inside.numa_nodes)) == (milli, cpus)


def test_a_node_that_does_not_know_its_inside_still_reserves() -> None:
    """By number alone."""
    assert without_reserved(Inventory(cpu_milli=4000), parse_reserved("0-1")).cpu_milli == 2000


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("8", "fewer than the 8 CPUs"),
        ("4", "node 0 keeps none"),
        ("64-65", "CPUs of this node, found 64"),
        ("two", 'a count such as "2"'),
    ],
)
def test_a_reservation_that_cannot_be_is_refused(setting: str, message: str) -> None:
    """With what was expected."""
    with pytest.raises(BadReservation, match=message):
        without_reserved(NODE, parse_reserved(setting))
