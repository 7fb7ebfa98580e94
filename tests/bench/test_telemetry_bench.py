"""The benchmarks of samples measure what they say."""

import numpy as np

from bench.telemetry import disk, stalls
from bench.telemetry.load import GPUS, Node
from bench.telemetry.model import METRICS, SECONDS, gpu_day
from fairlead_schemas.wire.samples import decode_samples


def test_the_same_seed_is_the_same_day() -> None:
    """All three kinds of work occur, every metric has a value at every second, and numbers are not round."""
    told, runs = gpu_day(3)
    again, _ = gpu_day(3)
    assert all((told[name] == again[name]).all() for name in METRICS)
    assert {len(column) for column in told.values()} == {SECONDS} == {len(runs)}
    assert all((told["power_mw"] >= 0) & (told["utilization_pct"] <= 100))
    assert len(np.unique(told["power_mw"] % 1000)) > 900
    assert (np.diff(told["energy_mj"]) > 0).all()


def test_the_load_is_what_agents_send() -> None:
    """Each batch decodes, numbered from 1, of 8 GPUs."""
    days = [gpu_day(gpu) for gpu in range(GPUS)]
    pattern = (np.array([[told[name] for told, _ in days] for name in METRICS]), [runs for _, runs in days])
    node = Node(7, [pattern])
    batches = [decode_samples(node.next()) for _ in range(3)]
    assert [batch.n for batch in batches] == [1, 2, 3]
    assert {len(batch.gpus) for batch in batches} == {GPUS}
    assert all(gpu.power_mw is not None and gpu.uuid.startswith("GPU-00000007") for gpu in batches[0].gpus)


def test_a_day_on_disk_is_counted() -> None:
    """Rows and sizes are those of the file."""
    found = disk.measure(1)
    assert found.samples == SECONDS
    assert 1 < found.parquet_bytes < found.raw_bytes
    assert abs(sum(found.by_column.values()) - found.parquet_bytes) < 0.5


def test_stalls_are_measured_both_ways() -> None:
    """Of the same batches; the longest is no shorter than the mean."""
    found = stalls.measure(nodes=3, seconds=4)
    assert set(found) == {"settled", "by_itself"}
    assert all(0 < held.mean_ms <= held.longest_ms for held in found.values())
