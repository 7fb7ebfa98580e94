"""Samples added up per minute and hour."""

from fairlead_telemetry.schema.measured import PLAYED
from fairlead_telemetry.schema.relation import Column, Relation

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
    Column("busy_pct", "DOUBLE", "share of the samples in which a kernel was running, or nobody knows"),
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
