"""Agent's description of its node's inside: links, NUMA nodes, CPUs, NICs. Plain data; the placer checks its
consistency.

Every list here has the GPUs in the order of the node's inventory.
"""

from typing import Literal, get_args

import msgspec

#: What lies between two devices on PCIe, nearest first, in nvidia-smi's words: one board, one bridge (PIX), several
#: bridges (PXB), the host bridge (PHB), several of one NUMA node (NODE), across NUMA nodes (SYS). "X" is the device
#: itself; "" is not known.
Level = Literal["SAME_BOARD", "PIX", "PXB", "PHB", "NODE", "SYS", "X", ""]
LEVELS: tuple[str, ...] = get_args(Level)

#: A node has no more of each: an agent that says otherwise is not believed.
GPUS_MAX = 64
NICS_MAX = 128
NUMA_NODES_MAX = 64
NVLINKS_MAX = 64
NIC_CHARS_MAX = 63
#: Of a description's JSON.
INSIDE_BYTES_MAX = 32 * 1024


class NumaNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """NUMA node, with or without GPUs."""

    node: int
    #: As Linux writes it, "0-19,40-59" (cpulists.py); "" is not known. CPUs are given in this order: who knows which threads share
    #: a core lists them side by side ("0,40,1,41,…"), so that two jobs share no core.
    cpus: str = ""
    socket: int = -1  # -1: not known; the node is then taken for a socket of its own


class Description(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The inside of a node. Hashable: equal nodes have equal descriptions."""

    #: NUMA node of each GPU, -1 where it is not known. As long as the node has GPUs.
    numa: tuple[int, ...] = ()
    #: [gpu][gpu]: NVLinks between the two, 0 on the diagonal. (): there are none.
    nvlinks: tuple[tuple[int, ...], ...] = ()
    #: [gpu][gpu]: PCIe level. (): not known.
    pcie: tuple[tuple[Level, ...], ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    nics: tuple[str, ...] = ()
    #: [gpu][nic]: PCIe level. (): not known.
    nic_levels: tuple[tuple[Level, ...], ...] = ()

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return len(self.numa)


#: Nothing is known. What is left out of bytes: an agent that knows nothing says this very object.
UNKNOWN = Description()
