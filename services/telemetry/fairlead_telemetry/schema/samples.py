"""Views of measurements by nodes, and of their sums per minute and hour. `relations.py` has their losses.

`samples`, `uses` and `resources` are views: over a table of the newest rows (`measured.<name>`), and over the Parquet
files that hold the older ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fairlead_telemetry.schema.relations import Column, Relation

_WHEN = (
    Column("time", "TIMESTAMP", "the node's clock, UTC, to the millisecond"),
    Column("at_ns", "BIGINT", "the same in Unix nanoseconds"),
    Column("node", "VARCHAR", "node"),
    Column("incarnation", "VARCHAR", "journal of the node's agent; numbers restart with it"),
    Column("n", "UBIGINT", "number of the batch within the incarnation"),
)
PLAYED = Column("simulated", "BOOLEAN", "true where the GPU is played, not real")
#: Not stored: made from `time`.
_COMPUTED = {"at_ns": "epoch_ns(time) AS at_ns"}

SAMPLES = Relation(
    "samples",
    "What nodes measured, one row per GPU or MIG instance and moment; NULL is not known. Old rows are dropped (default: 7 days).",
    (
        *_WHEN,
        Column("uuid", "VARCHAR", "GPU or MIG instance"),
        Column("parent", "VARCHAR", "of a MIG instance the GPU that it is cut from, else empty"),
        Column(
            "run", "VARCHAR", "<job>.<attempt> that holds it, empty if none; of several the one that has it longest"
        ),
        Column("utilization_pct", "INTEGER", "share of time with a kernel running; of a MIG instance not known"),
        Column("memory_used_mib", "BIGINT", "device memory in use"),
        Column("memory_free_mib", "BIGINT", "device memory that is free"),
        Column("memory_reserved_mib", "BIGINT", "device memory that the driver keeps for itself"),
        Column("memory_busy_pct", "INTEGER", "share of time in which its memory was read or written"),
        Column("power_mw", "BIGINT", "power draw in milliwatts, to 0.1 W"),
        Column("energy_mj", "BIGINT", "energy since the driver was loaded, in millijoules, to 1 J"),
        Column("temperature_c", "INTEGER", "core temperature"),
        Column("memory_temperature_c", "INTEGER", "temperature of its memory"),
        Column("sm_clock_mhz", "INTEGER", "clock of the multiprocessors"),
        Column("memory_clock_mhz", "INTEGER", "clock of its memory"),
        Column("encoder_pct", "INTEGER", "share of time in which the video encoder worked"),
        Column("decoder_pct", "INTEGER", "share of time in which the video decoder worked"),
        Column("pcie_tx_bytes_s", "BIGINT", "bytes per second over PCIe to the host, to 1 kB"),
        Column("pcie_rx_bytes_s", "BIGINT", "bytes per second over PCIe from the host, to 1 kB"),
        Column("nvlink_tx_kib", "BIGINT", "KiB sent over all NVLinks since the driver was loaded, to 1 MiB"),
        Column("nvlink_rx_kib", "BIGINT", "KiB received over all NVLinks since the driver was loaded, to 1 MiB"),
        Column("engine_permille", "INTEGER", "thousandths of the time in which an engine was busy"),
        Column("sm_permille", "INTEGER", "thousandths of the multiprocessors' time with work"),
        Column("sm_occupancy_permille", "INTEGER", "warps on multiprocessors, in thousandths of the most there can be"),
        Column("tensor_permille", "INTEGER", "thousandths of the time in which tensor pipes worked"),
        Column("dram_permille", "INTEGER", "thousandths of the time in which the memory's interface worked"),
        Column("fp64_permille", "INTEGER", "thousandths of the time in which FP64 pipes worked"),
        Column("fp32_permille", "INTEGER", "thousandths of the time in which FP32 pipes worked"),
        Column("fp16_permille", "INTEGER", "thousandths of the time in which FP16 pipes worked"),
        Column("ecc_correctable", "BIGINT", "errors of its memory that were corrected, since the driver was loaded"),
        Column("ecc_uncorrectable", "BIGINT", "those that were not"),
        Column(
            "slowdowns",
            "INTEGER",
            "what holds its clocks down, NVML's bits: 4 power cap, 8 hardware, 32 and 64 heat, 128 power brake; 0: nothing",
        ),
        Column("xid", "INTEGER", "its newest XID since the agent's start, 0 without one"),
        Column("xids", "BIGINT", "how many XIDs there were since then"),
        PLAYED,
    ),
)
USES = Relation(
    "uses",
    "What each run's processes use of each GPU or MIG instance, as the driver counts it; kept as long as samples.",
    (
        *_WHEN,
        Column("uuid", "VARCHAR", "GPU or MIG instance"),
        Column("run", "VARCHAR", "<job>.<attempt>"),
        Column("rank", "INTEGER", "rank of the run"),
        Column("memory_mib", "BIGINT", "device memory of its processes"),
        Column("utilization_pct", "INTEGER", "its part of the GPU's time; 0 also where the driver does not report it"),
        PLAYED,
    ),
)
RESOURCES = Relation(
    "resources",
    "CPU, memory, disk and network use of each rank of a run; counters rise from its start; kept as long as samples.",
    (
        *_WHEN,
        Column("run", "VARCHAR", "<job>.<attempt>"),
        Column("rank", "INTEGER", "rank of the run"),
        Column("cpu_ms", "BIGINT", "CPU time used, in milliseconds"),
        Column("memory_mib", "BIGINT", "memory, without what the kernel merely caches"),
        Column("disk_read_bytes", "BIGINT", "bytes read from disks"),
        Column("disk_written_bytes", "BIGINT", "bytes written to disks"),
        Column("network_rx_bytes", "BIGINT", "bytes received, of a run with a network of its own"),
        Column("network_tx_bytes", "BIGINT", "bytes sent, likewise"),
        Column("terminal_ns", "BIGINT", "when a user last typed into one of its terminals, Unix ns; NULL: it has none"),
        Column("proxy_ns", "BIGINT", "when a user last acted in its application, Unix ns; NULL: it has none"),
        Column("simulated", "BOOLEAN", "true where the node's GPUs are played"),
    ),
)
MEASURED = (SAMPLES, USES, RESOURCES)


class FileColumn(NamedTuple):
    """Form of a column in a file: its name and type there, and how many of its own units are one of the file's."""

    name: str
    type: str
    step: int


#: Columns of samples that are kept in a coarser unit than the one they are reported in. Their last digits
#: carry no meaning: NVML states power to 5 W and PCIe traffic to 1 kB/s. In files these digits would be half
#: of all bytes.
FILED: Mapping[str, FileColumn] = {
    "power_mw": FileColumn("power_w", "DECIMAL(9, 1)", 100),
    "energy_mj": FileColumn("energy_j", "BIGINT", 1000),
    "pcie_tx_bytes_s": FileColumn("pcie_tx_kb_s", "BIGINT", 1000),
    "pcie_rx_bytes_s": FileColumn("pcie_rx_kb_s", "BIGINT", 1000),
    "nvlink_tx_kib": FileColumn("nvlink_tx_mib", "BIGINT", 1024),
    "nvlink_rx_kib": FileColumn("nvlink_rx_mib", "BIGINT", 1024),
}
#: Of a decimal, units of its last digit in one of its own.
_TENTHS = {"DECIMAL(9, 1)": 10}


def to_file(column: str) -> str:
    """The column of a table as it is written into a file."""
    filed = FILED.get(column)
    if filed is None:
        return f'"{column}"'
    tenths = _TENTHS.get(filed.type, 1)
    units = f"round({column} / {filed.step})::BIGINT"
    return f"({units} / {tenths})::{filed.type} AS {filed.name}" if tenths > 1 else f"{units} AS {filed.name}"


def from_file(column: str) -> str:
    """Return the SQL that turns a file's column into the table's column."""
    filed = FILED.get(column)
    if filed is None:
        return f'"{column}"'
    return f"({filed.name} * {filed.step * _TENTHS.get(filed.type, 1)})::BIGINT AS {column}"


def stored_columns(relation: Relation) -> tuple[Column, ...]:
    """The columns of `measured.<name>` and of its files."""
    return tuple(column for column in relation.columns if column.name not in _COMPUTED)


def measured_ddl() -> list[str]:
    """Statements that create the tables of the newest rows, and columns that an earlier version had not."""
    found = ["CREATE SCHEMA IF NOT EXISTS measured"]
    for relation in MEASURED:
        columns = stored_columns(relation)
        table = f"measured.{relation.name}"
        found.append(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(f'"{c.name}" {c.type}' for c in columns)})")
        found += [f'ALTER TABLE {table} ADD COLUMN IF NOT EXISTS "{c.name}" {c.type}' for c in columns]
    return found


def measured_view(relation: Relation, files: Sequence[str]) -> str:
    """The statement that creates the view over the newest rows and these files."""
    names = ", ".join(_COMPUTED.get(column.name, f'"{column.name}"') for column in relation.columns)
    source = f"FROM measured.{relation.name}"
    if files:
        filed = ", ".join(from_file(column.name) for column in stored_columns(relation))
        source += f" UNION ALL BY NAME SELECT {filed} FROM read_parquet([{_quoted(files)}], union_by_name = true)"  # noqa: S608 words of ours
    return f"CREATE OR REPLACE VIEW {relation.name} AS SELECT {names} FROM ({source})"  # noqa: S608 words of ours


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)


_MEANS = """node, uuid, run, samples, 100 * busy_samples / samples AS busy_pct, utilization_pct_sum / samples AS utilization_pct,
      utilization_pct_max, memory_used_mib_sum / samples AS memory_used_mib, memory_used_mib_max,
      power_mw_sum / samples AS power_mw, power_mw_max, temperature_c_max, sm_clock_mhz_sum / samples AS sm_clock_mhz,
      memory_busy_pct_sum / memory_busy_pct_samples AS memory_busy_pct, sm_permille_sum / sm_permille_samples AS sm_permille,
      tensor_permille_sum / tensor_permille_samples AS tensor_permille, dram_permille_sum / dram_permille_samples AS dram_permille,
      pcie_tx_bytes_s_sum / pcie_tx_bytes_s_samples AS pcie_tx_bytes_s,
      pcie_rx_bytes_s_sum / pcie_rx_bytes_s_samples AS pcie_rx_bytes_s, simulated"""
_OF_SUMS = (
    Column("node", "VARCHAR", "node"),
    Column("uuid", "VARCHAR", "GPU or MIG instance"),
    Column("run", "VARCHAR", "<job>.<attempt> that held it, empty if none"),
    Column("samples", "BIGINT", "how many samples these are made of"),
    Column("busy_pct", "DOUBLE", "share of the samples in which a kernel was running or may have been"),
    Column("utilization_pct", "DOUBLE", "mean over the samples"),
    Column("utilization_pct_max", "INTEGER", "greatest of the samples"),
    Column("memory_used_mib", "DOUBLE", "mean device memory in use"),
    Column("memory_used_mib_max", "BIGINT", "greatest device memory in use"),
    Column("power_mw", "DOUBLE", "mean power draw in milliwatts"),
    Column("power_mw_max", "BIGINT", "greatest power draw in milliwatts"),
    Column("temperature_c_max", "INTEGER", "greatest core temperature"),
    Column("sm_clock_mhz", "DOUBLE", "mean clock of the multiprocessors"),
    Column("memory_busy_pct", "DOUBLE", "mean share of time in which its memory was read or written"),
    Column("sm_permille", "DOUBLE", "mean thousandths of the multiprocessors' time with work"),
    Column("tensor_permille", "DOUBLE", "mean thousandths of the time in which tensor pipes worked"),
    Column("dram_permille", "DOUBLE", "mean thousandths of the time in which the memory's interface worked"),
    Column("pcie_tx_bytes_s", "DOUBLE", "mean bytes per second over PCIe to the host"),
    Column("pcie_rx_bytes_s", "DOUBLE", "mean bytes per second over PCIe from the host"),
    PLAYED,
)
SAMPLES_1M = Relation(
    "samples_1m",
    "Samples added up per GPU, run and minute, once the minute is over (default: 90 days).",
    (Column("time", "TIMESTAMP", "start of the minute, UTC, by the node's clock"), *_OF_SUMS),
    "SELECT make_timestamp(slot * 60000000) AS time, " + _MEANS + " FROM rolled.minutes",  # noqa: S608 words of ours
)
SAMPLES_1H = Relation(
    "samples_1h",
    "Samples added up per GPU, run and hour, once the hour is over (default: 3 years).",
    (Column("time", "TIMESTAMP", "start of the hour, UTC, by the node's clock"), *_OF_SUMS),
    "SELECT make_timestamp(slot * 3600000000) AS time, " + _MEANS + " FROM rolled.hours",  # noqa: S608 as above
)
