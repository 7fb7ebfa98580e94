"""Current use of running jobs' GPUs: of whole GPUs all of it, of shares the run's own part, unknown if unreported; only
for users who may see the job."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead_bus.memory import MemoryHub
from fairlead_schemas.queries.telemetry import ANONYMOUS_ADMIN, JOBS_MAX, JobUse, JobUses, QueryCaller
from fairlead_schemas.wire.samples import GpuSample, RunUse, SampleBatch, columns_of
from fairlead_telemetry.idle.limits import FUTURE_NS, UNSEEN_NS
from fairlead_telemetry.ingest import Ingest
from fairlead_telemetry.queries.current_use import CurrentUseQueries, HeldDevices, NewestBatches
from fairlead_telemetry.samples.intake import SampleIntake
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.story import START_NS, Story, ended, joined, placed, started, submitted

NOW_NS = START_NS + 10**12


def gpu(number: int, **told: Any) -> GpuSample:
    fields: dict[str, Any] = {"utilization_pct": 50, "memory_used_mib": 1024, "power_mw": 300_000}
    return GpuSample(**{"uuid": f"GPU-{number}", **fields, **told})


def batch(*gpus: GpuSample, node: str = "n1", at_ns: int = NOW_NS, n: int = 1, **more: Any) -> SampleBatch:
    return SampleBatch(node=node, incarnation="a", n=n, at_ns=at_ns, gpus=list(gpus), **more)


def held(*gpus: int, job: str = "1", node: str = "n1", milli: int = 1000) -> HeldDevices:
    return HeldDevices(job, 1, node, tuple(f"GPU-{number}" for number in gpus), milli * len(gpus))


def uses(parts: list[HeldDevices], *batches: SampleBatch) -> list[JobUse]:
    newest = NewestBatches()
    for each in batches:
        newest.feed(columns_of(each))
    return newest.uses(parts, NOW_NS)


def of(use: JobUse) -> tuple[object, ...]:
    return (use.gpus, use.measured, use.utilization_pct, use.memory_used_mib, use.power_mw)


def test_a_gang_is_added_up_over_its_nodes() -> None:
    """Utilisation is the mean, the others are sums; another run's GPU on the same node is not counted."""
    parts = [held(0, 1), held(2, node="n2"), held(3, job="2")]
    found = uses(
        parts,
        batch(gpu(0), gpu(1, utilization_pct=75), gpu(3, power_mw=1)),
        batch(gpu(2, utilization_pct=100), node="n2", at_ns=NOW_NS - 10**9),
    )
    assert [of(use) for use in found] == [(3, 3, 75.0, 3072, 900_000), (1, 1, 50.0, 1024, 1)]
    assert [(use.job, use.at_ns, use.simulated) for use in found] == [
        ("1", NOW_NS - 10**9, False),
        ("2", NOW_NS, False),
    ]


def test_the_newest_batch_counts_and_no_old_one() -> None:
    """A late one changes nothing; a node without recent batches, or whose clock runs far ahead, has no values."""
    late = batch(gpu(0, utilization_pct=1), at_ns=NOW_NS - 10**9)
    [use] = uses([held(0)], batch(gpu(0)), late)
    assert use.utilization_pct == 50.0
    for at_ns in (NOW_NS - UNSEEN_NS - 10**6, NOW_NS + FUTURE_NS + 10**6):
        [use] = uses([held(0)], batch(gpu(0), at_ns=at_ns))
        assert (of(use), use.at_ns) == ((1, 0, None, None, None), None)


def test_missing_values_are_unknown() -> None:
    """A sum over some of the GPUs would be wrong; a GPU that is not in the batch is reported as missing."""
    [use] = uses([held(0, 1, 2)], batch(gpu(0, power_mw=None, utilization_pct=None), gpu(1)))
    assert of(use) == (3, 2, None, 2048, None)


def test_only_the_own_part_of_a_shared_gpu_counts() -> None:
    """Within the driver's reports; the GPU's power belongs to no single run."""
    shared = [
        RunUse(uuid="GPU-0", run="1.1", memory_mib=100, utilization_pct=20),
        RunUse(uuid="GPU-0", run="2.1", memory_mib=200),
    ]
    parts = [held(0, milli=300), held(0, job="2", milli=300), held(0, job="3", milli=300)]
    found = uses(parts, batch(gpu(0), uses=shared))
    assert [of(use) for use in found] == [(1, 1, 20.0, 100, None), (1, 1, 0.0, 200, None), (1, 1, None, None, None)]
    [use] = uses([held(0, job="2", milli=300)], batch(gpu(0), uses=[shared[1]]))
    assert of(use) == (1, 1, None, 200, None), "0 of all is what a driver says that does not know"


def test_of_a_partitioned_gpu_only_the_own_instance_counts() -> None:
    """Its memory; activity of the whole GPU is not this run's."""
    instances = [
        GpuSample(uuid="MIG-a", parent="GPU-0", run="1.1", memory_used_mib=10),
        GpuSample(uuid="MIG-b", parent="GPU-0", run="2.1", memory_used_mib=20),
    ]
    found = uses([held(0), held(0, job="2", milli=500)], batch(gpu(0), *instances))
    assert [of(use) for use in found] == [(1, 1, None, 10, None), (1, 1, None, 20, None)]


def test_played_numbers_say_so() -> None:
    [use] = uses([held(0)], batch(gpu(0), simulated=True))
    assert use.simulated


# -------------------------------------------------------------------------------------------------- the verb


class Asked:
    """The verb over the warehouse of a story: two jobs run, one waits, one has ended."""

    def __init__(self, directory: Path) -> None:
        story = Story()
        story.at(
            0,
            joined("n1", gpus=4),
            submitted("1", gpus=2),
            submitted("2", gpus=1),
            submitted("3", gpus=1),
            submitted("4", gpus=1),
        )
        story.at(1, placed("1", n1=2), started("1"), placed("2", n1=1), started("2"), placed("4", n1=1), started("4"))
        story.at(2, ended("4", released=("n1",)))
        self.warehouse = Warehouse(directory)
        store(self.warehouse, story)
        self.ingest = Ingest(MemoryHub().connect(), self.warehouse)
        newest = NewestBatches()
        newest.feed(
            columns_of(
                batch(
                    *(
                        GpuSample(uuid=f"GPU-n1-{g}", utilization_pct=10 * g, memory_used_mib=1, power_mw=1)
                        for g in range(3)
                    )
                )
            )
        )
        self._using = CurrentUseQueries(self.warehouse, self.ingest, newest, lambda: NOW_NS)

    async def ask(self, *jobs: str, caller: QueryCaller = ANONYMOUS_ADMIN, at: int = 0) -> JobUses:
        request = msgspec.json.encode({"caller": caller, "jobs": jobs, "at": at})
        return msgspec.json.decode(await self.raw(request), type=JobUses)

    async def raw(self, request: bytes) -> bytes:
        return await self._using.ask(request)

    async def close(self) -> None:
        await self.ingest.close()
        self.warehouse.close()


@pytest.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    there = Asked(tmp_path)
    yield there
    await there.close()


async def test_values_are_in_the_order_of_the_request(asked: Asked) -> None:
    """Waiting, ended and unknown jobs hold nothing and are left out without an error."""
    found = await asked.ask("2", "3", "4", "1", "99")
    assert [(use.job, use.gpus, use.measured) for use in found.items] == [("2", 1, 1), ("1", 2, 2)]
    assert found.sequence == asked.warehouse.cursor.sequence


async def test_only_what_the_caller_may_see(asked: Asked) -> None:
    """Own jobs and those of own projects, as in SQL."""
    assert [use.job for use in (await asked.ask("1", "2", caller=QueryCaller(user="ada", role="member"))).items] == [
        "1",
        "2",
    ]
    for other in (QueryCaller(user="bob", role="member"), QueryCaller(user="bob", role="member", projects=("", "x"))):
        assert (await asked.ask("1", "2", caller=other)).items == []
    assert len((await asked.ask("1", caller=QueryCaller(user="eve", role="auditor"))).items) == 1


async def test_a_question_that_is_none_is_refused(asked: Asked) -> None:
    for wish in (b"{}", msgspec.json.encode({"caller": ANONYMOUS_ADMIN, "jobs": ["1"] * (JOBS_MAX + 1)})):
        assert msgspec.json.decode(await asked.raw(wish))["error"]["code"] == "bad_request"


async def test_many_at_once(asked: Asked) -> None:
    """Each has its own answer."""
    found = await asyncio.gather(*(asked.ask(job) for job in ("1", "2") * 5))
    assert [one.items[0].job for one in found] == ["1", "2"] * 5


def sample(asked: Asked, *batches: SampleBatch) -> None:
    """Store samples in the warehouse."""
    asked.warehouse.store(
        [], asked.warehouse.cursor.heads, "a log", SampleIntake([columns_of(b) for b in batches], [], {})
    )


async def test_a_past_moment_is_answered_from_stored_samples(asked: Asked) -> None:
    """By what ran then and the newest batch up to then: as now, if a batch of then were the newest one."""

    def measured(n: int, seconds: float, percent: int) -> SampleBatch:
        gpus = [
            GpuSample(uuid=f"GPU-n1-{g}", run=run, utilization_pct=percent, memory_used_mib=1, power_mw=100)
            for g, run in enumerate(("1.1", "1.1", "2.1", "4.1"))
        ]
        return batch(*gpus, at_ns=START_NS + int(seconds * 10**9), n=n)

    sample(asked, measured(1, 0.5, 10), measured(2, 1, 40), measured(3, 3, 90))
    ended = asked.warehouse.cursor.sequence
    while_4_ran = ended - 1
    found = [await asked.ask("4", "1", at=at) for at in (while_4_ran, ended, 1)]
    assert [each.sequence for each in found] == [while_4_ran, ended, 1]
    assert [[use.job for use in each.items] for each in found] == [["4", "1"], ["1"], []]
    four, one = found[0].items
    assert (four.utilization_pct, four.measured, four.power_mw) == (40.0, 1, 100)
    assert (one.utilization_pct, one.at_ns, one.gpus) == (40.0, START_NS + 10**9, 2)
    assert found[1].items[0].at_ns == START_NS + 10**9, "a batch that came later is not shown"


async def test_of_a_past_without_samples_nothing_is_known(asked: Asked) -> None:
    """Dropped, or older than what counts as present: what was held is still reported."""
    sample(asked, batch(gpu(0), at_ns=START_NS + 10**9 - UNSEEN_NS - 10**9))
    [use] = (await asked.ask("2", at=asked.warehouse.cursor.sequence)).items
    assert of(use) == (1, 0, None, None, None)
