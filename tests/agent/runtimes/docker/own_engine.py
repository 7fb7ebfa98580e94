"""A Docker engine of a test's own, which it may stop, kill and hold: its daemon, its directories, its socket.

Containers of it have no network, or that of the namespace that the daemon is put in (tests/kit/hosts.py). Needs root and dockerd; nothing of
the machine's own engine is touched.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import docker
import docker.errors
import requests.exceptions

from tests.agent.runtimes.docker.image import IMAGE, root_file_system

READY_S = 60.0


def missing() -> str:
    """Return the reason why no engine can be started here; "" if one can."""
    if os.geteuid() != 0:
        return "docker: an engine of the test's own needs root"
    if shutil.which("dockerd") is None or shutil.which("busybox") is None:
        return "docker: an engine of the test's own needs dockerd and busybox (see .ci/docker-engine)"
    return ""


class OwnEngine:
    """Use as a context manager. `within`: the network namespace that its daemon runs in; one of its own without a name."""

    def __init__(self, *, live_restore: bool, within: str = "") -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="fl-engine-", dir="/tmp"))
        self.socket = str(self.directory / "docker.sock")
        self._live_restore = live_restore
        # Only the network: what it mounts must be seen by its containerd, which `ip netns exec` would prevent.
        self._around = ["nsenter", f"--net=/run/netns/{within}"] if within else ["unshare", "--net"]
        self._daemon: subprocess.Popen[bytes] | None = None
        self._containerd: subprocess.Popen[bytes]

    def __enter__(self) -> "OwnEngine":
        there = self.directory
        # Of its own, as installed machines have it: a daemon that is killed does not take it along.
        argv = ["containerd", "--root", f"{there}/cd", "--state", f"{there}/cds", "--address", f"{there}/cd.sock"]
        with (there / "containerd.log").open("ab") as log:
            self._containerd = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        self.start()
        busybox = shutil.which("busybox")
        assert busybox is not None
        repository, _, tag = IMAGE.partition(":")
        self.client.import_image_from_data(root_file_system(busybox), repository=repository, tag=tag)
        return self

    def __exit__(self, *_: object) -> None:
        if self._daemon is not None and self._daemon.poll() is not None:
            self.start()
        for container in self.client.containers(all=True):
            self.client.remove_container(container["Id"], force=True)
        self.stop()
        self._containerd.terminate()
        self._containerd.wait(30)
        for line in Path("/proc/mounts").read_text().splitlines():  # a daemon that was killed leaves some
            if (mounted := line.split()[1]).startswith(str(self.directory)):
                subprocess.run(["umount", "-l", mounted], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def client(self) -> docker.APIClient:
        """A client of its own."""
        return docker.APIClient(base_url=f"unix://{self.socket}", version="auto")

    def start(self) -> None:
        """Start the daemon, and wait until it answers."""
        there = self.directory
        argv = [
            *self._around,
            "dockerd",
            "--data-root",
            f"{there}/data",
            "--exec-root",
            f"{there}/exec",
            "--pidfile",
            f"{there}/pid",
            "-H",
            f"unix://{self.socket}",
            "--containerd",
            f"{there}/cd.sock",
            "--bridge=none",
            "--iptables=false",
            "--shutdown-timeout=2",
            *(["--live-restore"] if self._live_restore else []),
        ]
        with (there / "log").open("ab") as log:
            self._daemon = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline and self._daemon.poll() is None:
            try:
                self.client.ping()
            except (docker.errors.DockerException, requests.exceptions.RequestException, OSError):
                time.sleep(0.1)
            else:
                return
        raise RuntimeError("dockerd does not start: " + (there / "log").read_text()[-2000:])

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End the daemon and wait for it; its containers may continue."""
        assert self._daemon is not None
        self._daemon.send_signal(number)
        self._daemon.wait(60)
        (self.directory / "pid").unlink(missing_ok=True)

    def hold(self) -> None:
        """Suspend the engine: connections are accepted, and nothing is answered."""
        assert self._daemon is not None
        self._daemon.send_signal(signal.SIGSTOP)

    def release(self) -> None:
        """Resume the engine."""
        assert self._daemon is not None
        self._daemon.send_signal(signal.SIGCONT)
