"""The verb `use`: what running jobs' GPUs do now. A shell; what samples say of them is `newest.py`'s.

use  JobUseRequest  -> fairlead_schemas.queries.telemetry.JobUses
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from fairlead_schemas.queries.telemetry import Caller, JobUseRequest, JobUses
from fairlead_telemetry.ingest import Ingest
from fairlead_telemetry.newest import Held, Newest
from fairlead_telemetry.sql.member_copy import scope_of
from fairlead_telemetry.warehouse import Warehouse

_OWNED = """SELECT p.job, p.attempt, p.node, p.gpus, p.gpu_milli FROM fold.open_parts p JOIN fold.jobs j ON j.job = p.job
WHERE p.released_ns IS NULL AND p.gpu_count > 0 AND p.job IN (SELECT unnest($1::VARCHAR[]))
  AND ($2 OR j."user" = $3 OR j.project IN (SELECT unnest($4::VARCHAR[])))
ORDER BY list_position($1::VARCHAR[], p.job), p.attempt, p.rank"""


class Using:
    """Answers for one warehouse, from what `newest` was fed."""

    def __init__(
        self, warehouse: Warehouse, ingest: Ingest, newest: Newest, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self._warehouse, self._ingest, self._newest, self._clock = warehouse, ingest, newest, clock

    async def ask(self, request: bytes) -> bytes:
        """Return the known use of the requested jobs' GPUs, or {"error": …}."""
        try:
            wish = msgspec.json.decode(request, type=JobUseRequest)
        except msgspec.MsgspecError as error:
            told = {"code": "bad_request", "message": str(error), "hint": 'send {"caller": {…}, "jobs": ["812"]}'}
            return msgspec.json.encode({"error": told})
        held = await self._ingest.on_thread(held_by, self._warehouse, wish.caller, wish.jobs)
        uses = self._newest.uses(held, self._clock())
        return msgspec.json.encode(JobUses(sequence=self._ingest.cursor.sequence, items=uses))


def held_by(warehouse: Warehouse, caller: Caller, jobs: list[str]) -> list[Held]:
    """Return the devices that these jobs hold now, for those that the caller may see; in the jobs' order, ranks in theirs."""
    scope = scope_of(caller)
    parameters: list[Any] = [jobs, scope is None, scope.user if scope else "", list(scope.projects) if scope else []]
    return [
        Held(job, attempt, node, tuple(gpus), gpu_milli)
        for job, attempt, node, gpus, gpu_milli in warehouse.rows(_OWNED, parameters)
    ]
