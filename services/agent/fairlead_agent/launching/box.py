"""A run's box: a directory beside it with what a launcher needs inside it, read-only to containers, since a pipe can be
written through all the same.

    <data>/launch/<run>/order             the agent's own note, for its next process
    <data>/launch/<run>/box/hostfile      nodes and slots, as MPI reads them
                           /daemon.sh wait.sh processes.sh
                           /up            pipe: scripts to the agent
                           /down          pipe: the agent to wait.sh
                           /ends          pipe: processes.sh's children to itself
                           /wake.<host>   pipe: the agent to daemon.sh, for each node
                           /run.<id> answer.<id>    a command, and the exit code that it ended with

The directory above belongs to the agent's user alone; what is in the box, any user of a container may read.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"


def fill(box: Path, *, hosts: Sequence[str], hostfile: str) -> None:
    """Make it. Raises OSError; FileExistsError where the run has one already."""
    box.mkdir(parents=True)
    box.parent.chmod(0o700)
    box.chmod(0o755)
    put(box / "hostfile", hostfile)
    for script in SCRIPTS.iterdir():
        shutil.copyfile(script, box / script.name)
        (box / script.name).chmod(0o555)
    for name in ("up", "down", "ends", *(f"wake.{host}" for host in hosts)):
        os.mkfifo(box / name)
        (box / name).chmod(0o666)  # a container's user is another


def put(path: Path, text: str) -> None:
    """A file of the box that is there whole or not at all."""
    new = path.with_name(f".{path.name}")
    new.write_text(text)
    new.chmod(0o644)
    new.rename(path)
