"""Event lines: amounts in the words of files, whatever the event."""

from typing import Any

import msgspec
import pytest

from fairlead.commands.events import event_fields, event_line
from fairlead_schemas.http.cloudevents import CloudEventOut, type_of
from fairlead_schemas.wire.events import EventBase, JobDeferred, JobUnplaceable, PreemptionRequested, Victim
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, page
from tests.schemas.examples import EVENTS


def data_of(event: EventBase) -> dict[str, Any]:
    """Return an event's data as in the log."""
    return msgspec.json.decode(msgspec.json.encode(event))


def line_of(event: EventBase, *, wide: bool = False) -> str:
    """The line without time and id."""
    data = data_of(event)
    out = CloudEventOut(
        specversion="1.0",
        id="7.1",
        source="/",
        type=type_of(data["type"]),
        time="t",
        datacontenttype="application/json",
        sequence="7",
        data=data,
    )
    return event_line(out, wide=wide)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_no_line_has_raw_units(event: EventBase) -> None:
    """No thousandths, no nanoseconds, no inner name of a model; `-o wide` has every field as it is."""
    line = line_of(event)
    assert "_milli" not in line and "_ns" not in line
    assert '"gpu:' not in line and "=gpu:" not in line
    assert all(f"{name}=" in line_of(event, wide=True) for name in data_of(event))


def test_amounts_are_spelled_as_in_job_files() -> None:
    """With their resource, by name, and in lists of them."""
    deferred = JobDeferred(
        cause="c",
        job="1",
        attempt=1,
        reason="maximum",
        queue="a",
        resource="gpu:NVIDIA-L4",
        held=2000,
        needed=500,
        ceiling=4000,
    )
    shown = event_fields(data_of(deferred))
    assert (shown["resource"], shown["held"], shown["needed"]) == ("nvidia.com/gpu:NVIDIA-L4", "2", "0.500")
    refused = JobUnplaceable(
        cause="c", job="1", attempt=1, reasons={"free_gpus": 2}, nodes=2, gpu_milli_free=4000, gpu_milli_total=16_000
    )
    assert line_of(refused).endswith('reasons={"free_gpus":2} nodes=2 gpus_free=4 gpus_total=16 <- c')
    asked = PreemptionRequested(
        cause="c",
        job="1",
        attempt=1,
        victims=(Victim(job="2", attempt=1, rule="over_slice"),),
        queue="a",
        amounts={"gpu": 8000, "memory": 1024},
    )
    assert event_fields(data_of(asked))["amounts"] == {"memory": "1Gi", "nvidia.com/gpu": 8}


def test_settings_that_cannot_be_read_are_shown_as_they_are() -> None:
    """Of a gateway of another release: nothing is hidden, and nothing fails."""
    data = {"type": "QueueConfigured", "path": "a", "settings": {"shine": 1}}
    assert event_fields(data)["settings"] == {"shine": 1}


def test_the_filters_are_those_of_the_gateway(gateway: GatewayStub, run: Run) -> None:
    """Times as people write them become RFC 3339; lists are joined; "me" is the user."""
    gateway.on("GET", "/v1/events", page())
    words = (
        "--since",
        "2026-01-31 03:00",
        "--until",
        "2026-01-31",
        "--type",
        "job.*",
        "--type",
        "NodeLost",
        "--tail",
        "5",
    )
    assert run("events", *words, "--node", "n1", "-u", "me", "-u", "bob", "-q", "research").code == 0
    query = dict(gateway.requests[-1].url.params)
    assert query["since"].startswith("2026-01-3") and query["since"].endswith("Z") and query["until"] < query["since"]
    assert (query["type"], query["tail"], query["node"], query["queue"]) == ("job.*,NodeLost", "5", "n1", "research")
    assert query["user"].endswith(",bob") and not query["user"].startswith("me") and "from" not in query
    refused = run("events", "--since", "soon")
    assert refused.code == 2 and '"03:00"' in refused.err


def test_changes_lie_between_two_moments(gateway: GatewayStub, run: Run) -> None:
    """Both in the words of --at; the gateway is asked once, with the filters of events."""
    event = CloudEventOut(
        specversion="1.0",
        id="11.0",
        source="/",
        type="fairlead.job.placed.v1",
        time="t",
        datacontenttype="application/json",
        sequence="11",
        data={"type": "JobPlaced", "job": "2", "attempt": 1},
    )
    gateway.on("GET", "/v1/changes", page(msgspec.to_builtins(event)))
    found = run("changes", "--from", "10", "--to", "14", "--type", "job.*", "--queue", "a")
    assert found.out == "[t] [11.0] job.placed job=2 attempt=1\n"
    (asked,) = [each for each in gateway.requests if each.url.path == "/v1/changes"]
    assert dict(asked.url.params) | {"limit": ""} == {
        "from": "10",
        "to": "14",
        "type": "job.*",
        "queue": "a",
        "limit": "",
    }


@pytest.mark.parametrize(("option", "other"), [("--from", "--to"), ("--to", "--from")])
def test_a_moment_that_is_none_names_its_option(gateway: GatewayStub, run: Run, option: str, other: str) -> None:
    """Not --at."""
    found = run("changes", option, "garbage", other, "3")
    assert found.code == 2
    assert found.err.startswith(f"error: {option}: ")
