"""`top`: the cluster at a glance, live on a terminal, once elsewhere."""

import time
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from fairlead import columns, render, use_words
from fairlead.client import Client
from fairlead.commands.options import OPEN_STATES, Output, connect
from fairlead.errors import FairleadError
from fairlead.picture import rows
from fairlead.render import Format
from fairlead_schemas.http.api import Job, Node
from fairlead_schemas.queries.cluster_map import GpuState
from fairlead_schemas.queries.telemetry import JobUse

JOBS_SHOWN = 30
#: Signs of a node's bar, in its order: those of the map, and "#" for a GPU that a run holds.
BAR_SIGNS: dict[GpuState, str] = {"held": "#", **rows.SIGNS, "closed": "-"}


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
            render.write(render.document(client.cluster(), output))
        elif once or not render.is_terminal():
            render.write(look(client, sort))
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
    shape = use_words.table_columns(uses)
    table = render.table([[c.text(job) for c in shape] for job in shown], shape)
    more = f"… and {len(page.items) - JOBS_SHOWN} more\n" if len(page.items) > JOBS_SHOWN else ""
    return f"{head}\n{bars}\n{table if shown else 'no open jobs'}\n{more}{''.join(f'{said}\n' for said in remarks)}"


def _measured(client: Client, jobs: list[Job]) -> tuple[dict[str, JobUse], list[str]]:
    """Return {job: its GPU use} and remarks on it. Unavailable telemetry gives an empty result and a remark, not an error."""
    try:
        uses = {use.job: use for use in client.use([job.id for job in jobs]).items}
    except FairleadError as error:
        return {}, [f"GPU%, GPU-MEM and POWER are not known: {error}"]
    return uses, use_words.remarks(jobs, uses)


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
