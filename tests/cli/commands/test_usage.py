"""`fairlead usage` and `fairlead audit usage`: what a person reads, what a program reads, and a bill that is counted again."""

import json
from pathlib import Path

import msgspec

from fairlead_replay.export import write_export
from fairlead_schemas.queries.telemetry import UsageEstimate, UsageEstimateLine
from fairlead_schemas.units.timestamps import midnight
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, page
from tests.kit.usage_statement import STATEMENT
from tests.telemetry.story import of_story
from tests.telemetry.usage.logs import caught_up, plain, statements, warehouse_of
from tests.telemetry.usage.winter import PRICES, winter


def test_a_statement_as_a_table(gateway: GatewayStub, run: Run) -> None:
    """Lines, total, what is not charged, and as of when."""
    gateway.on("GET", "/v1/usage", msgspec.to_builtins(STATEMENT))
    ran = run("usage", "--statement", "2026-11", "--by", "queue")
    assert ran.out == (
        "QUEUE  MODEL  RUNS  GPU-HOURS  PER HOUR    AMOUNT\n"
        "ada    a100      2      1.500  2.49 EUR  3.74 EUR\n"
        "\n"
        "total of 2026-11: 1.500 GPU-hours, 3.74 EUR\n"
        "as of 1970-01-01 00:00:00 UTC; what runs is counted up to there (log sequence 7)\n"
    )
    assert dict(gateway.requests[0].url.params) == {"statement": "2026-11", "by": "queue"}


def test_an_estimate_up_to_now_is_marked_as_one(gateway: GatewayStub, run: Run) -> None:
    """A column of its own; a job that the newest commit has placed is in it alone. The CSV, which is audited, has none."""
    line = STATEMENT.lines[0]
    lines = [
        UsageEstimateLine(key="ada", model="a100", from_ns=line.from_ns, gpu_hours=1.75, charged=6300 * 10**12),
        UsageEstimateLine(key="bob", model="a100", from_ns=0, gpu_hours=0.25, charged=900 * 10**12),
    ]
    estimate = UsageEstimate(
        at_ns=60 * 10**9, lines=lines, gpu_hours=2.0, charged=7200 * 10**12, totals={"EUR": "4.98"}
    )
    statement = msgspec.structs.replace(STATEMENT, estimate=estimate)
    gateway.on("GET", "/v1/usage", msgspec.to_builtins(statement))
    assert run("usage", "--by", "queue").out == (
        "QUEUE  MODEL  RUNS  GPU-HOURS  PER HOUR    AMOUNT  TO NOW (ESTIMATE)\n"
        "ada    a100      2      1.500  2.49 EUR  3.74 EUR              1.750\n"
        "bob    a100      -          -         -         -              0.250\n"
        "\n"
        "total of 2026-11: 1.500 GPU-hours, 3.74 EUR\n"
        "estimate up to 1970-01-01 00:01:00 UTC, if all running jobs continue: 2.000 GPU-hours, 4.98 EUR\n"
        "as of 1970-01-01 00:00:00 UTC; what runs is counted up to there (log sequence 7)\n"
    )
    gateway.on("GET", "/v1/usage", msgspec.to_builtins(statement))
    assert "estimate" not in run("usage", "--csv").out


def test_measurements_are_shown_with_usage(gateway: GatewayStub, run: Run) -> None:
    """With their coverage; unknown use is empty, and no use is zero."""
    held = STATEMENT.held
    for measured, used, told in (
        (
            held // 2,
            held // 8,
            "measured: 50.0 % of the GPU time that was held has samples, and of that 25.0 % was used\n",
        ),
        (0, 0, "measured: there are no samples of it\n"),
        (None, None, ""),
    ):
        gateway.on("GET", "/v1/usage", msgspec.structs.replace(STATEMENT, measured=measured, used=used))
        out = run("usage").out
        assert told in out
        assert ("measured" in out) == (told != "")


def test_a_statement_for_programs(gateway: GatewayStub, run: Run) -> None:
    """Comma-separated, or exactly the API's JSON; a word that is none is refused before anybody is asked."""
    gateway.on("GET", "/v1/usage", msgspec.to_builtins(STATEMENT))
    assert run("usage", "--csv").out.splitlines()[1] == (
        "2026-11,queue,ada,a100,1970-01-01,2,1.500000,5400000000000000,5401000000000000,2.49,EUR,3.74,,"
    )
    assert json.loads(run("usage", "-o", "json").out) == msgspec.to_builtins(STATEMENT)
    assert run("usage", "--from", "2026-11-02", "--to", "2026-11-09 08:00", "--csv").code == 0
    asked = dict(gateway.requests[-1].url.params)
    assert (asked["from"], asked["to"]) == ("2026-11-02T00:00:00.000Z", "2026-11-09T08:00:00.000Z")
    for words, told in (
        (("--from", "2026-11-02", "--statement", "2026-11"), "found both"),
        (("--to", "2026-11-02"), "expected --from"),
        (("--from", "soon"), '--from: expected a day such as "2026-11-02"'),
    ):
        ran = run("usage", *words)
        assert (ran.code, told in ran.err) == (2, True), ran.err
    span = {
        "month": "2026-11-02T00:00:00Z/2026-11-09T00:00:00Z",
        "begin_ns": midnight("2026-11-02"),
        "end_ns": midnight("2026-11-09"),
    }
    gateway.on("GET", "/v1/usage", msgspec.to_builtins(STATEMENT) | span)
    assert "total from 2026-11-02 00:00:00 to 2026-11-09 00:00:00 UTC: " in run("usage").out
    ran = run("usage", "--by", "colour")
    assert (
        ran.code,
        '--by: expected one of user, queue, project, job, attempt, model, pool, found "colour"' in ran.err,
    ) == (2, True)


def test_a_bill_is_counted_again_from_an_exported_log(tmp_path: Path, run: Run) -> None:
    """Equal as it is; a bill that was changed by a cent is caught and says where; so is a log that was changed."""
    log = of_story(winter())
    write_export(tmp_path / "export", log)
    warehouse = warehouse_of(tmp_path, log)
    [january, *_] = statements(caught_up(warehouse), ["2026-01"], PRICES)
    warehouse.close()
    bill, prices = tmp_path / "statement.json", tmp_path / "prices.csv"
    bill.write_text(json.dumps(plain(january)))
    prices.write_text(PRICES)
    words = ("audit", "usage", str(bill), "--data", str(tmp_path / "export"), "--prices", str(prices))
    ran = run(*words)
    assert (ran.code, ran.out) == (
        0,
        f"equal: 3 lines, 8.000 GPU-hours of 2026-01, counted again from 4 placements up to sequence {len(log)}\n",
    )
    bill.write_text(bill.read_text().replace('"7.50"', '"7.51"'))
    ran = run(*words)
    assert (ran.code, ran.out) == (
        1,
        "DIFFERS: ada, NVIDIA A100, from 2026-01-01: amount is 7.50 by the log, 7.51 by the statement\n",
    )
    bill.write_text("{}")
    assert "no statement" in run(*words).err
    lines = tmp_path / "export" / "log.jsonl"
    bill.write_text(json.dumps(plain(january)))
    lines.write_bytes(lines.read_bytes().replace(b'"user":"ada"', b'"user":"bob"', 1))
    ran = run(*words)
    assert (ran.code, "DAMAGED: sequence" in ran.err) == (1, True)


def test_prices_are_listed_and_set(gateway: GatewayStub, run: Run) -> None:
    """As a table; a day is its begin in UTC, and none is now."""
    price = {
        "model": "NVIDIA-H100",
        "per_gpu_hour": "2.49",
        "currency": "EUR",
        "valid_from": "2026-12-01T00:00:00.000Z",
        "by": "boss",
        "sequence": 40,
    }
    gateway.on("GET", "/v1/prices", page())
    assert run("prices").out == "no prices were set\n"
    gateway.on("GET", "/v1/prices", page(price))
    assert run("prices").out.splitlines()[1] == "NVIDIA-H100      2.49 EUR  2026-12-01T00:00:00.000Z  boss"
    gateway.on("POST", "/v1/prices", price)
    ran = run("prices", "set", "NVIDIA-H100", "2.49", "EUR", "--from", "2026-12-01")
    assert ran.out == "NVIDIA-H100 costs 2.49 EUR from 2026-12-01T00:00:00.000Z on\n"
    run("prices", "set", "*", "1", "EUR")
    assert gateway.bodies() == [
        {"model": "NVIDIA-H100", "per_gpu_hour": "2.49", "currency": "EUR", "from": "2026-12-01T00:00:00.000Z"},
        {"model": "*", "per_gpu_hour": "1", "currency": "EUR"},
    ]
