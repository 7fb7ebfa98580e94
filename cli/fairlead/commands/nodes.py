"""`nodes cordon uncordon drain`: the machines."""

from typing import Annotated

import typer

from fairlead import columns, render
from fairlead.commands.options import NodeName, Output, connect
from fairlead.render import Format
from fairlead_schemas import quantities

Reason = Annotated[str, typer.Option("--reason", help="Said wherever the node is shown.")]


def nodes(output: Output = Format.table) -> None:
    """List nodes with what is free on them.

    fairlead nodes -o wide
    """
    with connect() as client:
        page = client.nodes()
    render.write(render.page(page, columns.NODES, lambda n: f"node/{n.id}", output, empty="no nodes have joined"))


def cordon(node: NodeName, reason: Reason = "", output: Output = Format.table) -> None:
    """Give a node no new work; what runs there goes on.

    fairlead cordon sim-1 --reason "fan is loud"
    """
    with connect() as client:
        _done(client.cordon(node, reason), node, "cordoned", output)


def uncordon(node: NodeName, output: Output = Format.table) -> None:
    """Give a node work again (ends a drain, too).

    fairlead uncordon sim-1
    """
    with connect() as client:
        _done(client.uncordon(node), node, "takes work again", output)


def drain(
    node: NodeName,
    reason: Reason = "",
    deadline: Annotated[
        str, typer.Option("--deadline", help='Move what still runs there after this long ("30m"); without it: wait.')
    ] = "",
    output: Output = Format.table,
) -> None:
    """Empty a node: no new work, and at the deadline its jobs go elsewhere.

    fairlead drain sim-1 --reason "new driver" --deadline 30m
    """
    if deadline:
        quantities.parse_duration(deadline)
    with connect() as client:
        _done(client.drain(node, reason, deadline), node, "draining", output)


def _done(answer: dict[str, object], node: str, done: str, output: Format) -> None:
    if output in (Format.json, Format.yaml):
        render.write(render.document(answer, output))
    else:
        render.write(f"node/{node}\n" if output is Format.names else f"{node} {done}\n")
