"""A month of simulated use, in virtual time: jobs of one GPU to two nodes, in slices, with preemption, over a month's end. The
statement, the recount of the exported log and the budgets of the queues are equal to the nanosecond."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest

from fairlead_bus.port import Stored
from fairlead_queue.core import QueueCore
from fairlead_queue.fairness.budgets import UNIT
from fairlead_queue.standing import standings
from fairlead_replay import recount
from fairlead_replay.export import LOG_FILE, write_export
from fairlead_replay.virtual.load import Setting, TraceJob, machines, request_of
from fairlead_replay.virtual.play import play
from fairlead_schemas.queuefile.settings import (
    GPU_HOUR_MILLI_S,
    MODEL_LABEL,
    Budget,
    PoolEntry,
    PoolSettings,
    Preemption,
    QueueEntry,
    QueueSettings,
)
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.commit import decode_commit
from fairlead_telemetry.usage.prices import read_prices
from fairlead_telemetry.usage.statement import month_at, month_named
from fairlead_telemetry.usage.usage_store import UsageStore
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.usage.logs import plain, statements, store

#: Virtual time begins on 14 November 2023.
MONTHS = ("2023-11", "2023-12")
PRICES = """model,per_gpu_hour,currency,valid_from
old,0.75,EUR,2023-01-01
new,2.40,EUR,2023-01-01
new,1.999999,EUR,2023-12-01
new,2.10,EUR,2023-12-04
"""
DAYS, NODES, JOBS = 30, 4, 200


def setting() -> Setting:
    """Four nodes of two models; a lab with two teams and a budget, and others with one that they will have spent."""
    nodes = {
        name: msgspec.structs.replace(inventory, labels={MODEL_LABEL: ("old", "new")[at % 2]})
        for at, (name, inventory) in enumerate(machines(NODES).items())
    }
    calm = Preemption(protect_ns=60 * SECOND_NS)

    def queue(path: str, hours: int = 0) -> QueueEntry:
        budget = Budget(gpu_milli_s=hours * GPU_HOUR_MILLI_S, when_spent="demote") if hours else None
        return QueueEntry(path=path, settings=QueueSettings(budget=budget, preemption=calm))

    return Setting(
        nodes=nodes,
        queues=(queue("lab", 9000), queue("lab/a"), queue("lab/b", 3000), queue("others", 500)),
        pools=(PoolEntry(pool="default", settings=PoolSettings(prices={"old": 400, "new": 1700})),),
        restart_ns=30 * SECOND_NS + 1,
        notice_ns=20 * SECOND_NS + 7,
    )


def load(seed: int) -> list[TraceJob]:
    """Jobs of minutes to days, at moments that are no whole seconds."""
    rng = Random(seed)
    return [
        TraceJob(
            queue=rng.choice(("lab/a", "lab/b", "others")),
            submit_ns=rng.randrange(DAYS * 86_400 * SECOND_NS),
            work_ns=rng.randrange(60 * SECOND_NS, rng.choice((1, 10, 40)) * 3600 * SECOND_NS),
            request=request_of(rng.choice((1, 1, 2, 4, 8, 16))),
            slice_ns=rng.choice((0, 3600 * SECOND_NS)),
        )
        for _ in range(JOBS)
    ]


def budgets(core: QueueCore, usage: UsageStore) -> Iterator[tuple[str, int, int]]:
    """(queue, used of its budget by the queue's count, by the statement's) as of the usage's moment."""
    month = month_at(usage.as_of_ns)
    lines = usage.statement(month, "queue", read_prices(PRICES)).lines
    for path, account in core.state.accounts.items():
        begin_ns, used = account.at(usage.as_of_ns)
        assert begin_ns == month.begin_ns
        yield path, used, sum(line.weighted for line in lines if f"{line.key}/".startswith(f"{path}/"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_statements_budgets_and_the_recount_are_equal(seed: int, tmp_path: Path) -> None:
    """Budgets day by day, in both months; the statements at the end, by everything that statements are made by."""
    log: list[Stored] = []
    played = play(load(seed), setting(), record=log.append)
    assert played.events["PreemptionStarted"]
    core, warehouse = QueueCore(), Warehouse(tmp_path / "warehouse")
    usage, compared, waiting = UsageStore(warehouse), 0, list[Stored]()
    for at, stored in enumerate(log, 1):
        waiting.append(stored)
        core.evolve(stored.sequence, decode_commit(stored.payload))
        if at % (len(log) // DAYS) and at < len(log):
            continue
        store(warehouse, waiting)
        waiting.clear()
        while usage.catch_up(step=777):
            pass
        shown = {each.queue: each.spent for each in standings(core.state)}
        for path, counted, stated in budgets(core, usage):
            assert stated == counted, f"{path} at {stored.sequence}"
            assert shown[path] == stated // UNIT, f"{path} at {stored.sequence}"
            compared += counted > 0
    assert compared > DAYS
    told = statements(usage, MONTHS, PRICES)
    warehouse.close()
    write_export(tmp_path / "export", log)
    with (tmp_path / "export" / LOG_FILE).open("rb") as lines:
        book = recount.read(lines)
    for statement in told:
        assert recount.differences(plain(statement), book, PRICES) == []
    held_s = sum(life.held_ns * life.job.gpus for life in played.lives)
    assert sum(statement.charged for statement in told if statement.by == "user") == 1000 * held_s
    november = month_named(MONTHS[0])
    assert november is not None
    assert [each.is_final for each in told if each.by == "model"] == [True, False]
