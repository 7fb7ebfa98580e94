"""Demands of a request on one node, without anything else about it."""

from typing import NamedTuple

#: A whole GPU, in thousandths.
WHOLE_MILLI = 1000


class Shape(NamedTuple):
    """Shape of a request: `gpu_count` GPUs, `gpu_milli` thousandths of each (1000 is a whole one; 0 GPUs and 0 for none).

    `models` are the accepted GPU models, in alphabetical order; an empty tuple means any.
    """

    cpu_milli: int
    memory_mib: int
    gpu_count: int = 0
    gpu_milli: int = 0
    models: tuple[str, ...] = ()

    @property
    def total_milli(self) -> int:
        """Demand for all GPUs together, in thousandths of a GPU."""
        return self.gpu_count * self.gpu_milli

    @property
    def is_share(self) -> bool:
        """True for a part of one GPU."""
        return self.gpu_count == 1 and self.gpu_milli < WHOLE_MILLI
