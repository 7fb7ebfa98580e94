"""Three real nats-servers that form one JetStream cluster, on the loopback or each on a host. Start at `NatsCluster`.

It knows servers, leaders and faults, and nothing of Fairlead's streams. Each server keeps its ports and its store over
a restart. Waits are bounded; one that runs out raises with the end of every server's log.
"""

import shutil
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from fairlead.stack.nats_server import free_port
from tests.kit.eventually import eventually
from tests.kit.nats_server import HERE, NatsServer, Place

SERVERS = 3
#: Elections take 4 to 9 s by constants of the server; a busy machine adds to that.
WAIT_S = 40.0
MONITOR_S = 1.0
_ATTEMPTS_MAX = 3


class NatsCluster:
    """The servers, in the order of their names. `close` ends them and removes their stores."""

    def __init__(
        self,
        *,
        extra: str = "",
        sync_intervals: tuple[str, ...] = ("always",) * SERVERS,
        store_of_first: Path | None = None,
        places: tuple[Place, ...] = (HERE,) * SERVERS,
    ) -> None:
        """`store_of_first`: a store that is copied for the first server, which no guard looks at."""
        self._extra, self._sync_intervals, self._store_of_first = extra, sync_intervals, store_of_first
        self._places = places
        self.servers: list[NatsServer] = []

    @property
    def url(self) -> str:
        """The clients' addresses of all servers, as FAIRLEAD_NATS takes them."""
        return ",".join(server.url for server in self.servers)

    @property
    def monitor(self) -> str:
        """All monitoring addresses, as FAIRLEAD_NATS_MONITOR takes them."""
        return ",".join(server.monitor for server in self.servers)

    def start(self) -> None:
        """Start all servers and wait until they have elected a leader for their metadata."""
        for attempt in range(_ATTEMPTS_MAX):
            self._make()
            try:
                self._start_all()
            except RuntimeError:  # another program took a port that was free a moment ago
                self.close()
                if attempt + 1 == _ATTEMPTS_MAX:
                    raise
            else:
                break
        self.wait(lambda: self.meta_leader() is not None, "a leader of the metadata")

    def _make(self) -> None:
        routes = [free_port() for _ in range(SERVERS)]
        urls = ", ".join(f'"nats://{place.address}:{port}"' for place, port in zip(self._places, routes, strict=True))
        self.servers = []
        for place, port, sync_interval in zip(self._places, routes, self._sync_intervals, strict=True):
            cluster = f'cluster {{ name: fairlead, listen: "{place.address}:{port}", routes: [{urls}] }}\n'
            server = NatsServer(sync_interval=sync_interval, max_mem="2GB", extra=cluster + self._extra, place=place)
            server.port, server.http_port = free_port(), free_port()
            self.servers.append(server)
        if self._store_of_first is not None:
            shutil.copytree(self._store_of_first, self.servers[0].store_dir)

    def _start_all(self) -> None:
        # One after another: a server ends with the thread that started it.
        for server in self.servers:
            server.start()

    def named(self, name: str) -> NatsServer:
        """The server of this name."""
        return next(server for server in self.servers if server.directory.name == name)

    def running(self) -> list[NatsServer]:
        """The servers whose process runs."""
        return [server for server in self.servers if server.runs]

    def meta_leader(self) -> NatsServer | None:
        """The leader of the cluster's metadata once all running servers are its current peers, or None."""
        seen: set[str] = set()
        for server in self.running():
            meta = (_page(server, "jsz") or {}).get("meta_cluster", {})
            seen.add(meta.get("leader", "") if meta.get("cluster_size") == SERVERS else "")
        return self.named(seen.pop()) if len(seen) == 1 and "" not in seen else None

    def leader(self, stream: str) -> NatsServer | None:
        """The running server that leads a stream, or None while there is none."""
        for server in self.running():
            for found in _streams(server):
                if found["name"] == stream and found.get("cluster", {}).get("leader") == server.directory.name:
                    return server
        return None

    def consumers(self, stream: str) -> dict[str, NatsServer]:
        """{consumer: its leader} for a stream's consumers on running servers."""
        return {
            consumer["name"]: server
            for server in self.running()
            for found in _streams(server)
            if found["name"] == stream
            for consumer in found.get("consumer_detail") or []
            if consumer.get("cluster", {}).get("leader") == server.directory.name
        }

    def wait_for_leader(self, stream: str) -> NatsServer:
        """The leader of a stream, once there is one."""
        self.wait(lambda: self.leader(stream) is not None, f"a leader of {stream}")
        leader = self.leader(stream)
        assert leader is not None
        return leader

    def copies(self, stream: str) -> int:
        """Copies of a stream that its leader knows as current, its own included; 0 without a leader."""
        leader = self.leader(stream)
        for found in _streams(leader) if leader is not None else []:
            if found["name"] == stream:
                return 1 + sum(bool(each.get("current")) for each in found.get("cluster", {}).get("replicas", []))
        return 0

    def healthy(self) -> bool:
        """True when all servers run and every stream and consumer of each has caught up."""
        return len(self.running()) == SERVERS and all(
            (_page(server, "healthz") or {}).get("status") == "ok" for server in self.servers
        )

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds. Raises AssertionError after WAIT_S."""
        eventually(condition, what, within_s=WAIT_S, logs=self._logs)

    def _logs(self) -> str:
        return "\n".join(f"{server.directory.name}:\n{server.log_tail()}" for server in self.servers)

    def close(self) -> None:
        """End all servers and remove their stores."""
        for server in self.servers:
            server.close()


def _streams(server: NatsServer) -> list[dict[str, Any]]:
    page = _page(server, "jsz?consumers=true&accounts=true") or {}
    return [stream for account in page.get("account_details", []) for stream in account.get("stream_detail", [])]


def _page(server: NatsServer, path: str) -> dict[str, Any] | None:
    """A page of a server's monitoring, or None where it does not answer (or not with 200)."""
    try:
        with urllib.request.urlopen(f"{server.monitor}/{path}", timeout=MONITOR_S) as answer:
            return msgspec.json.decode(answer.read())
    except OSError:
        return None
