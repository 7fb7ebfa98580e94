"""docs/reference/sql.md asks questions that have answers."""

import re
from pathlib import Path

import pytest

from fairlead_schemas.queries.telemetry import QueryCaller
from tests.telemetry.sql.asking import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "sql.md").read_text()
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("query", QUERIES)
async def test_a_query_of_the_page_is_answered(house: House, query: str) -> None:
    """By an admin's file and by a member's."""
    for caller in (QueryCaller(user="root", role="admin"), QueryCaller(user="ada", role="member")):
        assert "error" not in await house.ask(query, caller)


async def test_the_page_has_queries() -> None:
    """That the test above asks something."""
    assert len(QUERIES) > 10
