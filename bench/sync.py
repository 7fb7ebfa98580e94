"""Time that `fairlead submit --sync DIR` takes beyond `fairlead submit`, for a directory of a thousand files that has not changed.

The directory has as many small files as a project of some years, in folders, with a `.gitignore`; it was sent once, and its files are older than
the moment in which a change could be missed. Both command lines are measured in turn.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.stack import Stack
from bench.table import Row
from fairlead.sync.local_tree import YOUNG_NS

RUNS = 9
FILES = 1000
BYTES_OF_FILE = 4096
BEYOND_MS = 300


def row() -> Row:
    """Measure a submit without and with the directory, and one after a changed file."""
    with tempfile.TemporaryDirectory() as folder, Stack() as stack:
        stack.control_plane(telemetry=False)
        environment = {**os.environ, "FAIRLEAD_URL": f"http://127.0.0.1:{stack.port}", "FAIRLEAD_USER": "bench"}
        environment |= {"XDG_CACHE_HOME": f"{folder}/cache"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each process would compile all modules again
        root = _project(Path(folder) / "project")
        time.sleep(YOUNG_NS / 1e9 + 0.1)
        first = _timed(["--sync", str(root)], environment)
        taken = [(_timed([], environment), _timed(["--sync", str(root)], environment)) for _ in range(RUNS + 1)][
            1:
        ]  # the first compiles
        (root / "part07" / "module3.py").write_text("changed = True\n")
        changed = _timed(["--sync", str(root)], environment)
    beyond = statistics.median(synced - plain for plain, synced in taken)
    plain, synced = (statistics.median(column) for column in zip(*taken, strict=True))
    more = f"medians: {synced:.0f} ms, without {plain:.0f} ms; sent first {first:.0f} ms, after a changed file {changed:.0f} ms"
    what = f"`fairlead submit --sync` of an unchanged directory of {FILES} files beyond `fairlead submit`, median of {RUNS}"
    return Row(what, f"{beyond:.0f} ms", f"≤ {BEYOND_MS} ms", beyond <= BEYOND_MS, more)


def _project(root: Path) -> Path:
    chance = random.Random(1)
    for number in range(FILES):
        path = root / f"part{number % 20:02}" / f"module{number // 20}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(BYTES_OF_FILE))
    (root / ".gitignore").write_text("*.log\n__pycache__/\n/build/\n*.egg-info/\n.venv/\n")
    return root


def _timed(options: list[str], environment: dict[str, str]) -> float:
    """Return the ms of one command line."""
    line = [str(Path(sys.executable).with_name("fairlead")), "submit", *options, "--", "true"]
    began_s = time.perf_counter()
    subprocess.run(line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - began_s) * 1000
