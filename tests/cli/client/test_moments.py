"""The command line and the client in the past: `--at`, FAIRLEAD_AT, and what they are refused for."""

import asyncio
import re
from datetime import UTC, timedelta, timezone

import httpx
import pytest

from fairlead.client import Client
from fairlead.client.answers import TIMELESS, has_past
from fairlead.errors import InputRefused
from fairlead_schemas.units.moments import local_moment, parse_at
from fairlead_schemas.units.timestamps import parse_rfc3339
from tests.cli.api_document import DOCUMENT
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, job_document, node_document, page

EVENT = {
    "specversion": "1.0",
    "id": "41.0",
    "source": "/fairlead/placer",
    "type": "fairlead.job.placed.v1",
    "time": "2026-01-01T00:00:00.000Z",
    "datacontenttype": "application/json",
    "sequence": "41",
    "data": {"type": "JobPlaced", "job": "7"},
    "cause": "clock",
    "subject": "job/7",
}
NOW_NS = 1_764_300_000 * 10**9  # 2025-11-28T03:20:00Z


def test_the_client_knows_which_paths_have_a_past() -> None:
    """They are those whose GET takes `at`."""
    for path, methods in DOCUMENT["paths"].items():
        if "get" in methods:
            takes = any(each["name"] == "at" for each in methods["get"].get("parameters", ()))
            filled = re.sub(r"\{path\}", "a/b", re.sub(r"\{(?!path)\w+\}", "7", path))
            assert has_past(filled) is takes, path
    assert DOCUMENT["paths"].keys() >= TIMELESS


def _then(document: object, at: str = "40 2026-01-01T00:00:00.000Z") -> httpx.Response:
    return httpx.Response(200, json=document, headers={"X-Fairlead-At": at})


def test_verbs_read_the_past(gateway: GatewayStub, run: Run) -> None:
    """The moment is sent with every request, pinned to the sequence of the first answer, and echoed on stderr."""
    job = job_document()
    gateway.on("GET", "/v1/jobs/812", _then(job))
    gateway.on("GET", "/v1/nodes", _then(page(node_document())))
    shown = run("--at", "2 hours ago", "show", "812")
    assert shown.code == 0, shown.err
    assert [request.url.params["at"] for request in gateway.requests] == ["2 hours ago", "40"]
    assert shown.err == "as of sequence 40, 2026-01-01T00:00:00.000Z\n"
    assert run("show", "812", "-o", "name").err == "", "the moment is of one command"


def test_the_environment_names_the_moment(gateway: GatewayStub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAIRLEAD_AT is the same for every command of a shell; an option of the verb itself counts more."""
    monkeypatch.setenv("FAIRLEAD_AT", "35")
    gateway.on("GET", "/v1/nodes", _then(page(node_document()), "35 2026-01-01T00:00:00.000Z"))
    assert run("nodes").code == 0
    gateway.on("GET", "/v1/jobs/812/why", {"id": "812", "state": "queued", "sequence": 9, "attempt": 1, "reason": None})
    gateway.foreign = True
    assert run("why", "812", "--at", "9").code == 0
    sent = [(request.url.path, request.url.params.get("at")) for request in gateway.requests]
    assert sent == [("/v1/nodes", "35"), ("/v1/breaker", "35"), ("/v1/jobs/812/why", "9")]


def test_sql_at_a_moment_names_the_query_that_asks_for_it(gateway: GatewayStub, run: Run) -> None:
    """It changes nothing, so the answer does not say that the past cannot be changed."""
    refused = run("--at", "40", "sql", "select 1")
    assert refused.code == 2 and not gateway.requests
    assert "--at: SQL is asked of everything up to now" in refused.err and "WHERE time <=" in refused.err


@pytest.mark.parametrize("words", [("cancel", "812"), ("submit", "--", "true"), ("drain", "n1")])
def test_the_past_is_not_changed(gateway: GatewayStub, run: Run, words: tuple[str, ...]) -> None:
    """A verb that changes something is refused before anything is sent to be changed."""
    refused = run("--at", "40", *words)
    assert refused.code != 0
    assert "--at: the past cannot be changed" in refused.err
    assert all(request.method == "GET" for request in gateway.requests)


def test_what_has_no_past_says_so(gateway: GatewayStub, run: Run) -> None:
    """Output and events are no part of the views: their own options name times."""
    for words in (("logs", "812"), ("events", "-f"), ("people", "list")):
        refused = run("--at", "40", *words)
        assert refused.code != 0
        assert "has no past" in refused.err, words
    assert gateway.requests == []


@pytest.mark.parametrize("at", ["0", "-4", "tomorrow", "10^30", "1" * 30, "25:99", "2026-13-01"])
def test_a_moment_that_cannot_be_is_refused_at_once(gateway: GatewayStub, run: Run, at: str) -> None:
    """The words name the option, what was expected and what was found."""
    refused = run(f"--at={at}", "nodes")
    assert refused.code != 0
    assert refused.err.startswith("error: --at: ")
    assert at in refused.err
    assert gateway.requests == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4711", "4711"),
        ("2 hours ago", "2 hours ago"),
        ("03:00", "2025-11-28T03:00:00.000Z"),
        ("03:30", "2025-11-27T03:30:00.000Z"),
        ("yesterday 03:12", "2025-11-27T03:12:00.000Z"),
        ("yesterday 3:12", "2025-11-27T03:12:00.000Z"),
        ("today 01:00:30", "2025-11-28T01:00:30.000Z"),
        ("yesterday", "2025-11-27T00:00:00.000Z"),
        ("2025-11-02 09:00", "2025-11-02T09:00:00.000Z"),
        ("2025-11-02T09:00:00.1234567+01:00", "2025-11-02T09:00:00.1234567+01:00"),
    ],
)
def test_people_name_moments_in_their_own_zone(text: str, expected: str) -> None:
    """A time of a day is the last one; a sequence and an age are left to the gateway."""
    assert local_moment(text, NOW_NS, UTC) == expected


def test_the_zone_of_the_machine_counts() -> None:
    """Yesterday is the day before today there."""
    east = timezone(timedelta(hours=9))
    assert local_moment("yesterday 03:12", NOW_NS, east) == "2025-11-26T18:12:00.000Z"
    assert local_moment("03:12", NOW_NS, east) == "2025-11-27T18:12:00.000Z"
    for hours in (-12, 14):
        zone = timezone(timedelta(hours=hours))
        day_ns = 24 * 3600 * 10**9
        begin = local_moment("yesterday", NOW_NS, zone)
        assert parse_rfc3339(local_moment("today", NOW_NS, zone)) - parse_rfc3339(begin) == day_ns
        assert local_moment("yesterday 00:00", NOW_NS, zone) == begin


@pytest.mark.parametrize("text", ["1 week ago", "2h 30m ago", "1 day 2 hours ago", "90 s ago", "30 minutes ago"])
def test_ages_are_durations(text: str) -> None:
    """In words or as everywhere else."""
    found = parse_at(text, NOW_NS)
    assert found.sequence == 0
    assert 0 < found.at_ns < NOW_NS


async def test_the_library_reads_the_past() -> None:
    """`Client(at=…)` pins itself to the sequence that the moment was; a change is refused."""
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.params.get("at", ""))
        return _then(page())

    def ask() -> str:
        with Client("http://gateway.test", user="ada", at="1h ago", transport=httpx.MockTransport(answer)) as client:
            client.nodes()
            client.queues()
            with pytest.raises(InputRefused, match="the past cannot be changed"):
                client.hold("812")
            return client.as_of

    assert (await asyncio.to_thread(ask)).startswith("40 ")
    assert seen == ["1h ago", "40"]


def test_changes_are_read_page_by_page(gateway: GatewayStub) -> None:
    """From one moment to another, with the filters of events; further pages by their token."""

    def answer(request: httpx.Request) -> tuple[int, object]:
        following = None if request.url.params.get("continue") else "41.0-90"
        return 200, {"items": [EVENT], "next": following, "sequence": 90}

    gateway.answers["GET", "/v1/changes"] = answer
    with Client("http://gateway.test", user="ada") as client:
        found = client.changes("40", "2 hours ago", types="JobPlaced", queue="research")
    assert (len(found.items), found.sequence) == (2, 90)
    first, second = (dict(request.url.params) for request in gateway.requests)
    assert first == {"from": "40", "to": "2 hours ago", "type": "JobPlaced", "queue": "research", "limit": "1000"}
    assert second == {**first, "continue": "41.0-90"}
