"""A full disk: a stack's directory on a small file system that is filled under load. Room is made, and nobody does more.

Needs root to mount; where the machine mounts none, the round names the reason. Start at `disk`.
"""

import subprocess
import time
from pathlib import Path

from tests.hostile.load import Load, read_marks
from tests.hostile.outcome import Row, check_load, joined, row
from tests.hostile.stack import Stack
from tests.kit.small_disk import fill, mount

SIZE = 80 * 2**20
FULL_S = 30.0
NOTICED_S = 60.0
BEGUN = 6
AGAIN_S = 180.0


def disk(directory: Path, tries: int, seed: int) -> list[Row]:
    """Fill a disk `tries` times, each time with a fresh stack."""
    rows: list[Row] = []
    for number in range(tries):
        place = directory / f"disk-{number}"
        target = place / "disk"
        target.mkdir(parents=True)
        if unfit := mount(target, place / "image", SIZE):
            return [row("disk", f"skipped: {unfit}", 0, [])]
        try:
            rows += _one(Stack(target / "data"), place / "jobs", target)
        finally:
            subprocess.run(["umount", "-l", str(target)], check=True)
            (place / "image").unlink(missing_ok=True)
    return joined(rows)


def _one(stack: Stack, jobs: Path, target: Path) -> list[Row]:
    broken: list[str] = []
    load = Load(stack, jobs)
    try:
        stack.up()
        load.start()
        _wait_begun(stack, load)
        filler = fill(target)
        began, noticed_s = time.monotonic(), 0.0
        while time.monotonic() - began < FULL_S or (not noticed_s and time.monotonic() - began < NOTICED_S):
            # Whatever frees a block (a compaction, a rotated file) is taken again.
            _top_up(filler)
            if not noticed_s and stack.readyz()[0] not in (200, 0):
                noticed_s = time.monotonic() - began
            time.sleep(0.3)
        if not noticed_s:
            broken.append(f"/readyz was ready for {NOTICED_S:g} s on a full disk")
        filler.unlink()
        took = stack.wait_ready(AGAIN_S)
        _wait_begun(stack, load)
        load.stop()
        what = f"disk of {SIZE // 2**20} MB full for {FULL_S:g} s under load, then room made, without further action"
        notes = f"not ready after {noticed_s:.0f} s, ready again {took:.0f} s after room was made"
        return [row("disk", what, 1, broken, notes), *check_load("disk", stack, load)]
    finally:
        load.stop()
        stack.end()


def _top_up(filler: Path) -> None:
    with filler.open("ab", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            return


def _wait_begun(stack: Stack, load: Load) -> None:
    before = len(read_marks(load.directory).starts)
    stack.until(lambda: len(read_marks(load.directory).starts) >= before + BEGUN, "jobs begin", AGAIN_S)
