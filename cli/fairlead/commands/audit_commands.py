"""`audit commands`: are all commands still there that people were promised a decision about? And what if not.

The work is `fairlead_bus.command_stream`'s and `fairlead_bus.command_recovery`'s.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead import render
from fairlead.commands.audit import Data, Nats, app, bus_url, translated
from fairlead.commands.options import Output
from fairlead.errors import FairleadError
from fairlead.render import Format
from fairlead.stack import conditions, state
from fairlead_schemas.wire.conditions import Condition

if TYPE_CHECKING:  # the bus is loaded by the verbs that need it
    from fairlead_bus.command_recovery import Accepted
    from fairlead_bus.command_stream import Report


@app.command()
def commands(
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Go on without the commands that are gone; those still there are kept."),
    ] = False,
    through: Annotated[
        int,
        typer.Option(
            "--through", min=0, help="With --accept-loss: also skip up to this sequence, as the gateway named it."
        ),
    ] = 0,
    data: Data = None,
    nats: Nats = "",
    output: Output = Format.table,
) -> None:
    """Compare the stream of commands with the log. Exit code 1 means that commands are gone; their sequences are printed.

    fairlead audit commands

    fairlead audit commands --accept-loss

    Works on a running cluster, which recovers automatically within seconds, and on the data of a stopped one.
    """
    from fairlead_bus import command_recovery
    from fairlead_bus.main import with_bus

    folder = (data or state.default_data()).absolute()
    if through and not accept_loss:
        raise typer.BadParameter("expected --accept-loss with it", param_hint="--through")
    with bus_url(folder, nats) as url, translated():
        if accept_loss:
            accepted = with_bus(url, "audit", lambda bus: command_recovery.accept_loss(bus, through=through))
            if not nats:
                conditions.forget(folder, "commands_lost")
            _write_accepted(accepted, output)
            return
        report = inspect_url(url)
    if output in (Format.json, Format.yaml):
        render.write(render.document(report_document(report), output))
    else:
        render.write(report_line(report))
    if report.is_lost:
        where = "" if folder == state.default_data() else str(folder)
        hint = Condition(code="commands_lost", message="").hint(where)
        raise FairleadError("commands are lost, none are taken until a person has accepted it", hint=hint)


def inspect_url(url: str) -> "Report":
    """Hold all of CMD against the log, for callers without an event loop. Raises BusError."""
    from fairlead_bus.command_stream import inspect
    from fairlead_bus.main import with_bus

    return with_bus(url, "audit", lambda bus: inspect(bus, deep=True))


def report_document(report: "Report") -> dict[str, object]:
    """The report for programs."""
    return {
        "ok": not report.is_lost,
        "first": report.first,
        "last": report.last,
        "read": report.read,
        "lost": [gap._asdict() | {"unread_by": report.unread_by(gap)} for gap in report.gaps],
        "messages_lost": report.messages_lost,
        "message": report.message(),
    }


def report_line(report: "Report") -> str:
    """The report for people."""
    if report.is_lost:
        return f"DAMAGED: {report.message()}\n"
    read = ", ".join(f"{service} {sequence}" for service, sequence in report.read.items())
    return f"ok: the stream of commands ends at sequence {report.last}; read up to: {read}\n"


def _write_accepted(accepted: "Accepted", output: Format) -> None:
    if output in (Format.json, Format.yaml):
        document = {
            "changed": accepted.changed,
            "through": accepted.through,
            "kept": accepted.kept,
            "lost": report_document(accepted.report)["lost"],
        }
        render.write(render.document(document, output))
    elif not accepted.changed:
        render.write("nothing is lost, nothing was changed\n")
    else:
        render.write(
            f"accepted: {accepted.report.messages_lost} messages are gone; commands go on behind sequence "
            f"{accepted.through}; {accepted.kept} messages that nobody had read were kept\n"
        )
