"""A member sees own jobs and those of own projects, and nothing of others: no row, value, plan or message.

The property is non-interference: in two worlds that differ in others' names, ids and numbers only, a member's question has the same
answer, to the byte.
"""

import json
import tempfile
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_schemas.queries.telemetry import QueryCaller
from fairlead_schemas.wire import events as ev
from fairlead_telemetry.sql import visibility
from fairlead_telemetry.sql.member_copy import MemberScope, scope_of, write_member_copy
from fairlead_telemetry.sql.worker import QueryWorker
from fairlead_telemetry.sql.worker_process import WorkerQuery
from fairlead_telemetry.usage.usage_store import UsageStore
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.sql.asking import House
from tests.telemetry.sql.queries import QUERIES
from tests.telemetry.sql.worlds import FATES, PROJECTS, Plan, Salts, marks_of, member, named, story_of, warehouse_of

MINE, OTHERS = 0, (1, 2)
plans = st.lists(
    st.builds(Plan, st.integers(0, 2), st.integers(0, 1), st.booleans(), st.sampled_from(FATES)), min_size=2, max_size=7
)
#: Something of everybody's, in every fate, neighbours in the log.
EVERYTHING = [Plan(project, n % 2, True, fate) for fate in FATES for n, project in enumerate((0, 1, 2))]


class Seen:
    """One caller's view of one world."""

    def __init__(self, world: list[Plan], salts: Salts, caller: QueryCaller) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "part" / "warehouse.duckdb"
        path.parent.mkdir()
        scope = scope_of(caller)
        whole = warehouse_of(Path(self._folder.name), world, salts)
        if scope is None:
            path = whole
        else:
            write_member_copy(whole, path, scope)
        self._path, self._desk, self._number = path, QueryWorker(), 0

    def ask(self, query: str) -> str:
        """The answer as it is sent, without how long it took."""
        self._number += 1
        answer = json.loads(self._desk.answer(WorkerQuery(self._number, str(self._path), query, 2000, 60.0)))
        answer.pop("elapsed_ms", None)
        return json.dumps(answer).replace(self._folder.name, "…")

    def close(self) -> None:
        self._desk.close()
        self._folder.cleanup()


def told_of_others(answer: str) -> list[str]:
    return [found for other in OTHERS for found in marks_of(other).findall(answer)]


@settings(max_examples=10, deadline=None)
@given(plans, st.booleans(), st.lists(QUERIES, min_size=40, max_size=40))
def test_an_answer_does_not_depend_on_others(world: list[Plan], projects: bool, queries: list[str]) -> None:
    """For any query, also a failing one: the answer is the same, and has no trace of others."""
    caller = member(MINE, projects=projects)
    here, there = Seen(world, Salts(), caller), Seen(world, Salts(0, 1, 1), caller)
    try:
        for query in queries:
            answer = here.ask(query)
            assert not told_of_others(answer), query
            if "ANALYZE" not in query:  # how long a step took differs
                assert answer == there.ask(query), query
    finally:
        here.close()
        there.close()


@pytest.mark.parametrize("projects", [True, False])
def test_every_table_whole(projects: bool) -> None:
    """Each table and view read from end to end: own rows are there, others' are not; an admin finds all of them."""
    all_of_it = Seen(EVERYTHING, Salts(), QueryCaller(user="root", role="admin"))
    part = Seen(EVERYTHING, Salts(), member(MINE, projects=projects))
    mine, seen, own = marks_of(MINE), set[str](), set[str]()
    for space, table in json.loads(all_of_it.ask("SELECT schema, name FROM (SHOW ALL TABLES)"))["rows"]:
        query = f'FROM "{space}"."{table}"'
        answer = part.ask(query)
        assert "error" not in json.loads(answer), answer
        assert not told_of_others(answer), table
        if told_of_others(all_of_it.ask(query)):
            seen.add(table)
        if mine.search(answer):
            own.add(table)
    assert seen - own == {"usage_meter"}, "what others' jobs are in has own jobs, too, except what is kept from members"
    assert {"events", "samples", "minutes", "preemptions", "gpu_usage", "jobs", "done_runs"} <= own
    for one in (all_of_it, part):
        one.close()


def test_own_jobs_are_all_there() -> None:
    """Not less than is theirs: jobs of the project by any of its users, and own ones without a project."""
    world = [
        Plan(0, 0, True, "done"),
        Plan(0, 1, True, "runs"),
        Plan(0, 0, False, "done"),
        Plan(0, 1, False, "runs"),
        Plan(1, 0, True, "done"),
    ]
    for projects, count in ((True, 3), (False, 2)):
        seen = Seen(world, Salts(), member(MINE, projects=projects))
        rows = json.loads(
            seen.ask(
                "SELECT count(*), (SELECT count(*) FROM runs), (SELECT count(DISTINCT run) FROM samples) FROM jobs"
            )
        )["rows"]
        assert rows == [[count, count, count]]
        [[events, told]] = json.loads(seen.ask("SELECT (SELECT count(*) FROM events), (SELECT events FROM cursor)"))[
            "rows"
        ]
        assert events == told
        seen.close()


def test_totals_cover_all_users() -> None:
    """The load of queues and of the cluster does not show whose jobs fill them, and members choose by it."""
    all_of_it, part = (Seen(EVERYTHING, Salts(), one) for one in (QueryCaller(user="a", role="auditor"), member(MINE)))
    for view in visibility.TOTALS:
        assert json.loads(part.ask(f"FROM {view} ORDER BY ALL")) == json.loads(
            all_of_it.ask(f"FROM {view} ORDER BY ALL")
        )
    for one in (all_of_it, part):
        one.close()


def test_every_table_has_a_rule(tmp_path: Path) -> None:
    """A new table is kept from members until visible.py says what of it is theirs: say it there."""
    warehouse = Warehouse(tmp_path)
    UsageStore(warehouse)
    there = {
        f"{space}.{name}"
        for space, name in warehouse.rows("SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT temporary")
    }
    assert set(visibility.TABLES) == there
    warehouse.close()


def test_every_event_about_a_job_has_a_rule() -> None:
    """A new event about a job is kept from members until visible.py says what of it speaks of others; a field in the rule
    is one that the event has."""
    about_jobs = {kind.__name__: kind for kind in get_args(ev.Event) if "job" in kind.__struct_fields__}
    assert set(visibility.EVENTS_SHOWN) == set(about_jobs)
    for name, fields in visibility.EVENTS_SHOWN.items():
        assert set(fields) <= set(about_jobs[name].__struct_fields__), name
    # Fields that hold ids of jobs, by their names; `after` and `command` are the job's own words.
    others = {"holder", "guest_of", "near", "victims", "beneficiary", "waits_for", "jobs"}
    for name, kind in about_jobs.items():
        assert others & set(kind.__struct_fields__) == set(visibility.EVENTS_SHOWN[name]), name


async def test_members_see_their_own_jobs_through_the_query_pool(tmp_path: Path) -> None:
    """Members query one after the other, an admin between them: each finds own jobs only, whatever the order."""
    story, _ = story_of(EVERYTHING, Salts())
    house = House(tmp_path, story=story)
    try:
        for _ in range(2):
            for project in (0, 1, 2):
                rows = await house.rows("SELECT DISTINCT project FROM jobs", member(project))
                assert rows == [[named(project, 0)]]
            everybody = await house.rows(
                "SELECT count(DISTINCT project) FROM jobs", QueryCaller(user="root", role="admin")
            )
            assert everybody == [[len(PROJECTS)]]
        nobody = QueryCaller(user="nobody", role="member", projects=("",))
        assert await house.rows("SELECT count(*) FROM jobs", nobody) == [[0]]
    finally:
        await house.close()


def test_a_caller_without_a_known_role_is_no_caller() -> None:
    """Nothing falls through to seeing everything."""
    for raw in (
        b'{"user":"a"}',
        b'{"user":"a","role":"Admin"}',
        b'{"role":"admin"}',
        b'{"user":"a","role":"member","projects":"x"}',
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(raw, type=QueryCaller)
    assert scope_of(QueryCaller(user="a", role="member", projects=("b", "", "a", "b"))) == MemberScope("a", ("a", "b"))
