"""Writing that has reached the disk when it returns: the file and, for new names, the directory that lists it."""

import os
from pathlib import Path


def write_new(path: Path, payload: bytes) -> None:
    """A file in one step: it is there whole, or not at all, also after a crash. One that is there is replaced."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_directory(path.parent)


def append(path: Path, payload: bytes) -> None:
    """To the end of a file, which is made where it is missing. A crash may leave a beginning of `payload` there."""
    new = not path.exists()
    with path.open("ab") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_directory(path.parent)


def truncate(path: Path, size: int) -> None:
    """Drop everything behind the first `size` bytes."""
    with path.open("r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    folder = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
