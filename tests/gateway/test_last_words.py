"""The last lines that a run has printed: by themselves, and as part of why its job failed or has not started."""

import asyncio
from collections.abc import AsyncIterator

from fairlead_bus.port import Message
from fairlead_gateway.routes.job_logs import last_lines
from fairlead_gateway.routes.why import FAILED_LINES
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.reports import OutputPiece, encode
from tests.gateway.job_output import TEXT, pieces, running, send
from tests.gateway.world import GatewayWorld, gpus
from tests.kit.eventually import eventually_async

NOTES = b"fairlead: pulling image x:1\nfairlead: pulling image x:1: 40 %, 12 of 30 MiB\n"


async def test_the_last_lines_of_a_text() -> None:
    """Wherever it is split; all of it if it has fewer; bounded however long a line is."""

    async def cut(text: bytes, size: int) -> AsyncIterator[bytes]:
        for at in range(0, len(text), size):
            yield text[at : at + size]

    for size in (1, 7, 100, 1000):
        assert await last_lines(cut(TEXT, size), 3) == b"line 37\nline 38\nline 39\n"
    assert await last_lines(cut(TEXT, 9), 100) == TEXT
    assert len(await last_lines(cut(b"x" * (5 * 2**20), 2**16), 1)) == 2**20


async def test_a_tail_is_followed_by_what_comes_later() -> None:
    """`tail` alone gives the last lines; with `follow` nothing between them and what is printed later is lost."""
    async with GatewayWorld() as world:
        job = await running(world)
        sent = pieces(TEXT, 64)
        await send(world, job, sent[:3])
        text = b"".join(piece.data for piece in sent[:3])
        last = b"".join(text.splitlines(keepends=True)[-2:])
        note = b"[fairlead: n1 does not answer: output after byte %d of stdout may be missing]\n" % len(text)
        assert (await world.http.get(f"/v1/jobs/{job}/logs?tail=2&stream=stdout")).content == last + note
        answer = asyncio.create_task(world.http.get(f"/v1/jobs/{job}/logs?tail=2&follow=1"))
        await asyncio.sleep(2.5)
        await send(world, job, [*sent[3:], *pieces(b"", 1, "stderr")])
        assert (await answer).content == last + TEXT[len(text) :]
        assert (await world.http.get(f"/v1/jobs/{job}/logs?tail=-1")).status_code == 422


async def test_why_a_job_failed_says_what_it_printed_last() -> None:
    """The last 200 lines of the rank that decided the end, without the others'."""
    async with GatewayWorld() as world:
        played = {name: await world.node(name) for name in ("n1", "n2")}
        job = await world.submit(nodes=2, resources=gpus(1))
        await world.in_state(job, "placed")
        nodes = [played[part.node] for part in world.gateway.views.jobs.rows[job].parts]
        for rank, node in enumerate(nodes):
            await node.start(job, rank)
        long = b"".join(b"line %d\n" % i for i in range(FAILED_LINES + 50))
        for rank, text in enumerate((b"from the other\n", long)):
            await send(world, job, [*pieces(text, 500), *pieces(b"", 1, "stderr")], rank)
        await nodes[1].exit(job, 1, rank=1)
        await nodes[0].stopped(job, rank=0)
        await world.in_state(job, "failed")
        assert (await world.why(job))["output"] == long.decode().splitlines()[-FAILED_LINES:]


async def test_why_a_job_has_not_started_shows_what_its_node_waits_for() -> None:
    """The agent's own lines in the job's stderr; nothing for running jobs."""
    async with GatewayWorld() as world:
        node = await world.node("n1")
        job = await world.submit(resources=gpus(1))
        await world.in_state(job, "placed")
        await send(world, job, pieces(NOTES, 1000, "stderr")[:1])
        why = await world.why(job)
        assert (why["reason"]["code"], why["output"]) == ("placed", NOTES.decode().splitlines())
        await node.start(job)
        await world.in_state(job, "running")
        assert not (await world.why(job)).get("output")


async def test_the_output_of_an_attempt_that_never_began_is_the_reason() -> None:
    """Its node has no files of it, and says that it keeps few: that explains nothing. `why` has the reason in its sentence, so it
    has no output there."""
    async with GatewayWorld() as world:
        nodes = {name: await world.node(name) for name in ("n1", "n2")}

        async def removed(message: Message) -> bytes:
            return encode(OutputPiece(stream="stdout", offset=0, data=b"", last=True, gone="it keeps 2 runs"))

        for name in nodes:
            await world.hub.connect().serve(subjects.rpc_node(name, "output"), removed)
        job = await world.submit(resources=gpus(1))
        for attempt in (1, 2):
            await world.in_state(job, "placed")
            row = world.gateway.views.jobs.rows[job]
            assert row.attempt == attempt
            await nodes[row.parts[0].node].fail_start(job, f"no image\nx:{attempt}", attempt)
            await eventually_async(lambda row=row, attempt=attempt: row.attempt > attempt or row.state == "failed")
        await world.in_state(job, "failed")
        for query, attempt in (("", 2), ("?attempt=1", 1), ("?attempt=2&tail=5", 2)):
            told = (await world.http.get(f"/v1/jobs/{job}/logs{query}")).text
            assert told == f"[fairlead: attempt {attempt} never began: no image x:{attempt}]\n"
        why = await world.why(job)
        assert "it could not be started" in why["reason"]["message"] and "no image" in why["reason"]["message"]
        assert not why.get("output")


async def test_a_job_that_left_the_views_has_the_reason_of_its_failed_start() -> None:
    """As telemetry knows it."""
    async with GatewayWorld() as world:
        reason = b'"reason":{"code":"failed","message":"","detail":{"reason":"start_failed","attempt":2}}'

        async def answer(_message: Message) -> bytes:
            return b'{"id":"77","state":"failed","attempt":2,"nodes":["n1"],"message":"no image",%b}' % reason

        await world.hub.connect().serve(subjects.rpc("telemetry", "job"), answer)
        told = (await world.http.get("/v1/jobs/77/logs")).text
        assert told.startswith("[fairlead: attempt 2 never began: no image]\n")
