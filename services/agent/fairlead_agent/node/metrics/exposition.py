"""Metrics of a node for Prometheus: GPUs under the names, units and labels of NVIDIA's dcgm-exporter, so that boards made
for it work. Runs and the agent, for which it has no names, have ours, in base units. Pure.

What a GPU does not say has no series. Of the counters that dcgm-exporter has on by default one is missing:
DCGM_FI_DEV_VGPU_LICENSE_STATUS (we run no virtual GPUs). DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL, of which its list names no
unit, counts KiB of payload, both ways together. DCGM_FI_DEV_XID_ERRORS is the newest XID since the agent's start, 0 without one.

The text format 0.0.4 is written here because the client library names counters by its own rule (`_total`), and dcgm-exporter's
counters do not follow it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from fairlead_agent.devices.port import SLOWDOWNS, GpuHealth
from fairlead_schemas.wire.resources import Gpu
from fairlead_schemas.wire.samples import GpuSample, RunResources, RunUse

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """Current value of one series. A label without a value is left out: to Prometheus both are the same."""

    labels: Mapping[str, str]
    value: float


class Family(NamedTuple):
    """All series of one name."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    samples: list[Sample]


def text(families: Iterable[Family]) -> bytes:
    """The exposition; families without samples are left out."""
    lines: list[str] = []
    for family in families:
        if family.samples:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
            lines += [f"{family.name}{_labels(sample.labels)} {_number(sample.value)}" for sample in family.samples]
    return "".join(f"{line}\n" for line in lines).encode()


def _labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items() if value)
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


class Owner(NamedTuple):
    """Owner of a run, from its order; user and queue are "" until a restarted agent has received them."""

    job: str
    attempt: int
    rank: int
    user: str = ""
    queue: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """`hpc_job` is dcgm-exporter's word; a label called `job` is Prometheus' own."""
        return {"hpc_job": self.job, "user": self.user, "queue": self.queue}


class Xids(NamedTuple):
    """XIDs of one GPU since the agent's start."""

    newest: int = 0
    total: int = 0


class NodeFacts(NamedTuple):
    """All of it, of the newest look at each."""

    node: str
    #: The adapter's name, and whether it plays.
    devices: str = "none"
    simulated: bool = False
    driver_version: str = ""
    gpus: Sequence[Gpu] = ()
    samples: Sequence[GpuSample] = ()
    #: Seconds since those were taken; None before the first ones.
    age_s: float | None = None
    #: {UUID}.
    health: Mapping[str, GpuHealth] = {}
    xids: Mapping[str, Xids] = {}
    #: {UUID of a GPU or MIG instance: who has it, the longest first}.
    holders: Mapping[str, Sequence[Owner]] = {}
    uses: Sequence[RunUse] = ()
    resources: Sequence[RunResources] = ()
    #: {"<job>.<attempt>": whose it is}.
    owners: Mapping[str, Owner] = {}
    #: {phase: runs}; reports that the placer has not confirmed.
    runs: Mapping[str, int] = {}
    unconfirmed: int = 0
    gate_closed: bool = False
    disk_full: bool = False
    batches: int = 0


type Of[T] = Callable[[T], float | None]


class Metric[T](NamedTuple):
    """Metric of dcgm-exporter: its name, and the value that it is computed from."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    of: Of[T]


def _thousandths(of: Callable[[GpuSample], int | None]) -> Of[GpuSample]:
    return lambda sample: None if (value := of(sample)) is None else value / 1000


def _both(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


SAMPLED: tuple[Metric[GpuSample], ...] = (
    Metric("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", lambda s: s.sm_clock_mhz),
    Metric("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", lambda s: s.memory_clock_mhz),
    Metric("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C).", lambda s: s.memory_temperature_c),
    Metric("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", lambda s: s.temperature_c),
    Metric("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", _thousandths(lambda s: s.power_mw)),
    Metric("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Energy since the driver was loaded (in mJ).", lambda s: s.energy_mj),
    Metric("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "Traffic from the GPU over PCIe (in bytes per second).", lambda s: s.pcie_tx_bytes_s),
    Metric("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "Traffic to the GPU over PCIe (in bytes per second).", lambda s: s.pcie_rx_bytes_s),
    Metric("DCGM_FI_DEV_GPU_UTIL", "gauge", "Part of the time in which any kernel ran (in %).", lambda s: s.utilization_pct),
    Metric("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Part of the time in which memory was read or written (in %).", lambda s: s.memory_busy_pct),
    Metric("DCGM_FI_DEV_ENC_UTIL", "gauge", "Encoder utilization (in %).", lambda s: s.encoder_pct),
    Metric("DCGM_FI_DEV_DEC_UTIL", "gauge", "Decoder utilization (in %).", lambda s: s.decoder_pct),
    Metric("DCGM_FI_DEV_FB_FREE", "gauge", "Memory free (in MiB).", lambda s: s.memory_free_mib),
    Metric("DCGM_FI_DEV_FB_USED", "gauge", "Memory used (in MiB).", lambda s: s.memory_used_mib),
    Metric("DCGM_FI_DEV_FB_RESERVED", "gauge", "Memory reserved by the driver (in MiB).", lambda s: s.memory_reserved_mib),
    Metric("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "counter", "Payload over all NVLinks, both ways (in KiB).", lambda s: _both(s.nvlink_tx_kib, s.nvlink_rx_kib)),
    Metric("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Part of the time in which the graphics engine was active.", _thousandths(lambda s: s.engine_permille)),
    Metric("DCGM_FI_PROF_SM_ACTIVE", "gauge", "Part of the time in which an SM had a warp, over all SMs.", _thousandths(lambda s: s.sm_permille)),
    Metric("DCGM_FI_PROF_SM_OCCUPANCY", "gauge", "Warps on SMs, of the most that there can be.", _thousandths(lambda s: s.sm_occupancy_permille)),
    Metric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Part of the time in which tensor pipes were active.", _thousandths(lambda s: s.tensor_permille)),
    Metric("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Part of the time in which the memory interface moved data.", _thousandths(lambda s: s.dram_permille)),
    Metric("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "gauge", "Part of the time in which FP64 pipes were active.", _thousandths(lambda s: s.fp64_permille)),
    Metric("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "gauge", "Part of the time in which FP32 pipes were active.", _thousandths(lambda s: s.fp32_permille)),
    Metric("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "gauge", "Part of the time in which FP16 pipes were active.", _thousandths(lambda s: s.fp16_permille)),
)  # fmt: skip
COUNTED: tuple[Metric[GpuHealth], ...] = (
    Metric("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Replays over PCIe.", lambda h: h.pcie_replays),
    Metric("DCGM_FI_DEV_POWER_VIOLATION", "counter", "Time in which power held clocks down (in ns).", lambda h: h.power_held_ns),
    Metric("DCGM_FI_DEV_THERMAL_VIOLATION", "counter", "Time in which heat held clocks down (in ns).", lambda h: h.heat_held_ns),
    Metric("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Single-bit errors since the driver was loaded.", lambda h: h.ecc_volatile_correctable),
    Metric("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Double-bit errors since the driver was loaded.", lambda h: h.ecc_volatile_uncorrectable),
    Metric("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "counter", "Single-bit errors of the GPU's life.", lambda h: h.ecc_aggregate_correctable),
    Metric("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "counter", "Double-bit errors of the GPU's life.", lambda h: h.ecc_aggregate_uncorrectable),
    Metric("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped for uncorrectable errors.", lambda h: h.rows_remapped_uncorrectable),
    Metric("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped for correctable errors.", lambda h: _correctable(h)),
    Metric("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether remapping a row has failed.", lambda h: h.remap_failed),
)  # fmt: skip
XID = Metric[int]("DCGM_FI_DEV_XID_ERRORS", "gauge", "Newest XID error.", lambda code: code)


def _correctable(health: GpuHealth) -> int | None:
    if health.rows_remapped is None or health.rows_remapped_uncorrectable is None:
        return None
    return health.rows_remapped - health.rows_remapped_uncorrectable


def families(facts: NodeFacts) -> list[Family]:
    """All of them, of the GPUs that answered."""
    labels = {gpu.uuid: gpu_labels(facts, gpu) for gpu in facts.gpus}
    there = [sample for sample in facts.samples if sample.uuid in labels]
    healths = [facts.health[sample.uuid] for sample in there if sample.uuid in facts.health]
    codes = {sample.uuid: facts.xids[sample.uuid].newest if sample.uuid in facts.xids else 0 for sample in there}
    return [
        *(_family(metric, ((labels[each.uuid], metric.of(each)) for each in there)) for metric in SAMPLED),
        *(_family(metric, ((labels[each.uuid], metric.of(each)) for each in healths)) for metric in COUNTED),
        _family(XID, ((labels[uuid], code) for uuid, code in codes.items())),
    ]


def gpu_labels(facts: NodeFacts, gpu: Gpu) -> dict[str, str]:
    """dcgm-exporter's, then whose the GPU is: of several that share it, the one that has it longest."""
    health, holders = facts.health.get(gpu.uuid), facts.holders.get(gpu.uuid, ())
    return {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": (health.pcie_bus_id or "") if health else "",
        "device": f"nvidia{gpu.index}",
        "modelName": gpu.model,
        "Hostname": facts.node,
        "DCGM_FI_DRIVER_VERSION": facts.driver_version,
        **(holders[0].labels if holders else {}),
    }


def _family(metric: Metric, values: Iterable[tuple[dict[str, str], float | None]]) -> Family:
    samples = [Sample(labels, value) for labels, value in values if value is not None]
    return Family(metric.name, metric.kind, metric.help, samples)


MIB = 2**20


def exposition(facts: NodeFacts) -> bytes:
    """Everything that the node tells."""
    return text([*families(facts), *_gpus(facts), *_uses(facts), *_agent(facts)])


def _gpus(facts: NodeFacts) -> Iterator[Family]:
    answered = {sample.uuid for sample in facts.samples}
    labels = {gpu.uuid: {"gpu": str(gpu.index), "UUID": gpu.uuid} for gpu in facts.gpus}
    lost = [Sample(labels[uuid], uuid not in answered) for uuid in labels if facts.age_s is not None]
    yield Family("fairlead_gpu_lost", "gauge", "1 for a GPU that does not answer.", lost)
    yield Family(
        "fairlead_gpu_held",
        "gauge",
        "Runs that have the GPU; 0: it is free.",
        [
            Sample(
                labels[gpu.uuid],
                sum(len(facts.holders.get(each, ())) for each in (gpu.uuid, *(i.uuid for i in gpu.instances))),
            )
            for gpu in facts.gpus
        ],
    )
    yield Family(
        "fairlead_gpu_slowdown",
        "gauge",
        "1 while this holds the GPU's clocks down.",
        [
            Sample({**labels[uuid], "reason": reason}, reason in health.slowdowns)
            for uuid, health in facts.health.items()
            if uuid in labels and health.slowdowns is not None
            for reason in SLOWDOWNS
        ],
    )
    yield Family(
        "fairlead_gpu_xids_total",
        "counter",
        "XIDs since the agent's start.",
        [Sample(labels[uuid], facts.xids[uuid].total if uuid in facts.xids else 0) for uuid in labels],
    )


#: Counter or gauge of what a rank uses of its node: (name, kind, help, field, times).
_RESOURCES: tuple[tuple[str, Literal["gauge", "counter"], str, str, float], ...] = (
    ("fairlead_run_cpu_seconds_total", "counter", "CPU time of a rank.", "cpu_ms", 0.001),
    ("fairlead_run_memory_bytes", "gauge", "Memory of a rank, without caches.", "memory_mib", MIB),
    ("fairlead_run_disk_read_bytes_total", "counter", "Bytes that a rank has read from disks.", "disk_read_bytes", 1),
    (
        "fairlead_run_disk_written_bytes_total",
        "counter",
        "Bytes that a rank has written to disks.",
        "disk_written_bytes",
        1,
    ),
    (
        "fairlead_run_network_received_bytes_total",
        "counter",
        "Bytes that came over the network of a rank's own.",
        "network_rx_bytes",
        1,
    ),
    (
        "fairlead_run_network_sent_bytes_total",
        "counter",
        "Bytes that went over the network of a rank's own.",
        "network_tx_bytes",
        1,
    ),
)


def _uses(facts: NodeFacts) -> Iterator[Family]:
    yield Family(
        "fairlead_run_gpu_memory_bytes",
        "gauge",
        "GPU memory that a rank's processes use.",
        [Sample({"UUID": use.uuid, **_whose(facts, use)}, use.memory_mib * MIB) for use in facts.uses],
    )
    yield Family(
        "fairlead_run_gpu_utilization_ratio",
        "gauge",
        "Part of a GPU's time that a rank's processes use.",
        [Sample({"UUID": use.uuid, **_whose(facts, use)}, use.utilization_pct / 100) for use in facts.uses],
    )
    for name, kind, words, field, times in _RESOURCES:
        values = [(each, getattr(each, field)) for each in facts.resources]
        samples = [Sample(_whose(facts, each), value * times) for each, value in values if value is not None]
        yield Family(name, kind, words, samples)


def _whose(facts: NodeFacts, use: RunUse | RunResources) -> Mapping[str, str]:
    owner = facts.owners.get(use.run)
    return {"rank": str(use.rank), **(owner.labels if owner else {"hpc_job": use.run.partition(".")[0]})}


def _agent(facts: NodeFacts) -> Iterator[Family]:
    info = {"node": facts.node, "devices": facts.devices, "simulated": str(facts.simulated).lower()}
    yield Family("fairlead_node_info", "gauge", "Always 1; simulated is true where GPUs are played.", [Sample(info, 1)])
    yield Family(
        "fairlead_node_runs",
        "gauge",
        "Runs in the agent's journal, by phase.",
        [Sample({"phase": phase}, count) for phase, count in facts.runs.items()],
    )
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
