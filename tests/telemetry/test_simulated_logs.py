"""SQL, a job's document and the gateway's live views fold one log, written apart: on logs of whole simulated clusters whose
queues change all the time they must agree."""

from pathlib import Path
from typing import Any

import pytest

from fairlead_bus.log import Chain
from fairlead_bus.port import Stored
from fairlead_gateway.views.fold import Views
from fairlead_replay.sim.bus import FaultyBus
from fairlead_replay.sim.restless import Restless
from fairlead_replay.sim.world import Parts, run_seed
from fairlead_schemas import subjects
from fairlead_schemas.commit import decode_commit
from fairlead_telemetry.lookup import find_job
from fairlead_telemetry.samples import SampleIntake
from fairlead_telemetry.warehouse import CommitBytes, Warehouse

COMMANDS = 60


def log_of(seed: int) -> list[Stored]:
    """The whole log of a simulated world."""
    hubs: list[Any] = []

    class Seen(FaultyBus):
        def __init__(self, hub: Any, *more: Any) -> None:
            hubs.append(hub)
            super().__init__(hub, *more)

    assert run_seed(seed, parts=Parts(bus=Seen, people=Restless), commands=COMMANDS).violation is None
    messages = hubs[0].streams[subjects.LOG].messages
    return [
        Stored(sequence, subjects.log(decode_commit(message.payload).writer), message.payload)
        for sequence, message in enumerate(messages, 1)
    ]


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
            commits.append(CommitBytes(stored.sequence, commit.at_ns, len(commit.events), stored.payload))
        warehouse.store(commits, chain.heads, "a log", SampleIntake([], [], {}))
        told = {row[0]: row[1:] for row in warehouse.rows("SELECT id, state, queue, attempt FROM jobs")}
        for job, row in views.jobs.rows.items():
            document = find_job(warehouse, job)
            assert document is not None
            assert (document.state, document.queue, document.attempt) == (row.state, row.queue, row.attempt), job
            assert told[job] == (row.state, row.queue, row.attempt), job
    warehouse.close()
