"""Makes the file that a member's SQL runs over: a database that holds only what the member may see (`visibility.py`).

Rows of others are not hidden behind a condition, they are not in the file: no cast that fails on a row, no plan, no statistics and no
name in a catalogue can tell of them. DuckDB promises none of that of a view's condition (docs/reference/facts.md).
Start at `carve`.
"""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from fairlead_schemas.queries.telemetry import QueryCaller, RowScope
from fairlead_telemetry import schema
from fairlead_telemetry.schema.relations import PLACE
from fairlead_telemetry.schema.samples import measured_view
from fairlead_telemetry.sql import parquet_partitions, visibility

CONFIG: dict[str, Any] = {"threads": 1, "memory_limit": "256MB"}


class MemberScope(NamedTuple):
    """Visible rows of a member: those of this user, of these projects and of these queues with all below, each in order. Callers
    who see the same share a file.
    """

    user: str
    projects: tuple[str, ...]
    queues: tuple[str, ...] = ()
    #: Part in which they must be, too; None: no such limit.
    within: RowScope | None = None
    #: True where totals over everybody's rows are seen.
    totals: bool = True

    def sees(self, job: str, user: str, project: str, queue: str) -> bool:
        """Return True if the member sees a job with these facts: `visibility.JOBS_OF_A_MEMBER` for one job."""
        held = user == self.user or (project != "" and project in self.projects) or _is_below(queue, self.queues)
        part = self.within
        return held and (
            part is None
            or (project != "" and project in part.projects)
            or _is_below(queue, part.queues)
            or job in part.jobs
            or job.partition("_")[0] in part.jobs
        )


def scope_of(caller: QueryCaller) -> MemberScope | None:
    """Return the rows that the caller may see; None: everything. Jobs without a project belong only to their users."""
    if caller.sees_all:
        return None
    projects = tuple(sorted({project for project in caller.projects if project}))
    return MemberScope(caller.user, projects, tuple(sorted(set(caller.queues))), caller.within, caller.totals)


def _is_below(queue: str, roots: tuple[str, ...]) -> bool:
    return any(queue == root or queue.startswith(f"{root}/") for root in roots)


def write_member_copy(whole: Path, target: Path, scope: MemberScope, kept: Path | None = None) -> None:
    """Write `target`, a new database, from the copy `whole`, which is only read. `kept`: where the rows that came from files are kept
    for the next time, this scope's own."""
    config = CONFIG | {"temp_directory": str(target.parent / "spill")}
    with duckdb.connect(":memory:", config=config) as db:
        db.execute(f"ATTACH '{_quoted(whole)}' AS whole (READ_ONLY)")
        db.execute("USE whole")
        part = scope.within or RowScope()
        parameters = {
            "user": scope.user,
            "projects": list(scope.projects),
            "queues": list(scope.queues),
            "unlimited": scope.within is None,
            "part_projects": [project for project in part.projects if project],
            "part_queues": list(part.queues),
            "part_jobs": list(part.jobs),
        }
        db.execute(f"CREATE TEMP TABLE mine AS {visibility.JOBS_OF_A_MEMBER}", parameters)
        _begin(target, parquet_partitions.partition_sources(db), kept, config)
        db.execute(f"ATTACH '{_quoted(target)}' AS part")
        for space, table in db.execute(_TABLES).fetchall():
            _copy(db, space, table, scope)
        for view in visibility.TOTALS:
            shown = "true" if scope.totals else visibility.TOTALS_OF_A_MEMBER[view]
            query = f"CREATE TABLE part.main.{view} AS FROM {view} WHERE {shown}"
            db.execute(query, {"queues": list(scope.queues)} if "$queues" in shown else None)
        db.execute("UPDATE part.main.cursor SET events = (SELECT count(*) FROM part.main.events)")
    with duckdb.connect(str(target), config=config) as db:
        db.execute(PLACE)
        for relation in schema.MEASURED:
            db.execute(measured_view(relation, files=()))
        for view in schema.VIEWS:
            if view.name not in visibility.TOTALS:
                db.execute(f"CREATE VIEW {view.name} AS {view.select}")


def _begin(
    target: Path, wanted: parquet_partitions.PartitionSources, kept: Path | None, config: dict[str, Any]
) -> None:
    """Write `target` with what is in files; from what is kept, if that is still what there is."""
    if kept is None:
        parquet_partitions.gather_partitions(target, wanted, config)
        return
    key = kept.with_suffix(".key")
    if not key.exists() or key.read_text() != wanted.key:
        key.unlink(missing_ok=True)
        kept.unlink(missing_ok=True)
        key.write_text(parquet_partitions.gather_partitions(kept, wanted, config))
    shutil.copyfile(kept, target)


_TABLES = "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'whole' ORDER BY ALL"


#: Tables that rows of files are in already.
_BEGUN = frozenset(f"measured.{relation.name}" for relation in schema.MEASURED)


def _copy(db: duckdb.DuckDBPyConnection, space: str, table: str, scope: MemberScope) -> None:
    rule = visibility.TABLES.get(f"{space}.{table}", visibility.NOTHING)
    if not scope.totals:
        rule = visibility.WITHOUT_TOTALS.get(f"{space}.{table}", rule)
    replaced = ", ".join(f'{expression} AS "{column}"' for column, expression in rule.replaced)
    columns = f"* REPLACE ({replaced})" if replaced else "*"
    db.execute(f'CREATE SCHEMA IF NOT EXISTS part."{space}"')
    there = f"{space}.{table}" in _BEGUN
    into = "INSERT INTO {} BY NAME" if there else "CREATE TABLE {} AS"
    query = (
        f'{into.format(f'part."{space}"."{table}"')} SELECT {columns} FROM whole."{space}"."{table}" WHERE {rule.rows}'  # noqa: S608 names of our own tables
    )
    known = {"user": scope.user, "queues": list(scope.queues)}
    needed = {name: value for name, value in known.items() if f"${name}" in rule.rows}
    db.execute(query, needed or None)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
