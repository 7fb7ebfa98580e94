"""`status`, `upgrade plan` and `upgrade raise`: which processes run, in which versions, and the level of the log's format."""

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.commands.options import Output, connect
from fairlead.render import terminal
from fairlead.render.terminal import Format, TableColumn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_schemas.http.status import ClusterStatus

upgrade = typer.Typer(no_args_is_help=True, help="See if everything is upgraded, and let a newer level be written.")

PROCESSES = (
    TableColumn("SERVICE", lambda p: p.service),
    TableColumn("NAME", lambda p: p.name),
    TableColumn("ROLE", lambda p: p.role.replace("_", " ")),
    TableColumn("VERSION", lambda p: p.version or "-"),
    TableColumn("LEVEL", lambda p: str(p.level), right=True),
    TableColumn("HEARD", lambda p: f"{p.heard_s:.0f}s", right=True),
)
SERVERS = (
    TableColumn("SERVER", lambda s: s.name),
    TableColumn("STATE", lambda s: s.state),
    TableColumn("LAG", lambda s: str(s.lag), right=True),
    TableColumn("LEADS", lambda s: ", ".join(s.leads) or "-"),
)
STREAMS = (
    TableColumn("STREAM", lambda s: s.name),
    TableColumn("COPIES", lambda s: f"{s.current}/{s.copies}" if s.copies else "no answer", right=True),
    TableColumn("LEADER", lambda s: s.leader or "-"),
)


def status(output: Output = Format.table) -> None:
    """Show which processes lead or wait, the bus's servers with their copies, versions, and the level of the log's format.

    fairlead status

    fairlead status -o json
    """
    with connect() as client:
        found = client.status()
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(found, output))
    elif output is Format.names:
        terminal.write("".join(f"process/{each.service}/{each.name}\n" for each in found.processes))
    else:
        tables = ((found.processes, PROCESSES), (found.servers, SERVERS), (found.streams, STREAMS))
        terminal.write("\n".join(_table(rows, columns, output) for rows, columns in tables if rows))
        terminal.write(f"\n{_level(found)}\n")


def _table(rows: "Sequence[object]", columns: tuple[TableColumn, ...], output: Format) -> str:
    shown = terminal.shown(columns, output)
    return terminal.table([[column.text(row) for column in shown] for row in rows], shown)


@upgrade.command()
def plan(output: Output = Format.table) -> None:
    """Say what is left to do before a newer level is written: processes of older versions, by name. Exit code 1 while there are any.

    fairlead upgrade plan
    """
    with connect() as client:
        found = client.status()
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(found, output))
    else:
        lines = [f"left      {each}" for each in found.hindrances]
        terminal.write("".join(f"{line}\n" for line in [_level(found), *lines]))
    if found.hindrances:
        raise typer.Exit(1)


@upgrade.command("raise")
def raise_(
    level: Annotated[int, typer.Argument(min=1, help="The level, as `upgrade plan` names it.", show_default=False)],
    output: Output = Format.table,
) -> None:
    """Let events and fields of a newer level be written. Processes of older versions cannot read the log afterwards, and a level never falls.

    fairlead upgrade raise 2
    """
    with connect() as client:
        found = client.raise_level(level)
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(found, output))
    else:
        terminal.write(
            f"level     the log has level {found.level}; versions that do not know it are refused from here on\n"
        )


def _level(found: "ClusterStatus") -> str:
    """Return the line about the level."""
    if found.hindrances:
        return f"level     {found.level}; to be raised once every process knows the next one"
    if found.raisable > found.level:
        return (
            f"level     {found.level}; every process knows {found.raisable}: `fairlead upgrade raise {found.raisable}`"
        )
    return f"level     {found.level}, the highest that these versions know"
