"""A small file system for tests of full disks; needs root."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

DISK = 8 * 2**20


def mount(target: Path, image: Path, size: int = DISK) -> str:
    """A small file system: ext4 in a file where the machine has loop devices, else in memory. Why not, "" when it is there."""
    with image.open("wb") as file:
        file.truncate(size)
    made = subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], capture_output=True, check=False).returncode == 0
    for words in (["-o", "loop", str(image)] if made else [], ["-t", "tmpfs", "-o", f"size={size}", "none"]):
        done = (
            subprocess.run(["mount", *words, str(target)], capture_output=True, text=True, check=False)
            if words
            else None
        )
        if done is not None and done.returncode == 0:
            return ""
    return "disk: this machine mounts no small file system (needs root)"


def fill(disk: Path) -> Path:
    """Take all that is left."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (65536, 512, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
    assert os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize < 65536
    return path


@contextmanager
def small_disk(directory: Path, size: int = DISK) -> Iterator[Path]:
    """A directory on a disk of `size` bytes. Skips the test where the machine mounts none."""
    target = directory / "disk"
    target.mkdir()
    if unfit := mount(target, directory / "image", size):
        pytest.skip(unfit)
    try:
        yield target
    finally:
        subprocess.run(["umount", "-l", str(target)], check=True)
