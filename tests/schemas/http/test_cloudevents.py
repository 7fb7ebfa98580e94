"""CloudEvents as we read and write them are CloudEvents 1.0 to others."""

import re

import msgspec
import pytest
from cloudevents.v1.http import from_json

from fairlead_schemas.http.cloudevents import SOURCE_OUT, SPECVERSION, TYPES_IN, CloudEventIn, CloudEventOut, type_of
from fairlead_schemas.wire.events import Event


def test_every_event_has_a_type_name_of_its_own() -> None:
    """`fairlead.<aggregate>.<what>.v1`, no two alike, and none is a type that we take in."""
    names = [type_of(kind.__name__) for kind in Event.__args__]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch(r"fairlead\.[a-z]+\.[a-z_]+\.v1", name)] == []
    assert set(names) & set(TYPES_IN) == set()


def test_a_type_name_of_several_parts() -> None:
    """The aggregate is the first part, the rest is joined by underscores."""
    assert type_of("JobStopRequested") == "fairlead.job.stop_requested.v1"


def test_our_events_are_read_by_the_cloudevents_package() -> None:
    """Another implementation accepts our bytes and finds the intended values."""
    ours = CloudEventOut(
        specversion=SPECVERSION,
        id="812.0",
        source=SOURCE_OUT,
        type=type_of("RunStarted"),
        time="2027-01-31T10:00:00Z",
        datacontenttype="application/json",
        sequence="812",
        data={"job": "1", "attempt": 1},
        cause="report:n1:2",
        subject="1",
    )
    theirs = from_json(msgspec.json.encode(ours))
    assert (theirs["id"], theirs["type"], theirs["sequence"], theirs.data) == (
        "812.0",
        "fairlead.run.started.v1",
        "812",
        {"job": "1", "attempt": 1},
    )


def test_extension_attributes_of_others_are_let_pass() -> None:
    """The standard allows them on what is sent to us."""
    payload = b'{"specversion":"1.0","type":"t","source":"s","id":"1","traceparent":"00-x","data":{"a":1}}'
    event = msgspec.json.decode(payload, type=CloudEventIn)
    assert (event.type, bytes(event.data)) == ("t", b'{"a":1}')


@pytest.mark.parametrize("missing", ["specversion", "type", "source", "id"])
def test_a_required_attribute_is_required(missing: str) -> None:
    """The error names it."""
    event = {"specversion": "1.0", "type": "t", "source": "s", "id": "1"}
    del event[missing]
    with pytest.raises(msgspec.ValidationError, match=missing):
        msgspec.json.decode(msgspec.json.encode(event), type=CloudEventIn)
