"""Hosts on one machine, for tests of what crosses a network: network namespaces on one bridge, with links that can be cut.

Real kernels' sockets, routes and interfaces; processes, files and the Docker engine are the machine's own. Needs root and
iproute2: `unfit` says what is missing. Names are random, so that several tests may run at the same time.
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self


def unfit() -> str:
    """Why this machine can play no hosts, "" when it can."""
    if shutil.which("ip") is None:
        return "no `ip` (Debian: iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"fl{secrets.token_hex(3)}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"this machine makes no network namespaces: {tried.stderr.strip()}"
    ip("netns", "del", name)
    return ""


def ip(*words: str) -> None:
    """Run `ip`. Raises RuntimeError with what it said."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Host:
    """One namespace with one address; `switch` is where all hosts meet."""

    def __init__(self, name: str, address: str, outer: str, switch: str) -> None:
        self.name, self.address = name, address
        self._outer, self._switch = outer, switch

    def start(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        output: IO[bytes] | int | None = None,
        directory: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a program inside; it is of a session of its own."""
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, *words],
            env=None if env is None else {**os.environ, **env},
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=True,
        )

    def run(self, *words: str) -> str:
        """Run a program inside to its end. Raises CalledProcessError."""
        return subprocess.run(
            ["ip", "netns", "exec", self.name, *words], capture_output=True, text=True, check=True
        ).stdout

    def cut(self) -> None:
        """Pull its cable: nothing gets in or out. The connections inside notice nothing."""
        ip("netns", "exec", self._switch, "ip", "link", "set", self._outer, "down")

    def mend(self) -> None:
        """Put the cable back."""
        ip("netns", "exec", self._switch, "ip", "link", "set", self._outer, "up")


class Hosts:
    """Some hosts on one bridge: `with Hosts("control", "a", "b") as hosts: hosts["a"].cut()`. Addresses are 10.77.0.1 and up;
    the bridge is in a namespace, too, so that nothing of it is seen outside."""

    def __init__(self, *names: str) -> None:
        self._tag = secrets.token_hex(3)
        self._names = names
        self._made: list[str] = []
        self._hosts: dict[str, Host] = {}

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __enter__(self) -> Self:
        switch = self._namespace("switch")
        inside = ("netns", "exec", switch, "ip", "link")
        ip(*inside, "add", "br0", "type", "bridge")
        ip(*inside, "set", "br0", "up")
        for at, name in enumerate(self._names):
            self._join(name, at, switch, inside)
        return self

    def _join(self, name: str, at: int, switch: str, inside: tuple[str, ...]) -> None:
        namespace, outer, address = self._namespace(name), f"v{self._tag}{at}", f"10.77.0.{at + 1}"
        ip(*inside, "add", outer, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip(*inside, "set", outer, "master", "br0", "up")
        within = ("netns", "exec", namespace, "ip")
        ip(*within, "link", "set", "lo", "up")
        ip(*within, "addr", "add", f"{address}/24", "dev", "eth0")
        ip(*within, "link", "set", "eth0", "up")
        self._hosts[name] = Host(namespace, address, outer, switch)

    def _namespace(self, name: str) -> str:
        full = f"fl{self._tag}-{name}"
        ip("netns", "add", full)
        self._made.append(full)
        return full

    def __exit__(self, *_: object) -> None:
        for name in self._made:  # with them go their interfaces; what still runs inside keeps a namespace alive
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
            for pid in pids.split():
                subprocess.run(["kill", "-KILL", pid], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
