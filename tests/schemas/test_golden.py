"""The bytes of every type are a promise: logs written today stay readable permanently. After an intended change: `make
test ARGS="tests/schemas --update-golden"`, and read the difference."""

from typing import Any

import msgspec
import pytest

from fairlead_schemas.queries import explainer
from fairlead_schemas.wire import commands, events, rank_rpc, reports
from tests.schemas import examples
from tests.schemas.families import FAMILIES, GOLDEN, Family

by_name = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@by_name
def test_every_object_survives_its_bytes(family: Family) -> None:
    """decode(encode(x)) == x, and encoding it again gives the same bytes."""
    assert family.objects
    for example in family.objects:
        payload = family.encode(example)
        assert family.decode(payload) == example
        assert family.encode(family.decode(payload)) == payload


@by_name
def test_the_bytes_are_those_of_the_golden_file(family: Family, request: pytest.FixtureRequest) -> None:
    """The golden file holds one object per line, byte for byte."""
    path = GOLDEN / f"{family.name}.json"
    written = b"[\n" + b",\n".join(family.encode(example) for example in family.objects) + b"\n]\n"
    if request.config.getoption("--update-golden"):
        path.write_bytes(written)
    assert path.read_bytes().decode() == written.decode()


@pytest.mark.parametrize(
    ("union", "objects"),
    [
        (events.Event, examples.EVENTS),
        (commands.QueueCommand, examples.COMMANDS),
        (commands.PlacerCommand, examples.COMMANDS),
        (commands.TelemetryCommand, examples.COMMANDS),
        (commands.AccessCommand, examples.COMMANDS),
        (commands.StorageCommand, examples.COMMANDS),
        (reports.Report, examples.REPORTS),
        (rank_rpc.GangCall, examples.GANG_CALLS),
        (explainer.Ask, examples.ASKS),
    ],
    ids=[
        "events",
        "queue commands",
        "placer commands",
        "telemetry commands",
        "access commands",
        "storage commands",
        "reports",
        "gang calls",
        "questions",
    ],
)
def test_every_type_of_a_union_has_an_example(union: Any, objects: list[Any]) -> None:
    """A type without an example has no promise; add one to examples.py."""
    assert {kind.__name__ for kind in union.__args__} - {type(example).__name__ for example in objects} == set()


STRUCTS = [
    *examples.EVENTS, *examples.COMMANDS, *examples.REPORTS, examples.BEAT, examples.CONFIRM, examples.PIECE,
    examples.WANTED, examples.SAMPLES, examples.SAMPLES.gpus[0], examples.DESIRED, examples.DESIRED.runs[0],
    *examples.GANG_CALLS, examples.GANG_HEARD, examples.GANG_ANSWER, examples.DESIRED.layouts[0], examples.DESIRED.layouts[0].create[0],
    examples.REQUEST, examples.PART, examples.INVENTORY, examples.INVENTORY.gpus[0], examples.INVENTORY.gpus[0].instances[0],
    examples.INVENTORY.inside, examples.INVENTORY.inside.numa_nodes[0], *examples.ASKS, examples.ANSWER,
    examples.ANSWER.outcomes[0], examples.ANSWER.outcomes[0].quota[0], examples.EXPLANATION, examples.EXPLANATION.changes[0],
]  # fmt: skip


@pytest.mark.parametrize("example", STRUCTS, ids=lambda example: type(example).__name__)
def test_an_example_sets_every_field(example: msgspec.Struct) -> None:
    """A field at its default would be missing in the bytes, and its loss would not be noticed."""
    unset = {
        field.name
        for field in msgspec.structs.fields(example)
        if field.default is not msgspec.NODEFAULT and getattr(example, field.name) == field.default
    }
    # The same for every command and event: two examples have it.
    assert unset - {"authority"} == set()


@pytest.mark.parametrize("base", [events.EventBase, commands.CommandBase])
def test_an_example_of_each_kind_has_an_authority(base: type) -> None:
    """With every field of it, which the golden bytes then hold."""
    (found,) = [each.authority for each in STRUCTS if isinstance(each, base) and each.authority is not None]
    assert all(getattr(found, name) for name in found.__struct_fields__)


def test_no_float_is_in_what_is_folded() -> None:
    """Folded state is integers only, so that a replay is byte-equal on every machine."""
    assert "float" not in str({kind: kind.__annotations__ for kind in events.Event.__args__})


def test_each_event_has_exactly_one_writer() -> None:
    """No type is in two writers' lists, and every type of the union is in one."""
    written = [kind for kinds in events.EVENTS_OF.values() for kind in kinds]
    assert len(written) == len(set(written))
    assert set(written) == set(events.Event.__args__)
