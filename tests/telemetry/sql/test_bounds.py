"""Bounds on users' SQL: memory, time, size, number at once; the query pool survives each query."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from fairlead_schemas.queries.telemetry import ROWS_MAX, QueryCaller
from fairlead_telemetry.sql.query_pool import WAITING_MAX, WAITING_OF_ONE_MAX
from tests.kit.eventually import eventually_async
from tests.telemetry.rows import store
from tests.telemetry.sql.asking import ENDLESS, House
from tests.telemetry.story import morning

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def working(house: House) -> int:
    """Wait until a process works at a query; its id."""

    async def works() -> bool:
        return bool(house.desk.pids)

    await eventually_async(works)
    return house.desk.pids[0]


@pytest.mark.parametrize(
    "bomb",
    [
        "SELECT list(a.range || b.range || repeat('x', 100)) FROM range(100000) a, range(10000) b",
        "SELECT len(string_agg(repeat('x', 1000000), '')) FROM range(5000)",
        "SELECT repeat(repeat('x', 1000000), 100000)",
        "SELECT len(list_transform(range(1000000000), lambda x: x::VARCHAR))",
        "SELECT count(DISTINCT a.range * 1000003 + b.range) FROM range(100000) a, range(100000) b",
        "SELECT a.range FROM range(100000000) a ORDER BY hash(a.range) LIMIT 5 OFFSET 90000000",
    ],
)
async def test_memory_bomb_is_stopped(house: House, bomb: str) -> None:
    """A query that exceeds its memory ends with an error, and the query pool continues."""
    for form in ("json", "arrow"):
        code = await house.code(bomb, timeout_s=5, format=form)
        assert code in ("out_of_memory", "deadline", "worker_died", "query_failed")
        assert await house.code("SELECT 1") == ""


async def test_a_value_that_python_cannot_hold_is_an_error_like_others(house: House) -> None:
    """Not the end of the worker."""
    assert await house.code("SELECT to_days(2000000000)") == "query_failed"
    assert await house.code("SELECT to_days(2000000000)::VARCHAR") == ""


@pytest.mark.parametrize(
    "endless",
    [
        ENDLESS,
        "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t) SELECT count(*) FROM t",
        "WITH RECURSIVE t(i) AS (SELECT 1 UNION SELECT (i + 1) % 1000000007 FROM t) SELECT count(*) FROM t",
        "EXPLAIN ANALYZE " + ENDLESS,
        "SUMMARIZE SELECT a.range FROM range(10000000) a, range(10000000) b",
    ],
)
async def test_endless_query_is_interrupted(house: House, endless: str) -> None:
    """A query over the time that its caller gave it is stopped with a reason, and the next one is answered."""
    answer = await house.ask(endless, timeout_s=0.3)
    assert answer["error"]["code"] == "deadline"
    assert await house.code("SELECT 1") == ""


async def test_time_limits_stay_below_the_service_s_own(house: House) -> None:
    """A caller may ask for less time, not for more, and not for none; the message names the field and the bound."""
    for wanted in (0, -1, 61, 1e9):
        answer = await house.ask("SELECT 1", timeout_s=wanted)
        assert answer["error"]["code"] == "bad_request"
        assert "timeout_s: expected more than 0 and at most 60 seconds" in answer["error"]["message"]
    assert await house.code("SELECT 1", timeout_s=60) == ""


async def test_worker_that_does_not_obey_is_killed(house: House) -> None:
    """A worker that hears nothing is killed after its deadline and another takes its place."""
    asked = asyncio.create_task(house.code(ENDLESS, timeout_s=3))
    worker = await working(house)
    os.kill(worker, signal.SIGSTOP)
    assert await asked == "deadline"
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    assert await house.code("SELECT 1") == ""


async def test_worker_that_dies_is_replaced(house: House) -> None:
    """A worker killed under a query costs that query, not the next."""
    asked = asyncio.create_task(house.code(ENDLESS))
    os.kill(await working(house), signal.SIGKILL)
    assert await asked == "worker_died"
    assert await house.code("SELECT 1") == ""


async def test_rows_are_truncated_at_the_limit(house: House) -> None:
    """At most `limit` rows, never more than ROWS_MAX, and the answer names the limit."""
    for asked, limit, truncated in ((3, 3, True), (5, 5, False), (9, 5, False), (0, 0, True)):
        answer = await house.ask("SELECT * FROM range(5)", limit=asked)
        assert (len(answer["rows"]), answer["truncated"]) == (limit, truncated)
        assert answer.get("cut", "").startswith(f"the first {limit} rows" if truncated else "")
    answer = await house.ask("SELECT * FROM range(20000)", limit=10**9)
    assert (len(answer["rows"]), answer["truncated"]) == (ROWS_MAX, True)


async def test_negative_limits_are_refused(house: House) -> None:
    """A limit below none is a mistake, not "no rows"; the message names the field."""
    answer = await house.ask("SELECT 1", limit=-1)
    assert (answer["error"]["code"], answer["error"]["message"]) == (
        "bad_request",
        "limit: expected at least 0 rows, found -1",
    )


async def test_bad_requests_are_named(house: House) -> None:
    """A request that is no SqlRequest says what was expected; one that does not say who asks is none."""
    admin = b'{"caller": {"user": "a", "role": "admin"}, '
    for raw in (
        b"",
        b"[]",
        b'{"query": 1}',
        b'{"query": "SELECT 1"}',
        admin + b'"query": "SELECT 1", "mode": "rw"}',
        admin + b'"limit": 5}',
        b'{"caller": {"user": "a", "role": "root"}, "query": "SELECT 1"}',
        b'{"caller": {"user": "a"}, "query": "SELECT 1"}',
    ):
        assert json.loads(await house.desk.ask(raw))["error"]["code"] == "bad_request"
    assert await house.code("SELECT " + "1 + " * 30000 + "1") == "too_long"
    assert await house.code("SELECT '" + "x" * 10_000_000 + "'") == "too_long"


async def test_deep_nesting_is_an_error_not_a_crash(house: House) -> None:
    """Brackets beyond what the parser takes end as an error; the next question is answered."""
    deep = (
        "SELECT " + "(" * 20000 + "1" + ")" * 20000,
        "SELECT " + "[" * 15000 + "1" + "]" * 15000,
        "SELECT * FROM " + "(SELECT * FROM " * 2000 + "jobs" + ")" * 2000,
        "SELECT " + "NOT " * 15000 + "true",
        " UNION ALL ".join(["SELECT 1"] * 3000),
        "SELECT " + "case when true then " * 2500 + "1" + " end" * 2500,
    )
    for query in deep:
        assert await house.code(query, timeout_s=20) in (
            "",
            "syntax",
            "forbidden",
            "query_failed",
            "worker_died",
            "unknown_name",
            "out_of_memory",
            "deadline",
        )
        assert await house.code("SELECT 1") == ""


async def test_too_many_waiting_queries_are_refused(house: House) -> None:
    """The line in front of the workers is bounded, and so is one user's part of it; a query beyond it is refused at
    once."""
    one = QueryCaller(user="ada", role="admin")
    codes = await asyncio.gather(*(house.code("SELECT 1", one) for _ in range(WAITING_OF_ONE_MAX + 5)))
    assert sorted(codes) == [""] * WAITING_OF_ONE_MAX + ["busy"] * 5
    many = [QueryCaller(user=f"u{i % 8}", role="admin") for i in range(WAITING_MAX + 5)]
    codes = await asyncio.gather(*(house.code("SELECT 1", caller) for caller in many))
    assert sorted(codes) == [""] * WAITING_MAX + ["busy"] * 5


async def test_one_long_query_does_not_keep_others_waiting(house: House) -> None:
    """While one is being answered, another one's answer comes."""
    asked = asyncio.create_task(house.code(ENDLESS, QueryCaller(user="bob", role="admin"), id="long"))
    await working(house)
    assert await house.rows("SELECT 1") == [[1]]
    assert not asked.done()
    assert await house.cancel("long")
    assert await asked == "cancelled"


async def test_copy_follows_the_warehouse(tmp_path: Path) -> None:
    """An answer is never older than FRESH_S behind a changed warehouse, and no copy is made without a change; a
    member's copy follows, too."""
    house, ada = House(tmp_path), QueryCaller(user="ada", role="member")
    copies = house.desk.copies
    try:
        assert await house.rows("SELECT max(sequence) FROM events") == [[33]]
        copies.fresh_s = -1e9  # stale at once
        first = copies._whole
        assert (await house.ask("SELECT 1"))["sequence"] == 33
        assert copies._whole == first
        assert (await house.ask("SELECT 1", ada))["sequence"] == 33
        story = morning()
        story.at(6000, *story.commits[0][1].events)
        store(house.warehouse, story, first=33)
        assert copies._whole is not None
        copies._whole = copies._whole._replace(took_s=0.0)
        copies._parts = {scope: copy._replace(took_s=0.0) for scope, copy in copies._parts.items()}
        answer = await house.ask("SELECT max(sequence) FROM events")
        assert (answer["rows"], answer["sequence"]) == ([[34]], 34)
        assert (await house.ask("SELECT 1", ada))["sequence"] == 34
        assert len(list((house.directory / "copies").iterdir())) == 2
    finally:
        await house.close()
    assert not (house.directory / "copies").exists()


async def test_names_of_people_are_those_of_one_query(house: House) -> None:
    """They are joined when it is answered; the next one, also on the same worker, has none, and no other statement changes them."""
    query = "SELECT id, login FROM people ORDER BY id"
    answer = await house.ask(query, people={"p1": "ann", "p2": "bob'; --"})
    assert answer["rows"] == [["p1", "ann"], ["p2", "bob'; --"]]
    assert await house.rows(query) == []
    assert await house.code("INSERT INTO people VALUES ('p1', 'eve')") == "forbidden"
    assert await house.code("CREATE TEMP TABLE people AS SELECT 1") == "forbidden"


async def test_rows_of_estimates_are_those_of_one_query(house: House) -> None:
    """They come with the query and are NULL where there is nothing; the next one has none, and no statement changes them."""
    at_ns = 1_800_000_000 * 10**9
    full = ["7", "ada", "a", "", 12, at_ns, "played", 32, False, None, at_ns, at_ns, at_ns + 60 * 10**9]
    rows = [
        [*full, "started", at_ns, True, [], ["n1"], 0.25],
        ["8", "ada", "a", "", 13, at_ns, "played", 0, False, "held", *[None] * 3, "waiting", None, None, [], [], None],
    ]
    query = "SELECT job, epoch(to_at - from_at), held, got, unknown, loss FROM start_estimates ORDER BY job"
    answer = await house.ask(query, start_estimates=rows)
    assert answer["rows"] == [["7", 60.0, True, ["n1"], None, 0.25], ["8", None, None, [], "held", None]]
    assert await house.rows("SELECT count(*) FROM start_estimates") == [[0]]
    assert await house.code("INSERT INTO start_estimates (job) VALUES ('9')") == "forbidden"
