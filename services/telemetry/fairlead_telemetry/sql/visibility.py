"""Rows of each table that a member sees: data, read by `member_copy.py`. Pure.

A member sees own jobs and those of own projects and queues, in every table; of queues and of the cluster's room the totals,
where the member may read all of them. Anything
not named here is not seen. A new table is empty for members, and a new type of event is left out, until a person states
the part of it that is theirs. tests/telemetry/sql/test_visibility.py demands that.

In a condition, `mine` is a table of one column: the ids of the member's jobs, array elements included; $user is the
member.
"""

from typing import NamedTuple

from fairlead_schemas.policies.event_visibility import EVENTS_SHOWN


class VisibilityRule(NamedTuple):
    """Rows where `rows` holds, with some columns replaced: ((column, expression), …)."""

    rows: str
    replaced: tuple[tuple[str, str], ...] = ()


_MINE = "(SELECT job FROM mine)"
ALL = VisibilityRule("true")
NOTHING = VisibilityRule("false")
OF_JOBS = VisibilityRule(f"job IN {_MINE}")
OF_RUNS = VisibilityRule(f"split_part(run, '.', 1) IN {_MINE}")


def _body() -> str:
    cases = " ".join(
        f"""WHEN '{kind}' THEN json_merge_patch(body, '{{{", ".join(f'"{field}": null' for field in fields)}}}')"""
        for kind, fields in EVENTS_SHOWN.items()
        if fields
    )
    return f"CASE type {cases} ELSE body END"


_EVENTS = VisibilityRule(
    f"""job IN {_MINE} AND type IN ({", ".join(f"'{kind}'" for kind in EVENTS_SHOWN)})
    OR type = 'JobRejected' AND "user" = $user""",
    (("body", _body()),),
)

#: {schema.table: its rule}
TABLES: dict[str, VisibilityRule] = {
    "main.events": _EVENTS,
    # The newest rows; what has left for files is `parquet_partitions.py`'s.
    "measured.samples": OF_RUNS,
    "measured.uses": OF_RUNS,
    "measured.resources": OF_RUNS,
    "measured.place": NOTHING,
    "measured.doomed": NOTHING,
    "main.sample_files": NOTHING,
    # The words of a refusal may be those of anybody's node.
    "main.sample_refusals": NOTHING,
    # How much was lost on the way says nothing of anybody's jobs.
    "main.sample_gaps": ALL,
    "main.sample_heads": ALL,
    "main.cursor": VisibilityRule("true", (("heads", "'{}'::JSON"),)),
    "main.gpu_usage": OF_JOBS,
    "main.usage_meter": NOTHING,
    "main.usage_clock": ALL,
    # What a GPU costs is everybody's to know; the view of costs has own jobs only.
    "main.prices": ALL,
    "fold.state": ALL,
    "fold.jobs": OF_JOBS,
    "fold.open_jobs": OF_JOBS,
    "fold.moves": OF_JOBS,
    "fold.open_parts": OF_JOBS,
    "fold.done_parts": OF_JOBS,
    "fold.open_runs": OF_JOBS,
    "fold.done_runs": OF_JOBS,
    "fold.preemptions": VisibilityRule(
        OF_JOBS.rows, (("beneficiary", f"CASE WHEN beneficiary IN {_MINE} THEN beneficiary END"),)
    ),
    "fold.requeues": OF_JOBS,
    "fold.idle": OF_JOBS,
    "fold.extensions": OF_JOBS,
    "fold.nodes": ALL,
    "fold.marks": ALL,
    "fold.kept": OF_JOBS,
    "fold.queues": ALL,
    "rolled.minutes": OF_RUNS,
    "rolled.hours": OF_RUNS,
    "rolled.stale_minutes": ALL,
    "rolled.stale_hours": ALL,
    "rolled.horizon": ALL,
}

#: Queue paths in the member's own queues, in a table with a column `path`.
_OWN_QUEUES = "EXISTS (SELECT 1 FROM (SELECT unnest($queues::VARCHAR[]) AS root) WHERE path = root OR starts_with(path, root || '/'))"
#: Other rules for a member who may not read all nodes and queues.
WITHOUT_TOTALS = {
    "fold.nodes": NOTHING,
    "fold.marks": NOTHING,
    "fold.queues": VisibilityRule(_OWN_QUEUES),
}

#: Views of what is everybody's, totals and settings: members find them as tables, made before others' rows are left out.
TOTALS = ("queues", "queue_settings", "user_limits", "pools", "fragmentation_by_hour", "gpus")

#: {such a view: the rows that are left for a member who may not read all nodes and queues}
TOTALS_OF_A_MEMBER = {
    "queues": _OWN_QUEUES,
    "queue_settings": _OWN_QUEUES,
    "user_limits": _OWN_QUEUES,
    "pools": "false",
    "fragmentation_by_hour": "false",
    "gpus": "false",
}


def _of_scope(queues: str, projects: str) -> str:
    below = "queue = root OR starts_with(queue, root || '/')"
    return (
        f"project IN (SELECT unnest(${projects}::VARCHAR[])) "  # noqa: S608 -- names of our own parameters
        f"OR EXISTS (SELECT 1 FROM (SELECT unnest(${queues}::VARCHAR[]) AS root) WHERE {below})"
    )


#: The member's jobs, from the whole warehouse; `MemberScope.sees` is the same for one job.
JOBS_OF_A_MEMBER = f"""SELECT job FROM fold.jobs WHERE ("user" = $user OR {_of_scope("queues", "projects")})
AND ($unlimited OR {_of_scope("part_queues", "part_projects")}
  OR split_part(job, '_', 1) IN (SELECT unnest($part_jobs::VARCHAR[])) OR job IN (SELECT unnest($part_jobs::VARCHAR[])))"""  # noqa: S608 -- as above
