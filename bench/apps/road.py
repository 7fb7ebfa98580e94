"""Road on which proxies are measured: client, proxy, the node's end, the app; each but the client a process. Only the proxy differs.

nginx is one worker (Debian's package); configurable-http-proxy is found on PATH, or by npm's folder in FAIRLEAD_BENCH_CHP.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from bench.apps.ends import GIB
from fairlead.stack.nats_server import free_port

OURS, NGINX, CHP, SPLICE, NONE = "fairlead", "nginx", "configurable-http-proxy", "splice", "no proxy"
_READY_S = 20.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_NGINX = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log crit; worker_rlimit_nofile 20000;
events {{ worker_connections 18000; }}
http {{
  access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  keepalive_requests 100000000; proxy_max_temp_file_size 0;
  map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
  upstream app {{ server 127.0.0.1:{app}; keepalive 64; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port} backlog=8192; location / {{
    proxy_pass http://app; proxy_http_version 1.1; proxy_read_timeout 3600s; proxy_set_header Host $http_host;
    proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;
  }} }}
}}
"""


class Missing(Exception):
    """A program to measure beside ours is not installed; the message says which and how."""


class Proxy:
    """One way to the app: its port, and the process that is measured (0: none)."""

    def __init__(self, name: str, port: int, pid: int) -> None:
        self.name, self.port, self.pid = name, port, pid

    def cpu_s(self) -> float:
        """CPU time of the process so far."""
        if not self.pid:
            return 0.0
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def pss_kib(self) -> int:
        """Proportional memory of the process."""
        if not self.pid:
            return 0
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


class Road:
    """Use `with Road() as road`; `proxies`: every proxy, in front of the same node's end. Raises Missing."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="fairlead-bench-apps-"))
        self._processes: list[subprocess.Popen[str]] = []
        self.proxies: dict[str, Proxy] = {}

    def __enter__(self) -> Self:
        nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        chp = shutil.which("configurable-http-proxy", path=os.environ.get("FAIRLEAD_BENCH_CHP") or os.environ["PATH"])
        if nginx is None or chp is None:
            raise Missing("nginx (apt-get install nginx-light) and configurable-http-proxy (npm install) must be there")
        try:
            self._start(nginx, chp)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self, nginx: str, chp: str) -> None:
        with (file := self._folder / "gib").open("wb") as content:
            content.truncate(GIB)
        [app] = self._end("app", str(file))[1]
        _, [node, control] = self._end("node", str(app))
        ours, [port] = self._end("proxy", str(control))
        self._add(OURS, port, ours)
        bare, [port] = self._end("splice", str(node))
        self._add(SPLICE, port, bare)
        port = free_port()
        config = self._folder / "nginx.conf"
        config.write_text(_NGINX.format(folder=self._folder, app=node, port=port))
        self._add(NGINX, port, self._spawn([nginx, "-c", str(config), "-e", str(self._folder / "error.log")]))
        port, api = free_port(), free_port()
        argv = ["--ip", "127.0.0.1", "--port", str(port), "--api-ip", "127.0.0.1", "--api-port", str(api)]
        argv += ["--default-target", f"http://127.0.0.1:{node}", "--log-level", "error"]
        self._add(CHP, port, self._spawn([chp, *argv]))
        self._add(NONE, node, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _spawn(self, argv: list[str]) -> subprocess.Popen[str]:
        log = (self._folder / "log").open("a")
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True)
        self._processes.append(process)
        return process

    def _end(self, name: str, argument: str) -> tuple[subprocess.Popen[str], list[int]]:
        process = self._spawn([sys.executable, "-m", "bench.apps.ends", name, argument])
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{name} did not start: {(self._folder / 'log').read_text()}")
        return process, [int(each) for each in line.split()]

    def _add(self, name: str, port: int, process: subprocess.Popen[str] | None) -> None:
        self.proxies[name] = Proxy(name, port, process.pid if process is not None else 0)
        until = time.monotonic() + _READY_S
        headers = {"Host": "http-7-1-abcdefgh.localhost", "Cookie": "fairlead-app=abc"}
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/", headers=headers).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if time.monotonic() > until:
                raise RuntimeError(f"{name} does not answer: {(self._folder / 'log').read_text()}")
            time.sleep(0.05)
