"""`service`: programs that answer requests under one name until they are stopped, as replicas; and the keys by which other programs use them.

A service is submitted by a job file with `kind: service`. Start at `apply`.
"""

import time
from pathlib import Path
from typing import Annotated

import typer

from fairlead.commands.options import Output, connect
from fairlead.commands.submit import with_directories, with_products
from fairlead.errors import FairleadError, InputRefused
from fairlead.jobfile.reader import require_kept, source
from fairlead.render import terminal
from fairlead.render.terminal import Format, TableColumn
from fairlead_schemas.http.services import ServiceInfo

service = typer.Typer(no_args_is_help=True, help="Submit, list, scale or stop services, and make or revoke their keys.")

LOOK_S = 0.3

Name = Annotated[str, typer.Argument(metavar="SERVICE", help="The name of its job file.", show_default=False)]
Wait = Annotated[bool, typer.Option("--wait", help="Until as many replicas take requests as are wanted.")]

SERVICES = (
    TableColumn("NAME", lambda s: s.name),
    TableColumn("SERVING", lambda s: f"{s.serving}/{s.wanted}", right=True),
    TableColumn("REPLICAS", lambda s: _range(s), right=True),
    TableColumn("QUEUE", lambda s: s.queue),
    TableColumn("USER", lambda s: s.user),
    TableColumn("STATE", lambda s: state_of(s)),
    TableColumn("REVISION", lambda s: str(s.revision), right=True, wide=True),
    TableColumn("ADDRESS", lambda s: address_of(s), wide=True),
)
KEYS = (
    TableColumn("KEY", lambda k: k.key),
    TableColumn("NAME", lambda k: k.name or "-"),
    TableColumn("A MINUTE", lambda k: str(k.per_minute or "-"), right=True),
    TableColumn("AT A TIME", lambda k: str(k.in_flight or "-"), right=True),
    TableColumn("EXPIRES", lambda k: k.expires_at or "-"),
    TableColumn("CREATED", lambda k: k.created_at, wide=True),
    TableColumn("BY", lambda k: k.created_by, wide=True),
)


@service.command("apply")
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A job file with kind: service.", show_default=False)],
    wait: Wait = False,
    output: Output = Format.table,
) -> None:
    """Submit a service, or put another one in the place of that of its name: a new replica serves before an old one ends.

    fairlead service apply chat.yaml --wait
    """
    loaded, _ = source([], file, dashes=False)
    for note in require_kept(loaded.unkept, ()):
        terminal.note(f"warning: {note}")
    if len(loaded.jobs) != 1:
        raise InputRefused(f"{file}: expected one service, found {len(loaded.jobs)} jobs")
    with connect() as client:
        (job,) = with_directories([*loaded.jobs], file.parent, client)
        made = client.apply_service(with_products(job, client, offline_ok=False))
        if wait:
            while not is_settled(made):
                if made.blocked:
                    raise FairleadError(
                        f"no replica can be submitted: {made.blocked}", hint=f"fairlead service show {made.name}"
                    )
                time.sleep(LOOK_S)
                made = client.service(made.name)
    _write(made, output, f"{made.name}: revision {made.revision}, {made.serving} of {made.wanted} serve")


@service.command("list")
def list_services(output: Output = Format.table) -> None:
    """List services that you may see: how many replicas take requests, of those wanted.

    fairlead service list
    """
    with connect() as client:
        page = client.services()
    terminal.write(terminal.page(page, SERVICES, lambda s: f"service/{s.name}", output, empty="no services"))


@service.command("show")
def show(name: Name, output: Output = Format.table) -> None:
    """Show one service: where programs reach it, and what each of its replicas is doing. A replica is a job.

    fairlead service show chat
    """
    with connect() as client:
        found = client.service(name)
    _write(found, output, "\n".join(describe(found)))


@service.command("scale")
def scale(
    name: Name,
    replicas: Annotated[
        str, typer.Argument(metavar="REPLICAS", help='A number, or from and to: "0-4".', show_default=False)
    ],
    output: Output = Format.table,
) -> None:
    """Give a service another number of replicas. A range follows the requests in flight, as its job file says.

    fairlead service scale chat 3

    fairlead service scale chat 0-4
    """
    with connect() as client:
        made = client.scale_service(name, replicas)
    _write(made, output, f"{made.name}: {made.wanted} wanted, {made.serving} serve")


@service.command("stop")
def stop(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Without a question.")] = False,
    output: Output = Format.table,
) -> None:
    """Stop a service, with all its replicas and keys.

    fairlead service stop chat --yes
    """
    if not yes:
        typer.confirm(f"Stop {name} and revoke its keys?", abort=True, err=True)
    with connect() as client:
        gone = client.stop_service(name)
    _write(gone, output, f"{gone.name}: stops")


@service.command("keys")
def keys(
    name: Name,
    new: Annotated[
        str, typer.Option("--new", help="Make a key of this name, and print it: once.", show_default=False)
    ] = "",
    per_minute: Annotated[
        int, typer.Option("--per-minute", min=0, help="With --new: requests in a minute; 0: no bound.")
    ] = 0,
    in_flight: Annotated[
        int, typer.Option("--in-flight", min=0, help="With --new: requests at a time; 0: no bound.")
    ] = 0,
    expires: Annotated[
        str, typer.Option("--expires", help="With --new: such as 30d; until it is revoked.", show_default=False)
    ] = "",
    revoke: Annotated[str, typer.Option("--revoke", help="Revoke the key of this id.", show_default=False)] = "",
    output: Output = Format.table,
) -> None:
    """List the keys of a service, make one, or revoke one. Programs send a key as `Authorization: Bearer`.

    fairlead service keys chat --new "web shop" --per-minute 600 --in-flight 8

    fairlead service keys chat --revoke 4f1c8a20bd
    """
    if new and revoke:
        raise InputRefused("expected --new or --revoke, found both")
    if (per_minute or in_flight or expires) and not new:
        raise InputRefused(
            "expected --new with bounds: a key never changes", hint=f"fairlead service keys {name} --new NAME"
        )
    with connect() as client:
        if revoke:
            gone = client.revoke_service_key(name, revoke)
            _write(gone, output, f"{gone.name}: revoked")
            return
        if new:
            made = client.issue_service_key(name, name=new, per_minute=per_minute, in_flight=in_flight, expires=expires)
            terminal.note(f"key {made.key} of {name}; this is shown once:")
            _write(made, output, made.token)
            return
        page = client.service_keys(name)
    empty = f"no keys: fairlead service keys {name} --new NAME makes one"
    terminal.write(terminal.page(page, KEYS, lambda k: f"key/{k.key}", output, empty=empty))


# ------------------------------------------------------------------------------- words


def is_settled(found: ServiceInfo) -> bool:
    """Return whether as many replicas of the newest revision take requests as are wanted, and no others are left."""
    serving = [each for each in found.replicas if each.state == "serving" and each.revision == found.revision]
    return len(serving) == found.wanted == len(found.replicas)


def state_of(found: ServiceInfo) -> str:
    """Return what a service is doing in one word or two."""
    if found.stopping:
        return "stopping"
    if found.blocked:
        return "blocked"
    if not found.wanted and not found.replicas:
        return "asleep" if found.replicas_max else "scaled to 0"
    return "ready" if is_settled(found) else "changing"


def address_of(found: ServiceInfo) -> str:
    """Return where programs reach a service: by its own name, or at the app proxy, by their key."""
    return found.url or found.address or "-"


def describe(found: ServiceInfo) -> list[str]:
    """Return the lines about a service."""
    lines = [
        f"{found.name} ({state_of(found)}): {found.serving} of {found.wanted} replicas serve, revision {found.revision}",
        f"queue {found.queue}, of {found.user}, replicas {_range(found)}",
    ]
    if found.blocked:
        lines.append(f"no replica can be submitted: {found.blocked}")
    if found.url:
        lines.append(f"address {found.url}")
    if found.address:
        lines.append(
            f"{'also' if found.url else 'address'} {found.address}, by a key: fairlead service keys {found.name}"
        )
    else:
        lines.append("no app proxy answers, so no program reaches it: docs/how-to/reach-a-job.md")
    for each in found.replicas:
        why = f", {each.retired}" if each.retired else ""
        at = f" on {each.node}" if each.node else ""
        lines.append(f"  job {each.job}: {each.state}{at}, revision {each.revision}{why}")
    return lines


def _range(found: ServiceInfo) -> str:
    low, high = found.replicas_min, found.replicas_max
    return str(low) if low == high else f"{low}-{high}, {found.requests} requests each"


def _write(document: object, output: Format, line: str) -> None:
    terminal.write(terminal.document(document, output) if output in (Format.json, Format.yaml) else f"{line}\n")
