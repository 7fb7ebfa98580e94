"""Levels of topology, by the words that jobs use: inside a node, and the domains that nodes are grouped into by labels."""

#: Inside a node: all GPUs of a unit connected by NVLink, under one PCIe switch, on one NUMA node, on one socket.
INSIDE_LEVELS = ("nvlink", "switch", "numa", "socket")

#: Around nodes, smallest first: {level: the labels that name a node's domain there, the first one that is set counts}.
#: The domain of "node" is the node itself.
DOMAIN_LABELS: dict[str, tuple[str, ...]] = {
    "nvlink-domain": ("fairlead/nvlink-domain", "nvidia.com/gpu.clique"),
    "rack": ("fairlead/rack", "topology.kubernetes.io/rack"),
    "block": ("fairlead/block", "topology.kubernetes.io/block"),
    "spine": ("fairlead/spine", "topology.kubernetes.io/zone"),
}
DOMAIN_LEVELS = ("node", *DOMAIN_LABELS)

LEVELS = (*INSIDE_LEVELS, *DOMAIN_LEVELS)


def domain_of(labels: dict[str, str], level: str) -> str:
    """The node's domain at a level of DOMAIN_LABELS; "" where no label says."""
    return next((labels[key] for key in DOMAIN_LABELS[level] if labels.get(key)), "")
