"""How this Python was built and how fast it is, and the choice among the Pythons of a machine.

A build with profile-guided and link-time optimisation (PGO, LTO) runs our services with a fifth less CPU. Its version does not
show it, and distributions remove the flags from sysconfig, so a build is known by its flags or its source, and speeds
are compared by a short loop of CPU time.

Standard library only, and no import of this package: `make setup` runs this file before anything is installed.
"""

from __future__ import annotations  # an older Python runs this file, too, to find a newer one

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

OLDEST = (3, 12)
#: Names on PATH, best first where they are equally fast. A pyenv shim may exist and still not run.
NAMES = ("python3.13", "python3.12", "python3.14", "python3", "python")
#: Speeds that differ by less count as equal: a loaded machine measures some percent beside the truth.
EQUAL = 1.1
ROUNDS, STEPS = 9, 40_000
PROBE_S = 60.0
OPTIMISED, PLAIN, UNKNOWN = "with PGO and LTO", "without PGO", "it is not known with which optimisations"


class Interpreter(NamedTuple):
    """A Python of this machine: its path, version, how it was built, and the time of the loop."""

    path: str
    version: str
    build: str
    loop_ms: float

    def __str__(self) -> str:
        return f"Python {self.version}, built {self.build}; loop {self.loop_ms:.1f} ms"


def build(flags: str | None, prefix: str, distribution: str) -> str:
    """Return how a Python was built.

    `flags` is sysconfig's CONFIG_ARGS (None: it has none), `prefix` sys.base_prefix, `distribution` the ID and ID_LIKE of
    os-release.
    """
    has_pgo = "--enable-optimizations" in (flags or "")
    if has_pgo:
        return OPTIMISED if "--with-lto" in (flags or "") else "with PGO, without LTO"
    # Debian's and Ubuntu's rules build with both, and remove the flags from sysconfig.
    if prefix == "/usr" and {"debian", "ubuntu"} & set(distribution.split()):
        return OPTIMISED
    return UNKNOWN if flags is None else PLAIN


def loop_ms() -> float:
    """Return the CPU time of a short loop of bytecode, ms: the best of some rounds, which others on the machine disturb least."""
    times: list[float] = []
    for _ in range(ROUNDS):
        began = time.process_time()
        _loop()
        times.append(time.process_time() - began)
    return min(times) * 1000


class _Counter:
    def __init__(self) -> None:
        self.count = 0

    def add(self, amount: int) -> int:
        self.count += amount
        return self.count


def _loop() -> None:
    """Use attributes, calls, dicts and integers, as the cores of the services do."""
    counter, seen = _Counter(), dict[int, int]()
    for step in range(STEPS):
        key = counter.add(step) & 1023
        seen[key] = seen.get(key, 0) + 1


def this() -> Interpreter:
    """Return the running interpreter, measured."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    distribution = f"{release.get('ID', '')} {release.get('ID_LIKE', '')}"
    how = build(sysconfig.get_config_var("CONFIG_ARGS"), sys.base_prefix, distribution)
    return Interpreter(sys.executable, platform.python_version(), how, loop_ms())


def candidates(path: str) -> list[str]:
    """Return the programs on PATH with one of our names, in the order of the names."""
    folders = [folder for folder in path.split(os.pathsep) if folder]
    found = [shutil.which(name, path=folder) for name in NAMES for folder in folders]
    return list(dict.fromkeys(each for each in found if each))


def probe(program: str) -> Interpreter | None:
    """Run this file with another Python; None where it does not run, is too old, or makes no virtual environments."""
    check = f"import sys, venv, ensurepip; sys.exit(sys.version_info < {OLDEST})"
    try:
        subprocess.run([program, "-c", check], check=True, capture_output=True, timeout=PROBE_S)
        done = subprocess.run([program, "-I", __file__, "--this"], check=True, capture_output=True, timeout=PROBE_S)
        return Interpreter(*json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return None


def best(found: Iterable[Interpreter]) -> Interpreter | None:
    """Return the first that is as fast as the fastest; None without any."""
    each = list(found)
    fastest_ms = min((one.loop_ms for one in each), default=0.0)
    return next((one for one in each if one.loop_ms <= fastest_ms * EQUAL), None)


def main(words: Sequence[str]) -> int:
    """Print the best Python of this machine on stdout and all of them on stderr; with `--this` this one, as JSON."""
    if words == ["--this"]:
        print(json.dumps(this()))
        return 0
    found = {one.path: one for program in candidates(os.environ.get("PATH", "")) if (one := probe(program))}
    chosen = best(found.values())
    for one in found.values():
        print(f"{'* ' if one is chosen else '  '}{one.path}: {one}", file=sys.stderr)
    if chosen is None:
        return 1
    print(Path(chosen.path))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
