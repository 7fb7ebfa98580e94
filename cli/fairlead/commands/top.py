"""`top`: the cluster at a glance, live on a terminal, once elsewhere.

Texts on the present GPU use of running jobs for `fairlead top`: "-" means unknown. Pure.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from fairlead.client import Client
from fairlead.commands.options import OPEN_STATES, Output, connect
from fairlead.errors import FairleadError
from fairlead.render import cluster_map, columns, terminal
from fairlead.render.terminal import Format, TableColumn
from fairlead_schemas.http.api import Job, Node
from fairlead_schemas.queries.cluster_map import GpuState
from fairlead_schemas.queries.telemetry import JobUse

UNKNOWN = "-"
_KIB = 1024
#: Mark of a job with GPUs that send no samples now: the figures cover its other GPUs.
PART = "*"


def table_columns(uses: Mapping[str, JobUse]) -> list[TableColumn]:
    """Return the columns of `fairlead top`: a job's row with its measurements."""

    def measured_text(words: Callable[[JobUse], str]) -> Callable[[Job], str]:
        def text(job: Job) -> str:
            use = uses.get(job.id)
            value = words(use) if use is not None and use.measured else UNKNOWN
            return value if use is None or value == UNKNOWN or use.measured == use.gpus else f"{value}{PART}"

        return text

    known = {column.head: column for column in columns.JOBS if not column.wide}
    return [
        *(known[head] for head in ("ID", "NAME", "QUEUE", "USER", "STATE", "GPUS")),
        TableColumn("GPU%", measured_text(utilization), right=True),
        TableColumn("GPU-MEM", measured_text(memory), right=True),
        TableColumn("POWER", measured_text(power), right=True),
        *(known[head] for head in ("TIME", "NODES", "WHY")),
    ]


def utilization(use: JobUse) -> str:
    """Mean use of the row's GPUs: "87"."""
    return UNKNOWN if use.utilization_pct is None else f"{use.utilization_pct:.0f}"


def memory(use: JobUse) -> str:
    """Memory of all the row's GPUs: "384Gi", "700Mi"."""
    if use.memory_used_mib is None:
        return UNKNOWN
    gib = use.memory_used_mib / _KIB
    return f"{use.memory_used_mib}Mi" if gib < 1 else f"{gib:.1f}Gi" if gib < 10 else f"{gib:.0f}Gi"


def power(use: JobUse) -> str:
    """Power of all the row's GPUs: "3.1kW", "250W"."""
    if use.power_mw is None:
        return UNKNOWN
    watts = use.power_mw / 1000
    return f"{watts:.0f}W" if watts < 1000 else f"{watts / 1000:.1f}kW"


def use_remarks(jobs: Sequence[Job], uses: Mapping[str, JobUse]) -> list[str]:
    """Return remarks for below the table: jobs with some of their GPUs unmeasured, and simulated measurements."""
    partly = [use for job in jobs if (use := uses.get(job.id)) is not None and 0 < use.measured < use.gpus]
    remarks = [
        f"{PART} of job {use.job} only {use.measured} of {use.gpus} GPUs were measured recently" for use in partly
    ]
    if any(use.simulated for use in uses.values()):
        remarks.append("GPU%, GPU-MEM and POWER of simulated GPUs are played")
    return remarks


JOBS_SHOWN = 30
#: Signs of a node's bar, in its order: those of the map, and "#" for a GPU that a run holds.
BAR_SIGNS: dict[GpuState, str] = {"held": "#", **cluster_map.SIGNS, "closed": "-"}


class Sort(StrEnum):
    """Sort orders of the jobs; jobs that compare equal keep their order, the newest first."""

    new = "new"
    gpus = "gpus"
    age = "age"
    user = "user"
    queue = "queue"


def _gpus(job: Job) -> int:
    return sum(map(len, job.gpus.values()))


_KEYS: dict[Sort, Callable[[Job], Any]] = {
    Sort.new: lambda job: 0,
    Sort.gpus: lambda job: (-_gpus(job), not job.nodes),
    Sort.age: lambda job: (job.started_at is None, job.started_at or job.submitted_at),
    Sort.user: lambda job: job.user,
    Sort.queue: lambda job: job.queue,
}


def top(
    interval: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between looks.")] = 1.0,
    sort: Annotated[
        Sort, typer.Option("--sort", help="Jobs by: new, gpus (most first), age (longest run first), user or queue.")
    ] = Sort.new,
    once: Annotated[bool, typer.Option("--once", help="One look, as when piped.")] = False,
    output: Output = Format.table,
) -> None:
    """Watch nodes and jobs, and what running ones make of their GPUs: the mean of their utilisation, memory and power of all of them.

    fairlead top

    fairlead top --sort gpus

    fairlead top --once
    """
    with connect() as client:
        if output in (Format.json, Format.yaml):
            terminal.write(terminal.document(client.cluster(), output))
        elif once or not terminal.is_terminal():
            terminal.write(look(client, sort))
        else:
            _live(client, interval, sort)


def _live(client: Client, interval: float, sort: Sort) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(Text(look(client, sort)), auto_refresh=False, screen=True) as live:
        try:
            while True:
                time.sleep(interval)
                live.update(Text(look(client, sort)), refresh=True)
        except KeyboardInterrupt:
            return


def look(client: Client, sort: Sort = Sort.new) -> str:
    """Return one picture: a line per node with its GPUs, then the open jobs with the GPU use of the running ones."""
    nodes = client.nodes()
    page = client.jobs(state=OPEN_STATES)
    gpus, free = sum(n.gpus for n in nodes.items), sum(n.gpus_free for n in nodes.items)
    running = [job for job in page.items if job.nodes]
    head = f"{len(nodes.items)} nodes  {gpus} GPUs  {free} free  {len(running)} running  {len(page.items) - len(running)} waiting  as of sequence {nodes.sequence}\n"
    bars = "".join(f"{node_bar(node)}\n" for node in nodes.items)
    shown: list[Job] = sorted(page.items, key=_KEYS[sort])[:JOBS_SHOWN]
    uses, remarks = _measured(client, [job for job in shown if _gpus(job)])
    shape = table_columns(uses)
    table = terminal.table([[c.text(job) for c in shape] for job in shown], shape)
    more = f"… and {len(page.items) - JOBS_SHOWN} more\n" if len(page.items) > JOBS_SHOWN else ""
    return f"{head}\n{bars}\n{table if shown else 'no open jobs'}\n{more}{''.join(f'{remark}\n' for remark in remarks)}"


def _measured(client: Client, jobs: list[Job]) -> tuple[dict[str, JobUse], list[str]]:
    """Return {job: its GPU use} and remarks on it. Unavailable telemetry gives an empty result and a remark, not an error."""
    try:
        uses = {use.job: use for use in client.use([job.id for job in jobs]).items}
    except FairleadError as error:
        return {}, [f"GPU%, GPU-MEM and POWER are not known: {error}"]
    return uses, use_remarks(jobs, uses)


def node_bar(node: Node) -> str:
    """`sim-1  ready  [####*...] 4/8 simulated  812,813  1 GPU faulted (xid79)`; one sign per GPU (BAR_SIGNS)."""
    bar = "".join(sign * node.gpu_states.get(state, 0) for state, sign in BAR_SIGNS.items())
    simulated = " simulated" if node.simulated else ""
    used = node.gpu_states.get("held", 0)
    jobs = ",".join(node.jobs)
    notes = columns.node_notes(node)
    return "  ".join(
        part for part in (f"{node.id:<12} {node.state:<9} [{bar}] {used}/{node.gpus}{simulated}", jobs, notes) if part
    )
