"""People's SQL may read the warehouse and do nothing else: the attack table, and the bounds."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from fairlead_telemetry.sql import ROWS_MAX, WAITING_MAX, Sql
from fairlead_telemetry.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.story import morning

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "hunter2-in-a-file"


class Desk:
    """A `Sql` over the morning's warehouse, asked in a word."""

    def __init__(self, directory: Path, deadline_s: float = 10.0) -> None:
        self.directory = directory
        self.warehouse = Warehouse(directory)
        store(self.warehouse, morning())
        self.sql = Sql(directory, copy_to=self.copy_to, version=lambda: self.warehouse.version, deadline_s=deadline_s)

    async def copy_to(self, target: Path) -> None:
        self.warehouse.copy_to(target)

    async def ask(self, query: str, **more: object) -> dict:
        return json.loads(await self.sql.ask(json.dumps({"query": query, **more}).encode()))

    async def code(self, query: str) -> str:
        """The error's code, or "" for an answer."""
        return (await self.ask(query)).get("error", {}).get("code", "")

    async def close(self) -> None:
        await self.sql.close()
        self.warehouse.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """One desk for all: whatever one test does to it, the next must be answered."""
    directory = tmp_path_factory.mktemp("desk")
    (directory / "secret.csv").write_text(f"a\n{SECRET}\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("FAIRLEAD_TOKEN", SECRET)
        desk = Desk(directory)
        yield desk
        await desk.close()


ALLOWED = [
    "SELECT count(*) FROM jobs",
    "WITH busy AS (SELECT * FROM jobs WHERE state = 'running') SELECT id FROM busy",
    "FROM jobs",
    "FROM jobs SELECT id WHERE user = 'ada' ORDER BY id",
    "DESCRIBE jobs",
    "SHOW TABLES",
    "SUMMARIZE runs",
    "EXPLAIN SELECT * FROM jobs",
    "EXPLAIN ANALYZE SELECT count(*) FROM events",
    "SELECT * FROM range(3) t(i), LATERAL (SELECT i + 1)",
    "SELECT unnest([1, 2]), list_transform([1], lambda x: x + 1)",
    "SELECT column_name FROM information_schema.columns WHERE table_name = 'jobs'",
    "SELECT body->>'cause' FROM events -- a comment; with a semicolon",
    "VALUES (1), (2)",
    "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t WHERE i < 9) SELECT sum(i) FROM t",
    "SELECT 1 UNION ALL SELECT 2;",
]


@pytest.mark.parametrize("query", ALLOWED)
async def test_what_reads_is_answered(desk: Desk, query: str) -> None:
    """Every reading form, FROM-first and describing ones included, has rows and says its sequence."""
    answer = await desk.ask(query)
    assert answer.get("error") is None
    assert answer["rows"]
    assert answer["sequence"] == 33


ATTACKS = [
    # files and the network
    "SELECT * FROM read_csv('{dir}/secret.csv')",
    "SELECT * FROM '{dir}/secret.csv'",
    "FROM \"{dir}/secret.csv\"",
    "SELECT * FROM read_text('{dir}/secret.csv')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_json('/etc/passwd')",
    "SELECT * FROM parquet_scan('{dir}/x.parquet')",
    "SELECT * FROM glob('{dir}/*')",
    "SELECT * FROM sniff_csv('{dir}/secret.csv')",
    "SELECT * FROM 'https://example.com/x.csv'",
    "COPY jobs TO '{dir}/stolen.csv'",
    "COPY events FROM '{dir}/secret.csv'",
    "EXPORT DATABASE '{dir}/stolen'",
    "IMPORT DATABASE '{dir}/stolen'",
    "ATTACH '{dir}/warehouse.duckdb' AS live",
    "DETACH warehouse",
    "USE memory",
    # extensions and settings
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET memory_limit = '100GB'",
    "RESET lock_configuration",
    "PRAGMA database_list",
    "PRAGMA version",
    "CALL pragma_database_size()",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_databases",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM pg_settings",
    "SELECT * FROM pg_catalog.pg_settings",
    "SELECT current_setting('temp_directory')",
    "SELECT getenv('FAIRLEAD_TOKEN')",
    "SELECT getvariable('x')",
    "SET VARIABLE x = 1",
    "CHECKPOINT",
    "FORCE CHECKPOINT",
    "VACUUM",
    # writing
    "INSERT INTO cursor VALUES (1)",
    "UPDATE cursor SET sequence = 0",
    "DELETE FROM events",
    "TRUNCATE events",
    "DROP TABLE events",
    "ALTER TABLE events ADD COLUMN x INTEGER",
    "CREATE TABLE x (a INTEGER)",
    "CREATE TEMP TABLE x AS SELECT 1",
    "CREATE TEMP MACRO f(x) AS x",
    "CREATE SECRET s (TYPE s3)",
    "WITH x AS (INSERT INTO cursor VALUES (1) RETURNING *) SELECT * FROM x",
    "BEGIN",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    # past the gate
    "SELECT 1; DROP TABLE events",
    "SELECT 1; SELECT 2",
    "SELECT * FROM query('FROM duckdb_settings()')",
    "SELECT * FROM query_table('duckdb_settings')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('FROM duckdb_settings()'))",
    "SELECT (SELECT count(*) FROM (SELECT * FROM DUCKDB_SETTINGS()))",
    "EXPLAIN ANALYZE CREATE TEMP TABLE x AS SELECT 1",
    "EXPLAIN ANALYZE CHECKPOINT",
    "EXPLAIN ANALYZE SELECT * FROM duckdb_settings()",
    "/* SELECT */ PRAGMA database_list",
    "DESCRIBE SELECT * FROM read_csv('{dir}/secret.csv')",
    "",
    "not sql at all",
]  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
async def test_everything_else_is_refused(desk: Desk, attack: str) -> None:
    """An attack gets an error that names no path and no secret, leaves no file, and the next question is answered."""
    before = {path.name for path in desk.directory.iterdir()}
    answer = await desk.ask(attack.replace("{dir}", str(desk.directory)))
    assert "error" in answer, answer
    assert answer["error"]["code"] in ("forbidden", "syntax", "unknown_name")
    assert SECRET not in json.dumps(answer)
    assert str(desk.directory / "copies") not in json.dumps(answer)
    assert {path.name for path in desk.directory.iterdir()} <= before
    assert (await desk.ask("SELECT count(*) FROM events"))["rows"] == [[46]]


async def test_python_names_are_not_tables(desk: Desk) -> None:
    """Variables of the worker's own code cannot be read as tables."""
    for name in ("desk", "CONFIG", "question", "sys"):
        assert await desk.code(f"SELECT * FROM {name}") == "unknown_name"


async def test_memory_bomb_is_stopped(desk: Desk) -> None:
    """A query that wants more memory than it may have ends with an error, and the desk goes on."""
    bombs = (
        "SELECT list(a.range || b.range || repeat('x', 100)) FROM range(100000) a, range(10000) b",
        "SELECT len(string_agg(repeat('x', 1000000), '')) FROM range(5000)",
    )
    for bomb in bombs:
        assert await desk.code(bomb) in ("out_of_memory", "deadline", "worker_died")
        assert await desk.code("SELECT 1") == ""


async def test_a_value_that_python_cannot_hold_is_an_error_like_others(desk: Desk) -> None:
    """Not the end of the worker."""
    assert await desk.code("SELECT to_days(2000000000)") == "query_failed"
    assert await desk.code("SELECT to_days(2000000000)::VARCHAR") == ""


async def test_endless_query_is_interrupted(tmp_path: Path) -> None:
    """A query over its deadline is stopped with a reason, and the next one is answered."""
    desk = Desk(tmp_path, deadline_s=0.5)
    try:
        assert (
            await desk.code("SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range = b.range + 1.5")
            == "deadline"
        )
        endless = "WITH RECURSIVE t(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM t) SELECT count(*) FROM t"
        assert await desk.code(endless) == "deadline"
        assert await desk.code("SELECT 1") == ""
    finally:
        await desk.close()


async def test_worker_that_does_not_obey_is_killed(desk: Desk) -> None:
    """A worker that stops answering is killed after its deadline and another takes its place."""
    assert await desk.code("SELECT 1") == ""
    worker = desk.sql._worker
    assert worker is not None
    worker.send_signal(19)  # SIGSTOP
    desk.sql._deadline_s = -1.5  # with the time to obey: half a second
    assert await desk.code("SELECT 1") == "deadline"
    assert worker.returncode is not None
    desk.sql._deadline_s = 10.0
    assert await desk.code("SELECT 1") == ""


async def test_worker_that_dies_is_replaced(desk: Desk) -> None:
    """A worker killed under a query costs that query, not the next."""
    query = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range = b.range + 1.5"
    assert await desk.code("SELECT 1") == ""
    worker = desk.sql._worker
    assert worker is not None
    asked = asyncio.create_task(desk.code(query))
    await asyncio.sleep(0.2)
    worker.kill()
    assert await asked == "worker_died"
    assert await desk.code("SELECT 1") == ""


async def test_rows_are_cut_at_the_limit(desk: Desk) -> None:
    """At most `limit` rows, never more than ROWS_MAX, and the answer says when some were left out."""
    for asked, limit, truncated in ((3, 3, True), (5, 5, False), (9, 5, False), (0, 0, True)):
        answer = await desk.ask("SELECT * FROM range(5)", limit=asked)
        assert (len(answer["rows"]), answer["truncated"]) == (limit, truncated)
    answer = await desk.ask("SELECT * FROM range(20000)", limit=10**9)
    assert (len(answer["rows"]), answer["truncated"]) == (ROWS_MAX, True)


async def test_answers_fit_a_message(desk: Desk) -> None:
    """Wide rows are cut so that the answer stays below 1 MiB, and it says so."""
    request = json.dumps({"query": "SELECT range, repeat('x', 100000) FROM range(50)"}).encode()
    raw = await desk.sql.ask(request)
    assert len(raw) < 2**20
    answer = json.loads(raw)
    assert answer["truncated"] is True
    assert [row[0] for row in answer["rows"]] == list(range(len(answer["rows"])))
    assert 5 <= len(answer["rows"]) < 50


async def test_every_type_has_a_spelling(desk: Desk) -> None:
    """Values that JSON cannot hold come as text."""
    query = """SELECT 1::HUGEINT << 100, 'nan'::DOUBLE, 1.50::DECIMAL(9, 2), DATE '2026-01-02', INTERVAL 90 SECOND,
      'ab'::BLOB, [1, NULL], {'a': true}, MAP {1: 'x'}, NULL, '00000000-0000-0000-0000-000000000001'::UUID"""
    assert (await desk.ask(query))["rows"] == [[
        "1267650600228229401496703205376", "nan", "1.50", "2026-01-02", "0:01:30",
        "YWI=", [1, None], {"a": True}, {"1": "x"}, None, "00000000-0000-0000-0000-000000000001",
    ]]  # fmt: skip


async def test_bad_requests_are_named(desk: Desk) -> None:
    """A request that is no SqlRequest says what was expected."""
    for raw in (b"", b"[]", b'{"query": 1}', b'{"query": "SELECT 1", "mode": "rw"}', b'{"limit": 5}'):
        assert json.loads(await desk.sql.ask(raw))["error"]["code"] == "bad_request"
    assert await desk.code("SELECT " + "1 + " * 30000 + "1") == "too_long"


async def test_deep_nesting_is_an_error_not_a_crash(desk: Desk) -> None:
    """Brackets beyond what the parser takes end as an error; the same worker answers on."""
    assert await desk.code("SELECT " + "(" * 20000 + "1" + ")" * 20000) in (
        "syntax",
        "forbidden",
        "query_failed",
        "worker_died",
    )
    assert await desk.code("SELECT 1") == ""


async def test_too_many_waiting_are_told(desk: Desk) -> None:
    """The line in front of the worker is bounded; who comes too late is told at once."""
    codes = await asyncio.gather(*(desk.code("SELECT 1") for _ in range(WAITING_MAX + 5)))
    assert sorted(codes) == [""] * WAITING_MAX + ["busy"] * 5


async def test_copy_follows_the_warehouse(tmp_path: Path) -> None:
    """An answer is never older than FRESH_S behind a changed warehouse, and no copy is made without a change."""
    desk = Desk(tmp_path)
    assert (await desk.ask("SELECT max(sequence) FROM events"))["rows"] == [[33]]
    desk.sql._fresh_s = desk.sql._copying_s = 0
    first = desk.sql._copy
    assert (await desk.ask("SELECT 1"))["sequence"] == 33
    assert desk.sql._copy == first
    story = morning()
    story.at(6000, *story.commits[0][1].events)
    store(desk.warehouse, story, first=33)
    answer = await desk.ask("SELECT max(sequence) FROM events")
    assert (answer["rows"], answer["sequence"]) == ([[34]], 34)
    assert len(list((desk.directory / "copies").iterdir())) == 1
    await desk.close()


async def test_zoned_times_come_as_text(desk: Desk) -> None:
    """now() is among the first things that people try; it needs no time zone package, also behind a comment, in a
    list, and under a name that stands twice; the columns keep their names and types."""
    answer = await desk.ask("SELECT 1 AS a, [now()] AS a, TIMESTAMPTZ '2026-01-02 03:04:05+00' AS b; -- the end")
    assert answer["rows"][0][::2] == [1, "2026-01-02 03:04:05+00"]
    assert [(column["name"], column["type"]) for column in answer["columns"]] == [
        ("a", "INTEGER"),
        ("a", "TIMESTAMP WITH TIME ZONE[]"),
        ("b", "TIMESTAMP WITH TIME ZONE"),
    ]


async def test_what_names_the_tables_exists(desk: Desk) -> None:
    """The hint after an unknown name is something that can be typed."""
    hint = (await desk.ask("FROM nosuch"))["error"]["hint"]
    assert "fairlead sql --tables" in hint and "SHOW TABLES" in hint
