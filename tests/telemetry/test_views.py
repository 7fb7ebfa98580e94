"""Each view on one small morning (story.py), read as a table."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fairlead_gateway.routes.documents import job_document
from fairlead_gateway.views.fold import Views
from fairlead_schemas.http.api import Reason
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.events import JobPlaced, Part
from fairlead_schemas.wire.lifecycle import END_STATES
from fairlead_schemas.wire.resources import Request
from fairlead_telemetry import schema
from fairlead_telemetry.queries.answers import find_job
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.story import Story, joined, morning, offered, submitted


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    warehouse = Warehouse(tmp_path_factory.mktemp("views"))
    store(warehouse, morning())
    yield warehouse
    warehouse.close()


def table(warehouse: Warehouse, query: str) -> str:
    """Rows as aligned text, one line each; `-` for null."""
    rows = [["-" if cell is None else str(cell) for cell in row] for row in warehouse.rows(query)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def lines(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def test_jobs(warehouse: Warehouse) -> None:
    """Every state in the sample log; an element inherits from its array, a retry starts again."""
    query = "SELECT id, state, \"user\", attempt, gpus, array_to_string(nodes, ','), exit_code, signal, reason, is_array FROM jobs ORDER BY 1"
    assert table(warehouse, query) == lines("""
        1    succeeded  ada  1  2.0  n1     0  -  -          False
        2    failed     bob  2  1.0  n2     -  9  exit_code  False
        3    running    ada  1  4.0  n1,n2  -  -  -          False
        4    queued     bob  1  0.0         -  -  -          True
        4_0  succeeded  bob  1  0.0  n1     0  -  -          False
        4_1  offered    bob  1  0.0         -  -  -          False
        5    held       ada  1  1.0         -  -  -          False
        6    cancelled  ada  1  1.0         -  -  -          False
        7    scheduled  ada  1  1.0         -  -  -          False
        8    stopping   ada  1  0.0  n1     -  -  -          False""")


def test_job_times(warehouse: Warehouse) -> None:
    """Submitted, started (newest attempt), ended: the writers' clocks, to the second here."""
    query = """SELECT id, strftime(submitted_at, '%T'), strftime(started_at, '%T'), strftime(ended_at, '%T') FROM jobs
      WHERE id IN ('1', '2', '3', '6') ORDER BY 1"""
    assert table(warehouse, query) == lines("""
        1  00:00:10  00:00:13  01:00:13
        2  01:06:40  01:08:24  01:10:04
        3  01:23:20  01:23:31  -
        6  01:28:21  -         01:28:21""")


def test_allocations(warehouse: Warehouse) -> None:
    """GPUs count from placement until they came back: by RunEnded, by a gang's RankEnded, or up to now."""
    query = "SELECT job, attempt, rank, node, gpu_count, strftime(released_at, '%T'), gpu_seconds FROM allocations WHERE gpu_count > 0 ORDER BY ALL"
    assert table(warehouse, query) == lines("""
        1  1  0  n1  2  01:00:12  7200.0
        2  1  0  n1  1  01:08:21  100.0
        2  2  0  n2  1  01:10:03  100.0
        3  1  0  n1  2  01:25:10  200.0
        3  1  1  n2  2  -         600.0""")


def test_estimates_continue_while_the_log_is_idle(warehouse: Warehouse) -> None:
    """Held GPUs, all of them and no others, count up to now."""
    held = "SELECT job, attempt, rank, node, gpu_seconds FROM allocations WHERE released_at IS NULL ORDER BY ALL"
    assert warehouse.rows("SELECT job, attempt, rank, node, gpu_seconds FROM held_now ORDER BY ALL") == (
        warehouse.rows(held)
    )
    query = """SELECT gpu_seconds, estimated_gpu_seconds, gpu_count, epoch_ns(now()) - (SELECT at_ns FROM cursor)
      FROM held_now WHERE gpu_count > 0"""
    rows = warehouse.rows(query)
    assert rows
    for exact, estimate, gpus, since_ns in rows:
        assert estimate == pytest.approx(exact + gpus * since_ns / 1e9, rel=1e-9)


def test_runs(warehouse: Warehouse) -> None:
    """One row per placement, with its end as in the placer's event."""
    query = "SELECT job, attempt, array_to_string(nodes, ','), gpu_count, strftime(started_at, '%T'), strftime(ended_at, '%T'), outcome, exit_code, signal, gpu_seconds FROM runs ORDER BY 1, 2"
    assert table(warehouse, query) == lines("""
        1    1  n1     2  00:00:13  01:00:12  exited  0  -  7200.0
        2    1  n1     1  01:06:42  01:08:21  exited  3  -  100.0
        2    2  n2     1  01:08:24  01:10:03  exited  -  9  100.0
        3    1  n1,n2  4  01:23:31  -         -       -  -  800.0
        4_0  1  n1     0  01:26:42  01:26:43  exited  0  -  0.0
        8    1  n1     0  01:28:26  -         -       -  -  0.0""")


def test_nodes_and_queues(warehouse: Warehouse) -> None:
    """Inventory and latest request of each node; quota and counts of each queue, without the array itself."""
    query = "SELECT id, state, gpu_model, gpu_count, cpu_milli, simulated, times_lost FROM nodes ORDER BY 1"
    assert table(warehouse, query) == lines("""
        n1  ready     NVIDIA A100  2  64000  True  0
        n2  cordoned  NVIDIA A100  2  64000  True  0""")
    query = "SELECT path, gpu_quota, waiting, running, ended FROM queues"
    assert table(warehouse, query) == "research  4.0  3  2  4"


def test_a_removed_node_stays_known_and_comes_back_as_new(tmp_path: Path) -> None:
    """Its history is asked for later; a drain or quarantine of before does not hold for one that joins again."""
    story = Story()
    story.at(0, joined("n1"), joined("n2"))
    story.at(1, ev.NodeDrained(cause="cmd:1", node="n1"), ev.NodeQuarantined(cause="cmd:2", node="n1"))
    story.at(2, ev.NodeLost(cause="clock", node="n1", silent_ns=1))
    story.at(3, ev.NodeRemoved(cause="cmd:3", node="n1"))
    warehouse = Warehouse(tmp_path)
    store(warehouse, story)
    assert table(warehouse, "SELECT id, state FROM nodes ORDER BY 1") == lines("""
        n1  removed
        n2  ready""")
    warehouse.close()
    story.at(4, joined("n1"))
    warehouse = Warehouse(tmp_path / "again")
    store(warehouse, story)
    assert table(warehouse, "SELECT id, state, times_lost FROM nodes ORDER BY 1") == lines("""
        n1  ready  1
        n2  ready  0""")
    warehouse.close()


def test_usage_and_wait(warehouse: Warehouse) -> None:
    """GPU-hours per user add up the allocations; waits are from submit to first placement."""
    query = 'SELECT "user", queue, runs, gpu_hours::DECIMAL(9, 4) FROM gpu_hours_by_user ORDER BY 1'
    assert table(warehouse, query) == lines("""
        ada  research  3  2.2222
        bob  research  3  0.0556""")
    assert table(warehouse, "SELECT queue, jobs, p50_s, max_s FROM queue_wait") == "research  5  1.0  10.0"


def test_view_document_and_live_view_agree(warehouse: Warehouse) -> None:
    """Three folds of one log, written apart, say the same: SQL, the job's document, and the gateway's live view."""
    live = Views()
    for sequence, (_, commit, _) in enumerate(morning().commits, 1):
        live.fold(sequence, commit)
    rows = warehouse.rows('SELECT id, state, attempt, nodes, exit_code, signal, name, "user" FROM jobs ORDER BY id')
    for job, *seen in rows:
        document = find_job(warehouse, job)
        assert document is not None
        assert seen == [
            document.state,
            document.attempt,
            document.nodes,
            document.exit_code,
            document.signal,
            document.name,
            document.user,
        ]
        if job in live.jobs.rows:
            shown = job_document(live, live.jobs.rows[job], now_ns=live.at_ns)
            shown.array = shown.array and {state: count for state, count in shown.array.items() if count}
            if shown.state not in END_STATES:
                shown.reason = document.reason = None
            elif shown.reason and document.reason:
                # Words and advice may differ; the code and what happened may not.
                shown.reason, document.reason = (
                    Reason(code=shown.reason.code, message=""),
                    Reason(code=document.reason.code, message=""),
                )
            assert json.loads(msgspec.json.encode(document)) == json.loads(msgspec.json.encode(shown))
    assert {job for job, *_ in rows} - {"1"} == set(live.jobs.rows)


@pytest.mark.parametrize(
    "relation", [*schema.TABLES, *schema.MEASURED, *schema.VIEWS], ids=lambda relation: relation.name
)
def test_documented_columns_are_the_real_ones(warehouse: Warehouse, relation: schema.Relation) -> None:
    """The help text names every column of every table and view, with its type, in order."""
    described = [(row[0], row[1]) for row in warehouse.rows(f"DESCRIBE {relation.name}")]
    assert described == [(column.name, column.type) for column in relation.columns]
    for column in relation.columns:
        assert column.about in schema.help_text()


def test_shares_and_kinds_count_as_what_they_are(tmp_path: Path) -> None:
    """Half a GPU for 100 seconds are 50 GPU-seconds; a job of two kinds asks for the GPUs of both."""
    warehouse = Warehouse(tmp_path)
    story = Story()
    story.at(0, joined("n1"))
    kinds = Request(nodes=2, gpu_milli=4000, also=(Request(nodes=3, gpu_milli=500, gpu_parts=1), Request(cpu_milli=1)))
    story.at(1, msgspec.structs.replace(submitted("1"), request=kinds), offered("1"))
    parts = (Part(node="n1", gpus=("g0",), gpu_milli=500), Part(node="n1", gpus=("g1",)))
    story.at(2, JobPlaced(cause="1.0", job="1", attempt=1, parts=parts))
    story.at(102, joined("n2"))
    store(warehouse, story)
    assert table(warehouse, "SELECT id, gpus FROM jobs") == "1  9.5"
    held = table(warehouse, "SELECT rank, gpu_count, gpu_seconds FROM allocations ORDER BY rank")
    assert held == lines("""
        0  1  50.0
        1  1  100.0""")
    warehouse.close()
