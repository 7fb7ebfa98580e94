"""What is done to a container that runs: a command in it, and the file in which it says that it has saved."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import docker

from fairlead_agent.runtimes.port import SAID_BYTES_MAX, Executed

#: In a run's directory on this machine.
CHECKPOINT = "checkpoint"


def make_word(path: Path) -> str:
    """An empty file that anybody in the container may write, of time 0: nothing was said yet. Its path."""
    path.touch()
    path.chmod(0o666)  # whoever the image's user is; the directory around it is not mounted
    os.utime(path, ns=(0, 0))
    return str(path.absolute())


def exec_in(api: docker.APIClient, container: str, argv: Sequence[str], env: Mapping[str, str]) -> Executed:
    """Run a command in a container to its end (in a thread: it may take long). Raises docker's errors."""
    made: dict[str, Any] = api.exec_create(container, list(argv), environment=dict(env), stdin=False)
    said = b""
    for piece in api.exec_start(made["Id"], stream=True):
        said = (said + piece)[-SAID_BYTES_MAX:]
    code = api.exec_inspect(made["Id"])["ExitCode"]
    return Executed(code, said.decode(errors="replace").strip())
