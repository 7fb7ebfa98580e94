"""`python -m fairlead_agent.guard`: watches every agent's directory in FAIRLEAD_DATA (default ./.fairlead), without end.

One guard runs per FAIRLEAD_DATA: it holds `guard.lock` there, and a second one ends with exit code 1. For processes it
runs as the agents' user, for containers as a user with access to the engine (DOCKER_HOST, default
unix:///var/run/docker.sock). The timings are those of each agent's lease file. SIGTERM ends the guard; running work is
not touched by that.
"""

import fcntl
import os
import signal
import sys
import time
from pathlib import Path

from fairlead_agent.core.lease import NAME
from fairlead_agent.files.guard_files import boottime_ns, read, tell
from fairlead_agent.guard.policy import GuardWatch
from fairlead_agent.guard.work import Containers, Processes, socket_of

#: Between two looks while an action may be due; and otherwise at most, since a new agent's lease may be a short one.
LOOK_S, REST_S = 0.25, 1.0
LOCK = "guard.lock"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Guarded:
    """Agent's directory under guard: its watch, and the ways to find its work."""

    def __init__(self, directory: Path, docker: str) -> None:
        self.directory = directory
        self.watch = GuardWatch()
        self._kinds = {"process": Processes(directory), "docker": Containers(docker)}

    def look(self, boot_id: str) -> float:
        """Read the lease once, and end what is due. Return the seconds until an action may be due."""
        self._act(boot_id)
        return self.watch.due_in_ns(boot_id, boottime_ns()) / 1e9

    def _act(self, boot_id: str) -> None:
        now = boottime_ns()
        self.watch.read(read(self.directory))
        lease = self.watch.lease
        kind = self._kinds.get(lease.runtime) if lease is not None else None
        if lease is None or kind is None or not self.watch.must_look(boot_id, now):
            return
        acts = self.watch.look(kind.look(lease), now)
        terminated = [act.run for act in acts if act.signal == "TERM"]
        if terminated:
            silence_s = self.watch.silence_ns(now) / 1e9
            say(f"no lease for {silence_s:.1f} s: node={lease.node} ends {' '.join(terminated)}")
            try:
                tell(self.directory, terminated, silence_s, now)
            except OSError as error:  # what must end ends, whether or not it can be written down
                say(f"cannot note it in {self.directory}: {error}")
        for act in acts:
            kind.send(act.run, signal.Signals[f"SIG{act.signal}"])


def say(text: str) -> None:
    """Write one line to stderr for the system's journal."""
    sys.stderr.write(f"guard: {text}\n")
    sys.stderr.flush()


def lock(data: Path) -> int:
    """Hold the directory for life. Exits with 1 where another guard does."""
    data.mkdir(parents=True, exist_ok=True)
    fd = os.open(data / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        say(f"{data} has a guard already (it holds {LOCK})")
        sys.exit(1)
    os.ftruncate(fd, 0)
    os.write(fd, f"{os.getpid()}\n".encode())
    return fd


def main() -> None:
    """Look each second, and four times a second while an agent is silent. Nothing that one directory holds keeps another from
    being watched.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    data = Path(os.environ.get("FAIRLEAD_DATA") or ".fairlead").absolute()
    docker, boot_id = socket_of(os.environ.get("DOCKER_HOST", "")), BOOT_ID.read_text().strip()
    lock(data)
    guarded: dict[Path, Guarded] = {}
    while True:
        for path in data.glob(f"agent-*/{NAME}"):
            guarded.setdefault(path.parent, Guarded(path.parent, docker))
        due_in_s = REST_S
        for each in guarded.values():
            try:
                due_in_s = min(due_in_s, each.look(boot_id))
            except Exception as error:  # noqa: BLE001 -- it must go on watching, whatever a directory holds
                due_in_s = LOOK_S
                say(f"{each.directory}: {type(error).__name__}: {error}")
        time.sleep(max(LOOK_S, due_in_s))


if __name__ == "__main__":
    main()
