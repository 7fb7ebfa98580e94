"""`volumes` and `datasets`: what is kept for jobs, whose it is, and who else may use it."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from fairlead.client import Client
from fairlead.commands.options import Output, connect
from fairlead.errors import FairleadError, InputRefused, Unreachable
from fairlead.render import terminal
from fairlead.render.terminal import Format, TableColumn
from fairlead_schemas.http.storage import DatasetInfo, VolumeInfo
from fairlead_schemas.policies.storage import Backend
from fairlead_schemas.units.quantities import format_bytes
from fairlead_schemas.wire import trees

volumes = typer.Typer(no_args_is_help=True, help="List, make, resize, share or delete volumes.")
datasets = typer.Typer(no_args_is_help=True, help="List, add, fetch or retire versions of datasets.")

#: {what one may do with a shared volume: the role at it}
SHARES = {"read": "viewer", "write": "member", "manage": "queue-admin"}
Share = Literal["read", "write", "manage"]

VolumeName = Annotated[str, typer.Argument(metavar="VOLUME", help="1 to 63 of a-z 0-9 _ -.", show_default=False)]
DatasetName = Annotated[
    str, typer.Argument(metavar="NAME@VERSION", help="Such as imagenet@2012.1.", show_default=False)
]
Owner = Annotated[
    str,
    typer.Option("--owner", help="Whose it is: queue:research, project:llm, or yourself.", show_default="me"),
]
Yes = Annotated[bool, typer.Option("--yes", help="Without a question: it cannot be undone.")]

VOLUMES = (
    TableColumn("NAME", lambda v: v.name),
    TableColumn("OWNER", lambda v: v.owner_name),
    TableColumn("CLASS", lambda v: v.storage_class),
    TableColumn("QUOTA", lambda v: format_bytes(v.quota_bytes), right=True),
    TableColumn("", lambda v: v.quota),
    TableColumn("YOU MAY", lambda v: ", ".join(verb.removeprefix("volume:") for verb in v.may)),
    TableColumn("CREATED", lambda v: v.created_at, wide=True),
    TableColumn("BY", lambda v: v.created_by, wide=True),
)
CLASSES = (
    TableColumn("CLASS", lambda c: c.name),
    TableColumn("BACKEND", lambda c: c.backend),
    TableColumn("QUOTA", lambda c: c.quota),
    TableColumn(
        "OF A VOLUME", lambda c: "-" if c.volume_bytes_max is None else format_bytes(c.volume_bytes_max), right=True
    ),
    TableColumn("OF A USER", lambda c: format_bytes(c.user_bytes_max), right=True),
)
DATASETS = (
    TableColumn("DATASET", lambda d: d.id),
    TableColumn("OWNER", lambda d: d.owner_name),
    TableColumn("SIZE", lambda d: format_bytes(d.size_bytes), right=True),
    TableColumn("FILES", lambda d: str(d.files), right=True),
    TableColumn("STATE", lambda d: "retired" if d.retired else "ready"),
    TableColumn("DIGEST", lambda d: d.digest, wide=True),
    TableColumn("ADDED", lambda d: d.added_at, wide=True),
    TableColumn("BY", lambda d: d.added_by, wide=True),
)


# ------------------------------------------------------------------------------- volumes


@volumes.command("list")
def list_volumes(output: Output = Format.table) -> None:
    """List volumes that you may read, with whose they are and what you may do.

    fairlead volumes list
    """
    with connect() as client:
        page = client.volumes()
    terminal.write(terminal.page(page, VOLUMES, lambda v: f"volume/{v.name}", output, empty="no volumes"))


@volumes.command("create")
def create_volume(
    name: VolumeName,
    quota: Annotated[str, typer.Option("--quota", help="Most that it may hold, such as 100Gi.", show_default=False)],
    owner: Owner = "",
    storage_class: Annotated[
        str, typer.Option("--class", help="Class of storage; may be left out where there is one.", show_default=False)
    ] = "",
    output: Output = Format.table,
) -> None:
    """Make a volume: of your own, or of a queue or project that you lead.

    fairlead volumes create scratch --quota 50Gi

    fairlead volumes create data --quota 2Ti --owner queue:research --class shared
    """
    with connect() as client:
        made = client.create_volume(name, quota, owner=owner, storage_class=storage_class)
    _write(made, output, f"{made.name}: {_size(made)} of {made.owner_name} in class {made.storage_class}")


@volumes.command("resize")
def resize_volume(
    name: VolumeName,
    quota: Annotated[str, typer.Argument(metavar="QUOTA", help="Such as 200Gi.", show_default=False)],
    output: Output = Format.table,
) -> None:
    """Give a volume another quota. Volumes of some classes only grow.

    fairlead volumes resize scratch 100Gi
    """
    with connect() as client:
        made = client.resize_volume(name, quota)
    _write(made, output, f"{made.name}: {_size(made)}")


@volumes.command("share")
def share_volume(
    name: VolumeName,
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help="A login name, an id, or group:NAME.", show_default=False)
    ],
    what: Annotated[str, typer.Argument(metavar="[read|write|manage]", help="What they may.")] = "read",
    stop: Annotated[bool, typer.Option("--stop", help="Take it back.")] = False,
) -> None:
    """Let another person read, write or manage a volume or all versions of a dataset. Those who may manage it share it.

    fairlead volumes share data bob

    fairlead volumes share data group:vision write

    fairlead volumes share data bob --stop
    """
    if what not in SHARES:
        raise InputRefused(f'expected {", ".join(get_args(Share))}, found "{what}"')
    scope = f"volume:{name}"
    with connect() as client:
        if not stop:
            answer = client.grant(subject, SHARES[what], scope)
            terminal.write(f"{answer.subject_name} may {what} {name}\n")
            return
        answer = client.revoke(subject, SHARES[what], scope)
    still = f", but still does by {', '.join(answer.sources)}" if answer.sources else ""
    terminal.write(f"{answer.subject_name} may no longer {what} {name}{still}\n")
    terminal.note("what runs with it keeps it until it ends")


@volumes.command("delete")
def delete_volume(name: VolumeName, yes: Yes = False, output: Output = Format.table) -> None:
    """Delete a volume with all that is in it. Roles at it end; what runs with it keeps it until it ends.

    fairlead volumes delete scratch --yes
    """
    if not yes:
        typer.confirm(f"Delete {name} with all that is in it?", abort=True, err=True)
    with connect() as client:
        gone = client.delete_volume(name)
    _write(gone, output, f"{gone.name}: deleted")


@volumes.command("put")
def put_volume_file(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="The file.", show_default=False)],
    place: Annotated[str, typer.Argument(metavar="VOLUME:PATH", help="Where it goes.", show_default=False)],
) -> None:
    """Send a file into a volume; jobs see it once it is whole. Sent again after a break, it continues where it was.

    fairlead volumes put model.pt data:runs/7/model.pt
    """
    from fairlead.sync.volume_files import parse_volume_path, put_file

    where = parse_volume_path(place)
    with connect() as client:
        size = put_file(client, source.expanduser(), where, _progress_of(where.path))
    terminal.note(f"{where.volume}:{where.path}: {format_bytes(size)}")


@volumes.command("get")
def get_volume_file(
    place: Annotated[str, typer.Argument(metavar="VOLUME:PATH", help="The file.", show_default=False)],
    destination: Annotated[
        str,
        typer.Argument(metavar="[DEST]", help="Where it goes; by default here, under its name.", show_default=False),
    ] = "",
) -> None:
    """Fetch a file of a volume. Fetched again after a break, it continues where it was.

    fairlead volumes get data:runs/7/model.pt
    """
    from fairlead.sync.volume_files import get_file, parse_volume_path

    where = parse_volume_path(place)
    name = where.path.rpartition("/")[2]
    there = Path(destination or name).expanduser()
    there = there / name if there.is_dir() else there
    with connect() as client:
        size = get_file(client, where, there, _progress_of(where.path))
    terminal.note(f"{there}: {format_bytes(size)}")


@volumes.command("classes")
def list_classes(output: Output = Format.table) -> None:
    """List classes of storage: if quotas are enforced there or only counted, and their bounds.

    fairlead volumes classes
    """
    with connect() as client:
        page = client.storage_classes()
    empty = "no classes of storage: an admin sets one with fairlead volumes set-class"
    terminal.write(terminal.page(page, CLASSES, lambda c: f"class/{c.name}", output, empty=empty))


@volumes.command("set-class")
def set_class(
    name: Annotated[str, typer.Argument(metavar="CLASS", help="1 to 63 of a-z 0-9 _ -.", show_default=False)],
    backend: Annotated[str, typer.Option("--backend", help=", ".join(get_args(Backend)) + ".", show_default=False)],
    volume_max: Annotated[str, typer.Option("--volume-max", help="Largest quota of one volume; 0: no bound.")] = "0",
    user_max: Annotated[
        str, typer.Option("--user-max", help="Most that all volumes of one user have; 0: users have none of their own.")
    ] = "0",
    output: Output = Format.table,
) -> None:
    """Set a class of storage, in which volumes are made, or change its bounds. Needs volume:manage on the cluster.

    fairlead volumes set-class shared --backend directory --user-max 100Gi
    """
    with connect() as client:
        made = client.set_storage_class(name, backend, volume_max=volume_max, user_max=user_max)
    _write(made, output, f"{made.name}: {made.backend}, quotas are {made.quota}")


@volumes.command("remove-class")
def remove_class(
    name: Annotated[str, typer.Argument(metavar="CLASS", show_default=False)], output: Output = Format.table
) -> None:
    """Remove a class of storage that has no volumes.

    fairlead volumes remove-class shared
    """
    with connect() as client:
        gone = client.remove_storage_class(name)
    _write(gone, output, f"{gone.name}: removed")


def _size(volume: VolumeInfo) -> str:
    return f"{format_bytes(volume.quota_bytes)} ({volume.quota})"


def _write(document: object, output: Format, line: str) -> None:
    terminal.write(terminal.document(document, output) if output in (Format.json, Format.yaml) else f"{line}\n")


# ------------------------------------------------------------------------------- datasets


@datasets.command("list")
def list_datasets(output: Output = Format.table) -> None:
    """List versions of datasets that you may read.

    fairlead datasets list
    """
    with connect() as client:
        page = client.datasets()
    terminal.write(terminal.page(page, DATASETS, lambda d: f"dataset/{d.id}", output, empty="no datasets"))


@datasets.command("add")
def add_dataset(
    dataset: DatasetName,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The files.", show_default=False)],
    owner: Owner = "",
    output: Output = Format.table,
) -> None:
    """Send a directory and record it as a version of a dataset, which never changes. Sent again after a break, it continues where it was.

    fairlead datasets add flowers@1 ./flowers --owner queue:research
    """
    from fairlead.sync.send import send_directory

    with connect() as client:
        sent = send_directory(directory.expanduser(), client, terminal.note)
        made = client.add_dataset(dataset, sent.name, owner=owner)
    _write(made, output, f"{made.id}: {made.files} files, {format_bytes(made.size_bytes)}, of {made.owner_name}")


@datasets.command("get")
def get_dataset(
    dataset: DatasetName,
    destination: Annotated[
        str, typer.Argument(metavar="[DEST]", help="A new directory; by default that of the name.", show_default=False)
    ] = "",
) -> None:
    """Fetch a version of a dataset into a new directory. Fetched again after a break, it continues where it was.

    fairlead datasets get flowers@1

    fairlead datasets get flowers@1 /data/flowers
    """
    with connect() as client:
        found = client.dataset(dataset)
        place = Path(destination or found.name).expanduser()
        if place.exists():
            raise InputRefused(f"{place} is there already", hint=f"fairlead datasets get {dataset} DIR")
        _fetch(client, found, place)
    terminal.note(f"{place}: {found.files} files, {format_bytes(found.size_bytes)}")


@datasets.command("retire")
def retire_dataset(dataset: DatasetName, yes: Yes = False, output: Output = Format.table) -> None:
    """Let no job name a version any more. Its name and version are never used again.

    fairlead datasets retire flowers@1 --yes
    """
    if not yes:
        typer.confirm(f"Retire {dataset} for good?", abort=True, err=True)
    with connect() as client:
        gone = client.retire_dataset(dataset)
    _write(gone, output, f"{gone.id}: retired")


def _fetch(client: Client, dataset: DatasetInfo, place: Path) -> None:
    """Fetch a version to a path that is not there. Pieces that came are kept next to it until all are there, so a break costs none of them.
    Raises FairleadError.
    """
    from fairlead_agent.core.runs import RunKey
    from fairlead_agent.launch.plan import Unlaunchable
    from fairlead_agent.launch.sync_tree import SyncTrees

    parts = place.with_name(f".{place.name}.fairlead-part")
    kept = parts / "pieces"
    size = 0

    async def piece(digest: bytes) -> bytes:
        nonlocal size
        file = kept / digest.hex()
        with contextlib.suppress(OSError):
            data = file.read_bytes()
            if trees.digest_of(data) == digest:
                return data
        data = client.dataset_piece(dataset.id, digest.hex())
        if trees.digest_of(data) != digest:
            raise Unreachable(f"piece {digest.hex()} came damaged", hint="run it again")
        half = file.with_suffix(".half")
        half.write_bytes(data)
        half.replace(file)
        size += len(data)
        _progress(dataset, size - len(data), size)
        return data

    try:
        kept.mkdir(parents=True, exist_ok=True)
        staging = SyncTrees(parts, piece, open_to_all=False)
        staged = asyncio.run(staging.stage(RunKey("dataset", 1, 0), dataset.digest))
        os.rename(staged, place)  # noqa: PTH104 -- a text
    except Unlaunchable as error:
        raise FairleadError(str(error), hint="run it again, or have the dataset added again") from error
    except OSError as error:
        raise InputRefused(f"{error.filename or place}: {error.strerror or error}") from error
    shutil.rmtree(parts, ignore_errors=True)


#: Progress is reported for each of so many bytes.
REPORTED_BYTES = 16 * 2**20


def _progress(dataset: DatasetInfo, before: int, size: int) -> None:
    if before // REPORTED_BYTES != size // REPORTED_BYTES:
        terminal.note(f"{dataset.id}: {format_bytes(size)} of {format_bytes(dataset.size_bytes)}")


def _progress_of(name: str) -> Callable[[int, int], None]:
    """Return a reporter of (bytes, all bytes) of one file."""
    reported = 0

    def note(done: int, total: int) -> None:
        nonlocal reported
        if done // REPORTED_BYTES != reported // REPORTED_BYTES:
            terminal.note(f"{name}: {format_bytes(done)} of {format_bytes(total)}")
        reported = done

    return note
