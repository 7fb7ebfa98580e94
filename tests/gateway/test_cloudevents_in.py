"""POST /v1/events: CloudEvents made and checked by the public SDK."""

from typing import Any

import pytest
from cloudevents.core.bindings.http import to_binary
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from fairlead_schemas.http.cloudevents import JOB_CANCEL, JOB_HOLD, JOB_RELEASE, JOB_SUBMIT
from tests.gateway.world import GatewayWorld

ONE = {"content-type": "application/cloudevents+json"}
BATCH = {"content-type": "application/cloudevents-batch+json; charset=utf-8"}


def event(type_: str, data: dict[str, Any], id_: str = "1", **attributes: Any) -> bytes:
    """A CloudEvent as the SDK writes it."""
    attributes = {"type": type_, "source": "/ci", "id": id_, "datacontenttype": "application/json", **attributes}
    return JSONFormat().write(CloudEvent(attributes, data))


async def test_a_submit_event_is_a_job_and_its_repetition_the_same() -> None:
    """Source and id are the key: sent twice, one job."""
    async with GatewayWorld() as world:
        body = event(JOB_SUBMIT, {"command": ["true"], "name": "ci"}, traceparent="00-x")
        first = await world.http.post("/v1/events", content=body, headers=ONE)
        again = await world.http.post("/v1/events", content=body, headers=ONE)
        assert (first.status_code, again.status_code) == (201, 200)
        assert first.json()["id"] == again.json()["id"]
        other = event(JOB_SUBMIT, {"command": ["true"], "name": "ci"}, "2")
        assert (await world.http.post("/v1/events", content=other, headers=ONE)).json()["id"] == "2"


async def test_verbs_by_event() -> None:
    """Hold, release and cancel; a repeated cancel is answered as the first."""
    async with GatewayWorld() as world:
        job, body = await world.submit(), b""
        for number, (type_, state) in enumerate(
            ((JOB_HOLD, "held"), (JOB_RELEASE, "offered"), (JOB_CANCEL, "cancelled"))
        ):
            body = event(type_, {"job": job}, f"v{number}")
            answer = await world.http.post("/v1/events", content=body, headers=ONE)
            assert (answer.status_code, answer.json()["id"]) == (200, job), answer.text
            await world.in_state(job, state)
        assert (await world.http.post("/v1/events", content=body, headers=ONE)).status_code == 200


async def test_a_batch_is_answered_in_order_and_not_doubled() -> None:
    """Mixed types in one batch; sent again, nothing new."""
    async with GatewayWorld() as world:
        parts = [event(JOB_SUBMIT, {"command": ["true"], "name": f"b{i}"}, f"b{i}") for i in range(10)]
        body = b"[" + b",".join(parts) + b"]"
        first = await world.http.post("/v1/events", content=body, headers=BATCH)
        again = await world.http.post("/v1/events", content=body, headers=BATCH)
        assert first.status_code == again.status_code == 200
        assert (
            [one["id"] for one in first.json()]
            == [one["id"] for one in again.json()]
            == [str(i + 1) for i in range(10)]
        )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (event("fairlead.job.explode.v1", {}), "type"),
        (event(JOB_SUBMIT, {"command": ["true"], "bogus": 1}), "data.bogus"),
        (event(JOB_SUBMIT, {"command": ["true"], "nodes": 0}), "data.nodes"),
        (event(JOB_CANCEL, {"job": "x"}), "data.job"),
        (event(JOB_CANCEL, {"jobs": "1"}), "data.jobs"),
        (event(JOB_SUBMIT, {"command": ["true"]}, datacontenttype="application/vnd.x+json"), "datacontenttype"),
        (
            b'{"specversion":"0.3","type":"fairlead.job.cancel.v1","source":"/a","id":"1","data":{"job":"1"}}',
            "specversion",
        ),
        (b'{"specversion":"1.0","type":"fairlead.job.cancel.v1","source":"","id":"1","data":{"job":"1"}}', "source"),
        (b'{"specversion":"1.0"}', None),
        (b"[[[[", None),
    ],
)
async def test_a_bad_event_is_named_and_nothing_is_stored(body: bytes, field: str | None) -> None:
    """422 with the attribute; alone, and in a batch with a good one."""
    async with GatewayWorld() as world:
        answer = await world.http.post("/v1/events", content=body, headers=ONE)
        assert answer.status_code == 422
        if field is not None:
            assert answer.json()["errors"][0]["field"] == field
        good = event(JOB_SUBMIT, {"command": ["true"]}, "good")
        batch = await world.http.post("/v1/events", content=b"[%b,%b]" % (good, body), headers=BATCH)
        assert batch.status_code == 422
        if field is not None:
            assert batch.json()["errors"][0]["field"] == f"[1].{field}"
        assert world.commands_stored() == 0


async def test_binary_mode_as_the_sdk_writes_it() -> None:
    """Attributes are headers, the body is the data; the same event in structured mode is the same job."""
    async with GatewayWorld() as world:
        made = CloudEvent(
            {"type": JOB_SUBMIT, "source": "/ci/ä", "id": "b 1", "datacontenttype": "application/json", "subject": "x"},
            {"command": ["true"]},
        )
        message = to_binary(made, JSONFormat())
        first = await world.http.post("/v1/events", content=message.body, headers=message.headers)
        again = await world.http.post("/v1/events", content=JSONFormat().write(made), headers=ONE)
        assert (first.status_code, again.status_code) == (201, 200), first.text
        assert first.json()["id"] == again.json()["id"]
        job = first.json()["id"]
        cancel = to_binary(
            CloudEvent(
                {"type": JOB_CANCEL, "source": "/ci", "id": "c", "datacontenttype": "application/json"}, {"job": job}
            ),
            JSONFormat(),
        )
        assert (await world.http.post("/v1/events", content=cancel.body, headers=cancel.headers)).status_code == 200
        await world.in_state(job, "cancelled")


@pytest.mark.parametrize(
    ("missing", "field"),
    [("ce-type", "ce-type"), ("ce-specversion", "ce-specversion"), ("ce-source", "ce-source"), ("ce-id", "ce-id")],
)
async def test_a_missing_attribute_of_binary_mode_is_named(missing: str, field: str) -> None:
    """As its header. Structured mode does not look at such headers."""
    async with GatewayWorld() as world:
        names = {"ce-specversion": "1.0", "ce-type": JOB_SUBMIT, "ce-source": "/ci", "ce-id": "1"}
        headers = {name: value for name, value in names.items() if name != missing}
        answer = await world.http.post("/v1/events", json={"command": ["true"]}, headers=headers)
        assert (answer.status_code, [each["field"] for each in answer.json()["errors"]]) == (422, [field])
        body = event(JOB_SUBMIT, {"command": ["true"]})
        assert (await world.http.post("/v1/events", content=body, headers=ONE | headers)).status_code == 201
        wrong = await world.http.post("/v1/events", json={"command": []}, headers=names)
        assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "data.command")


async def test_another_content_type_is_415() -> None:
    """Plain JSON without an event's headers is refused by name."""
    async with GatewayWorld() as world:
        answer = await world.http.post("/v1/events", content=b"{}", headers={"content-type": "application/json"})
        assert answer.status_code == 415
