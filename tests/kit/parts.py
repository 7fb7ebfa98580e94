"""Programs and packages of other projects that tests use, each set up once into an ignored folder of the working tree.

A test that uses one is skipped by name where it cannot be set up. On CI it fails instead: there a test that did not run is a defect.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
INSTALL_S = 180


def lacks(reason: str) -> NoReturn:
    """Skip the running test for a part that cannot be set up; fail it where every part is expected."""
    if os.environ.get("FAIRLEAD_NEED_SIGN_ON") or os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def program(name: str, package: str) -> str:
    """Return the path of a program on PATH. `package`: what has it, for the reason why a test did not run."""
    return shutil.which(name) or lacks(f"{name} is not on PATH; {package} has it")


def set_up(name: str, lock: Path, into: Path, commands: Sequence[Sequence[str]]) -> None:
    """Run commands in the lock's folder, unless `into` was made from this very lock. Processes take turns."""
    stamp, wanted = into / ".set-up", hashlib.sha256(lock.read_bytes()).hexdigest()
    with (lock.parent / ".lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if stamp.is_file() and stamp.read_text() == wanted:
            return
        for command in commands:
            done = subprocess.run(command, cwd=lock.parent, capture_output=True, text=True, timeout=INSTALL_S)
            if done.returncode:
                lacks(f"{name} cannot be set up: {done.stderr.strip()[-200:]}")
        stamp.write_text(wanted)


def packages(name: str, lock: Path) -> Path:
    """Return a virtual environment with the packages of a lock, which have nothing to do with ours."""
    venv = ROOT / f".venv-{name}"
    # By our own pip, and without compiling what is never imported: faster.
    install = ["-m", "pip", "--python", str(venv), "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    commands = [
        [sys.executable, "-m", "venv", "--clear", "--without-pip", str(venv)],
        [sys.executable, *install, "--require-hashes", "-r", lock.name],
    ]
    set_up(name, lock, venv, commands)
    return venv
