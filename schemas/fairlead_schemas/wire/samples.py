"""Samples: what a node measured, as rows; and samples on the bus: one node's measurements at one moment, as columns, in
MessagePack. Lossy by design; `n` counts batches so that loss can be counted.

A column holds one value per GPU (or use, or run), in the order of the first column. The column is left out if
every value is unknown, and holds a single value if all are the same. A batch is complete in itself and never a
difference to an earlier one, because any other may be lost.

The bytes are untrusted: `decode_columns` accepts only data that fits these types, with all columns of one
length. Fields are only added, at the end of their struct.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Any, cast

import msgspec

from fairlead_schemas.units.validation import decode


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
    #: Time of the last input into one of its terminals (or of the opening of one), Unix nanoseconds, accurate to
    #: some seconds; None: it has no terminal.
    terminal_ns: int | None = None
    #: When a person last acted in its application, Unix nanoseconds; 0: nobody has since its agent looks; None: it has none.
    proxy_ns: int | None = None


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


VERSION = 2
#: The stream takes no larger message. 56 MIG instances with 56 runs take about 20 KiB.
PAYLOAD_BYTES_MAX = 64 * 1024
#: GPUs with their MIG instances, uses, or runs of one node.
ROWS_MAX = 1024
NS_PER_MS = 1_000_000

Name = Annotated[str, msgspec.Meta(max_length=128)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Permille = Annotated[int, msgspec.Meta(ge=0, le=1000)]
#: Degrees, MHz, ranks.
Small = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
#: Counters and sizes.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Moment = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

Names = Name | list[Name]
Percents = Percent | list[Percent | None] | None
Permilles = Permille | list[Permille | None] | None
Smalls = Small | list[Small | None] | None
Counts = Count | list[Count | None] | None
Moments = Moment | list[Moment | None] | None


class GpuColumns(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The fields of `GpuSample`, each a column."""

    uuid: list[Name] = []
    parent: Names = ""
    run: Names = ""
    utilization_pct: Percents = None
    memory_used_mib: Counts = None
    power_mw: Counts = None
    temperature_c: Smalls = None
    sm_clock_mhz: Smalls = None
    memory_free_mib: Counts = None
    memory_reserved_mib: Counts = None
    memory_busy_pct: Percents = None
    memory_clock_mhz: Smalls = None
    memory_temperature_c: Smalls = None
    encoder_pct: Percents = None
    decoder_pct: Percents = None
    energy_mj: Counts = None
    pcie_tx_bytes_s: Counts = None
    pcie_rx_bytes_s: Counts = None
    nvlink_tx_kib: Counts = None
    nvlink_rx_kib: Counts = None
    engine_permille: Permilles = None
    sm_permille: Permilles = None
    sm_occupancy_permille: Permilles = None
    tensor_permille: Permilles = None
    dram_permille: Permilles = None
    fp64_permille: Permilles = None
    fp32_permille: Permilles = None
    fp16_permille: Permilles = None
    ecc_correctable: Counts = None
    ecc_uncorrectable: Counts = None
    slowdowns: Smalls = None
    xid: Smalls = None
    xids: Counts = None


class UseColumns(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The fields of `RunUse`, each a column."""

    uuid: list[Name] = []
    run: Names = ""
    rank: Smalls = None
    memory_mib: Counts = None
    utilization_pct: Percents = None


class ResourceColumns(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """The fields of `RunResources`, each a column."""

    run: list[Name] = []
    rank: Smalls = None
    cpu_ms: Counts = None
    memory_mib: Counts = None
    disk_read_bytes: Counts = None
    disk_written_bytes: Counts = None
    network_rx_bytes: Counts = None
    network_tx_bytes: Counts = None
    terminal_ns: Moments = None
    proxy_ns: Moments = None


class SampleColumns(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False, omit_defaults=True
):
    """Everything that one node measured at one moment. `n` counts the batches of an incarnation from 1: what is missing was lost."""

    v: int
    node: Name
    incarnation: Name
    n: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    #: The node's clock, Unix nanoseconds in whole milliseconds.
    at_ns: Moment
    #: None: there are none.
    gpus: GpuColumns | None = None
    uses: UseColumns | None = None
    resources: ResourceColumns | None = None
    simulated: bool = False


Columns = GpuColumns | UseColumns | ResourceColumns
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SampleColumns)


def _most(kind: Any) -> int:
    """The greatest number that a column of this type takes; 0 for names."""
    values = [each for each in kind.types if isinstance(each, msgspec.inspect.IntType)] if kind else []
    return values[0].le or 0 if values else 0


def _bounds(kind: type[Columns]) -> tuple[tuple[str, int], ...]:
    """(field, the greatest number it takes) of each column."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return tuple(
        (field.name, _most(field.type if isinstance(field.type, msgspec.inspect.UnionType) else None))
        for field in info.fields
    )


_GPUS, _USES, _RESOURCES = _bounds(GpuColumns), _bounds(UseColumns), _bounds(ResourceColumns)
_OF = {"gpus": _GPUS, "uses": _USES, "resources": _RESOURCES}
_PLACE = re.compile(r"\$\.(gpus|uses|resources)\[(\d+)\]")


def encode_samples(batch: SampleBatch) -> bytes:
    """Encode one batch. A number beyond its bound is encoded as unknown, so that one wrong counter does not cost the
    others.
    """
    return _encoder.encode(columns_of(batch))


def encode_fitting(batch: SampleBatch) -> tuple[bytes, bool]:
    """Return (message, True). Of a batch that is too large for the stream (hundreds of runs): (it without what each run
    uses, False)."""
    payload = encode_samples(batch)
    if len(payload) <= PAYLOAD_BYTES_MAX:
        return payload, True
    return encode_samples(msgspec.structs.replace(batch, uses=[], resources=[])), False


def columns_of(batch: SampleBatch) -> SampleColumns:
    """Return the batch as columns, the form on the bus."""
    return SampleColumns(
        v=VERSION,
        node=batch.node,
        incarnation=batch.incarnation,
        n=batch.n,
        at_ns=batch.at_ns - batch.at_ns % NS_PER_MS,
        gpus=GpuColumns(**_told(batch.gpus, _GPUS)) if batch.gpus else None,
        uses=UseColumns(**_told(batch.uses, _USES)) if batch.uses else None,
        resources=ResourceColumns(**_told(batch.resources, _RESOURCES)) if batch.resources else None,
        simulated=batch.simulated,
    )


def _told(rows: Sequence[Any], bounds: tuple[tuple[str, int], ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, most in bounds:
        column: list[Any] = [getattr(row, name) for row in rows]
        if most:
            column = [value if value is None or 0 <= value <= most else None for value in column]
        first = column[0]
        found[name] = first if name != bounds[0][0] and column.count(first) == len(column) else column
    return found


def decode_columns(payload: bytes) -> SampleColumns:
    """Decode and check one batch. Raises msgspec.MsgspecError with the place of the mismatch."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise msgspec.ValidationError(f"a batch of {len(payload)} bytes, expected at most {PAYLOAD_BYTES_MAX}")
    try:
        found = decode(_decoder, payload)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(_PLACE.sub(_named, str(error))) from None
    if found.v != VERSION:
        raise msgspec.ValidationError(f"version {found.v} of samples, expected {VERSION}: telemetry and agents differ")
    _check("gpus", found.gpus, _GPUS)
    _check("uses", found.uses, _USES)
    _check("resources", found.resources, _RESOURCES)
    return found


def _named(place: re.Match[str]) -> str:
    """ "$.gpus[3]" is "$.gpus.utilization_pct"."""
    bounds = _OF[place[1]]
    at = int(place[2])
    return f"$.{place[1]}.{bounds[at][0] if at < len(bounds) else at}"


def _check(what: str, columns: Columns | None, bounds: tuple[tuple[str, int], ...]) -> None:
    if columns is None:
        return
    told: tuple[Any, ...] = msgspec.structs.astuple(columns)
    rows = len(told[0])
    if rows > ROWS_MAX:
        raise msgspec.ValidationError(f"$.{what}: {rows} rows, expected at most {ROWS_MAX}")
    for column, (name, _) in zip(told, bounds, strict=True):
        if type(column) is list and (values := len(cast(list[Any], column))) != rows:
            raise msgspec.ValidationError(f"$.{what}.{name}: {values} values for {rows} rows")


def decode_samples(payload: bytes) -> SampleBatch:
    """Decode one batch into rows. Raises msgspec.MsgspecError."""
    return rows_of(decode_columns(payload))


def rows_of(columns: SampleColumns) -> SampleBatch:
    """The batch as it was measured."""
    return SampleBatch(
        node=columns.node,
        incarnation=columns.incarnation,
        n=columns.n,
        at_ns=columns.at_ns,
        gpus=[GpuSample(**row) for row in _rows(columns.gpus, _GPUS)],
        uses=[RunUse(**row) for row in _rows(columns.uses, _USES)],
        resources=[RunResources(**row) for row in _rows(columns.resources, _RESOURCES)],
        simulated=columns.simulated,
    )


def _rows(columns: Columns | None, bounds: tuple[tuple[str, int], ...]) -> list[dict[str, Any]]:
    if columns is None:
        return []
    told = {name: getattr(columns, name) for name, _ in bounds}
    rows = range(len(told[bounds[0][0]]))
    return [{name: each[i] if type(each) is list else each for name, each in told.items()} for i in rows]
