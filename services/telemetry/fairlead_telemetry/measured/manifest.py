"""The folder of days: Parquet files, and `manifest.json`, which says what each of them is.

While the warehouse is whole, its table `sample_files` says which files count, and the manifest is a copy of that; when the
warehouse is lost, the manifest is what it is made again from. Both, and every file, are written whole or not at all.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

FOLDER = "days"
MANIFEST = "manifest.json"
VERSION = 1

#: Rows as they were measured, which leave the warehouse; sums, of which files are copies.
RAW = ("samples", "uses", "resources")
SUMS = ("minutes", "hours")
type Kind = Literal["samples", "uses", "resources", "minutes", "hours"]


class DayFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parquet file, described by the columns of the table `sample_files`. Times are Unix nanoseconds."""

    name: str
    kind: Kind
    #: The span that it covers.
    from_ns: int
    to_ns: int
    rows: int
    #: Of its oldest and its newest row.
    first_ns: int
    last_ns: int
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Contents of `manifest.json`."""

    version: int
    files: list[DayFile] = []


class BadManifest(Exception):
    """The manifest cannot be read; the message says why, and what to do."""


def read_manifest(folder: Path) -> list[DayFile]:
    """The files that it names; [] where there is none. Raises BadManifest."""
    path = folder / MANIFEST
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return []
    except msgspec.MsgspecError as error:
        raise BadManifest(f"{path}: {error}; restore it, or move it away and attach the files one by one") from error
    if found.version != VERSION:
        raise BadManifest(f"{path}: version {found.version}, expected {VERSION}: it was written by another release")
    if strange := [each.name for each in found.files if Path(each.name).name != each.name]:
        raise BadManifest(f"{path}: {strange[0]!r} is no file name in this folder")
    return found.files


def write_manifest(folder: Path, files: Iterable[DayFile]) -> None:
    """Replace it."""
    manifest = Manifest(version=VERSION, files=sorted(files, key=lambda each: (each.from_ns, each.name)))
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    path, waiting = folder / MANIFEST, folder / f"{MANIFEST}.tmp"
    if not path.exists() or path.read_bytes() != content:
        waiting.write_bytes(content)
        settle(waiting, path)


def settle(written: Path, name: Path) -> None:
    """Give a written file its name, for good: content, then name, then folder are on disk."""
    with written.open("rb") as file:
        os.fsync(file.fileno())
    written.replace(name)
    descriptor = os.open(name.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def mismatch(folder: Path, file: DayFile) -> str:
    """Return the difference between the file on disk and the manifest; "" where they agree."""
    path = folder / file.name
    if not path.exists():
        return f"{file.name}: it is missing; restore it from a copy"
    if (size := path.stat().st_size) != file.bytes:
        return f"{file.name}: {size} bytes, expected {file.bytes}; restore it from a copy"
    if (found := sha256_of(path)) != file.sha256:
        return f"{file.name}: SHA-256 {found}, expected {file.sha256}; restore it from a copy"
    return ""
