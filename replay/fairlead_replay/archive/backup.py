"""Backup of a cluster as a directory that is signed as a whole, and what of a cluster a backup does not have.

    log/            an archive of the log (store.py): it grows by each backup
    days/           files of measured samples, one for each day
    keys/           the list of the bus's users: public keys, no seeds
    settings/       configuration files, as given
    backup.json     what belongs to it: the end of the log, and every other file with its SHA-256
    backup.note     signature of backup.json, by the archive's key, as a signed note

Whatever is damaged, missing or too much is found by `check` before anything is restored. Files are replaced in place, the
two last ones at the end: a backup that was cut off does not check. Start at `write` and `check`.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from fairlead_bus.log import Chain
from fairlead_bus.port import Stored
from fairlead_replay.archive.checkpoints import BadNote, Signer, Verifier, open_note
from fairlead_replay.archive.contents import ArchiveContents
from fairlead_replay.archive.verify import verify_archive
from fairlead_replay.export import decode_line
from fairlead_replay.fold import commits_of
from fairlead_schemas.units.timestamps import rfc3339
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import commit_hash, decode_commit

LOG, DAYS, KEYS, SETTINGS = "log", "days", "keys", "settings"
MANIFEST, NOTE = "backup.json", "backup.note"
_TITLE = "fairlead backup"
#: Faults that a message lists.
FAULTS_SHOWN = 10


class BackupDamaged(ValueError):
    """A backup is not what was signed; the message lists what is wrong."""


class BackupFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """File of a backup. `path`: from the backup's directory on, with "/"."""

    path: str
    sha256: str
    size: int


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What belongs to a backup."""

    v: int = 1
    made_at: str
    #: The log's newest sequence when the backup was made, and the hash of that commit.
    sequence: int
    head: str
    files: list[BackupFile]


def sources(days: Path | None, keys: Path | None, settings: Iterable[Path]) -> dict[str, Path]:
    """Return {path in the backup: file} of what is next to the log. Raises ValueError for two files of one name."""
    found: dict[str, Path] = {}
    if days is not None:
        found |= {f"{DAYS}/{path.relative_to(days).as_posix()}": path for path in files_below(days)}
    if keys is not None:
        found[f"{KEYS}/{keys.name}"] = keys
    for path in settings:
        name = f"{SETTINGS}/{path.name}"
        if name in found:
            raise ValueError(f"two settings files are named {path.name}: {found[name]} and {path}")
        if not path.is_file():
            raise ValueError(f"there is no file {path}")
        found[name] = path
    return found


def files_below(directory: Path) -> Iterator[Path]:
    """Yield the files of a directory and of those in it, by name; none where there is no such directory. Links are left out."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path


def write(directory: Path, signer: Signer, found: Mapping[str, Path], made_at: str) -> BackupManifest:
    """Copy these files into a backup whose log is there already, sign the whole, and return its manifest. Files of an earlier backup that
    are not among them are removed."""
    (directory / NOTE).unlink(missing_ok=True)  # from here on it is not whole
    files = [_copy(directory, name, path) for name, path in sorted(found.items())]
    kept = {file.path for file in files}
    for part in (DAYS, KEYS, SETTINGS):
        for path in list(files_below(directory / part)):
            if path.relative_to(directory).as_posix() not in kept:
                path.unlink()
    sequence, head = end_of_log(directory)
    manifest = BackupManifest(made_at=made_at, sequence=sequence, head=head, files=files)
    encoded = msgspec.json.format(msgspec.json.encode(manifest))
    _replace(directory / MANIFEST, encoded)
    _replace(directory / NOTE, signer.sign(_signed_text(encoded)).encode())
    return manifest


def _signed_text(manifest: bytes) -> str:
    return f"{_TITLE}\n{hashlib.sha256(manifest).hexdigest()}\n"


def _copy(directory: Path, name: str, source: Path) -> BackupFile:
    target = directory / name
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    content = source.read_bytes()
    if not target.is_file() or target.read_bytes() != content:
        _replace(target, content)
    return BackupFile(path=name, sha256=hashlib.sha256(content).hexdigest(), size=len(content))


def _replace(path: Path, content: bytes) -> None:
    """Replace a file as a whole, readable by its owner alone: settings may hold secrets."""
    fresh = path.with_name(f".{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def end_of_log(directory: Path) -> tuple[int, str]:
    """Return the newest sequence of a backup's archive and the hash of its commit; 0 and "" for an empty one."""
    newest = None
    for newest in ArchiveContents(directory / LOG).lines():  # noqa: B007 -- the last one counts
        pass
    stored = decode_line(newest) if newest is not None else None
    return (stored.sequence, commit_hash(stored.payload)) if stored is not None else (0, "")


def check(directory: Path, key: Verifier | None = None, known: tuple[Path, ...] = ()) -> BackupManifest:
    """Return the manifest of a backup that is whole. `key`: who must have signed it (None: the key that the archive names); `known`: books of
    checkpoints from elsewhere, which show that the log was cut off. Raises BackupDamaged.
    """
    try:
        encoded, note = (directory / MANIFEST).read_bytes(), (directory / NOTE).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BackupDamaged(
            f"{directory} is no whole backup: {error}. It was cut off while it was made or copied"
        ) from error
    report = verify_archive(directory / LOG, key=key, known=known)
    try:
        text = open_note(note, key or ArchiveContents(directory / LOG).verifier)
    except BadNote as error:
        raise BackupDamaged(f"{NOTE}: {error}") from error
    if text != _signed_text(encoded):
        raise BackupDamaged(f"{MANIFEST} is not the one that was signed: it was changed, or belongs to another backup")
    try:
        manifest = msgspec.json.decode(encoded, type=BackupManifest)
    except msgspec.MsgspecError as error:
        raise BackupDamaged(f"{MANIFEST} cannot be read: {error}") from error
    faults = [f"log: {each.where}, sequence {each.sequence}: {each.what}" for each in report.found]
    if not faults:
        faults += _faults_of_end(directory, manifest)
    faults += [fault for file in manifest.files if (fault := _fault_of(directory, file))]
    if faults:
        more = f"; and {len(faults) - FAULTS_SHOWN} more" if len(faults) > FAULTS_SHOWN else ""
        raise BackupDamaged("; ".join(faults[:FAULTS_SHOWN]) + more)
    return manifest


def _faults_of_end(directory: Path, manifest: BackupManifest) -> list[str]:
    """An archive may be ahead of the manifest, where the next backup was interrupted; it must have the commit that was signed."""
    last = 0
    for line in ArchiveContents(directory / LOG).lines():
        stored = decode_line(line)
        last = stored.sequence
        if last == manifest.sequence:
            same = commit_hash(stored.payload) == manifest.head
            return [] if same else [f"log: sequence {last} is not the commit of this backup"]
    if manifest.sequence == 0:
        return []
    return [f"log: it ends at sequence {last}, the backup was made at {manifest.sequence}: it was cut off"]


def _fault_of(directory: Path, file: BackupFile) -> str:
    pure = PurePosixPath(file.path)
    if pure.is_absolute() or ".." in pure.parts:
        return f"{file.path} is outside the backup"
    path = directory / file.path
    if path.is_symlink() or not path.is_file():
        return f"{file.path} is missing"
    content = path.read_bytes()
    if len(content) != file.size:
        return f"{file.path} has {len(content)} bytes, {file.size} were signed"
    return (
        "" if hashlib.sha256(content).hexdigest() == file.sha256 else f"{file.path} has other contents than were signed"
    )


def put_back(directory: Path, manifest: BackupManifest, days: Path, others: Path) -> int:
    """Copy days to `days`, keys and settings to `others`, and return the number of files. Nothing is written over: a file that is there with
    other contents raises FileExistsError before anything is copied."""
    targets = {
        file.path: days / file.path.removeprefix(f"{DAYS}/") if file.path.startswith(f"{DAYS}/") else others / file.path
        for file in manifest.files
    }
    for name, target in targets.items():
        if target.exists() and target.read_bytes() != (directory / name).read_bytes():
            raise FileExistsError(f"{target} is there already, with other contents")
    for name, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(directory / name, target)
        target.chmod(0o600)
    return len(targets)


# ------------------------------------------------------------------------------- what is lost


class RunAtEnd(NamedTuple):
    """Run that had a place at the end of a backup."""

    job: str
    attempt: int
    nodes: tuple[str, ...]


class StateAtEnd(NamedTuple):
    """Jobs at the end of a backup's log. `waiting`: without a place; an array counts once."""

    sequence: int
    at: str
    #: {writer: its newest commit's number}
    commits: dict[str, int]
    waiting: int
    running: list[RunAtEnd]


def state_at_end(directory: Path, through: int) -> StateAtEnd:
    """Read the state of jobs off a backup's log up to the sequence `through`. Raises LogDamaged."""
    sequence = at_ns = 0
    commits, waiting, running = dict[str, int](), dict[str, None](), dict[str, RunAtEnd]()
    for placed in commits_of(islice(map(decode_line, ArchiveContents(directory / LOG).lines()), through)):
        sequence, commit = placed
        commits[commit.writer], at_ns = commit.n, max(at_ns, commit.at_ns)
        for event in commit.events:
            match event:
                case ev.JobSubmitted() | ev.JobRequeued():
                    waiting[event.job] = None
                case ev.JobPlaced():
                    waiting.pop(event.job, None)
                    running[event.job] = RunAtEnd(event.job, event.attempt, tuple(part.node for part in event.parts))
                case ev.RunEnded():
                    running.pop(event.job, None)
                case ev.JobSucceeded() | ev.JobFailed() | ev.JobCancelled():
                    waiting.pop(event.job, None)
                case _:
                    pass
    return StateAtEnd(sequence, rfc3339(at_ns) if at_ns else "", commits, len(waiting), list(running.values()))


class LostCommit(NamedTuple):
    """Commit of the present log that a backup does not have."""

    sequence: int
    writer: str
    n: int
    at: str
    events: str


class OtherLog(ValueError):
    """The present log does not continue the backup's."""


class LossScan:
    """Comparison of a present log with the end of a backup: feed it every commit from the first one on."""

    def __init__(self, manifest: BackupManifest) -> None:
        self._manifest = manifest
        self._chain = Chain()
        self.lost: list[LostCommit] = []
        #: Jobs that were submitted after the backup, and jobs that ended after it.
        self.submitted: list[str] = []
        self.ended: list[str] = []

    def take(self, stored: Stored) -> None:
        """Take the next commit. Raises OtherLog, LogDamaged, CommitUndecodable."""
        commit = decode_commit(stored.payload)
        head = self._chain.extend(stored, commit)
        if stored.sequence == self._manifest.sequence and head.hash != self._manifest.head:
            raise OtherLog(
                f"sequence {stored.sequence} of the present log is another commit than the backup's: it is not the same log"
            )
        if stored.sequence <= self._manifest.sequence:
            return
        kinds = [type(event).__name__ for event in commit.events]
        names = ", ".join(f"{kind} {kinds.count(kind)}" for kind in dict.fromkeys(kinds))
        self.lost.append(LostCommit(stored.sequence, commit.writer, commit.n, rfc3339(commit.at_ns), names))
        for event in commit.events:
            if isinstance(event, ev.JobSubmitted):
                self.submitted.append(event.job)
            elif isinstance(event, ev.JobSucceeded | ev.JobFailed | ev.JobCancelled):
                self.ended.append(event.job)

    def end(self) -> None:
        """Raise OtherLog if the present log ends before the backup does."""
        if self._chain.last < self._manifest.sequence:
            raise OtherLog(
                f"the present log ends at sequence {self._chain.last}, before the backup at {self._manifest.sequence}"
            )
