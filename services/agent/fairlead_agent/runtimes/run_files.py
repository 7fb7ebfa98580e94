"""Files of a run's own directory: read for people, and kept by name after its end (the job file's `outputs`).

The job has written whatever it likes there: links to anywhere, pipes, devices, files that change meanwhile. So every path is opened
name by name and no link is followed; only regular files are read. Below a run's directory are `work`, its own
directory, and `outputs/<name>`, which has the kept files as further names of the same content.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from fairlead_agent.core.output_retention import Keep
from fairlead_agent.core.runs import RunKey
from fairlead_agent.linux.mounts import Closed, open_below
from fairlead_schemas.jobfile.outputs import Outputs, is_output
from fairlead_schemas.units.ids import is_job_id
from fairlead_schemas.units.quantities import format_bytes
from fairlead_schemas.wire import trees
from fairlead_schemas.wire.run_files import (
    CHUNK_BYTES_MAX,
    ENTRIES_MAX,
    FileEntry,
    ReadFiles,
    RunFiles,
    decode_question,
    encode,
)

WORK, OUTPUTS = "work", "outputs"
#: Path of a question that lists the outputs by name.
ALL_OUTPUTS = "/"
#: Files that the outputs of one run may have together, and the depth of directories that is looked at.
KEPT_FILES_MAX = 10_000
LOOKED_AT_MAX = 200_000
DEPTH_MAX = 64

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_DIRECTORY = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_LISTED = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


_REFUSAL = RunFiles(error="expected a ReadFiles with a job id")


def answered(question: bytes, directory_of: Callable[[RunKey], Path], keep: Keep) -> bytes:
    """Return the answer to a ReadFiles. Blocks."""
    try:
        asked = decode_question(question)
    except msgspec.MsgspecError:
        return encode(_REFUSAL)
    if not is_job_id(asked.job):
        return encode(_REFUSAL)
    directory = directory_of(RunKey(asked.job, asked.attempt, asked.rank))
    found = read(directory, asked)
    if found.absent and not directory.exists():
        found = RunFiles(error=f"its files are gone: {keep.words()}", absent=True)
    elif found.absent and not _is_directory(directory / WORK):
        found = RunFiles(error=f"{found.error}: the job has no directory of its own, or it is gone", absent=True)
    return encode(found)


def read(directory: Path, asked: ReadFiles) -> RunFiles:
    """Answer a question about the files of the run with this directory. Blocks."""
    try:
        return _read(directory, asked)
    except FileNotFoundError:
        return RunFiles(error=f"there is no {asked.path!r}", absent=True)
    except (OSError, Closed) as error:
        return RunFiles(error=f"{asked.path!r} cannot be read: {getattr(error, 'strerror', None) or error}")


def _read(directory: Path, asked: ReadFiles) -> RunFiles:
    if asked.path and asked.path != ALL_OUTPUTS and (fault := trees.path_fault(asked.path)):
        return RunFiles(error=f"{fault}, found {asked.path[:200]!r}")
    names = [OUTPUTS] if asked.path == ALL_OUTPUTS else asked.path.split("/") if asked.path else []
    if asked.path == ALL_OUTPUTS or (names and _is_directory(directory / OUTPUTS / names[0])):
        below = names if asked.path == ALL_OUTPUTS else [OUTPUTS, *names]
    else:
        below = [WORK, *names]
    parent = open_path_below(directory, below[:-1])
    try:
        entry = _entry(parent, below[-1])
        if entry.kind == "directory":
            with _opened(below[-1], _LISTED, parent) as listed:
                entries, more = _entries(listed, asked.after)
            return RunFiles(entry=entry, entries=entries, more=more)
        if entry.kind != "file":
            return RunFiles(entry=entry)
        with _opened(below[-1], _FILE, parent) as file:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                return RunFiles(error=f"{asked.path!r} is no file")
            count = max(0, min(asked.bytes_max, CHUNK_BYTES_MAX))
            data = os.pread(file, count, max(0, asked.offset))
            return RunFiles(entry=_entry_of(below[-1], found), data=data)
    finally:
        os.close(parent)


@contextlib.contextmanager
def _opened(name: str, flags: int, at: int) -> Iterator[int]:
    """Open a name below an open directory, and close it at the end."""
    file = os.open(name, flags, dir_fd=at)
    try:
        yield file
    finally:
        os.close(file)


def open_path_below(directory: Path, names: Iterable[str]) -> int:
    """Return a descriptor of the directory that these names lead to. The caller closes it. Raises Closed; FileNotFoundError where
    nothing is there.
    """
    names = [*names]
    if not os.path.lexists(directory.joinpath(*names)):
        raise FileNotFoundError(str(directory))
    root = os.open(directory, _DIRECTORY)
    try:
        return open_below(root, names)
    finally:
        os.close(root)


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _entry(parent: int, name: str) -> FileEntry:
    found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    target = os.readlink(name, dir_fd=parent) if stat.S_ISLNK(found.st_mode) else ""
    return _entry_of(name, found, target)


def _entry_of(name: str, found: os.stat_result, target: str = "") -> FileEntry:
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"))
    kind = next((word for is_kind, word in kinds if is_kind(found.st_mode)), "other")
    return FileEntry(
        name=shown(name),
        kind=kind,
        size=found.st_size if kind == "file" else 0,
        modified_ns=found.st_mtime_ns,
        executable=kind == "file" and bool(found.st_mode & 0o100),
        target=shown(target),
    )


def shown(name: str) -> str:
    """Return a file's name as text that can be encoded; bytes that are no UTF-8 are replaced."""
    return os.fsencode(name).decode(errors="replace")


def _entries(directory: int, after: str) -> tuple[tuple[FileEntry, ...], bool]:
    """Return the entries of a directory behind a name, and True if there are more."""
    names = sorted((name for name in os.listdir(directory) if shown(name) > after), key=shown)
    found: list[FileEntry] = []
    for name in names[:ENTRIES_MAX]:
        try:
            found.append(_entry(directory, name))
        except FileNotFoundError:  # removed meanwhile
            continue
    return tuple(found), len(names) > ENTRIES_MAX


# ---------------------------------------------------------------------------------------- outputs


def keep_outputs(directory: Path, outputs: Outputs, bytes_max: int) -> list[str]:
    """Keep the outputs of a run that has ended. Return what to say of those that are not kept, a sentence each. Blocks.

    The content stays where it is: kept files are further names of it. An output that is too large is not kept at all.
    """
    notes: list[str] = []
    try:
        found, is_whole = _files_of(directory / WORK)
    except OSError as error:
        return [f"outputs are not kept: {error.strerror or error}"]
    if not is_whole:
        notes.append(f"outputs: only {LOOKED_AT_MAX} files and {DEPTH_MAX} levels of the directory were looked at")
    left = bytes_max
    for name, patterns in outputs:
        wanted = [(path, size) for path, size in found if is_output(path, patterns)]
        size = sum(size for _, size in wanted)
        if not wanted:
            notes.append(f"outputs.{name}: no file fits {', '.join(patterns)}")
        elif size > left:
            notes.append(
                f"outputs.{name} is not kept: {format_bytes(size)}, and this node keeps at most {format_bytes(bytes_max)} of a run"
            )
        elif len(wanted) > KEPT_FILES_MAX:
            notes.append(f"outputs.{name} is not kept: {len(wanted)} files, and at most {KEPT_FILES_MAX} are kept")
        else:
            left -= size
            try:
                _link(directory, name, [path for path, _ in wanted])
            except (OSError, Closed) as error:
                notes.append(f"outputs.{name} is not kept: {getattr(error, 'strerror', None) or error}")
    return notes


def _files_of(work: Path) -> tuple[list[tuple[str, int]], bool]:
    """Return (path, bytes) of all regular files, and False if there are too many to look at. Links are not followed."""
    found: list[tuple[str, int]] = []
    waiting = [("", 0)]
    looked_at = 0
    while waiting:
        below, depth = waiting.pop()
        with os.scandir(work / below) as entries:
            for entry in entries:
                looked_at += 1
                if looked_at > LOOKED_AT_MAX:
                    return sorted(found), False
                path = f"{below}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if depth < DEPTH_MAX:
                        waiting.append((f"{path}/", depth + 1))
                elif entry.is_file(follow_symlinks=False) and not trees.path_fault(path):
                    found.append((path, entry.stat(follow_symlinks=False).st_blocks * 512))
    return sorted(found), True


def _link(directory: Path, name: str, paths: Iterable[str]) -> None:
    """Give files a further name below the output's own directory. Raises OSError, Closed."""
    (directory / OUTPUTS).mkdir(mode=0o750, exist_ok=True)
    for path in paths:
        *parents, last = path.split("/")
        source = open_path_below(directory, [WORK, *parents])
        try:
            root = os.open(directory / OUTPUTS, _DIRECTORY)
            try:
                target = open_below(root, [name, *parents], make_mode=0o750)
            finally:
                os.close(root)
            try:
                os.link(last, last, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
            except FileExistsError:  # kept before its agent was restarted
                pass
            finally:
                os.close(target)
        finally:
            os.close(source)


def size_of(directory: Path) -> int:
    """Return the bytes that files below a directory take on the disk, without those that have further names."""
    total = 0
    for parent, _, files in os.walk(directory, followlinks=False):
        for name in files:
            try:
                found = os.lstat(f"{parent}/{name}")
            except OSError:
                continue
            total += found.st_blocks * 512 if found.st_nlink == 1 else 0
    return total
