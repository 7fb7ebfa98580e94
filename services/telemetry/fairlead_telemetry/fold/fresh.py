"""The events that a fold has still to take in, as the first relation of each of its statements."""

from typing import NamedTuple, Self

#: Parameters: places $low to $high, both included, and the sequences that they lie in (by which DuckDB skips the rest).
FRESH = """
fresh AS (
  SELECT *, place(sequence, idx) AS place FROM events
  WHERE sequence BETWEEN $first AND $last AND place(sequence, idx) BETWEEN $low AND $high)"""

IDX_BITS = 16  # of a place


class Step(NamedTuple):
    """A statement, needed where an event's type begins with one of `needs`."""

    needs: tuple[str, ...]
    statement: str
    reads_events: bool = True


class Span(dict[str, int]):
    """Places `low` to `high` as the parameters of a statement."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__(low=low, high=high, first=low >> IDX_BITS, last=high >> IDX_BITS)

    @classmethod
    def of_sequences(cls, first: int, last: int) -> Self:
        """All places of the commits from `first` to `last`, both included."""
        return cls(first << IDX_BITS, (last << IDX_BITS) + (1 << IDX_BITS) - 1)
