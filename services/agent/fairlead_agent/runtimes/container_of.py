"""Which container a process is in, as its control groups say: engines name them by the container's id."""

import re
from pathlib import Path

#: "/docker/<id>" (cgroupfs), "docker-<id>.scope" (systemd), on version 1 and 2 of control groups alike.
_ID = re.compile(r"(?:/|-)([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)


def container_in(cgroups: str) -> str:
    """The id in the content of /proc/<pid>/cgroup; "" for a process that is in none."""
    found = _ID.search(cgroups)
    return found[1] if found is not None else ""


def container_of(pid: int) -> str:
    """The id of the container that the process is in; "" for one that is in none, or gone."""
    try:
        return container_in(Path(f"/proc/{pid}/cgroup").read_text())
    except OSError:
        return ""
