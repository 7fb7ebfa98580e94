"""`top`: the cluster at a glance, live on a terminal, once elsewhere."""

import time
from typing import Annotated

import typer

from fairlead import columns, render
from fairlead.client import Client
from fairlead.commands.options import OPEN_STATES, Output, connect
from fairlead.render import Format
from fairlead_schemas.api import Job, Node

JOBS_SHOWN = 30


def top(
    interval: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="One look, as when piped.")] = False,
    output: Output = Format.table,
) -> None:
    """Watch nodes and jobs.

    fairlead top

    fairlead top --once
    """
    with connect() as client:
        if output in (Format.json, Format.yaml):
            render.write(render.document(client.cluster(), output))
        elif once or not render.is_terminal():
            render.write(look(client))
        else:
            _live(client, interval)


def _live(client: Client, interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(Text(look(client)), auto_refresh=False, screen=True) as live:
        try:
            while True:
                time.sleep(interval)
                live.update(Text(look(client)), refresh=True)
        except KeyboardInterrupt:
            return


def look(client: Client) -> str:
    """One picture: a line per node with its GPUs, then the open jobs."""
    nodes = client.nodes()
    page = client.jobs(state=OPEN_STATES)
    gpus, free = sum(n.gpus for n in nodes.items), sum(n.gpus_free for n in nodes.items if n.state == "ready")
    running = [job for job in page.items if job.nodes]
    head = f"{len(nodes.items)} nodes  {gpus} GPUs  {free} free  {len(running)} running  {len(page.items) - len(running)} waiting  as of sequence {nodes.sequence}\n"
    bars = "".join(f"{node_bar(node)}\n" for node in nodes.items)
    shown: list[Job] = page.items[:JOBS_SHOWN]
    table = render.table(
        [[c.text(job) for c in render.shown(columns.JOBS, Format.table)] for job in shown],
        render.shown(columns.JOBS, Format.table),
    )
    more = f"… and {len(page.items) - JOBS_SHOWN} more\n" if len(page.items) > JOBS_SHOWN else ""
    return f"{head}\n{bars}\n{table if shown else 'no open jobs'}\n{more}"


def node_bar(node: Node) -> str:
    """`sim-1  ready  [####....] 4/8 simulated  812,813`; one sign per GPU."""
    used = node.gpus - node.gpus_free
    simulated = " simulated" if node.simulated else ""
    return f"{node.id:<12} {node.state:<9} [{'#' * used}{'.' * node.gpus_free}] {used}/{node.gpus}{simulated}  {','.join(node.jobs)}".rstrip()
