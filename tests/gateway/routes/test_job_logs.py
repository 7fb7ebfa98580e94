"""A job's output: whole, in order, with gaps filled from the agent or marked."""

import asyncio
import random

import msgspec
import pytest

from fairlead_bus.port import Message
from fairlead_gateway.routes import job_logs
from fairlead_gateway.routes.job_logs import TAIL_BYTES_MAX, OutputReader, OutputSource, output_source
from fairlead_gateway.routes.output_assembly import StreamAssembly
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.events import Part
from fairlead_schemas.wire.reports import OutputPiece, ReadOutput, encode
from tests.gateway.job_output import TEXT, pieces, put, running, send
from tests.gateway.world import GatewayWorld, gpus
from tests.kit.eventually import eventually_async


@pytest.mark.parametrize("seed", range(50))
def test_any_order_and_repetition_give_the_text(seed: int) -> None:
    """Shuffled, doubled and overlapping pieces come out once, in order, and the end is seen."""
    chance = random.Random(seed)
    sent = pieces(TEXT, chance.randrange(1, 50)) + pieces(TEXT, chance.randrange(1, 50))
    chance.shuffle(sent)
    assembly = StreamAssembly()
    assert b"".join(assembly.add(piece) for piece in sent) == TEXT
    assert assembly.ended and assembly.hole is None


def test_a_gap_is_known_and_can_be_given_up() -> None:
    """The missing range is reported exactly; after giving up, the rest follows."""
    assembly = StreamAssembly()
    assert assembly.add(OutputPiece(stream="stdout", offset=0, data=b"ab")) == b"ab"
    assert assembly.add(OutputPiece(stream="stdout", offset=5, data=b"fg")) == b""
    assert assembly.hole == (2, 5)
    assert assembly.skip_hole() == (3, b"fg")
    assert assembly.hole is None


def whole(world: GatewayWorld, job: str) -> OutputSource:
    """All of a job's newest attempt."""
    row = world.gateway.views.jobs.rows[job]
    return output_source(job, row.attempt, tuple(part.node for part in row.parts), None, "stdout")


async def serve_file(world: GatewayWorld, node: str, text: bytes) -> list[int]:
    """Play the agent's file; the offsets that were asked for."""
    asked: list[int] = []

    async def answer(message: Message) -> bytes:
        output_source = msgspec.json.decode(message.payload, type=ReadOutput)
        asked.append(output_source.offset)
        body = text if output_source.stream == "stdout" else b""
        data = body[output_source.offset : output_source.offset + output_source.bytes_max]
        return encode(
            OutputPiece(
                stream=output_source.stream,
                offset=output_source.offset,
                data=data,
                last=output_source.offset + len(data) >= len(body),
            )
        )

    await world.hub.connect().serve(subjects.rpc_node(node, "output"), answer)
    return asked


async def test_output_is_read_from_the_bus() -> None:
    """Pieces out of order on the stream come out as the text; one stream can be asked for."""
    async with GatewayWorld() as world:
        job = await running(world)
        sent = pieces(TEXT, 16)
        await send(world, job, [sent[1], sent[0], *sent[2:], *pieces(b"oops\n", 2, "stderr")])
        assert (await world.http.get(f"/v1/jobs/{job}/logs?stream=stdout")).content == TEXT
        assert (await world.http.get(f"/v1/jobs/{job}/logs?stream=stderr")).content == b"oops\n"
        whole = await world.http.get(f"/v1/jobs/{job}/logs")
        assert whole.headers["content-type"].startswith("text/plain")
        assert sorted(whole.content) == sorted(TEXT + b"oops\n")


async def test_output_that_the_bus_lost_comes_from_the_agent() -> None:
    """A gap and a missing end are requested by offset, and only those."""
    async with GatewayWorld() as world:
        job = await running(world)
        asked = await serve_file(world, "n1", TEXT)
        sent = pieces(TEXT, 16)
        await send(world, job, sent[:3] + sent[5:9])
        assert (await world.http.get(f"/v1/jobs/{job}/logs?stream=stdout")).content == TEXT
        assert asked == [48, 144]


@pytest.mark.parametrize("held", [[], [OutputPiece(stream="stdout", offset=0, data=TEXT[:48])], [4, 5, 6]])
async def test_a_file_without_its_head_gives_its_end(held: list[OutputPiece | int]) -> None:
    """The removed bytes are counted, and the rest of the file follows."""
    async with GatewayWorld() as world:
        job = await running(world)
        cut = pieces(TEXT, 32)
        sent = [cut[each] if isinstance(each, int) else each for each in held]

        async def answer(message: Message) -> bytes:
            output_source = msgspec.json.decode(message.payload, type=ReadOutput)
            body = TEXT if output_source.stream == "stdout" else b""
            start = max(output_source.offset, 100) if body else output_source.offset
            data = body[start : start + output_source.bytes_max]
            return encode(
                OutputPiece(stream=output_source.stream, offset=start, data=data, last=start + len(data) >= len(body))
            )

        await world.hub.connect().serve(subjects.rpc_node("n1", "output"), answer)
        await send(world, job, sent)
        known = 48 if sent and sent[0].offset == 0 else 0
        said = (await world.http.get(f"/v1/jobs/{job}/logs?stream=stdout")).content
        assert said == TEXT[:known] + b"[fairlead: %d bytes of stdout are gone]\n" % (100 - known) + TEXT[100:]


@pytest.mark.parametrize(
    ("held", "words"),
    [(b"", "no output of this attempt"), (b"begun\n", "nothing after byte 6 of stdout")],
)
async def test_files_that_a_node_has_removed_are_reported_once(held: bytes, words: str) -> None:
    """An empty answer would look as if the job had printed nothing."""
    async with GatewayWorld() as world:
        job = await running(world)

        async def answer(message: Message) -> bytes:
            output_source = msgspec.json.decode(message.payload, type=ReadOutput)
            return encode(
                OutputPiece(
                    stream=output_source.stream,
                    offset=output_source.offset,
                    data=b"",
                    last=True,
                    gone="it keeps 2 runs",
                )
            )

        await world.hub.connect().serve(subjects.rpc_node("n1", "output"), answer)
        if held:
            await send(world, job, [OutputPiece(stream="stdout", offset=0, data=held)])
        said = (await world.http.get(f"/v1/jobs/{job}/logs")).content
        assert said == held + f"[fairlead: n1 has {words}: it keeps 2 runs]\n".encode()


async def test_an_earlier_attempts_output_is_read_where_it_ran() -> None:
    """The job has moved; the output of its first attempt is still read from the first node."""
    async with GatewayWorld() as world:
        first = await world.node("n1")
        job = await world.submit(resources=gpus(1))
        await world.in_state(job, "placed")
        await first.start(job)
        await world.in_state(job, "running")
        await send(world, job, pieces(b"first\n", 16))
        await world.http.post("/v1/nodes/n1:drain", json={"deadline": "1s"})
        second = await world.node("n2")
        async with asyncio.timeout(60):
            while f"{job}.1!" not in await first.orders():  # noqa: ASYNC110 -- what is awaited is the placer's doing
                await asyncio.sleep(0.05)
        await first.stopped(job)
        await world.in_state(job, "placed")
        await second.start(job, attempt=2)
        assert (await world.http.get(f"/v1/jobs/{job}/logs?attempt=1&stream=stdout")).content == b"first\n"
        unknown = await world.http.get(f"/v1/jobs/{job}/logs?attempt=3")
        assert unknown.status_code == 404 and "is in attempt 2" in unknown.json()["hint"]


async def test_output_that_is_permanently_lost_is_reported() -> None:
    """Without a reachable agent, a line gives the missing amount and the nodes that may have it."""
    async with GatewayWorld() as world:
        job = await running(world)
        sent = pieces(TEXT, 16)
        await send(world, job, sent[:3] + sent[5:])
        text = (await world.http.get(f"/v1/jobs/{job}/logs?stream=stdout")).content
        assert (
            text
            == TEXT[:48]
            + b"[fairlead: 32 bytes of stdout are missing: n1, which may have them, does not answer]\n"
            + TEXT[80:]
        )


async def test_following_ends_with_the_output() -> None:
    """A follower gets what comes later and ends when every stream has ended."""
    async with GatewayWorld() as world:
        job = await running(world)
        sent = pieces(TEXT, 64)
        await send(world, job, sent[:2])
        answer = asyncio.create_task(world.http.get(f"/v1/jobs/{job}/logs?follow=1"))
        await asyncio.sleep(0.05)
        await send(world, job, [*sent[2:], *pieces(b"", 1, "stderr")])
        assert (await answer).content == TEXT


async def test_a_followed_log_outlives_a_stream_that_went_back() -> None:
    """A crash of the server may lose the newest output; the agent sends it again, and nothing comes twice."""
    async with GatewayWorld() as world:
        job = await running(world)
        sent = pieces(TEXT, 16)
        await send(world, job, sent[:4])

        async def follow() -> bytes:
            return (await world.http.get(f"/v1/jobs/{job}/logs?follow=1&stream=stdout")).content

        following = asyncio.create_task(follow())
        await asyncio.sleep(0.3)
        world.hub.truncate(subjects.OUTPUT, 2)
        world.hub.stop()
        world.hub.start()
        await asyncio.sleep(0.3)  # the follower sees it
        await send(world, job, sent[2:])
        assert await asyncio.wait_for(following, 60) == TEXT


async def test_a_gangs_lines_carry_their_rank() -> None:
    """Whole lines with the rank in front; one rank alone comes as it is."""
    async with GatewayWorld() as world:
        job = await running(world, 2)
        for rank in (0, 1):
            await send(world, job, [*pieces(b"from %d\nand more\n" % rank, 3), *pieces(b"", 1, "stderr")], rank)
        lines = (await world.http.get(f"/v1/jobs/{job}/logs")).text.splitlines()
        assert sorted(lines) == ["[0] and more", "[0] from 0", "[1] and more", "[1] from 1"]
        assert (await world.http.get(f"/v1/jobs/{job}/logs?rank=1")).text == "from 1\nand more\n"
        assert (await world.http.get(f"/v1/jobs/{job}/logs?rank=2")).status_code == 404
        assert (await world.http.get(f"/v1/jobs/{job}/logs?stream=x")).status_code == 422
        assert (await world.http.get("/v1/jobs/99/logs")).status_code == 404


async def test_a_follower_of_a_waiting_job_gets_its_output_once_it_runs() -> None:
    """The answer begins at once and the text comes when there is some; an array itself has none."""
    async with GatewayWorld() as world:
        job = await world.submit(resources=gpus(1))
        answer = asyncio.create_task(world.http.get(f"/v1/jobs/{job}/logs?follow=1"))
        await asyncio.sleep(0.02)
        await world.node("n1")
        await world.in_state(job, "placed")
        await send(world, job, [*pieces(TEXT, 100), *pieces(b"", 1, "stderr")])
        assert (await answer).content == TEXT
        array = await world.submit(array=2)
        assert (await world.http.get(f"/v1/jobs/{array}/logs")).status_code == 422


async def test_a_job_has_as_many_ranks_as_its_placement_has_parts() -> None:
    """Tasks that share a node are one; before it is placed, any that there may be can be asked for."""
    async with GatewayWorld() as world:
        job = await world.submit(nodes="2-4", resources=gpus(1))
        assert (await world.http.get(f"/v1/jobs/{job}/logs?rank=3")).status_code == 200
        assert (await world.http.get(f"/v1/jobs/{job}/logs?rank=4")).status_code == 404
        row = world.gateway.views.jobs.rows[job]
        row.parts = (Part(node="n1"), Part(node="n2"))
        answer = await world.http.get(f"/v1/jobs/{job}/logs?rank=2")
        assert (answer.status_code, answer.json()["hint"]) == (404, f"job {job} has 2 ranks")


async def test_lines_of_launched_processes_carry_their_own_rank() -> None:
    """Two nodes, two processes on each: --rank is the process's, as its launcher has tagged its lines."""
    async with GatewayWorld() as world:
        job = await running(world, 2, command=["mpirun", "a"], processesPerNode=2)
        for rank, text in enumerate((b"[1,0]<stdout>:from 0\n[1,3]<stderr>: from 3\nno rank\n", b"[rank 2] from 2\n")):
            await send(world, job, [*pieces(text, 3), *pieces(b"", 1, "stderr")], rank)
        lines = (await world.http.get(f"/v1/jobs/{job}/logs")).text.splitlines()
        assert sorted(lines) == ["[0] no rank", "[rank 0] from 0", "[rank 2] from 2", "[rank 3] from 3"]
        assert (await world.http.get(f"/v1/jobs/{job}/logs?rank=3")).text == "[rank 3] from 3\n"
        assert (await world.http.get(f"/v1/jobs/{job}/logs?rank=4")).status_code == 404


async def test_a_neighbours_output_under_the_same_subject_is_left_out() -> None:
    """Another job, another attempt and a rank of another node are none of it; while a neighbour prints on, a missing
    piece is asked for all the same."""
    async with GatewayWorld() as world:
        job = await running(world)
        asked = await serve_file(world, "n1", TEXT)
        sent = pieces(TEXT, 16)
        await put(world, "n1", "77", pieces(b"another job's\n", 4), shard=job)
        await put(world, "n2", job, pieces(b"another node's\n", 4))
        await put(world, "n1", job, pieces(b"another rank's\n", 4), rank=1)
        await send(world, job, sent[:2] + sent[3:])

        async def talk() -> None:
            while True:
                await put(world, "n1", "77", [OutputPiece(stream="stdout", offset=0, data=b"x")], shard=job)
                await asyncio.sleep(0.05)

        talking = asyncio.create_task(talk())
        answer = await asyncio.wait_for(world.http.get(f"/v1/jobs/{job}/logs?stream=stdout&follow=1"), 20)
        talking.cancel()
        assert answer.content == TEXT
        assert asked == [32]


async def test_a_follower_that_comes_late_is_not_kept_waiting_by_a_job_that_prints_on() -> None:
    """The bus has the newest pieces only: what came before them is asked of the node while more arrives."""
    async with GatewayWorld() as world:
        job = await running(world)
        text = b"".join(b"%07d\n" % number for number in range(20_000))
        asked = await serve_file(world, "n1", text)
        at = 80_000

        async def talk() -> None:
            nonlocal at
            while True:
                await send(world, job, [OutputPiece(stream="stdout", offset=at, data=text[at : at + 80])])
                at += 80
                await asyncio.sleep(0.05)

        talking, found = asyncio.create_task(talk()), b""
        async with asyncio.timeout(60):
            async for chunk in OutputReader(
                world.bus, world.gateway.views, whole(world, job), world.gateway.job_waits
            ).text():
                found += chunk
                if len(found) > 80_000:
                    break
        talking.cancel()
        assert found == text[: len(found)]
        assert asked[0] == 0


async def test_the_last_lines_of_much_output_are_read_from_its_end() -> None:
    """Not the whole of what the bus no longer has: a megabyte before the pieces that it has is enough."""
    async with GatewayWorld() as world:
        job = await running(world)
        text = b"".join(b"%07d\n" % number for number in range(500_000))
        asked = await serve_file(world, "n1", text)
        await send(world, job, [OutputPiece(stream="stdout", offset=len(text) - 8, data=text[-8:], last=True)])
        await send(world, job, [OutputPiece(stream="stderr", offset=0, data=b"", last=True)])
        answer = await world.http.get(f"/v1/jobs/{job}/logs?tail=3")
        assert answer.content == text[-24:]
        assert min(asked) >= len(text) - 8 - TAIL_BYTES_MAX


async def test_a_node_that_does_not_answer_is_named() -> None:
    """Its file may have more than the bus: a reader knows that, after as many last lines as were asked for."""
    async with GatewayWorld() as world:
        job = await running(world)
        await send(world, job, [OutputPiece(stream="stdout", offset=0, data=b"one\ntwo\n")])
        note = "[fairlead: n1 does not answer: output after byte 8 of stdout may be missing]\n"
        assert (await world.http.get(f"/v1/jobs/{job}/logs")).text == "one\ntwo\n" + note
        assert (await world.http.get(f"/v1/jobs/{job}/logs?tail=1")).text == "two\n" + note


@pytest.mark.parametrize(("text", "on_bus"), [(b"", 0), (TEXT, 40)])
async def test_a_follower_ends_with_the_run(monkeypatch: pytest.MonkeyPatch, text: bytes, on_bus: int) -> None:
    """Also where nothing was printed: the node's file says that nothing follows, so silence is not waited for. What the bus does not
    have of the end comes from the file.
    """
    monkeypatch.setattr(job_logs, "AFTER_END_S", 1e9)
    monkeypatch.setattr(job_logs, "IDLE_S", 1e9)
    async with GatewayWorld() as world:
        node = await world.node("n1")
        job = await world.run(node)
        asked = await serve_file(world, "n1", text)
        await send(world, job, [OutputPiece(stream="stdout", offset=0, data=text[:on_bus])] if on_bus else [])
        following = asyncio.create_task(world.http.get(f"/v1/jobs/{job}/logs?follow=1"))
        await eventually_async(lambda: bool(world.gateway.job_waits._open))
        assert asked == []
        await node.exit(job)
        assert (await following).content == text
