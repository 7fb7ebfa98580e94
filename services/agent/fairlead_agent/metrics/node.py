"""What dcgm-exporter has no words for: runs, who uses what of a GPU, the agent itself. Base units, as Prometheus asks. Pure."""

from collections.abc import Iterator, Mapping
from typing import Literal

from fairlead_agent.devices.facts import SLOWDOWNS
from fairlead_agent.metrics.dcgm import families
from fairlead_agent.metrics.exposition import Family, Sample, text
from fairlead_agent.metrics.facts import NodeFacts
from fairlead_schemas.samples import RunResources, RunUse

MIB = 2**20


def exposition(facts: NodeFacts) -> bytes:
    """Everything that the node tells."""
    return text([*families(facts), *_gpus(facts), *_uses(facts), *_agent(facts)])


def _gpus(facts: NodeFacts) -> Iterator[Family]:
    answered = {sample.uuid for sample in facts.samples}
    labels = {gpu.uuid: {"gpu": str(gpu.index), "UUID": gpu.uuid} for gpu in facts.gpus}
    lost = [Sample(labels[uuid], uuid not in answered) for uuid in labels if facts.age_s is not None]
    yield Family("fairlead_gpu_lost", "gauge", "1 for a GPU that does not answer.", lost)
    yield Family("fairlead_gpu_held", "gauge", "Runs that have the GPU; 0: it is free.", [
        Sample(labels[gpu.uuid], sum(len(facts.holders.get(each, ())) for each in (gpu.uuid, *(i.uuid for i in gpu.instances))))
        for gpu in facts.gpus
    ])  # fmt: skip
    yield Family("fairlead_gpu_slowdown", "gauge", "1 while this holds the GPU's clocks down.", [
        Sample({**labels[uuid], "reason": reason}, reason in health.slowdowns)
        for uuid, health in facts.health.items() if uuid in labels and health.slowdowns is not None
        for reason in SLOWDOWNS
    ])  # fmt: skip
    yield Family("fairlead_gpu_xids_total", "counter", "XIDs since the agent's start.", [
        Sample(labels[uuid], facts.xids[uuid].total if uuid in facts.xids else 0) for uuid in labels
    ])  # fmt: skip


#: Counter or gauge of what a rank uses of its node: (name, kind, help, field, times).
_RESOURCES: tuple[tuple[str, Literal["gauge", "counter"], str, str, float], ...] = (
    ("fairlead_run_cpu_seconds_total", "counter", "CPU time of a rank.", "cpu_ms", 0.001),
    ("fairlead_run_memory_bytes", "gauge", "Memory of a rank, without caches.", "memory_mib", MIB),
    ("fairlead_run_disk_read_bytes_total", "counter", "Bytes that a rank has read from disks.", "disk_read_bytes", 1),
    ("fairlead_run_disk_written_bytes_total", "counter", "Bytes that a rank has written to disks.", "disk_written_bytes", 1),
    ("fairlead_run_network_received_bytes_total", "counter", "Bytes that came over the network of a rank's own.", "network_rx_bytes", 1),
    ("fairlead_run_network_sent_bytes_total", "counter", "Bytes that went over the network of a rank's own.", "network_tx_bytes", 1),
)  # fmt: skip


def _uses(facts: NodeFacts) -> Iterator[Family]:
    yield Family("fairlead_run_gpu_memory_bytes", "gauge", "GPU memory that a rank's processes use.", [
        Sample({"UUID": use.uuid, **_whose(facts, use)}, use.memory_mib * MIB) for use in facts.uses
    ])  # fmt: skip
    yield Family("fairlead_run_gpu_utilization_ratio", "gauge", "Part of a GPU's time that a rank's processes use.", [
        Sample({"UUID": use.uuid, **_whose(facts, use)}, use.utilization_pct / 100) for use in facts.uses
    ])  # fmt: skip
    for name, kind, words, field, times in _RESOURCES:
        told = [(each, getattr(each, field)) for each in facts.resources]
        samples = [Sample(_whose(facts, each), value * times) for each, value in told if value is not None]
        yield Family(name, kind, words, samples)


def _whose(facts: NodeFacts, use: RunUse | RunResources) -> Mapping[str, str]:
    owner = facts.owners.get(use.run)
    return {"rank": str(use.rank), **(owner.labels if owner else {"hpc_job": use.run.partition(".")[0]})}


def _agent(facts: NodeFacts) -> Iterator[Family]:
    info = {"node": facts.node, "devices": facts.devices, "simulated": str(facts.simulated).lower()}
    yield Family("fairlead_node_info", "gauge", "Always 1; simulated is true where GPUs are played.", [Sample(info, 1)])
    yield Family("fairlead_node_runs", "gauge", "Runs in the agent's journal, by phase.", [
        Sample({"phase": phase}, count) for phase, count in facts.runs.items()
    ])  # fmt: skip
    yield _single(
        "fairlead_node_unconfirmed_reports", "gauge", "Reports that the placer has not confirmed.", facts.unconfirmed
    )
    yield _single(
        "fairlead_node_gate_closed",
        "gauge",
        "1 while the node takes no work until it has passed its tests.",
        facts.gate_closed,
    )
    yield _single(
        "fairlead_node_disk_full", "gauge", "1 while the agent's disk has no room for its journal.", facts.disk_full
    )
    yield _single("fairlead_node_sample_batches_total", "counter", "Batches of samples that were taken.", facts.batches)
    if facts.age_s is not None:
        yield _single(
            "fairlead_node_sample_age_seconds", "gauge", "How old the numbers of this page are.", round(facts.age_s, 3)
        )


def _single(name: str, kind: Literal["gauge", "counter"], help: str, value: float) -> Family:
    return Family(name, kind, help, [Sample({}, value)])
