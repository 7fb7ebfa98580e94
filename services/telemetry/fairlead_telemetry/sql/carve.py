"""Makes the file that a member's SQL runs over: a database that holds only what the member may see (`visible.py`).

Rows of others are not hidden behind a condition, they are not in the file: no cast that fails on a row, no plan, no statistics and no
name in a catalogue can tell of them. DuckDB promises none of that of a view's condition (docs/facts.md).
Start at `carve`.
"""

from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from fairlead_schemas.callers import Caller
from fairlead_telemetry import schema
from fairlead_telemetry.schema.log import PLACE
from fairlead_telemetry.sql import visible

CONFIG: dict[str, Any] = {"threads": 1, "memory_limit": "256MB"}


class Scope(NamedTuple):
    """Whose rows: of this user, and of these projects, in order. Callers who see the same share a file."""

    user: str
    projects: tuple[str, ...]


def scope_of(caller: Caller) -> Scope | None:
    """What the caller may see; None: everything. Jobs without a project belong to nobody but their users."""
    if caller.sees_all:
        return None
    return Scope(caller.user, tuple(sorted({project for project in caller.projects if project})))


def carve(whole: Path, target: Path, scope: Scope) -> None:
    """Write `target`, a new database, from the copy `whole`, which is only read."""
    config = CONFIG | {"temp_directory": str(target.parent / "spill")}
    with duckdb.connect(":memory:", config=config) as db:
        db.execute(f"ATTACH '{_quoted(whole)}' AS whole (READ_ONLY)")
        db.execute(f"ATTACH '{_quoted(target)}' AS part")
        db.execute("USE whole")
        parameters = {"user": scope.user, "projects": list(scope.projects)}
        db.execute(f"CREATE TEMP TABLE mine AS {visible.JOBS_OF_A_MEMBER}", parameters)
        for space, table in db.execute(_TABLES).fetchall():
            _copy(db, space, table, scope)
        for view in visible.TOTALS:
            db.execute(f"CREATE TABLE part.main.{view} AS FROM {view}")
        db.execute("UPDATE part.main.cursor SET events = (SELECT count(*) FROM part.main.events)")
    with duckdb.connect(str(target), config=config) as db:
        db.execute(PLACE)
        for view in schema.VIEWS:
            if view.name not in visible.TOTALS:
                db.execute(f"CREATE VIEW {view.name} AS {view.select}")


_TABLES = "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'whole' ORDER BY ALL"


def _copy(db: duckdb.DuckDBPyConnection, space: str, table: str, scope: Scope) -> None:
    rule = visible.TABLES.get(f"{space}.{table}", visible.NOTHING)
    replaced = ", ".join(f'{expression} AS "{column}"' for column, expression in rule.replaced)
    columns = f"* REPLACE ({replaced})" if replaced else "*"
    db.execute(f'CREATE SCHEMA IF NOT EXISTS part."{space}"')
    query = (
        f'CREATE TABLE part."{space}"."{table}" AS SELECT {columns} FROM whole."{space}"."{table}" WHERE {rule.rows}'  # noqa: S608 names of our own tables
    )
    db.execute(query, {"user": scope.user} if "$user" in rule.rows else None)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
