"""`backup make`, `check` and `restore`: a cluster as a signed directory, what is lost by going back to it, and the way back."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.commands.archive import Key, refused, verifier_of
from fairlead.commands.audit_options import Data, Nats, bus_url, new_bus, translated
from fairlead.commands.options import Output
from fairlead.errors import InputRefused
from fairlead.render import terminal
from fairlead.render.progress import progress
from fairlead.render.terminal import Format
from fairlead.stack import state

if TYPE_CHECKING:  # signing is loaded by the verbs that need it
    from fairlead_replay.archive.backup import BackupManifest, LossScan, StateAtEnd

app = typer.Typer(no_args_is_help=True, help="Back up a cluster, check a backup, or restore one.")

Directory = Annotated[Path, typer.Argument(metavar="BACKUP", help="The backup's directory.", show_default=False)]
Known = Annotated[
    list[Path],
    typer.Option(
        "--known", help="A book of checkpoints from elsewhere: shows that the log was cut off.", show_default=False
    ),
]
Against = Annotated[
    str,
    typer.Option(
        "--against",
        help="The present cluster, to name what a restore would lose: its data directory, or its bus (nats://…).",
        show_default=False,
    ),
]
#: Lost commits that a table shows, the first ones.
LOST_SHOWN = 20


@app.command()
def make(
    directory: Directory,
    key_file: Annotated[
        Path,
        typer.Option(
            "--key-file", help="The archive's secret key.", envvar="FAIRLEAD_ARCHIVE_KEY_FILE", show_default=False
        ),
    ],
    days: Annotated[
        Path | None,
        typer.Option("--days", help="Files of measured samples.  [default: DATA/telemetry/days]", show_default=False),
    ] = None,
    keys: Annotated[
        Path | None, typer.Option("--keys", help="The list of the bus's users (users.json).", show_default=False)
    ] = None,
    settings: Annotated[
        list[Path], typer.Option("--settings", help="A settings file; may be repeated.", show_default=False)
    ] = [],  # noqa: B006 -- typer's form of a repeated option
    data: Data = None,
    nats: Nats = "",
) -> None:
    """Copy log, days of samples, the list of bus users and settings into a directory, and sign it. Again: what is new is added.

    fairlead backup make ./backup --key-file archive.key

    fairlead backup make /srv/backup --nats nats://bus:4222 --days /var/lib/fairlead-telemetry/telemetry/days --keys /etc/fairlead/bus/users.json --settings /etc/fairlead/services.env
    """
    from fairlead_bus.main import configure_logging, with_bus
    from fairlead_replay.archive import archiver, backup
    from fairlead_replay.archive.archiver import Archiver
    from fairlead_replay.archive.store import Store
    from fairlead_schemas.units.timestamps import rfc3339_seconds

    configure_logging("warning")
    folder = (data or state.default_data()).absolute()
    if days is None and not nats:
        days = folder / "telemetry" / "days"
    elif days is not None and not days.is_dir():
        raise InputRefused(f"--days: {days} is no directory")
    with bus_url(folder, nats) as url, translated(), refused():
        signer = archiver.read_key_file(key_file)
        found = backup.sources(days, keys, settings)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        (directory / backup.NOTE).unlink(missing_ok=True)  # from here on it is not whole
        store = Store((directory / backup.LOG).absolute(), signer)
        try:
            with progress("backup", "commits") as seen:
                with_bus(url, "archiver", lambda bus: Archiver(bus, store).catch_up(seen))
        finally:
            store.close()
        manifest = backup.write(directory, signer, found, rfc3339_seconds(time.time_ns()))
    terminal.write(
        f"{directory}: the log up to sequence {manifest.sequence}, {len(manifest.files)} files, all signed\n"
    )


@app.command()
def check(
    directory: Directory,
    key: Key = "",
    known: Known = [],  # noqa: B006 -- as above
    against: Against = "",
    output: Output = Format.table,
) -> None:
    """Check that a backup is whole and signed; say what it has, and what a restore would lose. Nothing is changed.

    fairlead backup check ./backup --key fairlead.log+…

    fairlead backup check ./backup --against ./cluster
    """
    with _checked(directory, key, known, against) as (manifest, end, scan):
        _write(directory, manifest, end, scan, output)


@app.command()
def restore(
    directory: Directory,
    data: Annotated[
        Path | None, typer.Option("--data", help="A new directory for a cluster to come.", show_default=False)
    ] = None,
    nats: Annotated[
        str, typer.Option("--nats", help="Or an empty bus: the addresses of one server or three.", show_default=False)
    ] = "",
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            help="With --nats: where days, keys and settings are put, to be moved to their places.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and say what would be lost; write nothing.")
    ] = False,
    key: Key = "",
    known: Known = [],  # noqa: B006 -- as above
    against: Against = "",
) -> None:
    """Restore a backup into a new directory or an empty bus. What is there already is never written over.

    fairlead backup restore ./backup --data ./restored --against ./cluster --dry-run

    fairlead backup restore /srv/backup --nats nats://bus-1:4222,nats://bus-2:4222,nats://bus-3:4222 --into /srv/restored
    """
    from fairlead_bus.main import with_bus
    from fairlead_replay.archive import backup
    from fairlead_replay.archive.restore import restore as restore_into

    if (data is None) == (not nats):
        raise InputRefused("where to? name a new directory with --data, or an empty bus with --nats")
    if nats and into is None and not dry_run:
        raise InputRefused("--into: name a directory for days, keys and settings of the backup")
    with _checked(directory, key, known, against) as (manifest, end, scan):
        _write(directory, manifest, end, scan, Format.table)
    if dry_run:
        terminal.write("dry run: nothing was written\n")
        return
    folder = (data or into or Path()).absolute()
    with new_bus(folder, nats) as url, translated(), refused(), progress("restore", "commits") as seen:
        days = folder / "telemetry" / "days" if data is not None else folder / backup.DAYS
        files = backup.put_back(directory, manifest, days, folder / "from-backup" if data is not None else folder)
        began = time.monotonic()
        last = with_bus(
            url,
            "restore",
            lambda bus: restore_into(bus, (directory / backup.LOG).absolute(), seen, through=manifest.sequence),
        )
        took_s = max(time.monotonic() - began, 0.001)
    terminal.write(
        f"restored  {nats or data}: the log up to sequence {last} in {took_s:.1f} s ({last / took_s:,.0f} commits/s), {files} files\n"
    )
    if end.running:
        terminal.write(
            "next      start the services; agents report the runs above: those that still run are adopted, the others end as exit_unknown\n"
        )


@contextmanager
def _checked(
    directory: Path, key: str, known: list[Path], against: str
) -> "Iterator[tuple[BackupManifest, StateAtEnd, LossScan | None]]":
    """Check a backup, and hold the present cluster against it. Raises FairleadError."""
    from fairlead_replay.archive import backup

    for book in known:
        if not book.exists():
            raise InputRefused(f"--known: there is no {book}")
    with translated(), refused():
        manifest = backup.check(directory, verifier_of(key), tuple(known))
        scan = _scan(manifest, against) if against else None
        yield manifest, backup.state_at_end(directory, manifest.sequence), scan


def _scan(manifest: "BackupManifest", against: str) -> "LossScan":
    from fairlead_bus.main import with_bus
    from fairlead_bus.port import Bus
    from fairlead_replay.archive.backup import LossScan
    from fairlead_replay.audit import read_log

    scan = LossScan(manifest)

    async def read(bus: Bus) -> None:
        async for stored in read_log(bus):
            scan.take(stored)

    is_bus = "://" in against
    with bus_url(Path() if is_bus else Path(against).absolute(), against if is_bus else "") as url:
        with_bus(url, "auditor", read)
    scan.end()
    return scan


def _write(
    directory: Path, manifest: "BackupManifest", end: "StateAtEnd", scan: "LossScan | None", output: Format
) -> None:
    if output in (Format.json, Format.yaml):
        lost = (
            None
            if scan is None
            else {"commits": [each._asdict() for each in scan.lost], "submitted": scan.submitted, "ended": scan.ended}
        )
        document = {
            "ok": True,
            "made_at": manifest.made_at,
            "sequence": manifest.sequence,
            "files": len(manifest.files),
            "waiting": end.waiting,
            "running": [each._asdict() for each in end.running],
            "lost": lost,
        }
        terminal.write(terminal.document(document, output))
        return
    commits = ", ".join(f"{writer} {n}" for writer, n in sorted(end.commits.items()))
    lines = [
        f"ok        {directory}: made at {manifest.made_at}, the log up to sequence {end.sequence} of {end.at} ({commits}), {len(manifest.files)} files",
        f"jobs      {end.waiting} waiting, {len(end.running)} with a place",
        *(f"running   job {each.job}, attempt {each.attempt}, on {', '.join(each.nodes)}" for each in end.running),
    ]
    if scan is None:
        lines.append(f"lost      every commit after sequence {end.sequence}; --against names them")
    elif not scan.lost:
        lines.append("lost      nothing: the present log ends where the backup does")
    else:
        first, last = scan.lost[0], scan.lost[-1]
        lines.append(
            f"lost      {len(scan.lost)} commits, sequences {first.sequence} to {last.sequence}, {first.at} to {last.at}"
        )
        lines += [
            f"lost      {each.sequence}  {each.writer} {each.n}  {each.at}  {each.events}"
            for each in scan.lost[:LOST_SHOWN]
        ]
        if len(scan.lost) > LOST_SHOWN:
            lines.append(f"lost      … and {len(scan.lost) - LOST_SHOWN} more (-o json of `backup check` has all)")
        for word, jobs in (("submitted", scan.submitted), ("ended", scan.ended)):
            if jobs:
                lines.append(
                    f"lost      that these jobs were {word}: {', '.join(jobs[:LOST_SHOWN])}{', …' if len(jobs) > LOST_SHOWN else ''}"
                )
    terminal.write("".join(f"{line}\n" for line in lines))
