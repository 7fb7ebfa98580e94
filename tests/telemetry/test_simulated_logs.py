"""SQL, a job's document and the gateway's live views fold one log, written apart: on logs of whole simulated clusters whose
queues change all the time they must agree."""

from pathlib import Path

import pytest

from fairlead_bus.log import Chain
from fairlead_gateway.views.fold import Views
from fairlead_schemas.wire.commit import decode_commit, decode_envelope
from fairlead_telemetry.queries.answers import find_job
from fairlead_telemetry.samples.intake import SampleIntake
from fairlead_telemetry.warehouse.warehouse import CommitBytes, Warehouse
from tests.telemetry.simulated import log_of


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 4, 43])
def test_all_say_the_same_of_every_job(seed: int, tmp_path: Path) -> None:
    """State, queue and attempt, in the middle of a log and at its end."""
    log = log_of(seed)
    warehouse, chain, views = Warehouse(tmp_path), Chain(0, {}), Views()
    for part in (log[: len(log) // 2], log[len(log) // 2 :]):
        commits: list[CommitBytes] = []
        for stored in part:
            commit = decode_commit(stored.payload)
            views.fold(stored.sequence, commit)
            chain.extend(stored, commit)
            commits.append(CommitBytes.of(stored.sequence, decode_envelope(stored.payload)))
        warehouse.store(commits, chain.heads, "a log", SampleIntake([], [], {}))
        told = {row[0]: row[1:] for row in warehouse.rows("SELECT id, state, queue, attempt FROM jobs")}
        assert views.jobs.rows
        for job, row in views.jobs.rows.items():
            document = find_job(warehouse, job)
            assert document is not None
            assert (document.state, document.queue, document.attempt) == (row.state, row.queue, row.attempt), job
            assert told[job] == (row.state, row.queue, row.attempt), job
    warehouse.close()
