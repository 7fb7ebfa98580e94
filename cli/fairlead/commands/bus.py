"""`bus move`: a cluster from one server of the bus to three, or back, by way of its archive."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.commands.archive import refused
from fairlead.commands.audit_options import translated
from fairlead.errors import InputRefused
from fairlead.render import terminal
from fairlead.render.progress import progress

if TYPE_CHECKING:
    from fairlead_bus.port import Bus
    from fairlead_replay.archive.move import Moved

app = typer.Typer(no_args_is_help=True, help="Move a cluster to other servers of the bus.")


@app.callback()
def _bus() -> None:
    """Keep the group: it has one verb."""


@app.command()
def move(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="ARCHIVE", help="The cluster's archive; is made where there is none.", show_default=False
        ),
    ],
    source: Annotated[str, typer.Option("--from", help="The present server or servers.", show_default=False)],
    target: Annotated[
        str,
        typer.Option(
            "--to", help="The new ones, with empty stores: one address, or several with commas.", show_default=False
        ),
    ],
    monitor: Annotated[
        str, typer.Option("--monitor", help="Monitoring pages of the new ones (http://…), as many.", show_default=False)
    ],
    key_file: Annotated[
        Path,
        typer.Option(
            "--key-file", help="The archive's secret key.", envvar="FAIRLEAD_ARCHIVE_KEY_FILE", show_default=False
        ),
    ],
    env_file: Annotated[
        Path | None,
        typer.Option(
            "--env-file",
            help="Settings of the services, in which the bus's addresses are replaced.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Archive the log, verify it, restore it into new servers, verify again, carry the rest over, and switch settings.

    fairlead bus move ./archive --key-file archive.key --from nats://bus:4222 --to nats://bus-1:4222,nats://bus-2:4222,nats://bus-3:4222 --monitor http://bus-1:8222,http://bus-2:8222,http://bus-3:8222

    The services are stopped before, and started after; jobs continue meanwhile. The old server's store is not changed.
    """
    from fairlead_bus.main import bus_key, configure_logging, with_bus
    from fairlead_bus.nats.adapter import connect
    from fairlead_replay.archive import archiver
    from fairlead_replay.archive.move import move as move_bus
    from fairlead_replay.archive.store import Store

    configure_logging("warning")
    copies = len(target.split(","))
    if len(monitor.split(",")) != copies:
        raise InputRefused(f"--monitor: expected as many addresses as --to has ({copies})")
    settings = {"FAIRLEAD_NATS": target, "FAIRLEAD_NATS_MONITOR": monitor, "FAIRLEAD_NATS_REPLICAS": str(copies)}
    if env_file is not None and not env_file.is_file():
        raise InputRefused(f"--env-file: there is no {env_file}")
    os.environ.update(settings)
    with translated(), refused():
        store = Store(directory.absolute(), archiver.read_key_file(key_file))
        try:
            with progress("bus move", "commits") as seen:

                async def work(old: "Bus") -> "Moved":
                    new = await connect(target, name="move", key=bus_key())
                    try:
                        return await move_bus(old, new, store, directory.absolute(), seen)
                    finally:
                        await new.close()

                moved = with_bus(source, "move", work)
        finally:
            store.close()
    carried = ", ".join(f"{name.removeprefix('KV_')} {count}" for name, count in moved.carried.items() if count)
    terminal.write(
        f"moved     the log up to sequence {moved.sequence}, verified on both; {carried or 'nothing next to it'}\n"
    )
    if env_file is not None:
        replace_settings(env_file, settings)
        terminal.write(f"switched  {env_file}; the old one is {env_file}.before-move\n")
    else:
        terminal.write("".join(f"setting   {name}={value}\n" for name, value in settings.items()))
    terminal.write(
        "next      start the services with these settings; keep the old store, and start no service on it any more\n"
    )


def replace_settings(path: Path, settings: dict[str, str]) -> None:
    """Replace variables of an environment file, or add them; the old file is kept next to it."""
    text = path.read_text()
    lines = [line for line in text.splitlines() if line.partition("=")[0].strip() not in settings]
    path.with_name(f"{path.name}.before-move").write_text(text)
    path.write_text("".join(f"{line}\n" for line in [*lines, *(f"{name}={value}" for name, value in settings.items())]))
