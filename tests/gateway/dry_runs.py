"""A dry run over HTTP that must store nothing."""

from typing import Any

from tests.gateway.world import GatewayWorld

GOOD = {"command": ["true"]}


async def tried(world: GatewayWorld, **spec: Any) -> dict[str, Any]:
    """The answer for one job that would be accepted; nothing was sent."""
    before = world.commands_stored(), world.log_length()
    answer = await world.http.post("/v1/jobs:dryrun", json={**GOOD, **spec}, headers={"x-fairlead-user": "ada"})
    assert answer.status_code == 200, answer.text
    assert (world.commands_stored(), world.log_length()) == before
    return answer.json()
