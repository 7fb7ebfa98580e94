"""Commands `audit key`, `archive`, `restore`, `prove` and `check`: the log's archive, by hand. `fairlead_replay.archive`
does the work.

The archiver that follows the log continuously is a process of its own, `python -m fairlead_replay.archive`
(docs/how-to/archive.md).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from fairlead.commands.audit_options import Data, Nats, bus_url, is_export, new_bus, translated
from fairlead.commands.options import Output
from fairlead.errors import FairleadError, InputRefused
from fairlead.render import terminal
from fairlead.render.progress import progress
from fairlead.render.terminal import Format
from fairlead.stack import state

if TYPE_CHECKING:  # signing is loaded by the verbs that check signatures
    from fairlead_replay.archive.checkpoints import Verifier
    from fairlead_replay.archive.verify import ArchiveReport

Directory = Annotated[Path, typer.Argument(metavar="ARCHIVE", help="The archive's directory.", show_default=False)]
Key = Annotated[
    str,
    typer.Option(
        "--key",
        help="The public key that you were given, or a file with it.",
        envvar="FAIRLEAD_ARCHIVE_KEY",
        show_default=False,
    ),
]


def verifier_of(key: str) -> "Verifier | None":
    """The public key of an option, which is the key or a file that holds it; None where it was not given."""
    from fairlead_replay.archive.checkpoints import BadNote, read_verifier

    if not key:
        return None
    try:
        path = Path(key)
        return read_verifier(path.read_text().strip() if path.is_file() else key)
    except (BadNote, OSError, UnicodeDecodeError) as error:
        raise InputRefused(
            f"--key: {error}", hint="`fairlead audit key` printed it; an archive's own key is in its archive.json"
        ) from error


def key(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to write the secret key; is made.", show_default=False)
    ],
    name: Annotated[str, typer.Option("--name", help="Whose log it signs, in one word.")] = "fairlead.log",
) -> None:
    """Make the key that an archiver signs its checkpoints with, and print the public half for those who check.

    fairlead audit key archive.key --name fairlead.log/berlin
    """
    from fairlead_replay.archive import archiver

    with refused():
        made = archiver.generate_key(name)
        try:
            archiver.write_key_file(file, made)
        except FileExistsError:
            raise InputRefused(f"{file} is there already; a key is never written over") from None
    terminal.write(made.verifier.spelled + "\n")


def archive(
    directory: Directory,
    key_file: Annotated[
        Path,
        typer.Option("--key-file", help="The secret key.", envvar="FAIRLEAD_ARCHIVE_KEY_FILE", show_default=False),
    ],
    copy: Annotated[
        Path | None,
        typer.Option(
            "--copy",
            help="A second book of checkpoints, elsewhere.",
            envvar="FAIRLEAD_ARCHIVE_COPY",
            show_default=False,
        ),
    ] = None,
    data: Data = None,
    nats: Nats = "",
) -> None:
    """Bring an archive up to what the log holds now, sign it, and end. A directory that is no archive becomes one.

    fairlead audit archive ./archive --key-file archive.key
    """
    from fairlead_bus.main import configure_logging, with_bus
    from fairlead_replay.archive import archiver
    from fairlead_replay.archive.archiver import Archiver
    from fairlead_replay.archive.store import Store

    configure_logging("warning")
    with bus_url((data or state.default_data()).absolute(), nats) as url, translated(), refused():
        store = Store(directory.absolute(), archiver.read_key_file(key_file), copy=copy)
        try:
            before = store.size
            with progress("audit archive", "commits") as seen:
                last = with_bus(url, "archiver", lambda bus: Archiver(bus, store).catch_up(seen))
        finally:
            store.close()
    terminal.write(f"{directory}: sequences 1 to {last}, {last - before} of them new, all signed\n")


def restore(
    directory: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="An archive's directory, or an export's.", show_default=False)
    ],
    data: Data = None,
    nats: Nats = "",
) -> None:
    """Make a new log of an archive or an export: into the data of a cluster to come (--data), or an empty bus (--nats).

    fairlead audit restore ./archive --data ./restored

    fairlead audit restore ./export --data ./restored
    """
    from fairlead_bus.main import with_bus
    from fairlead_replay.archive.restore import restore as restore_into

    if not nats and data is None:
        raise InputRefused("where to? name a new directory with --data, or an empty bus with --nats")
    with (
        new_bus((data or Path()).absolute(), nats) as url,
        translated(),
        refused(),
        progress("audit restore", "commits") as seen,
    ):
        last = with_bus(url, "restore", lambda bus: restore_into(bus, directory.absolute(), seen))
    terminal.write(f"{nats or data}: the log up to sequence {last}, as {directory} has it\n")


def prove(
    sequence: Annotated[int, typer.Argument(metavar="SEQ", help="Which commit of the log.", show_default=False)],
    directory: Annotated[Path, typer.Option("--archive", help="The archive's directory.", show_default=False)],
    before: Annotated[
        int,
        typer.Option(
            "--since", min=0, help="The size of an earlier checkpoint, which must be shown to be this log's beginning."
        ),
    ] = 0,
) -> None:
    """Print a proof (JSON) that a commit is in the log, for a person with only a checkpoint or the public key.

    fairlead audit prove 4711 --archive ./archive > proof.json
    """
    from fairlead_replay.archive import proofs

    with refused():
        proof = proofs.make(directory, sequence, before=before)
    terminal.write(msgspec.json.format(msgspec.json.encode(proof)).decode() + "\n")


def check(
    file: Annotated[Path, typer.Argument(metavar="PROOF", help="What `audit prove` printed.", show_default=False)],
    key: Key = "",
    known: Annotated[
        Path | None,
        typer.Option("--known", help="An earlier checkpoint that you kept (the last of the file).", show_default=False),
    ] = None,
    output: Output = Format.table,
) -> None:
    """Check a proof: no server and no archive is needed. Exit code 1 where it proves nothing.

    fairlead audit check proof.json --key fairlead.log+…
    """
    from fairlead_replay.archive import proofs
    from fairlead_replay.archive.contents import read_notes

    verifier = verifier_of(key)
    if verifier is None:
        raise InputRefused("--key: expected the public key that you were given; a proof cannot vouch for itself")
    with refused():
        earlier = read_notes(known)[-1:] if known else []
        proof = proofs.read(file.read_bytes())
        checkpoint = proofs.check(proof, verifier, *earlier)
    if output in (Format.json, Format.yaml):
        found = {"ok": True, "sequence": proof.sequence, "size": checkpoint.size, "signed_at": checkpoint.signed_at}
        terminal.write(terminal.document(found, output))
    else:
        terminal.write(
            f"ok: sequence {proof.sequence} of {checkpoint.origin}, in the log of {checkpoint.size} commits"
            f" signed at {checkpoint.signed_at}\n"
        )


def verify_with(
    directory: Path, data: Path, nats: str, key: str, known: list[Path], remember: Path | None, output: Format
) -> None:
    """`audit verify --archive`: log, archive and checkpoints together; exit code 1 where anything is wrong."""
    from fairlead_bus.main import with_bus
    from fairlead_replay.archive import segments
    from fairlead_replay.archive.checkpoints import entry
    from fairlead_replay.archive.contents import read_notes
    from fairlead_replay.archive.verify import verify_archive, verify_together, verify_with_export

    verifier = verifier_of(key)
    books = tuple(known) + ((remember,) if remember else ())
    for book in known:
        if not book.exists():
            raise InputRefused(f"--known: there is no {book}")

    def report() -> "ArchiveReport":
        if not nats and is_export(data):
            return verify_with_export(data, directory, key=verifier, known=books)
        if not nats and not (data / "nats" / "store").is_dir():
            return verify_archive(directory, key=verifier, known=books)
        with bus_url(data, nats) as url:
            return with_bus(url, "audit", lambda bus: verify_together(bus, directory, key=verifier, known=books))

    with translated(), refused():
        found = report()
        if remember and found.ok and found.newest and found.newest not in read_notes(remember):
            segments.append(remember, entry(found.newest).encode())
    if output in (Format.json, Format.yaml):
        document = found._asdict() | {"found": [one._asdict() for one in found.found]}
        terminal.write(terminal.document(document, output))
    else:
        terminal.write(_summary(found))
        for one in found.found:
            where = f"{one.where}, sequence {one.sequence}" if one.sequence else one.where
            terminal.write(f"DAMAGED: {where}: {one.what}\n")
        if verifier is None:
            terminal.write(
                f"the key is the archive's own word, compare it with the one that you were given: {found.key}\n"
            )
    if not found.ok:
        raise typer.Exit(1)


def _summary(report: "ArchiveReport") -> str:
    """Return one line with the data that was read and the extent that signatures cover."""
    parts = [
        f"the log up to {report.log}" if report.log >= 0 else "no log (none was found; name one with --data or --nats)",
        f"the archive up to {report.archived} ({report.events} events)",
        f"checkpoints: {report.checkpoints}",
        f"signed up to {report.covered} at {report.signed_at}"
        if report.covered
        else "nothing that a signature vouches for",
    ]
    return f"{'ok' if report.ok else 'read'}: {', '.join(parts)}\n"


@contextmanager
def refused() -> Iterator[None]:
    """Convert faults of an archive, a key or a proof to errors of the command line."""
    from fairlead_replay.archive.store import ArchiveBusy

    try:
        yield
    except (ArchiveBusy, OSError, ValueError) as error:
        raise FairleadError(str(error)) from error
