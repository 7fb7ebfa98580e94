"""docs/reference/sql.md asks questions that have answers, and of a known cluster these are known."""

import datetime as dt
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from fairlead_schemas.queries.telemetry import QueryCaller
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.sql.asking import House
from tests.telemetry.sql.known_cluster import ANSWERS, known_cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "sql.md").read_text()
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
NUMBERED = dict(re.findall(r"^\*\*(\d+)\. .*?```sql\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """The known cluster, one for all questions."""
    warehouse = known_cluster(tmp_path_factory.mktemp("cluster"))
    yield warehouse
    warehouse.close()


def _plain(value: object) -> object:
    """A cell as the table of answers writes it: hours and minutes of a time, rounded numbers."""
    match value:
        case dt.datetime():
            return f"{value:%d %H:%M:%S}"
        case float() | Decimal():
            return round(float(value), 4)
    return value


@pytest.mark.parametrize("number", sorted(NUMBERED, key=int))
async def test_a_numbered_question_has_the_known_answer(cluster: Warehouse, number: str) -> None:
    """By named columns: the body of an event is shown to people in one story, and dug in nowhere."""
    query = NUMBERED[number]
    assert "->" not in query and "json" not in query
    rows = [tuple(map(_plain, row)) for row in cluster.rows(query)]
    if number == "22":  # bodies are as in the log
        rows = [row[:-1] for row in rows]
    assert rows == ANSWERS[int(number)]


async def test_every_numbered_question_has_an_answer() -> None:
    """39 of them, none without rows."""
    assert [int(number) for number in NUMBERED] == list(range(1, 40)) == list(ANSWERS)
    assert all(ANSWERS.values())


@pytest.mark.parametrize("query", QUERIES)
async def test_a_query_of_the_page_is_answered(house: House, query: str) -> None:
    """By an admin's file and by a member's."""
    for caller in (QueryCaller(user="root", role="admin"), QueryCaller(user="ada", role="member")):
        assert "error" not in await house.ask(query, caller)


async def test_the_page_has_queries() -> None:
    """That the test above asks something."""
    assert len(QUERIES) > 10
