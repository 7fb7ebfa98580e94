"""A service process, of one service or several: settings from the environment, logging, the event loop, signals, the exit code.

FAIRLEAD_NATS       nats://[token@]host:port of the bus, several of one cluster separated by commas
                    (default nats://127.0.0.1:4222)
FAIRLEAD_NATS_NKEY_FILE  file (mode 0600) with the seed of this process's bus key, instead of a token (default none)
FAIRLEAD_INSTANCE   name of this replica for its lease (default: host and process id)
FAIRLEAD_LOG_LEVEL  debug | info | warning | error (default info)
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Protocol

from fairlead_bus.plain_structlog import structlog

# isort: split
import msgspec

from fairlead_bus import bus_faults, nkey
from fairlead_bus.bus_faults import retry_until_available
from fairlead_bus.environment_settings import BadSetting, one_of
from fairlead_bus.lease import process_word
from fairlead_bus.nats.adapter import NatsBus, connect
from fairlead_bus.nats.link import CredentialsRefused
from fairlead_bus.port import Bus, BusError, LogDamaged, ServerUnfit, Unavailable
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.conditions import EXIT_STEPPED_DOWN, PRESENCE_S, ProcessPresence, encode_presence
from fairlead_schemas.wire.levels import LEVEL

#: After SIGTERM a process that does not come to its end by itself is cut off after this long.
STOP_S = 5.0
#: A cluster that elects leaders answers nothing for up to 10 s or so; a start waits this long for it.
START_S = 60.0
#: Pauses before an agent that shares its process is started again; it was healthy if it worked for HEALTHY_S.
AGAIN_FIRST_S, AGAIN_LAST_S, HEALTHY_S = 0.1, 5.0, 10.0
#: Between a reconnect and the look at the servers: one that has just started opens its pages in turn.
RECHECK_S = 1.0
DEFAULT_NATS = "nats://127.0.0.1:4222"
BAD_SETTING = "a setting cannot be used"
LOG_LEVELS = ("debug", "info", "warning", "error")


class Runnable(Protocol):
    """Result of `build`: a process that can be run and stopped."""

    async def run(self) -> int: ...

    async def stop(self) -> None: ...


def nats_url() -> str:
    """The bus's address from the environment."""
    return os.environ.get("FAIRLEAD_NATS", DEFAULT_NATS)


def bus_key() -> nkey.KeyPair | None:
    """The key of FAIRLEAD_NATS_NKEY_FILE, where that is set. Raises BadSetting."""
    path = os.environ.get(nkey.SETTING)
    if not path:
        return None
    try:
        return nkey.read_file(Path(path))
    except nkey.BadKey as error:
        raise BadSetting(f"{nkey.SETTING}: {error}") from error


def instance() -> str:
    """Return this replica's name."""
    return os.environ.get("FAIRLEAD_INSTANCE") or f"{socket.gethostname()}-{os.getpid()}"


def log_level() -> str:
    """FAIRLEAD_LOG_LEVEL. Raises BadSetting."""
    return one_of(os.environ, "FAIRLEAD_LOG_LEVEL", LOG_LEVELS, "info")


def configure_logging(level: str = "info") -> None:
    """Configure logging: one line per event of this level and above, key=value on a terminal, JSON elsewhere."""
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


type Build = Callable[[Bus], Awaitable[Runnable]]


def run(name: str, build: Build, *, on_node: bool = False) -> None:
    """Run one service until it ends or a signal asks it to; exits the process with its code.

    `on_node`: it is no service but a node's agent. With a key of its own it may not look at streams and the server.
    """
    run_together({name: build}, on_node=on_node)


def run_together(builds: Mapping[str, Build], *, on_node: bool = False) -> None:
    """Run services in one process, each with a connection of its own, until the first of them ends or a signal asks them to; exits
    the process with the code of the first that failed. For a machine that has more processes than work.
    """
    _prepare_log("+".join(builds))
    sys.exit(_in_loop(_serve_together(builds, on_node=on_node)))


def run_apart(name: str, builds: Mapping[str, Build]) -> None:
    """Run agents of several nodes in one process until a signal, each with a connection of its own; exits the process.

    An agent that ends or fails is started again alone, after pauses that grow, and the others work on. One that raises
    `CannotRestart` ends the process, because only a new process can start it.
    """
    _prepare_log(name)
    sys.exit(_in_loop(_serve_apart(builds)))


class CannotRestart(Exception):
    """Part of a process that still has files or threads, so that nothing may take its place in this process."""


def _prepare_log(name: str) -> None:
    structlog.contextvars.bind_contextvars(service=name)
    try:
        configure_logging(log_level())
    except BadSetting as error:
        configure_logging()
        structlog.get_logger().critical(BAD_SETTING, reason=str(error))
        sys.exit(1)


def with_bus[T](url: str, name: str, work: Callable[[Bus], Awaitable[T]], *, key: nkey.KeyPair | None = None) -> T:
    """Run one piece of work over the bus, in a loop like a service's, for a caller that has no loop.

    Connects with `key`, or with the key of the environment. Raises what `connect` and the work raise, and BadSetting.
    """

    async def connected() -> T:
        bus = await connect(url, name=name, key=key or bus_key())
        try:
            return await work(bus)
        finally:
            await _close(bus)

    return _in_loop(connected())


async def _close(bus: NatsBus) -> None:
    with contextlib.suppress(BusError, OSError):  # a TimeoutError is an OSError
        await asyncio.wait_for(bus.close(), STOP_S)


def collect_rarely() -> None:
    """Full garbage collections stop the world for long; a service's shell runs them when it is idle."""
    gc.set_threshold(20_000, 10, 1_000_000)


def _in_loop[T](main: Coroutine[Any, Any, T]) -> T:
    collect_rarely()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def _stop_on_signal() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _serve_apart(builds: Mapping[str, Build]) -> int:
    stop = _stop_on_signal()
    return max(await asyncio.gather(*(keep(name, build, stop) for name, build in builds.items())))


async def keep(name: str, build: Build, stop: asyncio.Event) -> int:
    """Run an agent, and start it again whenever it ends, until `stop` is set. Return 1 if this process must end for it, else 0."""
    clock, pause_s = asyncio.get_running_loop().time, AGAIN_FIRST_S
    while True:
        began = clock()
        try:
            code = await _serve(name, build, stop, on_node=True)
        except CannotRestart as error:
            structlog.get_logger().critical("this process ends, to be started again", reason=str(error))
            stop.set()
            return 1
        except Exception:  # noqa: BLE001 -- the others must not end with it
            structlog.get_logger().critical("ended by an error", exc_info=True)
            code = 1
        if clock() - began >= HEALTHY_S:
            pause_s = AGAIN_FIRST_S
        if not stop.is_set():
            structlog.get_logger().warning("ended, and is started again alone", code=code, after_s=pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)
        if stop.is_set():
            return 0
        pause_s = min(2 * pause_s, AGAIN_LAST_S)


async def _serve_together(builds: Mapping[str, Build], *, on_node: bool) -> int:
    stop = _stop_on_signal()
    tasks = [asyncio.ensure_future(_serve(name, build, stop, on_node=on_node)) for name, build in builds.items()]
    codes: list[int] = []
    for ended in asyncio.as_completed(tasks):
        codes.append(await ended)
        stop.set()  # a part that has ended is started again with the whole process
    return next(filter(None, codes), 0)


async def _serve(name: str, build: Build, stop: asyncio.Event, *, on_node: bool) -> int:
    """Serve until the end or the stop. A service that steps down is built again, with a connection of its own: it is then a standby,
    and no process manager needs to notice."""
    clock, pause_s = asyncio.get_running_loop().time, AGAIN_FIRST_S
    while True:
        began = clock()
        code = await _serve_once(name, build, stop, on_node=on_node)
        if code != EXIT_STEPPED_DOWN or on_node or stop.is_set():
            return code
        if clock() - began >= HEALTHY_S:
            pause_s = AGAIN_FIRST_S
        structlog.get_logger().info("stands by again in the same process", after_s=pause_s)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)
        pause_s = min(2 * pause_s, AGAIN_LAST_S)


async def _serve_once(name: str, build: Build, stop: asyncio.Event, *, on_node: bool) -> int:
    structlog.contextvars.bind_contextvars(service=name)
    asked = asyncio.ensure_future(stop.wait())
    starting = asyncio.ensure_future(_start(name, build, on_node=on_node))
    try:
        await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            return 0
        started = await starting
        if isinstance(started, int):
            return started
        bus, service = started
        announcing = None if on_node else asyncio.ensure_future(_announce(bus, name))
        try:
            return await _until_asked(
                asyncio.ensure_future(_until_sent_away(bus, service, on_node=on_node)), asked, service
            )
        finally:
            if announcing is not None:
                announcing.cancel()
                await asyncio.gather(announcing, return_exceptions=True)
            await _close(bus)
    except Exception:
        if on_node:  # alone in its process, whose main module says which errors need a person
            raise
        # The end of this service; those that share its process still stop in order.
        structlog.get_logger().critical("ended by an error", exc_info=True)
        return 1
    finally:
        asked.cancel()


async def _announce(bus: Bus, name: str) -> None:
    """State that this process runs, leading or not, until cancelled; then that it leaves. Never raises."""
    from importlib.metadata import version  # takes longer to import than an agent may; agents announce nothing

    presence = ProcessPresence(
        service=name, instance=instance(), word=process_word(), version=version("fairlead-cluster"), level=LEVEL
    )
    try:
        while True:
            await bus.publish(subjects.presence(name), encode_presence(presence))
            await asyncio.sleep(PRESENCE_S)
    finally:
        with contextlib.suppress(BusError, OSError):
            await bus.publish(subjects.presence(name), encode_presence(msgspec.structs.replace(presence, leaves=True)))


async def _start(name: str, build: Build, *, on_node: bool) -> tuple[NatsBus, Runnable] | int:
    """Connect and build. Return an exit code where that fails."""
    try:
        bus = await _connected(name)
        await _prepare(bus, on_node=on_node)
        service = await build(bus)
    except LogDamaged as error:
        return bus_faults.end_service(name, error)
    except BusError as error:
        structlog.get_logger().critical("cannot use the bus", reason=str(error))
        return 1
    except BadSetting as error:
        structlog.get_logger().critical(BAD_SETTING, reason=str(error))
        return 1
    gc.freeze()
    return bus, service


async def _connected(name: str) -> NatsBus:
    """Connect, and wait for a bus that is away. Each cause is one line. Raises BusError that waiting does not mend, BadSetting."""
    said: set[tuple[str, str]] = set()

    def say(server: str, cause: str) -> None:
        if (server, cause) not in said:
            said.add((server, cause))
            structlog.get_logger().warning("waiting for the bus", server=server, reason=cause)

    while True:
        try:
            return await connect(nats_url(), name=name, key=bus_key(), on_waiting=say)
        except CredentialsRefused:
            raise
        except Unavailable as error:
            say("", str(error))


async def _until_asked(work: asyncio.Future[int], asked: asyncio.Future[Any], service: Runnable) -> int:
    """Let a service work until it ends or is asked to stop, which it gets STOP_S for. Return its exit code."""
    await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
    if not work.done():
        stopping = asyncio.ensure_future(service.stop())
        await asyncio.wait({work}, timeout=STOP_S)
        stopping.cancel()
        work.cancel()
    try:
        return await work
    except asyncio.CancelledError:
        return 0


async def _prepare(bus: NatsBus, *, on_node: bool) -> None:
    """With a token everybody makes the streams; with keys one does (`python -m fairlead_bus`), and services look."""
    if bus.link.key is None:
        await retry_until_available(bus.ensure, limit_s=START_S)
    elif not on_node:
        await retry_until_available(bus.check, limit_s=START_S)


async def _until_sent_away(bus: NatsBus, service: Runnable, *, on_node: bool) -> int:
    """Run the service and return its exit code. The service is stopped with exit code 1 when the server closes the connection
    for good (the key was revoked), and when a server is unfit after a reconnect. A process manager starts the service
    again, perhaps with another key. Runs on a node continue meanwhile, until the node's fence.
    """
    work = asyncio.ensure_future(service.run())
    ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(bus.link.closed.wait())]
    if not on_node:
        ends.append(asyncio.ensure_future(_until_unfit(bus)))
    try:
        await asyncio.wait({work, *ends}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return await work
        await service.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(work, STOP_S)
        return 1
    finally:
        for task in (*ends, work):
            task.cancel()


async def _until_unfit(bus: NatsBus) -> None:
    """Look at the servers after each reconnect; return when one must not carry the log."""
    back = asyncio.Event()
    bus.on_reconnect(back.set)
    while True:
        await back.wait()
        await asyncio.sleep(RECHECK_S)
        back.clear()
        try:
            await bus.check_again()
        except ServerUnfit as error:
            structlog.get_logger().critical("cannot use the bus", reason=str(error))
            return
