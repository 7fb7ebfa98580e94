"""`agent`: make this machine a node, or no node any more."""

from pathlib import Path
from typing import Annotated

import typer

from fairlead.errors import FairleadError, InputRefused
from fairlead.render import terminal
from fairlead_agent.setup import install as setup
from fairlead_agent.setup.install import Where
from fairlead_bus.environment_settings import BadSetting
from fairlead_bus.nkey import BadKey

app = typer.Typer(no_args_is_help=True, help="Make this machine a node.")

Root = Annotated[Path, typer.Option("--root", help="Work on the system under this directory; nothing is started.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


@app.command()
def install(
    nats: Annotated[str, typer.Option("--nats", help="The bus: nats://host:4222.", show_default=False)] = "",
    node: Annotated[
        str, typer.Option("--node", help="This node's id.  [default: from the host's name]", show_default=False)
    ] = "",
    runtime: Annotated[str, typer.Option("--runtime", help="docker or process.", show_default=False)] = "",
    devices: Annotated[str, typer.Option("--devices", help="nvml, simulated, none or auto.", show_default=False)] = "",
    address: Annotated[
        str, typer.Option("--address", help="Where other nodes of a gang reach this one.", show_default=False)
    ] = "",
    pool: Annotated[str, typer.Option("--pool", help="The pool that it belongs to.", show_default=False)] = "",
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other setting of the agent (docs/reference/settings.md).",
            show_default=False,
        ),
    ] = None,
    root: Root = Path("/"),
    dry_run: Dry = False,
) -> None:
    """Install the agent and its guard as systemd units, with settings, directories and a bus key of this node's own.

    fairlead agent install --nats nats://bus.example:4222 --runtime docker --devices nvml --address 10.0.0.7

    Again, it changes what is given and leaves the rest as it is; what runs is not touched. It ends with the command
    that lets this node's key in, to be typed where the bus is kept.
    """
    given = {
        name: value
        for name, value in {
            "FAIRLEAD_NATS": nats,
            "FAIRLEAD_NODE": node,
            "FAIRLEAD_RUNTIME": runtime,
            "FAIRLEAD_DEVICES": devices,
            "FAIRLEAD_ADDRESS": address,
            "FAIRLEAD_POOL": pool,
        }.items()
        if value
    } | dict(_named(each) for each in setting or ())
    where = Where(root.absolute(), dry_run)
    try:
        installed = setup.install(where, given, _say)
    except (BadSetting, BadKey) as error:
        raise InputRefused(str(error), hint="nothing was started") from error
    except OSError as error:
        raise _failed(error) from error
    if not dry_run:
        terminal.note(
            "next    where the bus is kept: "
            f"fairlead credentials add {installed.node} --public {installed.public_key}; then here: fairlead doctor"
        )


@app.command()
def uninstall(
    purge: Annotated[bool, typer.Option("--purge", help="Remove settings and key, too.")] = False,
    root: Root = Path("/"),
    dry_run: Dry = False,
) -> None:
    """Stop and remove the units. What runs is not touched: drain the node first.

    fairlead agent uninstall
    """
    try:
        setup.uninstall(Where(root.absolute(), dry_run), _say, purge=purge)
    except OSError as error:
        raise _failed(error) from error


def _named(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("FAIRLEAD_") or "\n" in value:
        raise InputRefused(
            f'--set: expected FAIRLEAD_NAME=VALUE, found "{text}"', hint="docs/reference/settings.md has the names"
        )
    return name, value


def _say(what: str, text: str) -> None:
    terminal.note(f"{what:<8}{text}" if len(what) < 8 else f"{what}  {text}")


def _failed(error: OSError) -> FairleadError:
    return FairleadError(f"{error.filename}: {error.strerror}", hint="run it as root, or try it with --dry-run")
