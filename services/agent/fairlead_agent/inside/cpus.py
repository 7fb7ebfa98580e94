"""NUMA nodes with their sockets and CPU lists, threads of one core side by side."""

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from fairlead_agent.inside.files import read_number, read_text
from fairlead_schemas.cpulists import list_cpus, parse_cpus
from fairlead_schemas.inside import NumaNode

_NODE = re.compile(r"node(\d+)\Z", re.ASCII)


def numa_nodes(sys: Path, allowed: Collection[int]) -> tuple[NumaNode, ...]:
    """The NUMA nodes that have CPUs, by number; of their CPUs those that are allowed. Below `sys` it is as below /sys.

    A kernel without NUMA has one node, 0, with all CPUs.
    """
    lists = _lists(sys)
    if not lists:
        lists = {0: _parsed(read_text(sys / "devices/system/cpu/online"))}
    return tuple(
        NumaNode(
            node=node,
            cpus=list_cpus(_side_by_side(sys, [cpu for cpu in cpus if cpu in allowed])),
            socket=read_number(_topology(sys, cpus[0]) / "physical_package_id"),
        )
        for node, cpus in sorted(lists.items())
        if cpus
    )


def _lists(sys: Path) -> dict[int, tuple[int, ...]]:
    """{NUMA node: its CPUs}; one that holds memory alone (a GPU's, for example) has none."""
    try:
        entries = list((sys / "devices/system/node").iterdir())
    except OSError:
        return {}
    found = [(match, entry) for entry in entries if (match := _NODE.match(entry.name))]
    return {int(match[1]): _parsed(read_text(entry / "cpulist")) for match, entry in found}


def _side_by_side(sys: Path, cpus: Iterable[int]) -> tuple[int, ...]:
    """The CPUs by rising number, but each followed by the other threads of its core."""
    left = dict.fromkeys(sorted(cpus))
    ordered: list[int] = []
    while left:
        first = next(iter(left))
        threads = {first, *_parsed(read_text(_topology(sys, first) / "thread_siblings_list"))}
        core = [cpu for cpu in sorted(threads) if cpu in left]
        ordered += core
        for cpu in core:
            del left[cpu]
    return tuple(ordered)


def _topology(sys: Path, cpu: int) -> Path:
    return sys / f"devices/system/cpu/cpu{cpu}/topology"


def _parsed(text: str) -> tuple[int, ...]:
    try:
        return parse_cpus(text)
    except ValueError:
        return ()
