"""A cluster of two nodes on one morning, in which every question of docs/reference/sql.md has an answer, and the answers."""

from pathlib import Path
from typing import Any

import msgspec

from fairlead_schemas.queuefile.settings import Budget, PoolSettings, QueueSettings
from fairlead_schemas.units.timestamps import HOUR_NS, SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Request
from fairlead_schemas.wire.samples import GpuSample, SampleBatch, columns_of
from fairlead_telemetry.samples.intake import SampleBook
from fairlead_telemetry.usage.prices import read_prices
from fairlead_telemetry.usage.usage_store import UsageStore
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.story import START_NS, Story, ended, joined, offered, placed, started, submitted

PRICES = """model,per_gpu_hour,currency,valid_from
NVIDIA-A100,1.50,EUR,2025-01-01
NVIDIA-A100,2.50,EUR,2026-01-11
*,9,USD,2025-01-01
"""


def known_cluster(directory: Path) -> Warehouse:
    """The warehouse of the morning, with its samples, prices and usage."""
    warehouse = Warehouse(directory)
    store(warehouse, _morning())
    book = SampleBook({})
    for n, second in enumerate(range(20, 7200, 20), 1):
        gpus = [
            GpuSample(uuid="GPU-n1-0", run="1.1", utilization_pct=80, memory_used_mib=9),
            GpuSample(uuid="GPU-n1-1", run="1.1", utilization_pct=0 if second >= 3600 else 80, memory_used_mib=9),
        ]
        batch = SampleBatch(node="n1", incarnation="n1-a", n=n, at_ns=START_NS + second * SECOND_NS, gpus=gpus)
        book.add(columns_of(batch))
    warehouse.store([], {}, "a log", book.take())
    warehouse.roll_up(START_NS + 7210 * SECOND_NS)
    usage = UsageStore(warehouse)
    while usage.catch_up():
        pass
    usage.set_prices(read_prices(PRICES))
    return warehouse


def _labelled(node: str) -> ev.NodeJoined:
    """A node whose label names the model of its GPUs: budgets count by that."""
    event = joined(node)
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100"}
    return msgspec.structs.replace(event, inventory=msgspec.structs.replace(event.inventory, labels=labels))


def _described(event: ev.JobSubmitted, **spec: Any) -> ev.JobSubmitted:
    return msgspec.structs.replace(event, spec=msgspec.Raw(msgspec.json.encode({"command": ["true"]} | spec)))


def _morning() -> Story:
    s = Story()
    pool = PoolSettings(sequencer="fairshare", users=("ada", "bob"), prices={"NVIDIA-A100": 2000})
    s.at(0, ev.PoolConfigured(cause="cmd:p", pool="a100", settings=pool, by="root"))
    limits = {"ada": {"gpu": 4000}, "*": {"gpu": 1000}}
    budget = Budget(gpu_milli_s=100 * 3_600_000)
    research = QueueSettings(pool="a100", guaranteed={"gpu": 2000}, weight=3, users=limits, budget=budget)
    for path, settings in (("research", research), ("research/llm", QueueSettings(maximum={"gpu": 4000}))):
        s.at(1, ev.QueueConfigured(cause="cmd:q", path=path, settings=settings, by="lead"))
    s.at(1, _labelled("n1"), _labelled("n2"))
    # 1 holds n1 to the end of the morning; its second GPU is idle from one o'clock on.
    train = submitted("1", gpus=2, project="cats", total_ns=12 * HOUR_NS, retries=2)
    spec = {"command": ["python", "train.py"], "args": ["--lr=1"], "image": "torch:2", "labels": {"team": "llm"}}
    s.at(10, _described(train, **spec), offered("1"))
    s.at(20, placed("1", n1=2), started("1"))
    # 2 runs out of memory, loses its GPU, makes way for 3, and fails in the end.
    s.at(100, submitted("2", user="bob", queue="research/llm", retries=3, project="dogs"), offered("2"))
    s.at(110, placed("2", n2=1), started("2"))
    s.at(170, ended("2", exit_code=None, signal=9, outcome="oom", released=("n2",)))
    s.at(171, ev.JobRequeued(cause="1.0", job="2", attempt=2, reason="oom"), offered("2", 2))
    s.at(180, placed("2", 2, n2=1), started("2", 2))
    s.at(3780, ended("2", 2, exit_code=None, outcome="stopped", gpu_fault="xid79", released=("n2",)))
    s.at(3781, ev.JobRequeued(cause="1.0", job="2", attempt=3, reason="gpu_fault"), offered("2", 3))
    s.at(3790, placed("2", 3, n2=1), started("2", 3))
    s.at(3900, submitted("3", gpus=2, total_ns=10 * HOUR_NS), offered("3"))
    s.at(3960, ev.PreemptionStarted(cause="1.0", job="2", attempt=3, beneficiary="3", rule="over_share"))
    s.at(3970, ended("2", 3, exit_code=None, outcome="stopped", signal=15, preempted=True, released=("n2",)))
    s.at(3971, ev.JobRequeued(cause="1.0", job="2", attempt=4, reason="preempted"))
    s.at(3980, placed("3", n2=2), started("3"))
    s.at(4040, ended("3", released=("n2",)), ev.AllocationReleased(cause="report:n2:4", job="3", attempt=1, node="n2"))
    s.at(4041, ev.JobSucceeded(cause="1.0", job="3", attempt=1), offered("2", 4))
    s.at(4050, placed("2", 4, n2=1), started("2", 4))
    s.at(4080, ended("2", 4, exit_code=3, released=("n2",)))
    s.at(4081, ev.JobFailed(cause="1.0", job="2", attempt=4, reason="exit_code", exit_code=3))
    # 4 is an array, 5 waits for 1, 6 is large and moved, 7 is cancelled.
    s.at(4100, submitted("4", gpus=0, user="bob", array=(0, 2), array_limit=2), offered("4_0"))
    s.at(4101, placed("4_0", n2=0), started("4_0"))
    s.at(4110, ended("4_0", released=("n2",)))
    s.at(4111, ev.JobSucceeded(cause="1.0", job="4_0", attempt=1))
    s.at(4200, submitted("5", after=(ev.Dependency(job="1"),)))
    large = submitted("6", gpus=2, nodes=2, user="bob")
    request = Request(nodes=2, gpu_milli=2000, cpu_milli=64_000, memory_mib=300_000)
    s.at(4210, msgspec.structs.replace(large, request=request), offered("6"))
    s.at(4220, ev.JobMoved(cause="cmd:m", job="6", queue="research/llm", by="lead"))
    s.at(4230, submitted("7"), ev.JobCancelled(cause="cmd:c", job="7", by="ada"))
    s.at(5000, ev.NodeCordoned(cause="cmd:k", node="n2", by="root", reason="fan"))
    s.at(5010, ev.NodeLost(cause="clock", node="n2", silent_ns=120 * SECOND_NS))
    s.at(5020, ev.NodeReturned(cause="report:n2:9", node="n2"))
    idle = ev.JobIdle(
        cause="clock",
        job="1",
        attempt=1,
        scope="global",
        rule="utilization",
        action="warn",
        mode="always",
        since_ns=START_NS + 3600 * SECOND_NS,
        reclaim_at_ns=0,
        evidence=(),
    )
    s.at(7000, idle)
    s.at(7200, ev.NodeUncordoned(cause="cmd:k", node="n2", by="root"))
    return s


#: {number of the question: its rows}, times as "day HH:MM:SS"
ANSWERS: dict[int, list[tuple[Any, ...]]] = {
    1: [("cancelled", 1), ("failed", 1), ("offered", 1), ("running", 1), ("scheduled", 1), ("succeeded", 2)],
    2: [("ada", 4, 0), ("bob", 3, 1)],
    3: [("1", "ada", ["n1"], 2.0, "01 00:00:20")],
    4: [("6", "bob", "research/llm", "01 01:10:10")],
    5: [("research", 3, 10.0, 66.0), ("research/llm", 1, 10.0, 10.0)],
    6: [(["python", "train.py", "--lr=1"], "torch:2", 43200.0, 2)],
    7: [(None, None, 6, 9.0), ("torch:2", "llm", 1, 2.0)],
    8: [("6", "bob", 2, 2.0)],
    9: [("6", 64.0, 300000)],
    10: [("3", "ada", 36000.0, 61.0)],
    11: [("ada", 2), ("bob", 3)],
    12: [("5", ["1"])],
    13: [("4", 3, 2, 1)],
    14: [("01 01:10:30", "7", "ada")],
    15: [("exit_code", 3, None, 1)],
    16: [("2", 1, ["n2"])],
    17: [
        (1, ["n2"], "oom", None, 9, "oom"),
        (2, ["n2"], "stopped", None, None, "gpu_fault"),
        (3, ["n2"], "stopped", None, 15, "preempted"),
        (4, ["n2"], "exited", 3, None, None),
    ],
    18: [("gpu_fault", 1, 1.0), ("oom", 1, 0.0167), ("preempted", 1, 0.05)],
    19: [("2", "bob", "3", "over_share", 180.0)],
    20: [("gpu_fault", "n2", 1, 1.0)],
    21: [("n2", 6, 1), ("n1", 1, 0)],
    22: [
        ("01 00:00:10", "JobSubmitted", None, "ada"),
        ("01 00:00:10", "JobOffered", None, "ada"),
        ("01 00:00:20", "JobPlaced", None, "ada"),
        ("01 00:00:20", "RunStarted", None, "ada"),
        ("01 01:56:40", "JobIdle", None, "ada"),
    ],
    23: [
        ("01 01:06:00", "PreemptionStarted", "2", None, "bob"),
        ("01 01:06:10", "RunEnded", "2", None, "bob"),
        ("01 01:06:11", "JobRequeued", "2", None, "bob"),
        ("01 01:06:20", "JobPlaced", "3", None, "ada"),
        ("01 01:06:20", "RunStarted", "3", None, "ada"),
        ("01 01:07:20", "RunEnded", "3", None, "ada"),
        ("01 01:07:20", "AllocationReleased", "3", "n2", "ada"),
        ("01 01:07:21", "JobSucceeded", "3", None, "ada"),
        ("01 01:07:21", "JobOffered", "2", None, "bob"),
        ("01 01:07:30", "JobPlaced", "2", None, "bob"),
        ("01 01:07:30", "RunStarted", "2", None, "bob"),
        ("01 01:08:00", "RunEnded", "2", None, "bob"),
    ],
    24: [("ada", 4.0222), ("bob", 1.075)],
    25: [
        ("2026-01", "", "NVIDIA-A100", 1.5, "EUR", "01 00:00:00", 0.0333, 0.05),
        ("2026-01", "cats", "NVIDIA-A100", 1.5, "EUR", "01 00:00:00", 3.9889, 5.98),
        ("2026-01", "dogs", "NVIDIA-A100", 1.5, "EUR", "01 00:00:00", 1.075, 1.61),
    ],
    26: [("1", "ada", 5.98, "EUR"), ("2", "bob", 1.61, "EUR"), ("3", "ada", 0.05, "EUR")],
    27: [
        ("*", 9.0, "USD", "01 00:00:00", None),
        ("NVIDIA-A100", 1.5, "EUR", "01 00:00:00", "11 00:00:00"),
        ("NVIDIA-A100", 2.5, "EUR", "11 00:00:00", None),
    ],
    28: [("1", "ada", 3.9889, 59.9443)],
    29: [("ada", "1", 1, 60)],
    30: [("1", "ada", "utilization", "warn", "01 01:00:00", None, None, None)],
    31: [("research", "a100", 2.0, None, 3), ("research/llm", "a100", None, 4.0, 1)],
    32: [("research", 100.0, 10.1944, 10.1944)],
    33: [("*", "research", 1.0), ("ada", "research", 4.0)],
    34: [("a100", "fairshare", "fragmentation", ["ada", "bob"], {"NVIDIA-A100": 2.0})],
    35: [
        ("01 00:00:01", "QueueConfigured", "research", "lead"),
        ("01 00:00:01", "QueueConfigured", "research/llm", "lead"),
    ],
    36: [("6", "research/llm", "bob")],
    37: [("n1", "held", 2, None), ("n2", "free", 2, None)],
    38: [("n1", "ready", "NVIDIA A100", 2, 0), ("n2", "ready", "NVIDIA A100", 2, 1)],
    39: [("01 01:23:20", "NodeCordoned", "n2", "root"), ("01 02:00:00", "NodeUncordoned", "n2", "root")],
}
