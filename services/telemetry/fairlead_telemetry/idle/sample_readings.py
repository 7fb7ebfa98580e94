"""Batch of samples as the watch reads it. Only this module knows the layout of samples.

None means "not known" throughout: a value that a node cannot report must not look like rest.
"""

from typing import NamedTuple

from fairlead_schemas.wire.samples import GpuSample, RunResources, SampleBatch


class GpuReading(NamedTuple):
    """Values of one GPU at one moment."""

    busy_permille: int | None
    memory_permille: int | None
    power_mw: int | None
    #: Over PCIe, bytes per second.
    pcie_bytes_s: int | None
    #: Over NVLink, KiB since the driver was loaded.
    nvlink_kib: int | None
    is_free: bool


class RunReading(NamedTuple):
    """Values of one rank at one moment; counters since its start."""

    cpu_ms: int | None
    network_bytes: int | None
    disk_bytes: int | None
    #: Unix ns of the last presence of a user; 0: none since its start.
    terminal_ns: int | None
    proxy_ns: int | None


class NodeReading(NamedTuple):
    """All that a node says at one moment."""

    node: str
    incarnation: str
    at_ns: int
    gpus: dict[str, GpuReading]
    #: {"<job>.<attempt>": its rank here}
    runs: dict[str, RunReading]
    #: {(GPU's UUID, "<job>.<attempt>"): its own part of the GPU's time in thousandths}, where the driver tells.
    shares: dict[tuple[str, str], int]


def read_batch(batch: SampleBatch) -> NodeReading:
    """The batch in the watch's words."""
    told = {use.uuid for use in batch.uses if use.utilization_pct}
    return NodeReading(
        batch.node,
        batch.incarnation,
        batch.at_ns,
        {sample.uuid: _gpu(sample) for sample in batch.gpus},
        {resources.run: _run(resources) for resources in batch.resources},
        # 0 is also what a driver says that does not know; where it knows of one process, it knows of all on that GPU.
        {(use.uuid, use.run): use.utilization_pct * 10 for use in batch.uses if use.uuid in told},
    )


def _gpu(sample: GpuSample) -> GpuReading:
    busy = _permille(sample.utilization_pct)
    if not busy and sample.memory_busy_pct is None and sample.engine_permille is None:
        busy = None  # the driver reports both or neither, and 0 means neither
    return GpuReading(
        busy,
        sample.dram_permille if sample.dram_permille is not None else _permille(sample.memory_busy_pct),
        sample.power_mw or None,
        _sum(sample.pcie_tx_bytes_s, sample.pcie_rx_bytes_s),
        _sum(sample.nvlink_tx_kib, sample.nvlink_rx_kib),
        not sample.run,
    )


def _run(resources: RunResources) -> RunReading:
    return RunReading(
        resources.cpu_ms,
        _sum(resources.network_rx_bytes, resources.network_tx_bytes),
        _sum(resources.disk_read_bytes, resources.disk_written_bytes),
        resources.terminal_ns,
        resources.proxy_ns,
    )


def _permille(percent: int | None) -> int | None:
    return percent * 10 if percent is not None else None


def _sum(one: int | None, other: int | None) -> int | None:
    """Both directions; None unless both are known."""
    return one + other if one is not None and other is not None else None
