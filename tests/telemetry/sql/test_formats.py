"""Answers as JSON, CSV and Arrow: the same rows, cut where they must be, and saying so."""

import csv
import io
import json
import re
from typing import Any

import nanoarrow
import pytest

from fairlead_schemas.queries.telemetry import ROWS_MAX
from tests.telemetry.sql.asking import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def as_csv(house: House, query: str, **more: Any) -> tuple[dict, list[list[str]]]:
    """Head and records."""
    head, _, body = (await house.raw(query, format="csv", **more)).partition(b"\n")
    return json.loads(head), list(csv.reader(io.StringIO(body.decode(), newline="")))


async def as_arrow(house: House, query: str, **more: Any) -> tuple[dict, "nanoarrow.Array"]:
    """Head and the stream, read by Arrow's own reader."""
    raw = await house.raw(query, format="arrow", **more)
    assert len(raw) < 2**20
    head, _, body = raw.partition(b"\n")
    return json.loads(head), nanoarrow.ArrayStream.from_readable(body).read_all()


async def test_every_type_has_a_spelling(house: House) -> None:
    """Values that JSON cannot hold come as text."""
    query = """SELECT 1::HUGEINT << 100, 'nan'::DOUBLE, 1.50::DECIMAL(9, 2), DATE '2026-01-02', INTERVAL 90 SECOND,
      'ab'::BLOB, [1, NULL], {'a': true}, MAP {1: 'x'}, NULL, '00000000-0000-0000-0000-000000000001'::UUID"""
    assert await house.rows(query) == [
        [
            "1267650600228229401496703205376",
            "nan",
            "1.50",
            "2026-01-02",
            "0:01:30",
            "YWI=",
            [1, None],
            {"a": True},
            {"1": "x"},
            None,
            "00000000-0000-0000-0000-000000000001",
        ]
    ]


async def test_csv_is_what_a_reader_of_csv_expects(house: House) -> None:
    """A line of names, quotes where they are needed, nothing for NULL, JSON for what is nested."""
    head, lines = await as_csv(house, """SELECT 'a,"b"\n' AS x, NULL AS y, [1, 2] AS z, 1.5 AS w""")
    assert lines == [["x", "y", "z", "w"], ['a,"b"\n', "", "[1,2]", "1.5"]]
    assert (head["sequence"], head["truncated"]) == (33, False)
    _, lines = await as_csv(house, "SELECT id FROM jobs WHERE false")
    assert lines == [["id"]]
    _, lines = await as_csv(house, "DESCRIBE cursor")
    assert lines[1][0] == "sequence"


async def test_arrow_has_types(house: House) -> None:
    """Numbers as numbers, lists as lists, times as times; an enumeration, for which its writer has no word, as text."""
    query = "SELECT id, attempt, gpus, nodes, submitted_at, is_array FROM jobs WHERE state = 'failed' -- a comment"
    head, array = await as_arrow(house, query)
    row = array.to_pylist()[0]
    assert (row["id"], row["attempt"], row["gpus"], row["nodes"], row["is_array"]) == ("2", 2, 1.0, ["n2"], False)
    assert row["submitted_at"].isoformat().startswith("2026-01-01T01:06:40")
    assert [column["type"] for column in head["columns"]] == [
        "VARCHAR",
        "UINTEGER",
        "DOUBLE",
        "VARCHAR[]",
        "TIMESTAMP",
        "BOOLEAN",
    ]
    _, array = await as_arrow(
        house, "SELECT 'a'::ENUM('a', 'b') AS e, 1::HUGEINT AS h, now() IS NOT NULL AS t, 1 AS \"q\"\"q\""
    )
    assert array.to_pylist()[0] == {"e": "a", "h": 1, "t": True, 'q"q': 1}
    _, array = await as_arrow(house, "SELECT 1 AS a, 2 AS a WHERE false")
    assert (len(array), len(array.schema.fields)) == (0, 2)
    assert len((await as_arrow(house, "SHOW TABLES"))[1]) > 10
    assert await house.code("EXPLAIN SELECT 1", format="arrow") == "forbidden"


async def test_all_forms_have_the_same_rows(house: House) -> None:
    """And the same limit."""
    query = "SELECT sequence, idx, type FROM events ORDER BY ALL"
    rows = await house.rows(query)
    assert [[int(a), int(b), c] for a, b, c in (await as_csv(house, query))[1][1:]] == rows
    assert [list(row.values()) for row in (await as_arrow(house, query))[1].to_pylist()] == rows
    for form in ("csv", "arrow"):
        head = json.loads((await house.raw(query, format=form, limit=5)).partition(b"\n")[0])
        assert head["truncated"]
        assert head["cut"].startswith("the first 5 rows of more")
    assert len((await as_csv(house, query, limit=5))[1]) == 6
    assert len((await as_arrow(house, query, limit=5))[1]) == 5
    assert len((await as_arrow(house, "FROM range(20000)", limit=10**9))[1]) == ROWS_MAX


@pytest.mark.parametrize("form", ["json", "csv", "arrow"])
async def test_answers_fit_a_message(house: House, form: str) -> None:
    """Wide rows are cut so that the answer stays below 1 MiB, and it says so."""
    raw = await house.raw("SELECT range AS n, repeat('x', 3000) FROM range(2000)", format=form)
    assert len(raw) < 2**20
    head, _, body = raw.partition(b"\n")
    told = json.loads(head)
    assert told["truncated"] is True
    assert told["cut"].startswith("an answer has at most 900 KiB")
    count = len(told["rows"]) if form == "json" else len(re.findall(rb"x{3000}", body)) if form == "csv" else 0
    if form == "arrow":
        array = nanoarrow.ArrayStream.from_readable(body).read_all()
        count = len(array)
        assert [row["n"] for row in array.to_pylist()] == list(range(count))
    assert 256 <= count < 320


async def test_errors_are_json_in_every_format(house: House) -> None:
    """A client that requested CSV can distinguish an error from rows."""
    for form in ("csv", "arrow"):
        assert await house.code("FROM nosuch", format=form) == "unknown_name"
        assert await house.code("DROP TABLE events", format=form) == "forbidden"
    assert await house.code("SELECT 1", format="xml") == "bad_request"


async def test_zoned_times_are_text(house: House) -> None:
    """now() is among the first things that users try; it needs no time zone package, also after a comment, in a list,
    and under a repeated name; the columns keep their names and types."""
    answer = await house.ask("SELECT 1 AS a, [now()] AS a, TIMESTAMPTZ '2026-01-02 03:04:05+00' AS b; -- the end")
    assert answer["rows"][0][::2] == [1, "2026-01-02 03:04:05+00"]
    assert [(column["name"], column["type"]) for column in answer["columns"]] == [
        ("a", "INTEGER"),
        ("a", "TIMESTAMP WITH TIME ZONE[]"),
        ("b", "TIMESTAMP WITH TIME ZONE"),
    ]


async def test_the_hint_names_existing_tables(house: House) -> None:
    """The hint after an unknown name is a query that can be typed."""
    hint = (await house.ask("FROM nosuch"))["error"]["hint"]
    assert "fairlead sql --tables" in hint and "SHOW TABLES" in hint
