"""The three dashboards, from one short list each: `python deploy/grafana/boards.py` writes the JSON files next to this one.

A panel is a title, a unit, and queries with their legends; its position follows from its place in the list. Grafana 10 and newer
import the files as they are, and ask for the Prometheus to read from.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

WIDTH, HEIGHT, COLUMNS = 8, 8, 3
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    """One picture. `queries`: (PromQL, legend)."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    about: str = ""
    stacked: bool = False


class Board(NamedTuple):
    """One dashboard. `variables`: (name, metric that has it as a label, label)."""

    uid: str
    title: str
    variables: tuple[tuple[str, str, str], ...]
    panels: tuple[Panel, ...]


GPU = "{{Hostname}} {{gpu}}"
ON = '{Hostname=~"$node"}'
HEALTH = Board("fairlead-gpu-health", "Fairlead: GPU health", (("node", "DCGM_FI_DEV_GPU_TEMP", "Hostname"),), (
    Panel("GPUs that do not answer", "short", (("sum(fairlead_gpu_lost)", "lost"),), kind="stat"),
    Panel("XIDs in the last hour", "short", (("sum(increase(fairlead_gpu_xids_total[1h]))", "XIDs"),), kind="stat"),
    Panel("Uncorrectable memory errors", "short", ((f"sum(DCGM_FI_DEV_ECC_DBE_AGG_TOTAL{ON})", "double-bit, of the GPUs' lives"),), kind="stat"),
    Panel("Temperature", "celsius", ((f"DCGM_FI_DEV_GPU_TEMP{ON}", GPU),)),
    Panel("Temperature of memory", "celsius", ((f"DCGM_FI_DEV_MEMORY_TEMP{ON}", GPU),)),
    Panel("Power", "watt", ((f"DCGM_FI_DEV_POWER_USAGE{ON}", GPU),)),
    Panel("Utilisation", "percent", ((f"DCGM_FI_DEV_GPU_UTIL{ON}", GPU),), about="Part of the time in which any kernel ran; SM activity shows how much of the GPU."),
    Panel("SM activity", "percentunit", ((f"DCGM_FI_PROF_SM_ACTIVE{ON}", GPU),), about="Where the GPU has profiling."),
    Panel("Memory in use", "percentunit", ((f"DCGM_FI_DEV_FB_USED{ON} / (DCGM_FI_DEV_FB_USED{ON} + DCGM_FI_DEV_FB_FREE{ON})", GPU),)),
    Panel("Clock of the SMs", "rotmhz", ((f"DCGM_FI_DEV_SM_CLOCK{ON}", GPU),)),
    Panel("Reasons for reduced clocks", "short", (("sum by (reason) (fairlead_gpu_slowdown)", "{{reason}}"),), about="GPUs; a power cap that was set is usual under load."),
    Panel("Newest XID", "none", ((f"DCGM_FI_DEV_XID_ERRORS{ON}", GPU),), about="Since the agent's start; 0: none."),
    Panel("Correctable memory errors", "short", ((f"increase(DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{ON}[1h])", GPU),), about="Per hour."),
    Panel("Remapped rows", "short", (
        (f"sum by (Hostname) (DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS{ON})", "{{Hostname}} correctable"),
        (f"sum by (Hostname) (DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{ON})", "{{Hostname}} uncorrectable"),
    )),
    Panel("PCIe replays", "short", ((f"increase(DCGM_FI_DEV_PCIE_REPLAY_COUNTER{ON}[1h])", GPU),), about="Per hour."),
    Panel("PCIe traffic", "Bps", (
        (f"sum by (Hostname) (DCGM_FI_PROF_PCIE_RX_BYTES{ON})", "{{Hostname}} in"),
        (f"sum by (Hostname) (DCGM_FI_PROF_PCIE_TX_BYTES{ON})", "{{Hostname}} out"),
    )),
    Panel("NVLink payload", "KiBs", ((f"sum by (Hostname) (rate(DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{ON}[$__rate_interval]))", "{{Hostname}}"),)),
    Panel("Age of the numbers", "s", (("fairlead_node_sample_age_seconds", "{{instance}}"),)),
))  # fmt: skip

OF = '{pool=~"$pool", queue=~"$queue"}'
Q = '{queue=~"$queue"}'
QUEUES = Board("fairlead-queues", "Fairlead: queues and fairness", (("pool", "fairlead_pending_jobs", "pool"), ("queue", "fairlead_pending_jobs", "queue")), (
    Panel("Jobs that wait", "short", ((f"fairlead_pending_jobs{OF}", "{{queue}}"),)),
    Panel("Jobs that have a place", "short", ((f"fairlead_running_jobs{OF}", "{{queue}}"),)),
    Panel("GPUs in use", "short", ((f"fairlead_queue_usage_gpus{OF}", "{{queue}}"),), about="Of a queue and those below it."),
    Panel("Guarantee, fair share, use", "short", (
        (f"fairlead_queue_deserved_gpus{OF}", "{{queue}} guaranteed"), (f"fairlead_queue_fair_share_gpus{OF}", "{{queue}} fair share"),
        (f"fairlead_queue_usage_gpus{OF}", "{{queue}} used"), (f"fairlead_queue_allocated_gpus{OF}", "{{queue}} charged"),
    ), kind="table", about="docs/how-to/metrics.md defines the fair share."),
    Panel("Above and below the fair share", "short", ((f"fairlead_queue_usage_gpus{OF} - fairlead_queue_fair_share_gpus{OF}", "{{queue}}"),)),
    Panel("Borrowed", "short", ((f"fairlead_queue_borrowed_gpus{OF}", "{{queue}}"),), about="Beyond the guarantee, where there is one."),
    Panel("Wait for the first placement, median", "s", ((f"histogram_quantile(0.5, sum by (queue, le) (rate(fairlead_admission_wait_seconds_bucket{Q}[1h])))", "{{queue}}"),)),
    Panel("Wait for the first placement, 95 %", "s", ((f"histogram_quantile(0.95, sum by (queue, le) (rate(fairlead_admission_wait_seconds_bucket{Q}[1h])))", "{{queue}}"),)),
    Panel("Started per hour", "short", ((f"sum by (queue) (increase(fairlead_admission_wait_seconds_count{Q}[1h]))", "{{queue}}"),)),
    Panel("Yielded to others, per hour", "short", ((f"sum by (queue, reason) (increase(fairlead_preempted_total{Q}[1h])) or vector(0)", "{{queue}} {{reason}}"),)),
    Panel("Went back to the queue, per hour", "short", ((f"sum by (reason) (increase(fairlead_requeued_total{Q}[1h])) or vector(0)", "{{reason}}"),)),
    Panel("Ended, per hour", "short", ((f"sum by (state) (increase(fairlead_ended_total{Q}[1h]))", "{{state}}"),), stacked=True),
    Panel("Budget used", "percentunit", ((f"fairlead_queue_budget_used_ratio{OF} or vector(0)", "{{queue}}"),), about="As the queue reports it: at 80 and at 100 %."),
))  # fmt: skip

P = '{pool=~"$pool"}'
HELD = '{hpc_job!=""}'
CAPACITY = Board("fairlead-capacity", "Fairlead: capacity and efficiency", (("pool", "fairlead_gpus", "pool"),), (
    Panel("GPUs held", "percentunit", ((f'sum(fairlead_gpus{{pool=~"$pool", state="held"}}) / sum(fairlead_gpus{P})', "held"),), kind="stat"),
    Panel("Mean utilisation of held GPUs", "percent", ((f"avg(DCGM_FI_DEV_GPU_UTIL{HELD})", "utilisation"),), kind="stat"),
    Panel("Held, and below 5 %", "short", ((f"sum(DCGM_FI_DEV_GPU_UTIL{HELD} < bool 5)", "GPUs"),), kind="stat", about="One signal is not enough: a job may work on CPUs or the network."),
    Panel("GPUs by state", "short", ((f"sum by (state) (fairlead_gpus{P})", "{{state}}"),), stacked=True),
    Panel("Free GPUs, and how many are together", "short", (
        ('sum(fairlead_gpus{pool=~"$pool", state="free"})', "free"), (f"sum(fairlead_gpus_fragmented{P})", "free on nodes in use"),
        (f"max(fairlead_gpus_largest_startable{P})", "largest job for one node"),
    )),
    Panel("Nodes by state", "short", ((f"sum by (state) (fairlead_nodes{P})", "{{state}}"),), stacked=True),
    Panel("GPUs by user", "short", ((f"count by (user) (DCGM_FI_DEV_GPU_UTIL{HELD})", "{{user}}"),), stacked=True),
    Panel("Utilisation by user", "percent", ((f"avg by (user) (DCGM_FI_DEV_GPU_UTIL{HELD})", "{{user}}"),)),
    Panel("Utilisation by job", "percent", ((f"avg by (hpc_job, user) (DCGM_FI_DEV_GPU_UTIL{HELD})", "{{hpc_job}} {{user}}"),)),
    Panel("Tensor pipes by queue", "percentunit", ((f"avg by (queue) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{HELD})", "{{queue}}"),), about="Where GPUs have profiling."),
    Panel("Memory bandwidth by queue", "percentunit", ((f"avg by (queue) (DCGM_FI_PROF_DRAM_ACTIVE{HELD})", "{{queue}}"),)),
    Panel("GPU memory by job", "mbytes", ((f"sum by (hpc_job, user) (DCGM_FI_DEV_FB_USED{HELD})", "{{hpc_job}} {{user}}"),)),
    Panel("GPU-hours held per hour, by queue", "h", ((f"sum by (queue) (count_over_time(DCGM_FI_DEV_GPU_UTIL{HELD}[1h:15s])) / 240", "{{queue}}"),), about="Counted every 15 s; bills come from the log, not from here."),
    Panel("Energy by user", "watt", ((f"sum by (user) (DCGM_FI_DEV_POWER_USAGE{HELD})", "{{user}}"),), stacked=True),
    Panel("Jobs ever, by state", "short", (("fairlead_jobs", "{{state}}"),)),
    Panel("From a command to its decision, 99 %", "s", (("histogram_quantile(0.99, sum by (le) (rate(fairlead_gateway_decision_seconds_bucket[$__rate_interval])))", "decision"),)),
    Panel("Commits that the views are behind", "short", (("fairlead_gateway_lag", "commits"),)),
    Panel("Reports not acknowledged", "short", (("fairlead_node_unconfirmed_reports", "{{instance}}"),)),
))  # fmt: skip
BOARDS = {"gpu-health": HEALTH, "queues-and-fairness": QUEUES, "capacity-and-efficiency": CAPACITY}


def drawn(board: Board) -> dict[str, Any]:
    """The dashboard as Grafana reads it."""
    return {
        "uid": board.uid,
        "title": board.title,
        "tags": ["fairlead"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 38,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "fiscalYearStartMonth": 0,
        "annotations": {"list": []},
        "templating": {"list": [_source(), *(_variable(*each) for each in board.variables)]},
        "panels": [_panel(at, each) for at, each in enumerate(board.panels)],
    }


def _source() -> dict[str, Any]:
    return {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus"}


def _variable(name: str, metric: str, label: str) -> dict[str, Any]:
    return {
        "type": "query",
        "name": name,
        "label": name.capitalize(),
        "datasource": SOURCE,
        "query": f"label_values({metric}, {label})",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "sort": 1,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _panel(at: int, panel: Panel) -> dict[str, Any]:
    custom = {"fillOpacity": 20, "stacking": {"mode": "normal"}} if panel.stacked else {}
    return {
        "id": at + 1,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": {"x": at % COLUMNS * WIDTH, "y": at // COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": custom}
            if _starts_at_zero(panel)
            else {"unit": panel.unit, "custom": custom},
            "overrides": [],
        },
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if panel.kind == "stat" else {},
        "targets": [
            {"refId": chr(ord("A") + n), "expr": expr, "legendFormat": legend, "datasource": SOURCE, **_shape(panel)}
            for n, (expr, legend) in enumerate(panel.queries)
        ],
    }


def _starts_at_zero(panel: Panel) -> bool:
    return panel.kind == "timeseries" and not any(" - " in expr for expr, _ in panel.queries)


def _shape(panel: Panel) -> dict[str, Any]:
    return {"instant": True, "format": "table"} if panel.kind == "table" else {}


def text(board: Board) -> str:
    """The file's content."""
    return json.dumps(drawn(board), indent=1) + "\n"


if __name__ == "__main__":
    for name, board in BOARDS.items():
        Path(__file__).with_name(f"{name}.json").write_text(text(board))
