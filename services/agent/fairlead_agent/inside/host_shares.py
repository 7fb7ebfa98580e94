"""What of this host an engine may pin containers to: its NUMA nodes with CPUs and memory."""

import re
from collections.abc import Collection
from pathlib import Path

from fairlead_agent.inside.cpus import numa_nodes
from fairlead_agent.inside.files import read_text
from fairlead_agent.reserving import Reserved
from fairlead_agent.runtimes.pinning import Host, NumaShare
from fairlead_schemas.cpulists import parse_cpus

_MEMORY = re.compile(r"MemTotal:\s+(\d+) kB")


def read_host(sys: Path, allowed: Collection[int], memory_mib: int, reserved: Reserved) -> Host:
    """Below `sys` it is as below /sys. `memory_mib`: of the whole machine, for a kernel without NUMA."""
    nodes = numa_nodes(sys, allowed)
    shares: dict[int, NumaShare] = {}
    for node in nodes:
        match = _MEMORY.search(read_text(sys / f"devices/system/node/node{node.node}/meminfo"))
        own_mib = int(match[1]) // 1024 if match else memory_mib // len(nodes)
        shares[node.node] = NumaShare(frozenset(parse_cpus(node.cpus)), own_mib)
    return Host(shares, reserved.of(nodes))
