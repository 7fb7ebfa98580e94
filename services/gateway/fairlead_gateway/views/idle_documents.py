"""Documents of idle runs, policies and savings, built from rows on request. Pure."""

from fairlead_gateway.views.fold import Views
from fairlead_gateway.views.idle import decisive, held_milli_s
from fairlead_gateway.views.rows import DryRunSavings, IdleReport, JobRow
from fairlead_schemas.http import api
from fairlead_schemas.policies.idle import evidence_words
from fairlead_schemas.policies.idle_file import policy_words
from fairlead_schemas.units.timestamps import rfc3339, rfc3339_or_none


def idle_document(views: Views) -> api.IdleOverview:
    """Return the whole document: policies, idle runs, what dry runs would have saved."""
    rows = [row for job in views.idle.idle if (row := views.jobs.rows.get(job)) is not None and row.idle]
    items = [idle_run(views, row) for row in sorted(rows, key=lambda row: row.born)]
    return api.IdleOverview(
        policies=[scope_document(views, scope) for scope in sorted(views.idle.policies)],
        items=items,
        savings=_savings(views),
        sequence=views.sequence,
    )


def scope_document(views: Views, scope: str) -> api.IdleScope:
    """The policies of one scope; none: it has no say."""
    found = views.idle.policies.get(scope)
    return api.IdleScope(
        scope=scope,
        policies=[policy_words(policy) for policy in found.policies] if found else [],
        by=views.name_of(found.by) if found else "",
        set_at=rfc3339(found.at_ns) if found else None,
        sequence=views.sequence,
    )


def named_scope(views: Views, scope: str) -> str:
    """Return a scope with the login name of a single person, whom the log has by id."""
    kind, _, name = scope.partition(":")
    return f"user:{views.name_of(name)}" if kind == "user" else scope


def idle_run(views: Views, row: JobRow) -> api.IdleRun:
    """Return the document of one idle run."""
    standing = job_idle(views, row)
    assert standing is not None, f"job {row.id} is listed as idle"
    return api.IdleRun(
        job=row.id,
        name=row.name,
        kind=row.kind,
        queue=row.queue,
        user=views.name_of(row.user),
        project=row.project,
        gpu_milli=row.holds.gpu_milli_total,
        nodes=[part.node for part in row.parts],
        idle=standing,
    )


def job_idle(views: Views, row: JobRow) -> api.IdleStatus | None:
    """Return the idle state of a job under the policies; None where no policy applies to it now."""
    seen = decisive(row)
    return None if seen is None else _standing(views, seen, row)


def _standing(views: Views, seen: IdleReport, row: JobRow) -> api.IdleStatus:
    return api.IdleStatus(
        rule=seen.rule,
        scope=named_scope(views, seen.scope),
        action=seen.action,
        mode=seen.mode,
        since=rfc3339(seen.since_ns),
        reclaim_at=rfc3339_or_none(seen.reclaim_at_ns),
        asked=bool(seen.reclaim_requested_ns),
        words=words(seen),
        evidence=list(seen.evidence),
        extended_until=rfc3339_or_none(row.extended_until_ns),
    )


def words(seen: IdleReport) -> str:
    """The evidence in one line."""
    return evidence_words(seen.evidence, max(0, seen.seen_ns - seen.since_ns))


def _savings(views: Views) -> list[api.IdleSaving]:
    running: dict[tuple[str, str, str], int] = {}
    for row in (views.jobs.rows[job] for job in views.idle.idle if job in views.jobs.rows):
        for each in row.foreseen:
            key = each.scope, each.rule, each.action
            running[key] = running.get(key, 0) + held_milli_s(row, each, views.at_ns)
    return [_saving(saved, running.get(key, 0)) for key, saved in views.idle.savings.items()]


def _saving(saved: DryRunSavings, running_milli_s: int) -> api.IdleSaving:
    hours = (saved.gpu_milli_s + running_milli_s) / (1000 * 3600)
    return api.IdleSaving(
        scope=saved.scope,
        rule=saved.rule,
        action=saved.action,
        runs=saved.runs,
        gpu_hours=round(hours, 3),
        came_alive=saved.came_alive,
    )
