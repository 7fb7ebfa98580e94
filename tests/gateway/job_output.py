"""A running job and pieces of its output on the bus."""

from typing import Any

import msgspec

from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.reports import OutputPiece, encode
from tests.gateway.world import GatewayWorld, gpus

TEXT = b"".join(b"line %d\n" % i for i in range(40))


def pieces(text: bytes, size: int, stream: str = "stdout") -> list[OutputPiece]:
    """The text in pieces, the last marked."""
    cut = [OutputPiece(stream=stream, offset=i, data=text[i : i + size]) for i in range(0, len(text), size)]
    return [*cut, OutputPiece(stream=stream, offset=len(text), data=b"", last=True)]


async def running(world: GatewayWorld, nodes: int = 1, **fields: Any) -> str:
    """A job that runs on n1 (and n2)."""
    played = [await world.node(f"n{i + 1}") for i in range(nodes)]
    job = await world.submit(nodes=nodes, resources=gpus(1), **fields)
    await world.in_state(job, "placed")
    order = {part.node: rank for rank, part in enumerate(world.gateway.views.jobs.rows[job].parts)}
    for node in played:
        await node.start(job, order[node.name])
    await world.in_state(job, "running")
    return job


async def send(world: GatewayWorld, job: str, sent: list[OutputPiece], rank: int = 0) -> None:
    """Put pieces onto the OUTPUT stream as the rank's agent would."""
    node = world.gateway.views.jobs.rows[job].parts[rank].node
    await put(world, node, job, sent, rank)


async def put(
    world: GatewayWorld, node: str, job: str, sent: list[OutputPiece], rank: int = 0, shard: str = ""
) -> None:
    """Put a run's pieces under its subject, or that of another job."""
    for piece in sent:
        own = msgspec.structs.replace(piece, job=job, attempt=1, rank=rank)
        await world.bus.append(subjects.OUTPUT, subjects.output(node, shard or job), encode(own))
