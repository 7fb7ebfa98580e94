"""Levels of topology, by the words that jobs use: inside a node, and the domains that nodes are grouped into by labels.

Further parts:
- names of MIG profiles: how Kubernetes spells them as resources, and what part of a GPU one is charged as;
- CPU lists as Linux writes them ("0-19,40-59"), and back.

A profile is named by its compute slices and its memory: "3g.20gb", with "+me" where it has the media engines. Which
GPUs have which profiles is the placer's knowledge; here a name is only a name.
"""

import re
from collections.abc import Sequence

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

TOPOLOGY_LEVELS = (*INSIDE_LEVELS, *DOMAIN_LEVELS)


def domain_of(labels: dict[str, str], level: str) -> str:
    """The node's domain at a level of DOMAIN_LABELS; "" where no label says."""
    return next((labels[key] for key in DOMAIN_LABELS[level] if labels.get(key)), "")


def linked_groups(nvlinks: Sequence[Sequence[int]]) -> list[int]:
    """Return the sizes of the groups of GPUs that NVLinks join, directly or over others; `nvlinks[i][j]` is the number of links.
    A GPU without a link is a group of its own.
    """
    left, sizes = set(range(len(nvlinks))), list[int]()
    while left:
        reached = [left.pop()]
        for gpu in reached:  # grows with the GPUs that are reached over those before
            joined = {other for other in left if nvlinks[gpu][other]}
            left -= joined
            reached.extend(joined)
        sizes.append(len(reached))
    return sizes


MIG_PREFIX = "nvidia.com/mig-"
#: Compute slices of a GPU that can be cut, by far the most of them.
SLICES = 7
#: Profiles of models with four compute slices (A30, RTX PRO 6000 Blackwell). Where a model of seven has the same name, it
#: is charged as the larger part: a GPU that is cut up is never charged as less than it is.
QUARTERS = frozenset(
    {
        "1g.6gb",
        "1g.6gb+me",
        "2g.12gb",
        "2g.12gb+me",
        "4g.24gb",
        "1g.24gb",
        "2g.48gb",
        "4g.96gb",
    }
)

_NAME = re.compile(r"([1-7])g\.[1-9]\d{0,3}gb(\+me)?\Z", re.ASCII)


def resource_of(profile: str) -> str:
    """Return the Kubernetes resource of a profile: `resource_of("1g.5gb+me") == "nvidia.com/mig-1g.5gb.me"`.

    A resource's name may not contain a plus sign; NVIDIA's device plugin writes a dot.
    """
    return MIG_PREFIX + profile.replace("+", ".")


def profile_of(resource: str) -> str | None:
    """The profile that a resource asks for, None where it is no MIG resource: `nvidia.com/mig-1g.5gb` is "1g.5gb".

    Both spellings of the media engines are taken (".me", "+me"). Whether any GPU has the profile is not looked at.
    """
    if not resource.startswith(MIG_PREFIX):
        return None
    name = resource.removeprefix(MIG_PREFIX)
    return name.removesuffix(".me") + "+me" if name.endswith(".me") else name


def is_profile(name: str) -> bool:
    """True for a well-formed name such as "3g.20gb" or "1g.5gb+me"."""
    return _NAME.match(name) is not None


def profile_milli(profile: str) -> int:
    """milli-GPU that one instance is charged as: its part of a GPU's compute slices, rounded up. A well-formed name."""
    slices = 4 if profile in QUARTERS else SLICES
    return -(-1000 * min(int(profile[0]), slices) // slices)


#: CPUs are numbered below this (Linux is built for at most 8192 on x86).
CPUS_MAX = 8192
_PIECE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?\Z", re.ASCII)


def parse_cpus(text: str) -> tuple[int, ...]:
    """The CPUs in the order in which the list names them; "" is none.

    Raises ValueError when the text is no list, or names a CPU twice or one beyond `CPUS_MAX`.
    """
    found: dict[int, None] = {}
    for piece in text.split(",") if text else ():
        match = _PIECE.match(piece.strip())
        if match is None:
            raise ValueError(f'expected CPUs such as "0-19,40-59", found "{text[:100]}"')
        first = int(match[1])
        last = int(match[2] or match[1])
        if not first <= last < CPUS_MAX:
            raise ValueError(f'expected rising CPU numbers below {CPUS_MAX}, found "{match[0]}"')
        for cpu in range(first, last + 1):
            if cpu in found:
                raise ValueError(f'CPU {cpu} is named twice in "{text[:100]}"')
            found[cpu] = None
    return tuple(found)


def format_cpus(cpus: tuple[int, ...]) -> str:
    """The shortest list of these CPUs in rising order: (1, 0, 2, 9) is "0-2,9"."""
    return list_cpus(tuple(sorted(cpus)))


def list_cpus(cpus: tuple[int, ...]) -> str:
    """The list of these CPUs in this order: (0, 40, 1, 41, 42) is "0,40,1,41-42"."""
    pieces: list[str] = []
    start = 0
    for end, cpu in enumerate(cpus):
        if end + 1 == len(cpus) or cpus[end + 1] != cpu + 1:
            pieces.append(str(cpu) if start == end else f"{cpus[start]}-{cpu}")
            start = end + 1
    return ",".join(pieces)
