"""People's SQL may read the warehouse and do nothing else: the attack table."""

import json

import pytest

from tests.telemetry.sql.asking import House
from tests.telemetry.sql.conftest import SECRET

pytestmark = pytest.mark.asyncio(loop_scope="module")

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
async def test_what_reads_is_answered(house: House, query: str) -> None:
    """Every reading form, FROM-first and describing ones included, has rows and says its sequence."""
    answer = await house.ask(query)
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
    "SELECT json_serialize_plan('SELECT current_setting(''allowed_paths'')', optimize := true)",
    "SELECT json_serialize_plan('FROM duckdb_settings()')",
    "SELECT json_serialize_sql('SELECT 1')",
    "SELECT JSON_Serialize_Plan('SELECT 1') FROM jobs",
    "SELECT sum(current_setting('threads')::INT) OVER () FROM jobs",
    "SELECT stats(id) FROM jobs",
    "SELECT pg_sleep(1)",
    "SELECT sleep_ms(1)",
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
    "SELECT * FROM read_parquet('{dir}/x.parquet')",
    "SELECT * FROM read_ndjson_objects('/etc/passwd')",
    "SELECT * FROM read_duckdb('{dir}/warehouse.duckdb')",
    "SELECT * FROM sqlite_scan('{dir}/x', 'y')",
    "SELECT * FROM '{dir}/warehouse.duckdb'.main.events",
    "FROM read_csv_auto('/proc/self/environ')",
    "COPY (SELECT 1) TO '/dev/stdout'",
    "COPY (SELECT 1) TO '{dir}/stolen.parquet' (FORMAT parquet)",
    "COPY jobs TO 's3://bucket/x.csv'",
    "COPY FROM DATABASE warehouse TO memory",
    "ATTACH ':memory:' AS m",
    "ATTACH 'https://example.com/x.duckdb' AS live",
    "INSTALL httpfs FROM community",
    "FORCE INSTALL json",
    "LOAD '{dir}/evil.duckdb_extension'",
    "SET GLOBAL threads = 64",
    "SET temp_directory = '/tmp'",
    "SET custom_extension_repository = 'http://example.com'",
    "PRAGMA enable_profiling",
    "PRAGMA memory_limit='100GB'",
    "PRAGMA show_tables",
    "UPDATE EXTENSIONS",
    "CALL duckdb_extensions()",
    "SELECT * FROM duckdb_tables()",
    "SELECT * FROM duckdb_views",
    "SELECT * FROM duckdb_extensions()",
    "SELECT * FROM duckdb_memory()",
    "SELECT * FROM duckdb_temporary_files()",
    "SELECT * FROM duckdb_logs",
    "SELECT * FROM pragma_storage_info('events')",
    "SELECT * FROM which_secret('x', 's3')",
    "SELECT * FROM summary((SELECT 1))",
    "SELECT * FROM seq_scan('events')",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM pandas_scan(1)",
    "SELECT * FROM python_map_function(1)",
    "SELECT write_log('x')",
    "SELECT set_config('threads', '64', false)",
    "SELECT nextval('s')",
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
    "MERGE INTO cursor USING (SELECT 1 AS x) ON false WHEN NOT MATCHED THEN INSERT VALUES (1)",
    "CREATE VIEW v AS SELECT 1",
    "CREATE SEQUENCE s",
    "CREATE TYPE t AS ENUM ('a')",
    "CREATE INDEX i ON events (job)",
    "COMMENT ON TABLE events IS 'x'",
    "SELECT * INTO x FROM events",
    "WITH x AS MATERIALIZED (DELETE FROM events RETURNING *) FROM x",
    "DEALLOCATE p",
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
async def test_everything_else_is_refused(house: House, attack: str) -> None:
    """An attack gets an error that names no path and no secret, leaves no file, and the next question is answered."""
    before = {path.name for path in house.directory.iterdir()}
    answer = await house.ask(attack.replace("{dir}", str(house.directory)))
    assert "error" in answer, answer
    assert answer["error"]["code"] in ("forbidden", "syntax", "unknown_name")
    assert SECRET not in json.dumps(answer)
    assert str(house.directory / "copies") not in json.dumps(answer)
    assert {path.name for path in house.directory.iterdir()} <= before
    assert await house.rows("SELECT count(*) FROM events") == [[46]]


async def test_python_names_are_not_tables(house: House) -> None:
    """Variables of the worker's own code cannot be read as tables."""
    for name in ("desk", "CONFIG", "question", "sys"):
        assert await house.code(f"SELECT * FROM {name}") == "unknown_name"
