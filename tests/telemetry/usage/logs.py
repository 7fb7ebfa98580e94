"""Logs, what the telemetry service says of their GPU time, and what the recount says."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from fairlead_bus.log import Chain
from fairlead_bus.port import Stored
from fairlead_replay import recount
from fairlead_replay.export import encode_line
from fairlead_schemas.queries.telemetry import BYS, GPU_HOUR_MILLI_NS, UsageStatement
from fairlead_schemas.wire.commit import GENESIS, commit_hash, decode_commit, decode_envelope, encode_commit
from fairlead_telemetry.samples.intake import SampleIntake
from fairlead_telemetry.usage.prices import read_prices
from fairlead_telemetry.usage.statement import month_named
from fairlead_telemetry.usage.usage_store import UsageStore
from fairlead_telemetry.warehouse.warehouse import CommitBytes, Warehouse


def store(warehouse: Warehouse, log: Sequence[Stored]) -> None:
    """Put the log's commits that follow the cursor into the warehouse."""
    chain = Chain(warehouse.cursor.sequence, warehouse.cursor.heads)
    commits: list[CommitBytes] = []
    for stored in log:
        commit = decode_commit(stored.payload)
        chain.extend(stored, commit)
        commits.append(CommitBytes.of(stored.sequence, decode_envelope(stored.payload)))
    warehouse.store(commits, chain.heads, "a log", SampleIntake([], [], {}))


def caught_up(warehouse: Warehouse, step: int = 50_000) -> UsageStore:
    """Usage of all that the warehouse has."""
    usage = UsageStore(warehouse)
    while usage.catch_up(step):
        pass
    return usage


def statements(usage: UsageStore, months: Sequence[str], prices: str) -> list[UsageStatement]:
    """Of each month, by everything."""
    table = read_prices(prices)
    found = [month_named(name) for name in months]
    return [usage.statement(month, by, table) for month in found if month is not None for by in BYS]


def plain(statement: UsageStatement) -> dict[str, Any]:
    """As the API writes it."""
    return msgspec.json.decode(msgspec.json.encode(statement))


def disagreements(log: Sequence[Stored], told: Sequence[UsageStatement], prices: str) -> list[str]:
    """What the recount has to say against these statements."""
    book = recount.read(encode_line(stored) for stored in log)
    return [each for statement in told for each in recount.differences(plain(statement), book, prices)]


def warehouse_of(directory: Path, log: Sequence[Stored]) -> Warehouse:
    """A warehouse that has stored a log."""
    warehouse = Warehouse(directory)
    store(warehouse, log)
    return warehouse


def stepped(log: Sequence[Stored], rng: Random) -> list[Stored]:
    """The same log as writers would have written it whose clocks jump by hours, forth and back, now and then."""
    offsets, heads, again = dict[str, int](), dict[str, tuple[int, str]](), list[Stored]()
    for stored in log:
        commit = decode_commit(stored.payload)
        if rng.random() < 0.1:
            offsets[commit.writer] = rng.randrange(-3 * 3600 * 10**9, 3 * 3600 * 10**9)
        n, prev = heads.get(commit.writer, (0, GENESIS))
        at_ns = commit.at_ns + offsets.get(commit.writer, 0)
        payload = encode_commit(msgspec.structs.replace(commit, at_ns=at_ns, prev=prev))
        heads[commit.writer] = (n + 1, commit_hash(payload))
        again.append(Stored(stored.sequence, stored.subject, payload))
    return again


def costs_that_differ(
    warehouse: Warehouse, usage: UsageStore, statements: Sequence[UsageStatement], prices: str
) -> list[str]:
    """Lines of statements for which the view `costs` has another amount or price, by month, key, model and price."""
    usage.set_prices(read_prices(prices))
    keys = {"attempt": "job || '.' || attempt"}
    found = list[str]()
    for told in statements:
        query = f"""SELECT {keys.get(told.by, f'"{told.by}"')}, model, per_gpu_hour, sum(charged), sum(cost) FROM costs
          WHERE month = ? GROUP BY ALL"""
        rows = warehouse.rows(query, [told.month])
        seen = {(key, model, price): (int(charged), cost) for key, model, price, charged, cost in rows}
        lines = dict[tuple[str, str, Decimal | None], list[Any]]()
        for line in told.lines:
            if line.charged:
                price = None if line.per_gpu_hour is None else Decimal(line.per_gpu_hour)
                each = lines.setdefault((line.key, line.model, price), [0, 0])
                each[0] += line.charged
                each[1] = None if line.amount is None else float(each[1]) + float(line.amount)
        if lines.keys() != seen.keys():
            found.append(f"{told.month} by {told.by}: {lines.keys() ^ seen.keys()}")
        [(counted,)] = warehouse.rows(
            "SELECT coalesce(sum(budget_gpu_hours), 0) FROM costs WHERE month = ?", [told.month]
        )
        if abs(counted - sum(line.weighted for line in told.lines) / (GPU_HOUR_MILLI_NS * 1000)) > 1e-6:
            found.append(f"{told.month} by {told.by}: {counted} GPU-hours of budgets")
        for key, (charged, amount) in lines.items():
            other, cost = seen.get(key, (0, None))
            if (
                charged != other
                or (amount is None) != (cost is None)
                or (cost is not None and abs(cost - amount) > 0.02)
            ):
                found.append(f"{told.month} by {told.by}: {key}: {charged}, {amount}; costs: {other}, {cost}")
    return found
