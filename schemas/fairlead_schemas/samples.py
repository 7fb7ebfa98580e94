"""Samples: what a node measured, as rows. Lossy by design; `n` counts batches so that loss can be counted.

On the bus a batch travels as columns (sample_columns.py).
"""

import msgspec


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Sample of one GPU or MIG instance at one moment. None means unknown: the GPU, its driver or the adapter does not
    report it.
    """

    uuid: str
    #: Of a MIG instance: the GPU that it is cut from; "" for a GPU.
    parent: str = ""
    #: The run that holds it, "" if none: "<job>.<attempt>"; of several that share it, the one that has it longest.
    run: str = ""
    utilization_pct: int | None = None
    memory_used_mib: int
    power_mw: int | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    #: Free, and kept by the driver for itself: with what is used, all there is.
    memory_free_mib: int | None = None
    memory_reserved_mib: int | None = None
    #: Part of the time in which its memory was read or written.
    memory_busy_pct: int | None = None
    memory_clock_mhz: int | None = None
    memory_temperature_c: int | None = None
    encoder_pct: int | None = None
    decoder_pct: int | None = None
    #: Since the driver was loaded.
    energy_mj: int | None = None
    #: To the host and from it, bytes per second.
    pcie_tx_bytes_s: int | None = None
    pcie_rx_bytes_s: int | None = None
    #: Over all links, since the driver was loaded.
    nvlink_tx_kib: int | None = None
    nvlink_rx_kib: int | None = None
    #: Thousandths of the time, or of what there is, since the sample before: engines busy; SMs with work, warps on them;
    #: the tensor, FP64, FP32 and FP16 pipes and the memory's interface at work.
    engine_permille: int | None = None
    sm_permille: int | None = None
    sm_occupancy_permille: int | None = None
    tensor_permille: int | None = None
    dram_permille: int | None = None
    fp64_permille: int | None = None
    fp32_permille: int | None = None
    fp16_permille: int | None = None
    #: Of the last look at its health. Errors of its memory since the driver was loaded.
    ecc_correctable: int | None = None
    ecc_uncorrectable: int | None = None
    #: What holds its clocks down, in NVML's bits; 0: nothing.
    slowdowns: int | None = None
    #: The newest XID since the agent's start, 0 without one; and how many there were.
    xid: int | None = None
    xids: int | None = None


class RunUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Use of a GPU or MIG instance by the processes of one run, as counted by the driver."""

    uuid: str
    run: str  # "<job>.<attempt>"
    rank: int = 0
    memory_mib: int = 0
    #: Its part of the GPU's time; 0 also where the driver does not say.
    utilization_pct: int = 0


class RunResources(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Use of a node by one rank of a run, except GPUs. Counters rise from the rank's start; None: not known."""

    run: str  # "<job>.<attempt>"
    rank: int = 0
    cpu_ms: int = 0
    #: Without what the kernel merely caches.
    memory_mib: int = 0
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    #: Of a run with a network of its own.
    network_rx_bytes: int | None = None
    network_tx_bytes: int | None = None
    #: When somebody last typed into one of its terminals (or opened one), Unix nanoseconds, to some seconds; None: it has none.
    terminal_ns: int | None = None


class SampleBatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that one node measured at one moment."""

    node: str
    incarnation: str
    n: int
    #: The node's clock; kept to the millisecond.
    at_ns: int
    gpus: list[GpuSample] = []
    #: Only of runs whose processes the driver names.
    uses: list[RunUse] = []
    resources: list[RunResources] = []
    simulated: bool = False
