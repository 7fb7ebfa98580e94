"""The largest commits that commands lead to, in the bytes that are really written: never beyond what a commit may hold.

`QueueWorld.fold` asserts both bounds of every commit.
"""

import msgspec
import pytest

from fairlead_bus.core import Input
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.authority import Authority
from fairlead_schemas.wire.commands import (
    ID_CHARS_MAX,
    MESSAGE_BYTES_MAX,
    MESSAGE_COMMANDS_MAX,
    USER_CHARS_MAX,
    CancelJob,
    QueueCommand,
    SubmitJob,
    decode_commands,
    encode_commands,
)
from fairlead_schemas.wire.resources import Request
from tests.kit.queue_world import SPEC, QueueWorld, request

LONG_USER = "\N{PILE OF POO}" * USER_CHARS_MAX
AUTHORITY = Authority(principal="p" * 13, via="session:" + "i" * 13, rights=10**12)
WILD = Authority(principal="\x01" * 64, via="\x01" * 72, rights=1, act_as="\x01" * 64)
PART = ev.Part(node="n1", gpus=(), cpu_milli=1, memory_mib=1)
DEEP = "/".join(["q" * 63] * 8)


def submit(number: int, *, spec: bytes = b"", **fields: object) -> SubmitJob:
    """A submit whose id is as long as one may be."""
    wanted: dict[str, object] = {"queue": "default", "request": request(1), "user": LONG_USER, **fields}
    return SubmitJob(id=f"{number:0{ID_CHARS_MAX}}", name="n" * 128, spec=msgspec.Raw(spec or bytes(SPEC)), **wanted)  # type: ignore[arg-type] -- the table above has the types


def filled(make: "type[QueueCommand] | object", count: int = MESSAGE_COMMANDS_MAX) -> list[QueueCommand]:
    """As many commands as one message takes."""
    commands: list[QueueCommand] = []
    size = 2
    for number in range(count):
        command: QueueCommand = make(number)  # type: ignore[operator] -- a builder
        size += len(encode_commands([command])) - 1
        if size > MESSAGE_BYTES_MAX:
            break
        commands.append(command)
    return commands


def arrive(world: QueueWorld, commands: list[QueueCommand]) -> list[ev.QueueEvent]:
    """One message through the wire, decided and folded until nothing is left."""
    body = decode_commands("queue", encode_commands(commands))
    assert len(body) == len(commands)
    world.asked += 1
    return world.step(Input("CMD", world.asked, body))


@pytest.mark.parametrize(
    "make",
    [
        lambda n: submit(n, user="u"),
        lambda n: submit(n),
        lambda n: submit(n, spec=b'{"command":["' + b"x" * 30_000 + b'"]}'),
        lambda n: submit(n, spec=b'{"command":["' + b"x" * 65_000 + b'"]}'),
        lambda n: submit(n, user="u", queue="no-such-queue"),
        lambda n: submit(n, user="u", request=Request(nodes=9999)),
        lambda n: submit(n, user="u", queue='"' * 80),
        lambda n: CancelJob(id=f"{n}", job="\x01" * 40),
        lambda n: CancelJob(id=f"{n}", job="x"),
        lambda n: submit(n, user="u", authority=AUTHORITY),
        lambda n: submit(n, user="u", queue='"' * 80, authority=AUTHORITY),
        lambda n: CancelJob(id=f"{n}", job="x", authority=AUTHORITY),
        lambda n: CancelJob(id=f"{n}", job="x", authority=WILD),
    ],
)
def test_a_full_message_of_anything_fits_a_commit(make: object) -> None:
    """Accepted or refused, with the queues' names at their longest; each command is answered."""
    world = QueueWorld(careful=False)
    world.fold("queue", [ev.QueueConfigured(cause="clock", path=DEEP[:-2] + f"{n:02}") for n in range(30)])
    commands = filled(make)
    events = arrive(world, commands)
    causes = {event.cause for event in events}
    assert {f"cmd:{command.id}" for command in commands} <= causes


def test_four_hundred_authorised_commands_of_one_message_are_answered_in_one_commit() -> None:
    """A message is as many commands as one commit answers, also where each repeats its authority and other events are owed."""
    world = QueueWorld(careful=False)
    commands = [CancelJob(id=f"{n}", user="p" * 13, job="x", authority=AUTHORITY) for n in range(MESSAGE_COMMANDS_MAX)]
    assert len(filled(lambda n: commands[n])) == MESSAGE_COMMANDS_MAX
    world.step()
    decision = world.core.decide([Input("CMD", 1, list(commands))], world.now)
    answers = [event for event in decision.events if event.cause.startswith("cmd:")]
    assert [event.authority for event in answers] == [AUTHORITY] * MESSAGE_COMMANDS_MAX


def test_ten_thousand_live_elements_are_cancelled_in_several_commits() -> None:
    """Each commit is within its bounds, and every element is stopped once."""
    world = QueueWorld(careful=False)
    arrive(world, [submit(1, array=(0, 9_999), request=request(0))])
    while len(world.state.jobs) < 10_001:
        world.settle()
        placed = [
            ev.JobPlaced(cause="1.0", job=job.id, attempt=1, parts=(PART,))
            for job in world.state.jobs.values()
            if job.open
        ]
        for at in range(0, len(placed), 900):
            world.fold("placer", placed[at : at + 900])
    events = arrive(world, [CancelJob(id="c", job="1", user=LONG_USER)]) + world.settle()
    stopped = [event.job for event in events if isinstance(event, ev.JobStopRequested)]
    assert sorted(stopped) == sorted(["1", *(f"1_{n}" for n in range(10_000))])


def test_a_gang_that_no_event_could_name_is_refused() -> None:
    """A JobPlaced over a message's size could never be written; 14,000 GPUs in one gang can be."""
    world = QueueWorld(careful=False)
    found = [
        event.code
        for event in arrive(world, [submit(1, request=request(8, nodes=4096))])
        if isinstance(event, ev.JobRejected)
    ]
    assert found == ["invalid"]
    assert isinstance(arrive(world, [submit(2, request=request(8, nodes=1750))])[0], ev.JobSubmitted)


@pytest.mark.parametrize(
    "payload",
    [
        b"[" + b",".join([b"1"] * 40_000) + b"]",
        msgspec.json.encode([CancelJob(id="c", job="1")] * (MESSAGE_COMMANDS_MAX + 1)),
        b'[{"type":"CancelJob","id":"' + b"x" * MESSAGE_BYTES_MAX + b'","job":"1"}]',
        encode_commands([submit(1, spec=b'"' + b"x" * 100_000 + b'"')]),
    ],
)
def test_a_message_over_its_bounds_is_refused_as_one(payload: bytes) -> None:
    """Anybody on the bus may send one: it is recorded by its digest, and moved past."""
    world = QueueWorld(careful=False)
    (event,) = world.step(Input("CMD", 1, decode_commands("queue", payload)))
    assert isinstance(event, ev.CommandRejected) and event.code == "undecodable" and event.digest


@pytest.mark.parametrize("field", ["id", "user"])
def test_a_command_with_a_text_that_events_would_repeat_is_bounded(field: str) -> None:
    """One long user over ten thousand elements would be gigabytes of log."""
    command = {"type": "CancelJob", "id": "c", "job": "1", field: "x" * 5000}
    (found,) = decode_commands("queue", msgspec.json.encode([command]))
    assert type(found).__name__ == "Undecodable"
