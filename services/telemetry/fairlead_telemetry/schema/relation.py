"""How a table or view is described: name, sentence, columns, and the query of a view."""

from typing import NamedTuple


class Column(NamedTuple):
    """One column: its DuckDB type and one sentence."""

    name: str
    type: str
    about: str


class Relation(NamedTuple):
    """A table (`select` is empty) or a view."""

    name: str
    about: str
    columns: tuple[Column, ...]
    select: str = ""
