"""GPU models that support MIG, and the names of their profiles.

Sources, with their licences: profile names, counts and slice sizes of the first six from NVIDIA/go-nvml (Apache-2.0)
and public `nvidia-smi` listings; names and counts of the others from the default configuration of NVIDIA/mig-parted
(Apache-2.0). `inferred` is true for models without observed placements: the shape's placements are assumed. If a node
turns out to be divided in another way, the node is right, not this table.
"""

from typing import NamedTuple

from fairlead_placer.mig.shapes import EIGHTHS, PLAIN_QUARTERS, QUARTERS, Cut, Shape

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
    shape: Shape
    #: In the order of the shape's cuts.
    profiles: tuple[str, ...]
    #: True where the placements were not seen on this model.
    inferred: bool
    source: str

    def cut_number(self, profile: str) -> int | None:
        """Return the profile's number among the shape's cuts; None if the model has no such profile."""
        return self.profiles.index(profile) if profile in self.profiles else None

    def cut(self, profile: str) -> Cut:
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
