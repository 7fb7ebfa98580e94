"""Files of a directory that go with a job: all but those that its `.gitignore` files leave out, as Git reads them, and Git's own.

A rule of a directory counts for everything below it, a later or deeper one for more than an earlier one, and nothing below a directory
that is left out comes back. The `.gitignore` files above the directory count up to the top of its repository. Links are entries,
never followed. Start at `walk`.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fairlead.errors import InputRefused
from fairlead.sync.ignore_rules import IgnoreRules
from fairlead_schemas.units.quantities import counted, format_bytes
from fairlead_schemas.wire import trees

IGNORE_FILE = ".gitignore"
#: Never sent: a repository, and the data of a local stack.
NEVER = frozenset({".git", ".fairlead"})
#: Mistakes that are named, and largest parts of a directory that is too large.
NAMED_MAX, LARGEST_MAX = 5, 3
_HINT = f"leave out what the job does not need: a {IGNORE_FILE} in the directory names it"


class LocalFile(NamedTuple):
    """File, link or empty directory, as it is on the disk."""

    path: str
    kind: str  # file | link | directory
    size: int
    executable: bool
    #: Changes with every change of the file: (device, inode, size, modified, changed), times in ns.
    stamp: tuple[int, ...]
    target: str = ""


class Walked(NamedTuple):
    """What is sent of a directory, in the order of paths, and how many sockets, pipes and devices are not."""

    found: list[LocalFile]
    special: int

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.found)


class _Rules(NamedTuple):
    """The rules of one `.gitignore`, for paths that begin with a prefix; the prefix of one above the directory is negative."""

    rules: IgnoreRules
    #: Path of its directory relative to the sent one, with "/" at the end; "" for itself.
    prefix: str
    #: Path of the sent directory relative to that of the rules, with "/" at the end; "" where the rules are in it or below.
    above: str = ""

    def verdict(self, path: str) -> bool | None:
        """Return True if the path is left out, False if it is kept, None if no rule is about it."""
        own = self.above + path.removeprefix(self.prefix)
        return self.rules.verdict(own.removesuffix("/"), is_directory=own.endswith("/"))


def walk(directory: Path) -> Walked:
    """Find everything that is sent of a directory. Raises InputRefused."""
    try:
        root = directory.resolve(strict=True)
        if not root.is_dir():
            raise InputRefused(f"{directory}: expected a directory, found a file")
        found, special = _walk(str(root), _rules_above(root))
    except OSError as error:
        raise InputRefused(f"{error.filename or directory}: {error.strerror}") from error
    _check(directory, found)
    return Walked(sorted(found, key=lambda each: each.path), special)


def _walk(root: str, rules: list[_Rules]) -> tuple[list[LocalFile], int]:
    found: list[LocalFile] = []
    special = 0
    waiting: list[tuple[str, list[_Rules]]] = [("", rules)]
    while waiting:
        below, rules = waiting.pop()
        try:
            with os.scandir(f"{root}/{below}") as entries:
                here = list(entries)
        except FileNotFoundError:
            if below:
                continue  # removed meanwhile
            raise
        if any(entry.name == IGNORE_FILE for entry in here):
            rules = [*rules, *_rules_of(f"{root}/{below}{IGNORE_FILE}", below)]
        for entry in here:
            path = below + entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            if entry.name in NEVER or _is_ignored(f"{path}/" if is_directory else path, rules):
                continue
            if is_directory:
                waiting.append((f"{path}/", rules))
            elif (one := _found(entry, path)) is not None:
                found.append(one)
            else:
                special += 1
        if below and not here:
            found.append(LocalFile(below[:-1], "directory", 0, False, ()))
        if len(found) > 2 * trees.ENTRIES_MAX:
            break  # more than enough to name the largest parts
    return found, special


def _found(entry: os.DirEntry[str], path: str) -> LocalFile | None:
    """Return a file or link; None for a socket, pipe or device."""
    at = entry.stat(follow_symlinks=False)
    stamp = (at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)
    if stat.S_ISLNK(at.st_mode):
        return LocalFile(path, "link", 0, False, stamp, str(Path(entry.path).readlink()))
    if stat.S_ISREG(at.st_mode):
        return LocalFile(path, "file", at.st_size, bool(at.st_mode & 0o100), stamp)
    return None


def _is_ignored(path: str, rules: list[_Rules]) -> bool:
    for each in reversed(rules):
        verdict = each.verdict(path)
        if verdict is not None:
            return verdict
    return False


def _rules_of(file: str, prefix: str, above: str = "") -> Iterator[_Rules]:
    with open(file, encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 -- a string, as scandir gives it
        yield _Rules(IgnoreRules(lines.read()), prefix, above)


def _rules_above(root: Path) -> list[_Rules]:
    """Return the rules of the directories above, from the top of the repository down; none outside of a repository."""
    if (root / ".git").exists():
        return []
    found: list[_Rules] = []
    for parent in root.parents:
        file = parent / IGNORE_FILE
        if file.is_file():
            found = [*_rules_of(str(file), "", f"{root.relative_to(parent).as_posix()}/"), *found]
        if (parent / ".git").exists():
            return found
    return []


def _check(directory: Path, found: list[LocalFile]) -> None:
    """Raise InputRefused for a directory beyond the bounds, and for names and links that cannot be sent."""
    if fault := trees.bounds_fault(len(found), sum(each.size for each in found)):
        raise InputRefused(f"{directory}: {fault}\n{_largest(found)}", hint=_HINT)
    faults = [
        f"{each.path!r}: {fault}"
        for each in found
        if (fault := trees.path_fault(each.path) or (trees.target_fault(each.path, each.target) if each.target else ""))
    ]
    if faults:
        more = [f"  and {len(faults) - NAMED_MAX} more"] if len(faults) > NAMED_MAX else []
        lines = [f"{directory}: cannot be sent", *(f"  {fault}" for fault in faults[:NAMED_MAX]), *more]
        raise InputRefused("\n".join(lines), hint=f"rename them, or leave them out by a {IGNORE_FILE}")


def _largest(found: list[LocalFile]) -> str:
    """Name the largest parts of a directory, a line each."""
    parts: dict[str, tuple[int, int]] = {}
    for each in found:
        name = each.path.partition("/")[0]
        size, count = parts.get(name, (0, 0))
        parts[name] = size + each.size, count + 1
    ordered = sorted(parts.items(), key=lambda part: (part[1][0] / trees.TREE_BYTES_MAX, part[1][1]), reverse=True)
    by_count = sorted(parts.items(), key=lambda part: part[1][1], reverse=True)
    chosen = dict([*ordered[:LARGEST_MAX], *by_count[:LARGEST_MAX]])
    return "\n".join(
        f"  {name}: {counted(count, 'file')}, {format_bytes(size)}" for name, (size, count) in chosen.items()
    )
