"""A cancelled query ends at once in any state, and only its user or an admin can cancel it."""

import asyncio

import pytest

from fairlead_schemas.queries.telemetry import QueryCaller
from tests.kit.eventually import eventually_async
from tests.telemetry.sql.asking import ENDLESS, House

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADA = QueryCaller(user="ada", role="auditor")
BOB = QueryCaller(user="bob", role="auditor")


async def test_the_user_of_a_query_cancels_it(house: House) -> None:
    """The answer confirms it, and the next query is answered; an unknown one cannot be cancelled."""
    asked = asyncio.create_task(house.code(ENDLESS, ADA, id="q1"))
    await eventually_async(lambda: house.cancel("q1", ADA))
    assert await asked == "cancelled"
    assert not await house.cancel("q1", ADA)
    assert not await house.cancel("", ADA)
    assert await house.rows("SELECT 1", ADA) == [[1]]


async def test_others_do_not_but_an_admin_does(house: House) -> None:
    """Ids are each user's own: the same one may be in use by two, and a third cannot end either."""
    asked = [asyncio.create_task(house.code(ENDLESS, caller, id="same")) for caller in (ADA, BOB)]
    await asyncio.sleep(0)
    assert not await house.cancel("same", QueryCaller(user="eve", role="auditor"))
    assert await house.cancel("same", BOB)
    assert await asked[1] == "cancelled"
    assert not asked[0].done()
    assert await house.cancel("same", QueryCaller(user="root", role="admin"))
    assert await asked[0] == "cancelled"


async def test_one_that_waits_for_its_turn_is_cancelled_too(house: House) -> None:
    """And does not take the turn that it waited for."""
    asked = [asyncio.create_task(house.code(ENDLESS, ADA, id=f"w{i}")) for i in range(4)]
    await asyncio.sleep(0)
    for name in ("w3", "w2", "w1", "w0"):
        assert await house.cancel(name, ADA)
    assert await asyncio.gather(*asked) == ["cancelled"] * 4


async def test_an_id_in_use_is_refused(house: House) -> None:
    """Two queries under one id could not be distinguished."""
    asked = asyncio.create_task(house.code(ENDLESS, ADA, id="once"))
    await asyncio.sleep(0)
    assert await house.code("SELECT 1", ADA, id="once") == "bad_request"
    assert await house.cancel("once", ADA)
    assert await asked == "cancelled"
