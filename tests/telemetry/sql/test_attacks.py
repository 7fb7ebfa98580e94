"""People's SQL may read the warehouse and do nothing else: the attack table."""

import json

import pytest

from tests.telemetry.sql.asking import House
from tests.telemetry.sql.attacks import ATTACKS
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
async def test_queries_that_only_read_are_answered(house: House, query: str) -> None:
    """Every reading form, FROM-first and describing ones included, has rows and its sequence."""
    answer = await house.ask(query)
    assert answer.get("error") is None
    assert answer["rows"]
    assert answer["sequence"] == 33


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
