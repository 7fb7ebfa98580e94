"""The watch by itself: what a stretch of samples says, and when it says nothing."""

import random

import msgspec
import pytest

from fairlead_schemas.policies.idle import IdleSignal
from fairlead_schemas.wire.samples import GpuSample, RunResources, RunUse, SampleBatch
from fairlead_telemetry.idle.idle_windows import IdleWindow, RisingCounter, over_parts
from fairlead_telemetry.idle.limits import UNSEEN_NS
from fairlead_telemetry.idle.questions import ActivityQuestion, SignalReading
from fairlead_telemetry.idle.state import RunDevices
from fairlead_telemetry.idle.watch import ActivityWatch

SECOND = 10**9
T0 = 1_800_000_000 * SECOND


def question(below: dict[IdleSignal, int], *, devices: tuple[str, ...] = ("G0",), **more) -> ActivityQuestion:
    fields = {
        "job": "1",
        "attempt": 1,
        "rule": "utilization",
        "parts": (RunDevices("n1", devices),),
        "started_ns": T0,
        "below": below,
        "after_ns": 60 * SECOND,
        "is_idle": True,
    } | more
    return ActivityQuestion(**fields)


def gpu(uuid: str = "G0", **fields) -> GpuSample:
    return GpuSample(
        **{"uuid": uuid, "run": "1.1", "utilization_pct": 0, "memory_used_mib": 0, "memory_busy_pct": 0} | fields
    )


def batch(
    at_s: float, *gpus: GpuSample, node: str = "n1", uses: list[RunUse] | None = None, **rank: int | None
) -> SampleBatch:
    resources: list[RunResources] = [RunResources(run="1.1", **rank)]  # type: ignore[arg-type] -- fields by name
    return SampleBatch(
        node=node,
        incarnation="a",
        n=1,
        at_ns=T0 + int(at_s * SECOND),
        gpus=list(gpus),
        uses=uses or [],
        resources=resources,
    )


def seen(watch: ActivityWatch, at_s: float) -> dict[IdleSignal, SignalReading]:
    """{signal: reading} of the first question."""
    return dict(watch.answers(T0 + int(at_s * SECOND))[0].readings)


def watching(below: dict[IdleSignal, int], **more) -> ActivityWatch:
    watch = ActivityWatch()
    watch.follow([question(below, **more)])
    return watch


def feed(watch: ActivityWatch, *batches: SampleBatch) -> None:
    for each in batches:
        watch.take(each, each.at_ns)


def test_a_stretch_is_what_a_list_of_all_values_says() -> None:
    """Against a plain list, over random values with gaps: since when, the highest, the mean, the newest rise."""
    rng = random.Random(7)
    for _ in range(300):
        stretch, at_ns, values = IdleWindow(50), T0, []
        for _ in range(rng.randrange(1, 60)):
            at_ns += rng.choice((1, 1, 1, 5, 14, 16, 40)) * SECOND
            value = rng.choice((0, 10, 49, 49, 50, 90))
            values.append((at_ns, value))
            stretch.add(at_ns, value, value, 1)
        kept: list[tuple[int, int]] = []
        for at, value in values:
            if kept and at - kept[-1][0] > UNSEEN_NS:
                kept = []
            kept = [*kept, (at, value)] if value < 50 else []
        found = stretch.reading(at_ns)
        assert found is not None
        risen = [(value, at) for at, value in values if value >= 50]
        assert (found.rose, found.rose_ns) == (risen[-1] if risen else (0, 0))
        assert found.since_ns == (kept[0][0] if kept else 0)
        if kept:
            low = [value for _, value in kept]
            assert (found.highest, found.mean, found.samples) == (max(low), sum(low) // len(low), len(low))
        assert stretch.reading(at_ns + UNSEEN_NS + 1) is None


def test_another_threshold_keeps_what_it_can() -> None:
    """Lower than what was seen: that was no rest. Higher: what was seen stays."""
    stretch = IdleWindow(50)
    for second in range(10):
        stretch.add(T0 + second * SECOND, 30, 30, 1)
    stretch.ask(80)
    assert stretch.reading(T0 + 9 * SECOND) == SignalReading(T0, 30, 30, 10)
    stretch.ask(30)
    found = stretch.reading(T0 + 9 * SECOND)
    assert found is not None
    assert (found.since_ns, found.rose) == (0, 30)


def test_counters_become_rates() -> None:
    """Per second of the node's clock; unknown at first, after a fall, and after a gap."""
    counter = RisingCounter()
    assert counter.rate(1000, T0, 1) is None
    assert counter.rate(3000, T0 + 2 * SECOND, 1) == 1000
    assert counter.rate(3500, T0 + 4 * SECOND, 1024) == 256_000
    assert counter.rate(10, T0 + 5 * SECOND, 1) is None
    assert counter.rate(20, T0 + 6 * SECOND, 1) == 10
    assert counter.rate(20, T0 + 6 * SECOND + UNSEEN_NS + 1, 1) is None


def test_units() -> None:
    """Thousandths, milliwatts above rest, bytes per second, milli-CPU: as IdleEvidence says."""
    below: dict[IdleSignal, int] = dict.fromkeys(
        ("gpu", "memory_traffic", "power", "gpu_links", "cpu", "network", "disk"), 10**12
    )
    watch = watching(below)
    feed(watch, batch(0, gpu(run="", power_mw=50_000)))
    for at_s in (1, 3):
        feed(
            watch,
            batch(
                at_s,
                gpu(
                    utilization_pct=7,
                    memory_busy_pct=3,
                    power_mw=80_000,
                    pcie_tx_bytes_s=10,
                    pcie_rx_bytes_s=20,
                    nvlink_tx_kib=at_s * 100,
                    nvlink_rx_kib=at_s * 100,
                ),
                cpu_ms=at_s * 500,
                network_rx_bytes=at_s * 1000,
                network_tx_bytes=0,
                disk_read_bytes=at_s * 3,
                disk_written_bytes=at_s,
            ),
        )
    assert {signal: one.highest for signal, one in seen(watch, 3).items()} == {
        "gpu": 70,
        "memory_traffic": 30,
        "power": 30_000,
        "gpu_links": 200 * 1024 + 30,
        "cpu": 500,
        "network": 1000,
        "disk": 4,
    }


@pytest.mark.parametrize(
    ("signal", "fields"),
    [
        ("gpu", {"memory_busy_pct": None}),
        ("memory_traffic", {"memory_busy_pct": None}),
        ("power", {"power_mw": 80_000}),
        ("gpu_links", {"pcie_tx_bytes_s": 5}),
        ("cpu", {}),
        ("network", {}),
        ("disk", {}),
        ("terminal", {}),
        ("proxy", {}),
    ],
)
def test_unknown_signals_are_missing(signal: IdleSignal, fields: dict) -> None:
    """A driver without utilisation reports 0; a GPU that was never seen free has no baseline; one direction is no
    traffic."""
    watch = watching({signal: 10**12})
    feed(watch, *(batch(at_s, gpu(**fields)) for at_s in range(1, 20 if signal != "cpu" else 2)))
    assert seen(watch, 19 if signal != "cpu" else 1) == {}


def test_untimely_batches_are_lost() -> None:
    """From the future, from long ago, doubled or out of order: they say nothing."""
    watch = watching({"gpu": 50})
    for each, now_s in ((batch(10), 4), (batch(10), 71), (batch(20), 14)):
        watch.take(each, T0 + now_s * SECOND)
    assert watch.untimely == 3
    feed(watch, batch(30, gpu()))
    for again in (batch(30, gpu(utilization_pct=90)), batch(25, gpu(utilization_pct=90))):
        watch.take(again, T0 + 31 * SECOND)
    assert seen(watch, 31)["gpu"] == SignalReading(T0 + 30 * SECOND, 0, 0, 1)


def test_a_lost_stretch_of_samples_restarts_the_time() -> None:
    """Its content is unknown."""
    watch = watching({"gpu": 50})
    feed(watch, *(batch(at_s, gpu()) for at_s in (0, 5, 10, 26, 30)))
    assert seen(watch, 30)["gpu"].since_ns == T0 + 26 * SECOND


def test_every_device_of_a_part_must_be_there() -> None:
    """Two GPUs, one of which the node does not name; a GPU that is cut, of which it names the whole."""
    watch = watching({"gpu": 50}, devices=("G0", "G1"))
    feed(watch, batch(1, gpu("G0")))
    assert seen(watch, 1) == {}
    watch = watching({"gpu": 50}, devices=("MIG-0",))
    feed(watch, batch(1, gpu("G0")))
    assert seen(watch, 1) == {}


def test_a_shared_gpu_is_judged_by_the_run_s_own_part_where_the_driver_tells() -> None:
    """Else by the whole GPU: its neighbour's work counts as its own."""
    busy = gpu(utilization_pct=90)
    watch = watching({"gpu": 50})
    feed(watch, batch(1, busy))
    assert seen(watch, 1)["gpu"].since_ns == 0
    silent = [RunUse(uuid="G0", run="1.1"), RunUse(uuid="G0", run="2.1")]
    watch = watching({"gpu": 50})
    feed(watch, batch(1, busy, uses=silent))
    assert seen(watch, 1)["gpu"].since_ns == 0
    told = [RunUse(uuid="G0", run="1.1", utilization_pct=2), RunUse(uuid="G0", run="2.1", utilization_pct=88)]
    watch = watching({"gpu": 50})
    feed(watch, batch(1, busy, uses=told))
    assert seen(watch, 1)["gpu"] == SignalReading(T0 + SECOND, 20, 20, 1)


def test_over_parts_the_worst_counts() -> None:
    """Since the last of them; as high as the highest; missing if on one."""
    one, other = SignalReading(T0, 5, 4, 10, 7, T0 - 5), SignalReading(T0 + 9, 8, 2, 30)
    assert over_parts([one, other]) == SignalReading(T0 + 9, 8, 2, 40, 7, T0 - 5)
    assert over_parts([one, None]) is None
    assert over_parts([]) is None


def test_runs_that_are_no_longer_watched_are_forgotten() -> None:
    """Memory is that of the watched runs; continuing ones are kept."""
    watch = ActivityWatch()
    watch.follow(
        [question({"gpu": 50}, job=str(number), parts=(RunDevices(f"n{number}", ("G0",)),)) for number in range(50)]
    )
    feed(watch, batch(1, gpu(), node="n3"))
    watch.follow([question({"gpu": 50}, job="3", parts=(RunDevices("n3", ("G0",)),), attempt=1)])
    assert seen(watch, 1)["gpu"].samples == 1
    watch.follow([question({"gpu": 50}, job="3", parts=(RunDevices("n3", ("G0",)),), attempt=2)])
    assert seen(watch, 1) == {}
    watch.follow([])
    assert not watch.asks
    assert watch.answers(T0) == []


def test_batches_are_read_as_they_come_from_the_wire() -> None:
    """None of what a batch may leave out breaks the reading."""
    watch = watching({"gpu": 50, "cpu": 5})
    bare = msgspec.json.decode(
        msgspec.json.encode(SampleBatch(node="n1", incarnation="a", n=1, at_ns=T0)), type=SampleBatch
    )
    feed(watch, bare)
    assert seen(watch, 0) == {}
