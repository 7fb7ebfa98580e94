"""The streams as they must be: missing ones are made, existing ones are checked, moved to more copies or refused.

What exists is checked because an old server silently ignores settings that it does not know (docs/reference/facts.md). Which
streams there are: `streams.py`. Fitness of the servers themselves: `server_checks.py`. Start at `ensure_streams`.
"""

import asyncio
import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import msgspec
import structlog

from fairlead_bus import streams
from fairlead_bus.nats.link import ApiError, Link
from fairlead_bus.port import BusError, OutcomeUnknown, ServerUnfit, Unavailable
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import subjects

STREAMS_POLL_S = 0.5
REMAKE = "`python -m fairlead_bus remake`"

log = structlog.get_logger()


class _State(msgspec.Struct):
    bytes: int = 0


class _Replica(msgspec.Struct):
    current: bool = False


class _Cluster(msgspec.Struct):
    replicas: list[_Replica] = []


class _Info(msgspec.Struct):
    config: dict[str, Any] = {}
    state: _State = msgspec.field(default_factory=_State)
    cluster: _Cluster = msgspec.field(default_factory=_Cluster)
    error: ApiError | None = None

    @property
    def copies(self) -> int:
        return self.config.get("num_replicas", 1)


class RequiredStream(NamedTuple):
    """Stream that must exist."""

    name: str
    #: Its settings in JetStream's words, for so many copies.
    config: Callable[[int], dict[str, Any]]
    #: Copies of it; None: as many as it has, one where it is missing.
    copies: int | None = None
    #: False: an existing stream keeps its size limit.
    resize: bool = True
    #: True: `remake` may delete it: its contents are derived, or may be lost.
    expendable: bool = False


def required_streams() -> tuple[RequiredStream, ...]:
    """All streams, the object stores last. Raises BadSetting."""
    copies = streams.requested_copies(os.environ)
    return tuple(each._replace(copies=copies) for each in _required_streams())


def _required_streams() -> Iterator[RequiredStream]:
    for stream in streams.stream_specs():
        yield RequiredStream(
            stream.name,
            partial(stream_config, stream),
            resize=stream.resize,
            expendable=not stream.durable,
        )
    for bucket in streams.bucket_specs():
        yield RequiredStream(
            f"KV_{bucket.name}",
            partial(bucket_config, bucket),
            expendable=bucket.in_memory,
        )
    for store in streams.STORES:
        yield RequiredStream(f"OBJ_{store}", partial(store_config, store))


def stream_config(spec: streams.StreamSpec, copies: int = 1) -> dict[str, Any]:
    """A stream's settings in JetStream's words; see `streams.py`."""
    in_memory = copies > 1 and spec.memory_bytes_max > 0
    return {
        "name": spec.name,
        "subjects": list(spec.subjects),
        **_storage(copies, durable=spec.durable, in_memory=in_memory),
        "retention": "limits",
        "discard": "new" if spec.refuse_when_full else "old",
        "max_bytes": spec.memory_bytes_max if in_memory else spec.bytes_max,
        "max_msgs": -1,
        "max_msgs_per_subject": spec.messages_of_subject_max or -1,
        "max_age": spec.age_max_s * SECOND_NS,
        "max_msg_size": spec.message_bytes_max,
        "duplicate_window": streams.DUPLICATE_WINDOW_S * SECOND_NS,
        "allow_direct": False,
        "deny_delete": spec.sealed,
        "deny_purge": spec.sealed,
    }


def bucket_config(spec: streams.BucketSpec, copies: int = 1) -> dict[str, Any]:
    """A bucket is a stream that keeps one message per subject."""
    config: dict[str, Any] = {
        "name": f"KV_{spec.name}",
        "subjects": [f"$KV.{spec.name}.>"],
        **_storage(copies, durable=spec.durable, in_memory=copies > 1 and spec.in_memory),
        "retention": "limits",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "max_msg_size": streams.MESSAGE_BYTES_MAX,
        "max_age": spec.age_max_s * SECOND_NS,
        "allow_direct": spec.peekable,
        "allow_rollup_hdrs": True,
    }
    if spec.bytes_max:
        config["max_bytes"] = spec.bytes_max
    if spec.ttl:
        config["allow_msg_ttl"] = True
    return config


def store_config(store: str, copies: int = 1) -> dict[str, Any]:
    """An object store is a stream of pieces and descriptions; as the library makes it, so that it can use it."""
    return {
        "name": f"OBJ_{store}",
        "subjects": [f"$O.{store}.C.>", f"$O.{store}.M.>"],
        **_storage(copies, durable=True, in_memory=False),
        "retention": "limits",
        "discard": "new",
        "allow_direct": True,
        "allow_rollup_hdrs": True,
    }


def _storage(copies: int, *, durable: bool, in_memory: bool) -> dict[str, Any]:
    """Files or memory, and the copies. The server refuses its mode without fsync for several copies."""
    storage: dict[str, Any] = {"storage": "memory" if in_memory else "file", "num_replicas": copies}
    return storage | {"persist_mode": "async"} if copies == 1 and not durable else storage


#: Settings whose silent absence would break a promise.
CHECKED = (
    "storage",
    "discard",
    "deny_delete",
    "deny_purge",
    "persist_mode",
    "allow_msg_ttl",
    "max_msgs_per_subject",
    "max_msg_size",
)
#: Bounds of one writer, which streams of an earlier version do not have.
BOUNDS = ("subjects", "max_msgs_per_subject", "max_msg_size")
#: Settings that no update can change.
STORED_AS = ("storage", "persist_mode")

UNSET = (None, False, -1, "", "default")


async def ensure_streams(link: Link) -> None:
    """Make or check all streams. Raises BusError, BadSetting.

    A store of snapshots that cannot be looked at is logged, and is no reason to fail: state is folded instead.
    """
    for each in required_streams():
        try:
            await ensure_stream(link, each)
        except BusError as error:
            if not each.name.startswith("OBJ_"):
                raise
            log.warning("snapshots cannot be used now: states are folded from the log", reason=str(error))


async def ensure_stream(link: Link, stream: RequiredStream) -> None:
    """Create the stream if it is missing, bring its copies, its size limit (unless not `resize`) and who may peek up to
    date, check the rest.

    Raises ServerUnfit; also for a limit below what a stream holds that drops nothing: it would refuse every append.
    """
    name = stream.name
    info = await _api(link, f"$JS.API.STREAM.INFO.{name}")
    if info.error is not None and info.error.code == 404:
        info = await _api(link, f"$JS.API.STREAM.CREATE.{name}", stream.config(stream.copies or 1))
        if info.error is not None and "already in use" in info.error.description:
            info = await _api(link, f"$JS.API.STREAM.INFO.{name}")  # another process was quicker
    _raise_for(name, info)
    config = stream.config(stream.copies or info.copies)
    check_stored_as(stream, config, info.config)
    info = await _brought_up_to_date(link, info, config, resize=stream.resize)
    for setting in CHECKED:
        expected, found = _differing(setting, config, info.config)
        if expected != found:
            raise ServerUnfit(f"stream {name} has {setting} {found!r}, expected {expected!r}: another version made it?")


def check_stored_as(stream: RequiredStream, config: dict[str, Any], found: dict[str, Any]) -> None:
    """Raises ServerUnfit where an expendable stream would have to be made again to be stored as it must be."""
    if stream.expendable and not stored_alike(config, found):
        raise ServerUnfit(
            f"stream {stream.name}: expected {_stored_as(config)}, found {_stored_as(found)}, which no update can change:"
            f" end the services and run {REMAKE}, which deletes the contents of this stream"
        )


def stored_alike(config: dict[str, Any], found: dict[str, Any]) -> bool:
    """True where storage and persistence are those of `config`."""
    pairs = (_differing(setting, config, found) for setting in STORED_AS)
    return all(expected == actual for expected, actual in pairs)


def _differing(setting: str, config: dict[str, Any], found: dict[str, Any]) -> tuple[Any, Any]:
    """A setting as it must be and as it is; unset ones come back as false, -1 or "default"."""
    expected, actual = (None if each.get(setting) in UNSET else each.get(setting) for each in (config, found))
    return expected, actual


def _is_other(setting: str, config: dict[str, Any], found: dict[str, Any]) -> bool:
    if setting not in config:
        return False
    if setting == "subjects":
        return set(config[setting]) != set(found.get(setting) or ())
    expected, actual = _differing(setting, config, found)
    return expected != actual


def _stored_as(config: dict[str, Any]) -> str:
    copies = config.get("num_replicas", 1)
    mode = " without fsync" if config.get("persist_mode") == "async" else ""
    return f"{copies} {'copy' if copies == 1 else 'copies'} in {config.get('storage')}{mode}"


async def _brought_up_to_date(link: Link, info: _Info, config: dict[str, Any], *, resize: bool) -> _Info:
    """The stream after the updates that it needs, each with everything else as it is."""
    name, update = config["name"], f"$JS.API.STREAM.UPDATE.{config['name']}"
    if info.copies != config["num_replicas"]:
        log.info("stream gets another number of copies", stream=name, found=info.copies, wanted=config["num_replicas"])
        info = await _api(link, update, info.config | {"num_replicas": config["num_replicas"]})
        _raise_for(name, info)
    limit = config.get("max_bytes", -1)
    if resize and info.config.get("max_bytes") != limit:
        _check_limit(name, info, limit)
        info = await _api(link, update, info.config | {"max_bytes": limit})
        _raise_for(name, info)
    bounds = {setting: config[setting] for setting in BOUNDS if _is_other(setting, config, info.config)}
    if bounds:
        log.info("stream gets other bounds", stream=name, **bounds)
        info = await _api(link, update, info.config | bounds)
        _raise_for(name, info)
    if bool(info.config.get("allow_direct")) != config["allow_direct"]:
        # Made by a version of which agents asked in another way.
        info = await _api(link, update, info.config | {"allow_direct": config["allow_direct"]})
        _raise_for(name, info)
    return info


def _check_limit(name: str, info: _Info, limit: int) -> None:
    held = info.state.bytes
    if info.config.get("discard") == "new" and 0 < limit < held:
        raise ServerUnfit(
            f"stream {name}: expected a limit of at least the {held} bytes that it holds, found {limit}"
            " (FAIRLEAD_LOG_MAX_BYTES is the log's)"
        )


async def remake_streams(link: Link) -> None:
    """Delete the expendable streams that are not stored as they must be; `ensure_streams` makes them again.
    Raises BusError, BadSetting."""
    for stream in required_streams():
        info = await _api(link, f"$JS.API.STREAM.INFO.{stream.name}")
        if info.error is not None and info.error.code == 404:
            continue
        _raise_for(stream.name, info)
        config = stream.config(stream.copies or info.copies)
        if stream.expendable and not stored_alike(config, info.config):
            log.warning(
                "stream is deleted, to be made again",
                stream=stream.name,
                found=_stored_as(info.config),
                wanted=_stored_as(config),
            )
            _raise_for(stream.name, await _api(link, f"$JS.API.STREAM.DELETE.{stream.name}"))


async def copies_behind(link: Link) -> dict[str, str]:
    """{stream: "2 of 3"} for streams whose copies are not all current. Raises BusError, BadSetting."""
    behind: dict[str, str] = {}
    for stream in required_streams():
        info = await _api(link, f"$JS.API.STREAM.INFO.{stream.name}")
        _raise_for(stream.name, info)
        current = 1 + sum(replica.current for replica in info.cluster.replicas)
        if current < info.copies:
            behind[stream.name] = f"{current} of {info.copies}"
    return behind


async def wait_for_streams(link: Link) -> None:
    """Wait until the log's stream exists. Raises ServerUnfit for an answer that is no reason to wait, and Unavailable."""
    is_logged = False
    while (info := await _api(link, f"$JS.API.STREAM.INFO.{subjects.LOG}")).error is not None:
        if info.error.code != 404:
            raise ServerUnfit(f"stream {subjects.LOG}: {info.error.description}")
        if not is_logged:
            log.warning("there are no streams yet: waiting for `python -m fairlead_bus` with the key of `streams`")
            is_logged = True
        await asyncio.sleep(STREAMS_POLL_S)


def _raise_for(name: str, info: _Info) -> None:
    """Raises Unavailable where the cluster is electing a leader, ServerUnfit for any other refusal."""
    if info.error is None:
        return
    if info.error.code == 503:
        raise Unavailable(f"stream {name}: {info.error.description}")
    raise ServerUnfit(f"stream {name}: {_advice(info.error.description)}")


def _advice(description: str) -> str:
    if re.search("insufficient|storage resources", description):
        return f"{description}: raise max_file (or max_mem) in the server's jetstream block, or lower FAIRLEAD_LOG_MAX_BYTES"
    if "non-clustered" in description:
        return f"{description}: FAIRLEAD_NATS_REPLICAS is for servers with a `cluster` block (docs/how-to/three-servers.md)"
    return description


async def _api(link: Link, subject: str, body: dict[str, Any] | None = None) -> _Info:
    try:
        answer = await link.ask(subject, msgspec.json.encode(body) if body else b"")
    except OutcomeUnknown as error:
        raise Unavailable(str(error)) from error
    return msgspec.json.decode(answer, type=_Info)
