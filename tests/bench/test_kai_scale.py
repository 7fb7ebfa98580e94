"""KAI-Scheduler's scale tests equal their descriptions, and can be run: here on a few nodes, without a clock."""

from pathlib import Path

import msgspec
import pytest

from bench.kai import load as kai_load
from bench.kai import scale as kai_scale
from bench.kai.load import Size
from fairlead_schemas.jobfile import job_spec, resolve

SMALL = Size(nodes=5, gpus=4, gang=6, samples=2, gangs=2, pods=2)


def test_the_loads_are_the_published_ones() -> None:
    """500 × 8 GPUs; 512 pods of 2; 80 GPUs where 79 may be taken back; 50 × 10 pods of 5, one to a node."""
    size = Size()
    assert (size.total, size.gang, size.large, size.gangs * size.pods, size.per_pod) == (4000, 512, 80, 500, 5)
    jobs = [
        kai_load.one_gpu(kai_load.FILL),
        kai_load.shared_gang(size),
        kai_load.too_large(size),
        kai_load.reclaiming_gang(size),
    ]
    requests = [
        resolve.resolve(job_spec.decode_job(msgspec.json.encode(job)), command_id="1", user="bench").request
        for job in jobs
    ]
    assert [(r.nodes, r.gpu_milli, r.tasks) for r in requests] == [
        (1, 1000, False),
        (512, 2000, True),
        (10, 8000, False),
        (10, 5000, False),
    ]


@pytest.mark.nats
async def test_every_row_is_measured_on_a_real_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each starts from the state of the one before it, and ends; its duration here does not matter."""
    monkeypatch.setenv("FAIRLEAD_BENCH_DIR", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", "")
    rows = [row async for row in kai_scale.measure(SMALL)]
    assert [(row.goal, row.ceiling.rpartition(" figure: ")[2]) for row in rows] == [
        ("< 1 s", "49 s"),
        ("< 8 s", "398 s"),
        ("< 0.2 s", "249 s"),
        ("< 0.5 s", "13.9 s"),
        ("< 10 s", "717 s"),
    ]
