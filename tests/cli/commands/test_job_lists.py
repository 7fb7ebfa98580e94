"""`fairlead jobs`: which jobs it lists, and how an array and a table of values look."""

import csv
import io
from typing import Any

import pytest

from fairlead.commands import options
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, job_document, page

NOW_NS = 1_800_000_000_000_000_000  # 2027-01-15T08:00:00Z


def query(gateway: GatewayStub) -> dict[str, Any]:
    """Query of the last request, without its page."""
    return {key: value for key, value in gateway.requests[-1].url.params.items() if key != "limit"}


@pytest.fixture
def day(gateway: GatewayStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A morning in UTC, and no jobs."""
    monkeypatch.setattr(options.time, "time_ns", lambda: NOW_NS)
    monkeypatch.setenv("TZ", "UTC")
    options.time.tzset()
    gateway.on("GET", "/v1/jobs", page())


@pytest.mark.usefixtures("day")
def test_by_default_what_ended_long_ago_and_elements_are_left_out(gateway: GatewayStub, run: Run) -> None:
    """And the empty list says so."""
    ran = run("jobs")
    assert query(gateway) == {"since": "1d", "elements": "false"}
    assert ran.out == "no jobs; try: fairlead submit -- echo hello (of the last day; --all lists all)\n"
    assert run("jobs", "--all", "--elements").out == "no jobs; try: fairlead submit -- echo hello\n"
    assert query(gateway) == {}


@pytest.mark.usefixtures("day")
def test_filters_are_the_gateways(gateway: GatewayStub, run: Run) -> None:
    """Several labels are one filter."""
    words = ("--state", "failed,cancelled", "--name", "train-*", "--label", "a=b", "--label", "c", "--project", "llm")
    ran = run("jobs", "--all", "-u", "me", "-q", "research", *words)
    assert (ran.code, ran.out) == (0, "no such jobs\n")
    filters = {"state": "failed,cancelled", "name": "train-*", "label": "a=b,c", "project": "llm"}
    assert query(gateway) == {**filters, "user": "ada", "queue": "research", "elements": "false"}


@pytest.mark.usefixtures("day")
@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("2h", "2027-01-15T06:00:00.000Z"),
        ("03:00", "2027-01-15T03:00:00.000Z"),
        ("9:30", "2027-01-14T09:30:00.000Z"),
        ("yesterday", "2027-01-14T00:00:00.000Z"),
        ("2026-12-31", "2026-12-31T00:00:00.000Z"),
        ("2026-12-31T03:00:00+02:00", "2026-12-31T01:00:00.000Z"),
    ],
)
def test_since_is_a_time_as_people_say_it(gateway: GatewayStub, run: Run, text: str, sent: str) -> None:
    """How long ago, a time of the day, a day, or RFC 3339."""
    assert run("jobs", "--since", text).code == 0
    assert query(gateway)["since"] == sent


def test_a_time_that_is_none_is_refused(gateway: GatewayStub, run: Run) -> None:
    """With the forms that there are; and two times are one too many."""
    ran = run("jobs", "--since", "soon")
    assert (ran.code, gateway.requests) == (2, [])
    assert 'expected a time such as "2h" (ago)' in ran.err and 'found "soon"' in ran.err
    assert run("jobs", "--since", "1h", "--all").err == "error: expected --all or --since, found both\n"


def test_an_array_is_one_line_with_its_elements_counted(gateway: GatewayStub, run: Run) -> None:
    """An ended one has its state."""
    counted = job_document("7", state="queued", array={"waiting": 5, "running": 2, "failed": 0})
    over = job_document("6", state="failed", array={"failed": 8}, ended_at="2026-01-01T00:00:00.000Z")
    gateway.on("GET", "/v1/jobs", page(counted, over))
    lines = run("jobs").out.splitlines()
    assert "5 waiting, 2 running" in lines[1] and "  failed  " in lines[2]


def test_values_with_commas_have_all_columns(gateway: GatewayStub, run: Run) -> None:
    """As spreadsheets read them, with names that contain commas and quotes."""
    gateway.on("GET", "/v1/jobs", page(job_document(name='a,"b"', nodes=["n1", "n2"])))
    (found,) = csv.DictReader(io.StringIO(run("jobs", "-o", "csv").out))
    assert (found["NAME"], found["NODES"], found["PRIORITY"]) == ('a,"b"', "n1,n2", "50")
