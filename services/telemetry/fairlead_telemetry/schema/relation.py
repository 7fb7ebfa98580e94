"""Description of a table or view: name, sentence, columns, and the query of a view."""

from typing import NamedTuple


class Column(NamedTuple):
    """Column with its DuckDB type and one sentence."""

    name: str
    type: str
    about: str
    #: How DuckDB is to compress it; "": as it finds best, for which it tries every way.
    compression: str = ""

    @property
    def ddl(self) -> str:
        """The column as CREATE TABLE takes it."""
        return f'"{self.name}" {self.type}' + (f" USING COMPRESSION {self.compression}" if self.compression else "")


class Relation(NamedTuple):
    """A table (`select` is empty) or a view."""

    name: str
    about: str
    columns: tuple[Column, ...]
    select: str = ""
