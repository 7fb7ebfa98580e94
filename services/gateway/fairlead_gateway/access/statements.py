"""Statements of GPU time as one caller may see them: the lines that are made only of jobs which the caller may read. Pure.

A line is the sum over one user, queue, project, job, model or pool. A caller who may not read all jobs gets the lines of its own,
of its queues and of its projects, with totals over these; lines by model are sums over everybody, so it gets none.
"""

from decimal import Decimal

import msgspec

from fairlead_gateway.access.targets import Sight
from fairlead_rights.access_list import Target
from fairlead_schemas.queries.telemetry import By, UsageLine, UsageStatement
from fairlead_schemas.units.ids import is_queue_path


def shown_statement(sight: Sight, answer: bytes, by: By) -> UsageStatement:
    """Return a statement without the lines that the caller may not see, with totals over the lines that are left."""
    found = msgspec.json.decode(answer, type=UsageStatement)
    if sight.all_jobs:
        return found
    found.lines = [line for line in found.lines if _sees(sight, by, line.key)]
    found.gpu_hours, found.charged = sum(line.gpu_hours for line in found.lines), _sum(found.lines, "charged")
    found.held, found.totals = _sum(found.lines, "held"), _totals(found.lines)
    if found.measured is not None:
        found.measured, found.used = _sum(found.lines, "measured"), _sum(found.lines, "used")
    found.unpriced = sorted({line.model for line in found.lines if line.per_gpu_hour is None})
    if (estimate := found.estimate) is not None:
        estimate.lines = [line for line in estimate.lines if _sees(sight, by, line.key)]
        estimate.gpu_hours = sum(line.gpu_hours for line in estimate.lines)
        estimate.charged = sum(line.charged for line in estimate.lines)
        estimate.totals = {}
    return found


def _sees(sight: Sight, by: By, key: str) -> bool:
    match by:
        case "user":
            # A token that is limited to some queues does not cover all that its owner has used.
            caller = sight.caller
            return key == caller.user and caller.may("job:read", Target(owner=key))
        case "queue":
            return is_queue_path(key) and sight.jobs_of(key)
        case "project":
            return bool(key) and sight.project(key)
        case "job":
            return sight.job_id(key)
        case "attempt":
            return sight.job_id(key.rpartition(".")[0])
        case "pool":
            return sight.jobs_of_pool(key)
        case _:
            return False


def _sum(lines: list[UsageLine], field: str) -> int:
    return sum(getattr(line, field) or 0 for line in lines)


def _totals(lines: list[UsageLine]) -> dict[str, str]:
    """Return {currency: sum}, exact: amounts are decimal text with two digits."""
    sums: dict[str, Decimal] = {}
    for line in lines:
        if line.amount is not None:
            sums[line.currency] = sums.get(line.currency, Decimal(0)) + Decimal(line.amount)
    return {currency: str(total) for currency, total in sorted(sums.items())}
