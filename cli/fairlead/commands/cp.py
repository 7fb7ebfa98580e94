"""`cp`: files of a job's own directory, and its kept outputs, copied to this machine or listed.

They come as an archive that nobody here has made: names that lead elsewhere, links that leave the destination and devices are left
out, with a remark.
"""

import io
import posixpath
import tarfile
from collections.abc import Buffer, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from fairlead.client import Client
from fairlead.commands.options import Output, connect, pick
from fairlead.errors import FairleadError, InputRefused, Unreachable
from fairlead.render import terminal
from fairlead.render.terminal import Format
from fairlead_schemas.http.api import RunDirectory
from fairlead_schemas.units.quantities import counted, format_bytes

#: The gateway's remarks on what an archive lacks.
ERRORS_MEMBER = ".fairlead-errors"
ERRORS_BYTES_MAX = 1024 * 1024
ALL_RANKS = "all"


class Source(NamedTuple):
    """Files of one rank of a job."""

    job: str
    path: str
    rank: int
    attempt: int | None


class _Copied(NamedTuple):
    files: int
    size: int
    #: Remarks on what is missing.
    missing: list[str]


def cp(
    source: Annotated[
        str, typer.Argument(metavar="JOB[:PATH|:OUTPUT]", help="Job, and what of it: a path, or the name of an output.")
    ],
    destination: Annotated[str, typer.Argument(metavar="[DEST]", help="Where it goes.", show_default=False)] = "",
    rank: Annotated[str, typer.Option("--rank", help='Rank of a gang; "all": each into a directory of its own.')] = "0",
    attempt: Annotated[int | None, typer.Option("--attempt", help="An earlier attempt.", show_default=False)] = None,
    output: Output = Format.table,
) -> None:
    """Copy files of a job's own directory, or its kept outputs, to this machine; without a destination, list them.

    fairlead cp last:

    fairlead cp 812:model .

    fairlead cp 812:logs/train.log train.log

    fairlead cp 812:model models --rank all
    """
    word, colon, path = source.partition(":")
    if not colon and ":" in destination and Path(source).expanduser().exists():
        raise InputRefused(
            "files are copied from a job, not into one", hint="fairlead submit --sync DIR sends a directory with a job"
        )
    with connect() as client:
        chosen = pick(client, [word], names=True)
        if len(chosen) != 1:
            raise InputRefused(f'expected one job such as "12", "12_3" or "last", found "{word}"')
        sources = [Source(chosen[0], path.strip("/"), number, attempt) for number in _ranks(client, chosen[0], rank)]
        if not destination:
            _list(client, sources, output)
            return
        copied = [_copy(client, each, _place(destination, each, several=rank == ALL_RANKS)) for each in sources]
    _report(copied)


def _ranks(client: Client, job: str, rank: str) -> list[int]:
    if rank == ALL_RANKS:
        return [*range(max(1, len(client.job(job).nodes)))]
    if not rank.isascii() or not rank.isdecimal():
        raise InputRefused(f'--rank: expected a number or "{ALL_RANKS}", found "{rank}"')
    return [int(rank)]


def _place(destination: str, source: Source, *, several: bool) -> str:
    """Return where a rank's files go. Of several ranks each has a directory of its own."""
    if not several:
        return destination
    place = Path(destination) / f"rank-{source.rank}"
    place.mkdir(parents=True, exist_ok=True)
    return f"{place}/"


def _list(client: Client, sources: list[Source], output: Format) -> None:
    found = [client.files(each.job, each.path, rank=each.rank, attempt=each.attempt) for each in sources]
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(found[0] if len(found) == 1 else found, output))
        return
    for each in found:
        if len(found) > 1:
            terminal.write(f"rank {each.rank} ({each.node}):\n")
        terminal.write(listing(each))


def listing(found: RunDirectory) -> str:
    """Return the entries of a directory, or the file itself, a line each."""
    lines: list[str] = []
    for entry in found.entries if found.entry.kind == "directory" else [found.entry]:
        size = format_bytes(entry.size) if entry.kind == "file" else ""
        name = entry.name + ("/" if entry.kind == "directory" else "*" if entry.executable else "")
        target = f" -> {entry.target}" if entry.target else ""
        lines.append(f"{size:>12}  {terminal.harmless(name + target)}\n")
    return "".join(lines)


class _Pieces(io.RawIOBase):
    """Pieces of an answer as a file that is read once."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "Buffer", /) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        view = memoryview(buffer)
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def _copy(client: Client, source: Source, destination: str) -> _Copied:
    """Copy as `cp -r` does: into a directory that is there, else under the destination's name. Raises FairleadError."""
    pieces = client.archive(source.job, source.path, rank=source.rank, attempt=source.attempt)
    top = posixpath.basename(source.path)
    place = Path(destination).expanduser()
    try:
        if not top:
            place.mkdir(parents=True, exist_ok=True)
            root, name = place, ""
        elif place.is_dir() or destination.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
            root, name = place, top
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            root, name = place.parent, place.name
        with tarfile.open(fileobj=io.BufferedReader(_Pieces(pieces)), mode="r|") as archive:
            return _extract(archive, root, top, name)
    except tarfile.TarError as error:
        raise Unreachable(
            f"the archive broke off: {error}", hint="copy again; files that are there are replaced"
        ) from error
    except OSError as error:
        raise InputRefused(f"{error.filename or destination}: {error.strerror or error}") from error


def _extract(archive: tarfile.TarFile, root: Path, top: str, name: str) -> _Copied:
    files = size = 0
    missing: list[str] = []
    for member in archive:
        if member.name == ERRORS_MEMBER:
            file = archive.extractfile(member)
            text = file.read(ERRORS_BYTES_MAX) if file is not None else b""
            missing += text.decode(errors="replace").splitlines()
            continue
        own = name + member.name.removeprefix(top) if name != top else member.name
        try:
            safe = tarfile.data_filter(member.replace(name=own, deep=False), str(root))
        except (tarfile.AbsoluteLinkError, tarfile.LinkOutsideDestinationError):
            terminal.note(f"warning: a link that leads out is left out: {member.name} -> {member.linkname}")
            continue
        except tarfile.FilterError as error:
            missing.append(f"{member.name}: {error}")
            continue
        archive.extract(safe, root, filter="fully_trusted")  # filtered above, so that the rest is still copied
        files += not safe.isdir()
        size += safe.size if safe.isreg() else 0
    return _Copied(files, size, missing)


def _report(copied: list[_Copied]) -> None:
    """Write what was copied, and what was not; ends with an error where something is missing."""
    files, size = sum(each.files for each in copied), sum(each.size for each in copied)
    missing = [line for each in copied for line in each.missing]
    for line in missing:
        terminal.note(f"warning: not copied: {line}")
    terminal.note(f"{counted(files, 'file')}, {format_bytes(size)}")
    if missing:
        raise FairleadError(f"{len(missing)} file{'' if len(missing) == 1 else 's'} could not be copied")
