"""Cost of the watch for idle runs: CPU per second of samples, per look at all runs, and memory.

    python -m bench.idle [--nodes 1750] [--gpus 8] [--seconds 20] [--busy 70]

Nodes are made up, one run on each; so many of a hundred work, the others are idle. Seven signals are asked about. The baseline in the
same run decodes the same batches, which ingest does anyway. One JSON line.
"""

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable

from fairlead_schemas.policies.idle import IdlePolicy
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.samples import GpuSample, RunResources, SampleBatch, decode_samples, encode_samples
from fairlead_telemetry.idle.questions import ActivityQuestion
from fairlead_telemetry.idle.state import RunDevices
from fairlead_telemetry.idle.watch import ActivityWatch

POLICY = IdlePolicy(
    rule="utilization",
    action="stop",
    after_ns=1800 * SECOND_NS,
    notice_ns=600 * SECOND_NS,
    below={
        "gpu": 50,
        "memory_traffic": 30,
        "power": 60_000,
        "gpu_links": 5_000_000,
        "cpu": 500,
        "network": 200_000,
        "disk": 500_000,
    },
)


def batches(nodes: int, gpus: int, second: int, busy: int) -> list[SampleBatch]:
    """Return the batches of all nodes at one second."""
    return [_batch(number, gpus, second, is_busy=number % 100 < busy) for number in range(nodes)]


def _batch(number: int, gpus: int, second: int, *, is_busy: bool) -> SampleBatch:
    run = f"{number + 1}.1"
    samples = [
        GpuSample(
            uuid=f"GPU-{number:08x}-{index}",
            run=run,
            utilization_pct=90 if is_busy else second % 4,
            memory_used_mib=40_000,
            memory_busy_pct=1,
            power_mw=70_000,
            pcie_tx_bytes_s=1000,
            pcie_rx_bytes_s=1000,
            nvlink_tx_kib=second * 10,
            nvlink_rx_kib=second * 10,
        )
        for index in range(gpus)
    ]
    rank = RunResources(
        run=run,
        cpu_ms=second * (7000 if is_busy else 7),
        network_rx_bytes=second * 9000,
        network_tx_bytes=0,
        disk_read_bytes=0,
        disk_written_bytes=0,
    )
    return SampleBatch(
        node=f"n{number}", incarnation="a", n=second, at_ns=second * SECOND_NS, gpus=samples, resources=[rank]
    )


def questions(nodes: int, gpus: int) -> list[ActivityQuestion]:
    """Return a question for each run."""
    return [
        ActivityQuestion(
            job=str(number + 1),
            attempt=1,
            rule="utilization",
            started_ns=0,
            below=POLICY.below,
            after_ns=POLICY.after_ns,
            parts=(RunDevices(f"n{number}", tuple(f"GPU-{number:08x}-{index}" for index in range(gpus))),),
            is_idle=False,
        )
        for number in range(nodes)
    ]


def cpu_s(work: Callable[[], object]) -> float:
    """CPU seconds of this process for it."""
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    """Print the line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("--nodes", 1750), ("--gpus", 8), ("--seconds", 20), ("--busy", 70)):
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    watch, wanted = ActivityWatch(), questions(options.nodes, options.gpus)
    tracemalloc.start()
    watch.follow(wanted)
    for second in (1, 2):
        for batch in batches(options.nodes, options.gpus, second, options.busy):
            watch.take(batch, batch.at_ns)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    taking = decoding = looking = 0.0
    for second in range(3, 3 + options.seconds):
        payloads = [encode_samples(batch) for batch in batches(options.nodes, options.gpus, second, options.busy)]
        decoded: list[SampleBatch] = []
        decoding += cpu_s(lambda into=decoded, of=payloads: into.extend(decode_samples(each) for each in of))
        taking += cpu_s(lambda of=decoded, at=second: [watch.take(each, at * SECOND_NS) for each in of])
    for _ in range(3):
        looking += cpu_s(lambda: (watch.follow(wanted), watch.answers((3 + options.seconds) * SECOND_NS))) / 3
    print(
        json.dumps(
            {
                "nodes": options.nodes,
                "gpus": options.nodes * options.gpus,
                "busy_pct": options.busy,
                "cpu_s_per_second_of_samples": round(taking / options.seconds, 4),
                "decoding_the_same_s": round(decoding / options.seconds, 4),
                "cpu_s_per_look_every_5_s": round(looking, 4),
                "mib": round(held / 2**20, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
