"""GPU models that support MIG, and the names of their profiles.

Further parts:
- geometry of a MIG-capable GPU: slices, the possible cuts, and the names of the profiles;
- lookup of a GPU's model by the product name and memory that its node reports.

Sources, with their licences: profile names, counts and slice sizes of the first six from NVIDIA/go-nvml (Apache-2.0)
and public `nvidia-smi` listings; names and counts of the others from the default configuration of NVIDIA/mig-parted
(Apache-2.0). `inferred` is true for models without observed placements: the shape's placements are assumed. If a node
turns out to be divided in another way, the node is right, not this table.

A GPU has memory slices (the axis on which instances are placed side by side) and compute slices (which only add up). A
cut is one profile's share of both. Models of one shape differ in names and sizes only, so tables are made per shape.

Source of the figures: `nvidia-smi mig -lgip` and `-lgipp` listings and the mock tables of NVIDIA/go-nvml (Apache-2.0),
where they agree; the table records for each model which figures were seen. go-nvml's mocks of H100, H200 and B200
have other starts and sizes than the listings, and the listings count here.

Names come from NVML ("NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM4-40GB MIG 1g.5gb") or from GPU feature discovery, which
writes dashes for spaces and adds "-MIG-1g.5gb" under the single strategy and "-SHARED" for time slicing
(NVIDIA/k8s-device-plugin, Apache-2.0). A name alone is not enough: an A100 has 40 or 80 GB.
"""

import re
from typing import NamedTuple


class ProfileGeometry(NamedTuple):
    """Resources and possible starts of one profile."""

    #: Compute slices.
    compute: int
    #: Memory slices, side by side.
    size: int
    #: Memory slices at which it may start, rising.
    starts: tuple[int, ...]
    #: Instances of it on one empty GPU, as the driver counts them.
    count_max: int
    #: True for "+me": it has the media engines, and so only one such instance is on a GPU.
    media: bool = False

    def mask(self, start: int) -> int:
        """The memory slices taken from `start` on: bit 0 is slice 0."""
        return ((1 << self.size) - 1) << start


class MigGeometry(NamedTuple):
    """All cuts of a GPU. Legal together: no memory slice twice, compute slices at most `compute`, at most one media."""

    memory: int  # slices
    compute: int  # slices
    cuts: tuple[ProfileGeometry, ...]

    @property
    def instances_max(self) -> int:
        """No GPU of the shape holds more instances: each has a compute slice."""
        return self.compute


_SEVEN = (0, 1, 2, 3, 4, 5, 6)

#: A100, H100 and their kin. The eighth memory slice is reached only by cuts that waste compute, or take all.
EIGHTHS = MigGeometry(
    memory=8,
    compute=7,
    cuts=(
        ProfileGeometry(compute=1, size=1, starts=_SEVEN, count_max=7),
        ProfileGeometry(compute=1, size=1, starts=_SEVEN, count_max=1, media=True),
        ProfileGeometry(compute=1, size=2, starts=(0, 2, 4, 6), count_max=4),
        ProfileGeometry(compute=2, size=2, starts=(0, 2, 4), count_max=3),
        ProfileGeometry(compute=3, size=4, starts=(0, 4), count_max=2),
        ProfileGeometry(compute=4, size=4, starts=(0,), count_max=1),
        ProfileGeometry(compute=7, size=8, starts=(0,), count_max=1),
    ),
)

#: A30.
QUARTERS = MigGeometry(
    memory=4,
    compute=4,
    cuts=(
        ProfileGeometry(compute=1, size=1, starts=(0, 1, 2, 3), count_max=4),
        ProfileGeometry(compute=1, size=1, starts=(0, 1, 2, 3), count_max=1, media=True),
        ProfileGeometry(compute=2, size=2, starts=(0, 2), count_max=2),
        ProfileGeometry(compute=2, size=2, starts=(0, 2), count_max=1, media=True),
        ProfileGeometry(compute=4, size=4, starts=(0,), count_max=1),
    ),
)

#: The plain cuts of RTX PRO 6000 Blackwell; those with graphics or without media engines are not held here.
PLAIN_QUARTERS = MigGeometry(memory=4, compute=4, cuts=tuple(cut for cut in QUARTERS.cuts if not cut.media))


_LISTED = "nvidia-smi listings; go-nvml's mock agrees"
_MOCK = "go-nvml's mock"
_LISTED_ONLY = "nvidia-smi listings; go-nvml's mock differs and is not followed"
_LIKE_H100 = "placements inferred from H100; go-nvml's mock differs and is not followed"
_NVL = "profile names from mig-parted; placements from an nvidia-smi listing of H100 NVL"
_NAMES_ONLY = "profile names from mig-parted; placements inferred from H100"


class Model(NamedTuple):
    """A GPU model that can be cut."""

    name: str
    #: Of the whole GPU, as its name counts it.
    memory_gb: int
    #: How product names begin, in capitals, with dashes, without NVIDIA: "A100" begins A100-SXM4-40GB.
    products: tuple[str, ...]
    shape: MigGeometry
    #: In the order of the shape's cuts.
    profiles: tuple[str, ...]
    #: True where the placements were not seen on this model.
    inferred: bool
    source: str

    def cut_number(self, profile: str) -> int | None:
        """Return the profile's number among the shape's cuts; None if the model has no such profile."""
        return self.profiles.index(profile) if profile in self.profiles else None

    def cut(self, profile: str) -> ProfileGeometry:
        """Return the resources that the profile takes. Raises ValueError if the model has no such profile."""
        return self.shape.cuts[self.profiles.index(profile)]


def _eighths(name: str, gb: int, products: tuple[str, ...], sizes: str, source: str, *, inferred: bool) -> Model:
    """A model of seven profiles. Sizes in GB: of one slice, two slices, half, and all."""
    one, two, half, whole = sizes.split()
    names = (
        f"1g.{one}gb",
        f"1g.{one}gb+me",
        f"1g.{two}gb",
        f"2g.{two}gb",
        f"3g.{half}gb",
        f"4g.{half}gb",
        f"7g.{whole}gb",
    )
    return Model(name, gb, products, EIGHTHS, names, inferred, source)


MODELS: tuple[Model, ...] = (
    _eighths("A100-40GB", 40, ("A100", "A800"), "5 10 20 40", _LISTED, inferred=False),
    _eighths("A100-80GB", 80, ("A100", "A800"), "10 20 40 80", _MOCK, inferred=False),
    _eighths("H100-80GB", 80, ("H100", "H800"), "10 20 40 80", _LISTED_ONLY, inferred=False),
    _eighths("H200-141GB", 141, ("H200",), "18 35 71 141", _LIKE_H100, inferred=True),
    _eighths("B200-180GB", 180, ("B200",), "23 45 90 180", _LIKE_H100, inferred=True),
    Model(
        "A30-24GB", 24, ("A30",), QUARTERS, ("1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"), False, _MOCK
    ),
    _eighths("H100-94GB", 94, ("H100", "H800"), "12 24 47 94", _NVL, inferred=False),
    _eighths("H100-96GB", 96, ("H100", "H20", "GH200"), "12 24 48 96", _NAMES_ONLY, inferred=True),
    _eighths("GH200-144GB", 144, ("GH200",), "18 36 72 144", _NAMES_ONLY, inferred=True),
    _eighths("GB200-186GB", 186, ("GB200",), "23 47 93 186", _NAMES_ONLY, inferred=True),
    _eighths("B300-269GB", 269, ("B300",), "34 67 135 269", _NAMES_ONLY, inferred=True),
    _eighths("GB300-278GB", 278, ("GB300",), "35 70 139 278", _NAMES_ONLY, inferred=True),
    Model(
        "RTX-PRO-6000-96GB",
        96,
        ("RTX-PRO-6000-BLACKWELL",),
        PLAIN_QUARTERS,
        ("1g.24gb", "2g.48gb", "4g.96gb"),
        True,
        "profile names from mig-parted; placements inferred from A30",
    ),
)

BY_NAME: dict[str, Model] = {model.name: model for model in MODELS}


#: A node reports less than the name says (ECC, reserved pages), by up to this part of it: H100 NVL has 95,830 MiB of 96,256.
MEMORY_OFF_MAX = 16  # one sixteenth

_GIGABYTES = re.compile(r"(\d+)GB?")


class NoMig(NamedTuple):
    """The GPU is not cut, and a sentence that says why."""

    reason: str


class Product(NamedTuple):
    """A product name in its parts."""

    #: Capitals, dashes: "A100-SXM4-40GB".
    name: str
    #: Of the instances, where the name tells (single strategy); else "".
    profile: str


def read_product(text: str) -> Product:
    """The parts of a name as NVML or feature discovery write it. Never fails: what is not known stays in the name."""
    name, _, profile = re.sub(r"[\s_]+", "-", text.strip()).partition("-MIG-")
    name = name.upper().removeprefix("NVIDIA-").removeprefix("TESLA-").removesuffix("-SHARED")
    return Product(name, profile.removesuffix("-SHARED"))


def find_model(product: str, memory_mib: int = 0) -> Model | NoMig:
    """The model of a GPU. `memory_mib`: of the whole GPU as NVML reports it, 0 where that is not known; it is not looked at
    where the name ends in a MIG profile, since feature discovery then reports an instance's memory."""
    known = read_product(product)
    kin = [model for model in MODELS if any(_begins(known.name, start) for start in model.products)]
    if not kin:
        return NoMig(f"no MIG on {product!r}: not a model whose profiles are known")
    if known.profile:
        found = _told_apart([model for model in kin if known.profile in model.profiles], known.name)
        wanted = f"profile {known.profile}"
    elif memory_mib:
        found = [min(kin, key=lambda model: abs(_nominal_mib(model) - memory_mib))]
        found = [m for m in found if abs(_nominal_mib(m) - memory_mib) * MEMORY_OFF_MAX <= _nominal_mib(m)]
        wanted = f"{memory_mib} MiB"
    else:
        found, wanted = _told_apart(kin, known.name), "memory not known"
    if len(found) == 1:
        return found[0]
    if not found:
        return NoMig(f"no MIG on {product!r}, {wanted}: known are {', '.join(model.name for model in kin)}")
    return NoMig(f"no MIG on {product!r}, {wanted}: may be {' or '.join(model.name for model in found)}")


def _begins(name: str, start: str) -> bool:
    return name == start or name.startswith(f"{start}-")


def _told_apart(kin: list[Model], name: str) -> list[Model]:
    """Return the models of the size in the name, or all. GH200 480GB names its processor's memory, which no model has."""
    sizes = {int(match[1]) for part in name.split("-") if (match := _GIGABYTES.fullmatch(part))}
    return [model for model in kin if model.memory_gb in sizes] or kin


def _nominal_mib(model: Model) -> int:
    return model.memory_gb * 1024
