"""Streams that exist: a process checks them, and changes only settings that it was given."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from fairlead_bus import streams
from fairlead_bus.nats import stream_setup
from fairlead_bus.nats.adapter import NatsBus
from fairlead_bus.port import ServerUnfit
from fairlead_bus.streams import LOG_BYTES_DEFAULT, MIB, SAMPLE_MEMORY_BYTES
from fairlead_schemas.wire import subjects
from tests.bus.worlds import NatsWorld
from tests.kit.nats_server import NatsServer

pytestmark = pytest.mark.nats
CAP, REPLICAS = "FAIRLEAD_LOG_MAX_BYTES", "FAIRLEAD_NATS_REPLICAS"


@pytest.fixture
async def world(fresh_nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NatsWorld]:
    """An empty server without a configured cap."""
    monkeypatch.delenv(CAP, raising=False)
    made = NatsWorld(fresh_nats)
    yield made
    await made.close()


async def limit_of(bus: NatsBus) -> int:
    """The log's cap as the server has it."""
    return (await bus.state(subjects.LOG)).bytes_max


async def test_a_process_without_the_variable_keeps_the_logs_cap(
    world: NatsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator gave it to the services; an agent on another machine knows nothing of it, and starts."""
    monkeypatch.setenv(CAP, str(32 * 1024 * MIB))
    bus = await world.connect()
    monkeypatch.delenv(CAP)
    await world.connect()
    assert await limit_of(bus) == 32 * 1024 * MIB


async def test_a_process_with_the_variable_changes_the_logs_cap(
    world: NatsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up and down, and nothing else of the stream."""
    bus = await world.connect()
    assert await limit_of(bus) == LOG_BYTES_DEFAULT
    before = await _config(bus)
    for cap in (9 * 1024 * MIB, 64 * MIB):
        monkeypatch.setenv(CAP, str(cap))
        await world.connect()
        assert await limit_of(bus) == cap
    assert await _config(bus) | {"max_bytes": 0} == before | {"max_bytes": 0}


async def test_a_cap_below_what_the_log_holds_is_refused(world: NatsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is over its limit would take nothing more; what it has stays, and so does its cap."""
    bus = await world.connect()
    await asyncio.gather(*(bus.append(subjects.LOG, subjects.log("queue"), bytes(100_000)) for _ in range(3)))
    held = (await bus.state(subjects.LOG)).bytes
    monkeypatch.setenv(CAP, "200000")
    with pytest.raises(
        ServerUnfit, match=f"LOG: expected a limit of at least the {held} bytes .* found 200000 .*{CAP}"
    ):
        await world.connect()
    assert await limit_of(bus) == LOG_BYTES_DEFAULT
    assert (await bus.state(subjects.LOG)).last == 3


async def _config(bus: NatsBus) -> dict[str, object]:
    answer = await bus.link.read(f"$JS.API.STREAM.INFO.{subjects.LOG}")
    return msgspec.json.decode(answer)["config"]


def _stored_as(copies: int) -> dict[str, tuple[str, str]]:
    configs = [stream.config(copies) for stream in stream_setup.required_streams()]
    assert {copies} == {config["num_replicas"] for config in configs}
    return {config["name"]: (config["storage"], config.get("persist_mode", "")) for config in configs}


def test_each_stream_is_stored_by_its_purpose() -> None:
    """One copy: as ever. Several: no stream asks for the mode without fsync, which the server refuses for copies; derived
    and passing contents are in memory, with a size limit, and everything else is in files."""
    fsynced, lossy, memory = ("file", ""), ("file", "async"), ("memory", "")
    files = {"LOG": fsynced, "CMD": fsynced, "KV_SPEC": fsynced, "OBJ_SNAPSHOT": fsynced}
    files |= {
        "AUDIT": fsynced,
        "KV_PEOPLE": fsynced,
        "KV_CREDENTIAL": fsynced,
        "KV_NOTIFY": fsynced,
        "KV_PIECE": fsynced,
    }
    assert _stored_as(1) == files | {"SAMPLE": lossy, "OUTPUT": lossy, "KV_DESIRED": lossy, "KV_LEASE": fsynced}
    assert _stored_as(3) == files | {"SAMPLE": memory, "OUTPUT": fsynced, "KV_DESIRED": memory, "KV_LEASE": memory}
    (sample,) = (stream.config(3) for stream in stream_setup.required_streams() if stream.name == "SAMPLE")
    assert sample["max_bytes"] == SAMPLE_MEMORY_BYTES


async def test_copies_that_one_server_cannot_have_are_refused(
    world: NatsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the setting that asks for them."""
    await world.connect()
    monkeypatch.setenv(REPLICAS, "3")
    with pytest.raises(ServerUnfit, match=r"replicas > 1 .*FAIRLEAD_NATS_REPLICAS"):
        await world.connect()


async def test_streams_without_bounds_of_one_writer_get_them(world: NatsWorld) -> None:
    """Those of an earlier version take them over with what they hold, beyond the bound the newest of each subject."""
    bus = await world.connect()
    specs = {spec.name: spec for spec in streams.stream_specs()}
    spec = specs[subjects.OUTPUT]._replace(
        subjects=("fairlead.output.>",), message_bytes_max=MIB, messages_of_subject_max=0
    )
    await bus.link.read(f"$JS.API.STREAM.DELETE.{subjects.OUTPUT}")
    await bus.link.ask(
        f"$JS.API.STREAM.CREATE.{subjects.OUTPUT}", msgspec.json.encode(stream_setup.stream_config(spec))
    )
    for number in range(streams.OUTPUTS_OF_SUBJECT_MAX + 2):
        await bus.append(subjects.OUTPUT, subjects.output("n1", "7"), b"%d" % number)
    await bus.append(subjects.OUTPUT, "fairlead.output.n1.7.1.0", b"as it was once")
    await world.connect()
    config = msgspec.json.decode(await bus.link.read(f"$JS.API.STREAM.INFO.{subjects.OUTPUT}"))["config"]
    assert sorted(config["subjects"]) == sorted(subjects.output_shards())
    assert (config["max_msgs_per_subject"], config["max_msg_size"]) == (
        streams.OUTPUTS_OF_SUBJECT_MAX,
        streams.OUTPUT_MESSAGE_BYTES_MAX,
    )
    assert await bus.read(subjects.OUTPUT, 2) is None
    kept = await bus.read(subjects.OUTPUT, 3)
    assert kept is not None and kept.payload == b"2"
