"""The judge: `scim2-tester`, which knows the RFCs and not us, against the gateway over HTTP."""

import asyncio

from scim2_tester import Status, check_server

from tests.gateway.directories.scim_world import ScimClient, ScimWorld, served

#: Checks of a whole run. Fewer would mean that the judge stopped early, which it reports as a success.
CHECKS_MIN = 100


async def test_every_check_of_the_judge_succeeds() -> None:
    """No check fails, none is skipped but those of what the gateway states that it lacks, and there are as many as ever."""
    async with ScimWorld() as world, served(world) as base:
        client = ScimClient(base, world.owner)
        results = await asyncio.to_thread(check_server, client)
    bad = [
        (each.title, each.status.name, each.reason)
        for each in results
        if each.status not in (Status.SUCCESS, Status.SKIPPED, Status.ACCEPTABLE, Status.COMPLIANT)
    ]
    assert not bad, bad
    skipped = {(each.title, each.reason) for each in results if each.status == Status.SKIPPED}
    assert not skipped, skipped
    print(len(results), "checks")
    assert len(results) >= CHECKS_MIN
