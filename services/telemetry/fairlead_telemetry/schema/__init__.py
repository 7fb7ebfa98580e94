"""Queryable schema: every table and view with its columns, stated once, as data.

The DDL, the views and the help text of `fairlead sql --tables` all come from here. The tables that the views read are
folded from events (`fold/`); views hold no rule that the queue or the placer does not state in an event. To add a view:
append a `Relation` with a sentence per column to its family; the tests check that both agree.
"""

from fairlead_telemetry.schema.cluster import FRAGMENTATION, GPUS, NODES, QUEUES
from fairlead_telemetry.schema.jobs import ALLOCATIONS, HELD_NOW, JOBS, MOVES, PREEMPTIONS, REQUEUES, RUNS
from fairlead_telemetry.schema.relations import (
    CURSOR,
    EVENTS,
    PLACE,
    SAMPLE_FILES,
    SAMPLE_GAPS,
    SAMPLE_HEADS,
    SAMPLE_REFUSALS,
    Column,
    Relation,
)
from fairlead_telemetry.schema.samples import MEASURED, SAMPLES_1H, SAMPLES_1M
from fairlead_telemetry.schema.settings import POOLS, QUEUE_SETTINGS, USER_LIMITS
from fairlead_telemetry.schema.storage import DATASETS, VOLUMES
from fairlead_telemetry.schema.submits import JOB_REQUESTS
from fairlead_telemetry.schema.usage import COSTS, GPU_USAGE, PRICES, USAGE_CLOCK, USAGE_METER
from fairlead_telemetry.schema.utilization import (
    GPU_HOURS,
    IDLE,
    IDLE_ALLOCATIONS,
    IDLE_EXTENSIONS,
    IDLE_SAVINGS,
    JOB_EFFICIENCY,
    QUEUE_WAIT,
)

__all__ = ["EVENTS", "MEASURED", "TABLES", "VIEWS", "Column", "Relation", "help_text", "table_ddl", "view_ddl"]

TABLES = (
    EVENTS,
    SAMPLE_GAPS,
    SAMPLE_HEADS,
    SAMPLE_REFUSALS,
    SAMPLE_FILES,
    CURSOR,
    GPU_USAGE,
    USAGE_METER,
    USAGE_CLOCK,
    PRICES,
)
#: In order of creation: a view comes after those that it reads.
VIEWS = (
    MOVES,
    JOBS,
    JOB_REQUESTS,
    ALLOCATIONS,
    HELD_NOW,
    RUNS,
    NODES,
    GPUS,
    QUEUES,
    QUEUE_SETTINGS,
    USER_LIMITS,
    POOLS,
    GPU_HOURS,
    QUEUE_WAIT,
    COSTS,
    SAMPLES_1M,
    SAMPLES_1H,
    PREEMPTIONS,
    REQUEUES,
    JOB_EFFICIENCY,
    IDLE_ALLOCATIONS,
    IDLE,
    IDLE_EXTENSIONS,
    IDLE_SAVINGS,
    FRAGMENTATION,
    VOLUMES,
    DATASETS,
)


def table_ddl() -> list[str]:
    """Statements that create every table that is missing, and the macro that orders events."""
    tables = [
        f"CREATE TABLE IF NOT EXISTS {table.name} ({', '.join(column.ddl for column in table.columns)})"
        for table in TABLES
    ]
    return [*tables, PLACE]


def view_ddl() -> list[str]:
    """Return the statements that create or replace every view, for use once the folded tables are there."""
    return [f"CREATE OR REPLACE VIEW {view.name} AS {view.select}" for view in VIEWS]


def help_text() -> str:
    """Return the text that `fairlead sql --tables` prints."""
    lines: list[str] = []
    for relation in (*VIEWS, *MEASURED, *TABLES):
        lines.append(f"{relation.name}: {relation.about}")
        width = max(len(column.name) for column in relation.columns)
        kind = max(len(column.type) for column in relation.columns)
        lines += [f"  {column.name:<{width}}  {column.type:<{kind}}  {column.about}" for column in relation.columns]
        lines.append("")
    return "\n".join(lines)
