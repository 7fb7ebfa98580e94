"""`events."user"` and `events.queue`: who did it and where, of every type of event, however the log comes in pieces."""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from fairlead_schemas.wire import events as ev
from fairlead_telemetry.fold import tables, updater
from fairlead_telemetry.warehouse import event_rows
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.schemas.examples import EVENTS
from tests.telemetry.log_feed import feed
from tests.telemetry.moved_jobs import again
from tests.telemetry.rows import actual, expected, store
from tests.telemetry.simulated import log_of
from tests.telemetry.story import Story, busy, of_story, offered, submitted

#: Fields that name a person, a queue or a job; a new one belongs here, and its column has to be filled.
PERSONS, QUEUES, JOBS = {"user", "by"}, {"queue", "path"}, {"job"}


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[Warehouse]:
    warehouse = Warehouse(tmp_path)
    yield warehouse
    warehouse.close()


def test_every_event_type_that_names_an_owner_has_its_columns(warehouse: Warehouse) -> None:
    """Every type of event with a field for a user, a queue or a job has a user or a queue in SQL: the named one, or the
    job's."""
    story, jobs = Story(), ("700", "812")
    story.at(0, *(submitted(job, user="grace", queue="lab") for job in jobs))
    wanted: dict[str, tuple[str | None, str | None]] = {}
    for example in EVENTS:
        fields, kind = set(type(example).__struct_fields__), type(example).__name__
        if kind in ("JobSubmitted", "JobMoved", "QueueRemoved"):
            continue  # they change whose jobs these are; rows.expected covers them
        person = next((getattr(example, field) for field in sorted(PERSONS & fields)), None)
        queue = next((getattr(example, field) for field in sorted(QUEUES & fields)), None)
        of_job = "grace", "lab"
        if JOBS & fields:
            person, queue = person or of_job[0], queue or of_job[1]
        wanted[kind] = person, queue
        story.at(1, example)  # pyright: ignore[reportArgumentType] -- an example of each event
    store(warehouse, story)
    told = {
        kind: (user, queue)
        for kind, user, queue in warehouse.rows('SELECT type, "user", queue FROM events WHERE sequence > 1')
    }
    assert told == wanted
    assert set(wanted) | {"JobSubmitted", "JobMoved", "QueueRemoved"} == {kind.__name__ for kind in get_args(ev.Event)}
    named = PERSONS | QUEUES | JOBS
    empty = {kind.__name__ for kind in get_args(ev.Event) if named & set(kind.__struct_fields__)} & {
        kind for kind, row in wanted.items() if row == (None, None)
    }
    assert not empty


def test_an_auditors_first_queries_have_answers(warehouse: Warehouse) -> None:
    """Actions on nodes, and changes of a queue: the obvious conditions find the events."""
    story = Story()
    story.at(0, ev.QueueConfigured(cause="cmd:1", path="research", by="root"))
    story.at(
        1, ev.NodeCordoned(cause="cmd:2", node="n1", by="root"), ev.NodeCordoned(cause="cmd:3", node="n2", by="ada")
    )
    store(warehouse, story)
    assert warehouse.rows("""SELECT type, node FROM events WHERE "user" = 'root' AND type LIKE 'Node%'""") == [
        ("NodeCordoned", "n1")
    ]
    assert warehouse.rows("""SELECT "user" FROM events WHERE queue = 'research' AND type = 'QueueConfigured'""") == [
        ("root",)
    ]


@pytest.mark.parametrize("sizes", [[1], [2, 5, 3], [1000]], ids=["single", "some", "whole"])
def test_rows_do_not_depend_on_transactions(sizes: list[int], warehouse: Warehouse) -> None:
    """Jobs that move between queues, by a person or with their queue, and events after a job's end: every row as by a plain fold."""
    story = again()
    story.at(3700, ev.CommandRepeated(cause="cmd:late", command="late", job="2"))
    story.at(3701, ev.QueueRemoved(cause="cmd:r", path="c", move_to="d"))
    story.at(3702, ev.CommandRepeated(cause="cmd:late", command="later", job="2"), offered("3_1", 2))
    feed(warehouse, of_story(story), sizes)
    assert actual(warehouse) == expected([payload for *_, payload in story.commits])


@pytest.mark.slow
def test_rows_of_a_simulated_cluster(warehouse: Warehouse) -> None:
    """On the log of a cluster whose queues change all the time, every row is as by a plain fold."""
    log = log_of(7)
    feed(warehouse, log, [3, 1, 17])
    assert actual(warehouse) == expected([stored.payload for stored in log])


@pytest.mark.parametrize("sorted_max", [0, 10_000], ids=["many events", "few events"])
def test_rows_keep_the_order_of_the_log(sorted_max: int, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of open jobs does not matter; a query of a span reads little else."""
    monkeypatch.setattr(event_rows, "SORTED_MAX", sorted_max)
    story = Story()
    story.at(0, *(submitted(str(job)) for job in range(3000)))
    store(warehouse, story)
    for job in range(200):
        story.at(1, offered(str(job)), ev.JobMoved(cause="cmd:m", job=str(job), queue="lab", by="ada"))
    store(warehouse, story, first=1)
    order = warehouse.rows("SELECT sequence, idx FROM events ORDER BY rowid")
    assert order == sorted(order)


def test_a_submission_spelled_otherwise_is_found(warehouse: Warehouse) -> None:
    """The columns do not depend on how the queue service's encoder orders or spaces an event."""
    story = Story()
    story.at(0, submitted("1", user="ada", queue="research"), offered("1"))
    subject, commit, payload = story.commits[0]
    story.commits[0] = subject, commit, payload.replace(b'{"type":"JobSubmitted"', b'{ "type":"JobSubmitted"')
    assert story.commits[0][2] != payload
    store(warehouse, story)
    assert warehouse.rows('SELECT DISTINCT "user", queue FROM events') == [("ada", "research")]


@pytest.mark.parametrize("killed", [False, True])
def test_an_older_warehouse_is_filled(killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warehouse of an older version has all its rows filled when it is opened, also if the process died meanwhile."""
    story = busy(60)
    log = of_story(story)
    warehouse = Warehouse(tmp_path)
    feed(warehouse, log, [7])
    warehouse._db.execute("UPDATE events SET \"user\" = body->>'user', queue = body->>'queue'")
    warehouse._db.execute("UPDATE fold.state SET version = ?", [tables.OWNERS_SINCE - 1])
    assert actual(warehouse) != expected([stored.payload for stored in log])
    warehouse.close()
    monkeypatch.setattr(updater, "EVENTS_PER_STEP", 50)
    if killed:
        steps = iter(range(3))
        advance = updater.FoldUpdater.advance

        def dies(self: updater.FoldUpdater, to: int) -> None:
            if next(steps) == 2:
                raise KeyboardInterrupt
            advance(self, to)

        with monkeypatch.context() as context:
            context.setattr(updater.FoldUpdater, "advance", dies)
            with pytest.raises(KeyboardInterrupt):
                Warehouse(tmp_path)
    again = Warehouse(tmp_path)
    assert actual(again) == expected([stored.payload for stored in log])
    assert again.rows("SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'events%'") == [(1,)]
    assert again.rows("SELECT events FROM cursor") == again.rows("SELECT count(*) FROM events")
    again.close()
