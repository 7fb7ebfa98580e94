"""The judge: `scim2-tester`, which knows the RFCs and not us, against the gateway over HTTP."""

import asyncio

from scim2_tester import Status, check_server

from tests.gateway.directories.scim_world import ScimClient, ScimWorld, served

#: Checks of a whole run. Fewer would mean that the judge stopped early, which it reports as a success.
CHECKS_MIN = 65


async def test_every_check_of_the_judge_succeeds() -> None:
    """No check fails, none is skipped, and there are as many as ever."""
    async with ScimWorld() as world, served(world) as base:
        results = await asyncio.to_thread(check_server, ScimClient(base, world.owner))
    print(f"scim2-tester: {len(results)} checks")
    bad = [(each.title, each.status.name, each.reason) for each in results if each.status != Status.SUCCESS]
    assert not bad, bad
    assert len(results) >= CHECKS_MIN
