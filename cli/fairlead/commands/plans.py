"""`rollout`, `maintenance`, `breaker`: what is planned for nodes, and what stops it."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from fairlead.client import Client
from fairlead.commands.options import NodeName, Output, Selector, connect, labels_of
from fairlead.render import columns, terminal
from fairlead.render.terminal import Format, TableColumn
from fairlead_schemas.http.api import Page
from fairlead_schemas.units import quantities

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", help="Shown wherever its nodes are shown.")]
Nodes = Annotated[
    list[str] | None, typer.Option("--node", help="A node; several times for several.", show_default=False)
]

rollout = typer.Typer(invoke_without_command=True)
maintenance = typer.Typer(invoke_without_command=True)
breaker = typer.Typer(invoke_without_command=True)


def _list(
    ctx: typer.Context,
    listed: Callable[[Client], Page[Any]],
    shown: Sequence[TableColumn],
    kind: str,
    output: Format,
    *,
    empty: str,
) -> None:
    """All of a kind, where no verb follows."""
    if ctx.invoked_subcommand is None:
        with connect() as client:
            page = listed(client)
        terminal.write(terminal.page(page, shown, lambda each: f"{kind}/{each.name}", output, empty=empty))


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _duration(text: str) -> str:
    if text:
        quantities.parse_duration(text)
    return text


def _done(answer: dict[str, Any], what: str, done: str, output: Format) -> None:
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(answer, output))
    else:
        terminal.write(f"{what}\n" if output is Format.names else f"{what.partition('/')[2] or what} {done}\n")


# ---------------------------------------------------------------------------- rollouts


@rollout.callback()
def rollouts(ctx: typer.Context, output: Output = Format.table) -> None:
    """List rolling upgrades, or run one.

    fairlead rollout
    """
    _list(ctx, Client.rollouts, columns.ROLLOUTS, "rollout", output, empty="no rollouts")


@rollout.command()
def start(
    name: Name,
    budget: Annotated[int, typer.Option("--budget-gpus", help="Most GPUs of its nodes that may take no work at once.")],
    node: Nodes = None,
    selector: Selector = None,
    every: Annotated[bool, typer.Option("--all", help="All nodes.")] = False,
    nodes_max: Annotated[
        int, typer.Option("--nodes-max", help="Most nodes in hand at once (0: the budget decides).")
    ] = 0,
    want: Annotated[
        list[str] | None,
        typer.Option("--want", help="key=value: a label that a node has once it is done.", show_default=False),
    ] = None,
    deadline: Annotated[str, typer.Option("--deadline", help='Runs that may last longer count as long ("1h").')] = "",
    stop_long: Annotated[
        bool, typer.Option("--stop-long", help="Stop long runs at the deadline; else they finish.")
    ] = False,
    reason: Reason = "",
    output: Output = Format.table,
) -> None:
    """Drain nodes and return them when they are upgraded, as many at a time as the budget allows.

    fairlead rollout start driver-580 --all --budget-gpus 16 --want nvidia.com/cuda.driver.major=580

    A node is done when it has the wanted labels; without --want when it comes back under another boot, or when
    `fairlead rollout done` says so. Nodes with long runs have their turn last.
    """
    body = _given(
        name=name,
        nodes=node,
        selector=labels_of(selector),
        all=every,
        nodesMax=nodes_max,
        want=labels_of(want),
        deadline=_duration(deadline),
        stopLong=stop_long,
        reason=reason,
    )
    with connect() as client:
        _done(client.start_rollout({**body, "budgetGpus": budget}), f"rollout/{name}", "started", output)


@rollout.command()
def show(name: Name, output: Output = Format.table) -> None:
    """Show one rollout with the step of each node.

    fairlead rollout show driver-580
    """
    with connect() as client:
        found = client.rollout(name)
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(found, output))
        return
    pairs = [
        ("state", found.state),
        ("GPUs away", f"{found.gpus_away} of at most {found.budget_gpus}"),
        ("wanted", ", ".join(found.want)),
        ("reason", found.reason),
        ("by", found.by),
        *((step, ", ".join(nodes)) for step, nodes in sorted(found.nodes.items())),
    ]
    terminal.write(terminal.fields([pair for pair in pairs if pair[1]]))


@rollout.command()
def pause(name: Name, reason: Reason = "", output: Output = Format.table) -> None:
    """Drain no further node of it; those in hand are returned when they are done.

    fairlead rollout pause driver-580
    """
    with connect() as client:
        _done(client.ask_rollout(name, "pause", reason=reason), f"rollout/{name}", "paused", output)


@rollout.command()
def resume(name: Name, output: Output = Format.table) -> None:
    """Resume a rollout.

    fairlead rollout resume driver-580
    """
    with connect() as client:
        _done(client.ask_rollout(name, "resume"), f"rollout/{name}", "resumed", output)


@rollout.command()
def cancel(name: Name, output: Output = Format.table) -> None:
    """End it; nodes that it has in hand take work again.

    fairlead rollout cancel driver-580
    """
    with connect() as client:
        _done(client.ask_rollout(name, "cancel"), f"rollout/{name}", "cancelled", output)


@rollout.command()
def done(name: Name, node: NodeName, output: Output = Format.table) -> None:
    """Say that a node is upgraded: it takes work again.

    fairlead rollout done driver-580 sim-1
    """
    with connect() as client:
        _done(client.ask_rollout(name, "done", node=node), f"rollout/{name}", f"returns {node}", output)


# ---------------------------------------------------------------------------- maintenance windows


@maintenance.callback()
def windows(ctx: typer.Context, output: Output = Format.table) -> None:
    """List maintenance windows, or schedule one.

    fairlead maintenance
    """
    _list(ctx, Client.windows, columns.WINDOWS, "maintenance", output, empty="no windows")


@maintenance.command()
def schedule(
    name: Name,
    starts: Annotated[str, typer.Option("--starts", help="When its nodes must be empty (2026-01-31T08:00:00Z).")],
    ends: Annotated[str, typer.Option("--ends", help="When they take work again.", show_default=False)] = "",
    lasting: Annotated[str, typer.Option("--for", help='How long, instead of --ends ("4h").', show_default=False)] = "",
    notice: Annotated[str, typer.Option("--notice", help="How long before the start they get nothing new.")] = "",
    node: Nodes = None,
    selector: Selector = None,
    reason: Reason = "",
    output: Output = Format.table,
) -> None:
    """Keep nodes empty for a while. At the start what still runs there is stopped with its grace, and waits again.

    fairlead maintenance schedule cooling --node sim-1 --starts 2026-01-31T08:00:00Z --for 4h --notice 12h
    """
    body = _given(
        name=name,
        starts=starts,
        ends=ends,
        duration=_duration(lasting),
        notice=_duration(notice),
        nodes=node,
        selector=labels_of(selector),
        reason=reason,
    )
    with connect() as client:
        _done(client.schedule(body), f"maintenance/{name}", "scheduled", output)


@maintenance.command("cancel")
def cancel_window(name: Name, output: Output = Format.table) -> None:
    """Forget a window; nodes that it has drained take work again.

    fairlead maintenance cancel cooling
    """
    with connect() as client:
        _done(client.cancel_window(name), f"maintenance/{name}", "cancelled", output)


# ---------------------------------------------------------------------------- the breaker


@breaker.callback()
def show_breaker(ctx: typer.Context, output: Output = Format.table) -> None:
    """Say whether nodes are acted upon automatically, or let them be again.

    fairlead breaker
    """
    if ctx.invoked_subcommand is not None:
        return
    with connect() as client:
        found = client.breaker()
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(found, output))
        return
    lines = [
        f"tripped at {each.at} by {each.kind}: {each.found} of {each.of} nodes, {each.allowed} allowed"
        for each in found.tripped
    ]
    terminal.write("".join(f"{line}\n" for line in lines or ["not tripped"]))


@breaker.command()
def reset(output: Output = Format.table) -> None:
    """Let nodes be acted upon automatically again; the runs of lost nodes that were held are ended.

    fairlead breaker reset
    """
    with connect() as client:
        _done(client.reset_breaker(), "breaker", "reset", output)
