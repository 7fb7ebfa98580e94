"""Addresses of servers as settings give them, and the look at each server before it may carry the log."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest
import structlog

from fairlead_bus.environment_settings import BadSetting
from fairlead_bus.nats.server_checks import Addresses, check_servers, monitors, parse_addresses
from fairlead_bus.port import ServerUnfit

DURABLE = {"version": "2.15.0", "jetstream": {"config": {"sync_always": True}}}
LOSSY = {"version": "2.15.0", "jetstream": {"config": {}}}
OLD = DURABLE | {"version": "2.9.10"}
#: Nothing listens there.
DOWN = "http://127.0.0.1:1"
THREE = parse_addresses("nats://127.0.0.1:4001,nats://127.0.0.1:4002,nats://127.0.0.1:4003")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nats://a:1", Addresses(("nats://a:1",))),
        ("a", Addresses(("nats://a:4222",))),
        ("nats://a:1, b:2 ,tls://c", Addresses(("nats://a:1", "nats://b:2", "tls://c:4222"))),
        ("nats://t@a:1,nats://b:1", Addresses(("nats://a:1", "nats://b:1"), token="t")),
        ("nats://a:1,b,nats://a:1,nats://b:4222", Addresses(("nats://a:1", "nats://b:4222"))),
        ("nats://t@a:1,nats://t@b:1", Addresses(("nats://a:1", "nats://b:1"), token="t")),
        ("nats://u:p@a:1", Addresses(("nats://a:1",), user="u", password="p")),
        ("nats://[::1]:1", Addresses(("nats://[::1]:1",))),
    ],
)
def test_a_list_of_addresses_is_read(text: str, expected: Addresses) -> None:
    """Commas separate; ports and schemes have defaults; the token of one address counts for all; a repetition is one."""
    assert expected == parse_addresses(text)


@pytest.mark.parametrize(
    "text", ["", " , ", "http://a:1", "nats://a:99999999", "nats://t@", "nats://t@a:1,nats://s@b:1"]
)
def test_an_invalid_address_is_refused_without_its_token(text: str) -> None:
    """The message names the setting; it may be logged, so no token is in it."""
    with pytest.raises(BadSetting, match="FAIRLEAD_NATS: expected") as refused:
        parse_addresses(text)
    assert "t@" not in str(refused.value)


def test_each_host_has_a_monitoring_page_unless_the_setting_names_others() -> None:
    """Port 8222 of each server by default; a list; none where the check is waived."""
    addresses = parse_addresses("a:1,a:2,b:1")
    assert monitors({}, addresses) == ("http://a:8222", "http://b:8222")
    assert monitors({"FAIRLEAD_NATS_MONITOR": "http://x:1/, http://y:2"}, addresses) == ("http://x:1", "http://y:2")
    assert monitors({"FAIRLEAD_NATS_MONITOR": "unchecked"}, addresses) == ()


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Serve these monitoring pages and name them, and `down` more that do not answer, in the setting."""
    with ExitStack() as stack:

        def serve(*served: dict[str, object], down: int = 0) -> None:
            urls = [_serve(stack, msgspec.json.encode(page)) for page in served]
            monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", ",".join(urls + [DOWN] * down))

        yield serve


def _serve(stack: ExitStack, page: bytes) -> str:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    stack.callback(server.shutdown)
    return f"http://127.0.0.1:{server.server_address[1]}"


@pytest.mark.parametrize(
    ("unfit", "reason"), [(LOSSY, "at http://.*sync_interval: always"), (OLD, r"2\.9\.10 at http://.* is below")]
)
async def test_every_server_is_looked_at(pages: Callable[..., None], unfit: dict[str, object], reason: str) -> None:
    """One of three that does not fsync, or is too old, may become the leader of the log: refused by its address."""
    pages(DURABLE, DURABLE, unfit)
    with pytest.raises(ServerUnfit, match=f"nats-server {reason}"):
        await check_servers(THREE)


def member(name: str, *others: str) -> dict[str, object]:
    """The page of a server of a cluster."""
    meta = {"name": "fairlead", "replicas": [{"name": other, "offline": True} for other in others]}
    return {
        "version": "2.15.0",
        "server_name": name,
        "cluster": {"name": "fairlead"},
        "jetstream": {"config": {"sync_always": True}, "meta": meta},
    }


MEMBERS = (member("a", "b", "c"), member("b", "a", "c"))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (member("x", "y", "z"), "nats-server x at http://.* is of another cluster than a at http://"),
        (
            DURABLE | {"server_name": "x", "cluster": {}},
            "nats-server x at http://.* runs alone, and a at http://.* is of",
        ),
    ],
)
async def test_a_server_of_another_cluster_is_refused_by_name(
    pages: Callable[..., None], other: dict[str, object], reason: str
) -> None:
    """Clusters made from the same page of documentation have the same name; their servers do not know each other."""
    pages(*MEMBERS, other)
    with pytest.raises(ServerUnfit, match=reason):
        await check_servers(THREE)


@pytest.mark.parametrize("third", [member("c", "a", "b"), member("c", "b"), member("c"), MEMBERS[0]])
async def test_servers_that_know_each_other_are_one_cluster(
    pages: Callable[..., None], third: dict[str, object]
) -> None:
    """Also while one of them has no leader of the metadata yet, or knows only one other, and where one is named twice."""
    pages(*MEMBERS, third)
    await check_servers(THREE)


async def test_a_page_that_is_down_keeps_no_service_from_starting(pages: Callable[..., None]) -> None:
    """One of three servers may be away; that its settings are not known is logged with its address."""
    pages(DURABLE, DURABLE, down=1)
    with structlog.testing.capture_logs() as logs:
        await check_servers(THREE)
    (warning,) = logs
    assert (warning["log_level"], warning["monitors"]) == ("warning", DOWN)


async def test_one_named_page_of_three_servers_may_be_down(pages: Callable[..., None]) -> None:
    """The page of a server that is away says nothing against the two others, which carry the bus."""
    pages(down=1)
    with structlog.testing.capture_logs() as logs:
        await check_servers(THREE)
    assert [entry["log_level"] for entry in logs] == ["warning"]


async def test_the_only_server_must_show_its_settings_once(pages: Callable[..., None]) -> None:
    """Its page is up whenever the bus is, or it was never configured; after a first look, silence is only logged."""
    pages(down=1)
    one = parse_addresses("127.0.0.1:4001")
    with pytest.raises(ServerUnfit, match=r"cannot read http://127\.0\.0\.1:1/varz .*FAIRLEAD_NATS_MONITOR"):
        await check_servers(one)
    await check_servers(one, seen_before=True)
