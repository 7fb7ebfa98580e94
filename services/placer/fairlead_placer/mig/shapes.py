"""Geometry of a MIG-capable GPU: slices, the possible cuts, and the names of the profiles.

A GPU has memory slices (the axis on which instances are placed side by side) and compute slices (which only add up). A
cut is one profile's share of both. Models of one shape differ in names and sizes only, so tables are made per shape.

Source of the figures: `nvidia-smi mig -lgip` and `-lgipp` listings and the mock tables of NVIDIA/go-nvml (Apache-2.0),
where they agree; `models.py` records for each model which figures were seen. go-nvml's mocks of H100, H200 and B200
have other starts and sizes than the listings, and the listings count here.
"""

from typing import NamedTuple


class Cut(NamedTuple):
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


class Shape(NamedTuple):
    """All cuts of a GPU. Legal together: no memory slice twice, compute slices at most `compute`, at most one media."""

    memory: int  # slices
    compute: int  # slices
    cuts: tuple[Cut, ...]

    @property
    def instances_max(self) -> int:
        """No GPU of the shape holds more instances: each has a compute slice."""
        return self.compute


_SEVEN = (0, 1, 2, 3, 4, 5, 6)

#: A100, H100 and their kin. The eighth memory slice is reached only by cuts that waste compute, or take all.
EIGHTHS = Shape(
    memory=8,
    compute=7,
    cuts=(
        Cut(compute=1, size=1, starts=_SEVEN, count_max=7),
        Cut(compute=1, size=1, starts=_SEVEN, count_max=1, media=True),
        Cut(compute=1, size=2, starts=(0, 2, 4, 6), count_max=4),
        Cut(compute=2, size=2, starts=(0, 2, 4), count_max=3),
        Cut(compute=3, size=4, starts=(0, 4), count_max=2),
        Cut(compute=4, size=4, starts=(0,), count_max=1),
        Cut(compute=7, size=8, starts=(0,), count_max=1),
    ),
)

#: A30.
QUARTERS = Shape(
    memory=4,
    compute=4,
    cuts=(
        Cut(compute=1, size=1, starts=(0, 1, 2, 3), count_max=4),
        Cut(compute=1, size=1, starts=(0, 1, 2, 3), count_max=1, media=True),
        Cut(compute=2, size=2, starts=(0, 2), count_max=2),
        Cut(compute=2, size=2, starts=(0, 2), count_max=1, media=True),
        Cut(compute=4, size=4, starts=(0,), count_max=1),
    ),
)

#: The plain cuts of RTX PRO 6000 Blackwell; those with graphics or without media engines are not held here.
PLAIN_QUARTERS = Shape(memory=4, compute=4, cuts=tuple(cut for cut in QUARTERS.cuts if not cut.media))
