"""A queue near its maximum in which a job waits, and the changes that an answer proposes."""

from typing import Any

from tests.gateway.world import GatewayWorld, PlayedNode, gpus

VISION = "research/vision"


async def crowded(world: GatewayWorld) -> tuple[PlayedNode, str]:
    """A node of 8 GPUs; research/vision holds 6 of its 8, and a job of 4 waits there: the node, and that job."""
    node = await world.node("n1")
    await world.node("n2")
    await world.configure(research__vision={"maximum": {"nvidia.com/gpu": 8}}, shared={})
    await world.run(node, queue=VISION, resources=gpus(6))
    return node, await world.submit(queue=VISION, resources=gpus(4))


def kinds_of(answer: dict[str, Any]) -> dict[str, str]:
    """{kind of change: its message}"""
    return {change["kind"]: change["message"] for change in reversed(answer["changes"])}
