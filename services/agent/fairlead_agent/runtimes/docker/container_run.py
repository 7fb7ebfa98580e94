"""Run as a container: its output is copied, and its end is awaited and reported truthfully, once.

Further parts:
- a container's output, from the engine into the run's two files, byte for byte;
- actions on a running container: a command in it, and the file for its save reports;
- a container's processes, seen from the machine: to know of their end, and to end them when the engine does not answer.

Three things wake the wait: the engine's event, the end of the output, and the kernel (the first process is gone).
None of them is trusted: the engine is asked for the exit until it answers. Start at `end_of`.

The engine gives it from the beginning each time; what the files hold already is skipped. An engine that has rotated
its log by then begins later: a gap.

A process is one of a container's when the kernel says so (its cgroup's path holds the container's full id), never
because of a number alone. Where the agent cannot see the machine's processes, nothing is found.
"""

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import docker
import docker.errors
import structlog

from fairlead_agent.core.runs import Exit, RunKey
from fairlead_agent.linux.processes import Tagged, kill_exactly, open_exactly, stat_identity
from fairlead_agent.runtimes.docker.ends import GONE, SIGNALLED, EndKnowledge, how
from fairlead_agent.runtimes.docker.engine import ENGINE_ERRORS, READ_BYTES, EngineLink, EngineRefused, answer
from fairlead_agent.runtimes.port import OUTPUT_BYTES_MAX, Executed
from fairlead_agent.runtimes.run_directory import own_bytes

#: Each piece comes behind eight bytes: the stream's number, three zeros, its length (Engine API, "Stream format").
HEADER_BYTES = 8
STDERR = 2


class Files(NamedTuple):
    """Output files of a run."""

    stdout: Path
    stderr: Path


async def copy(socket: str, container: str, files: Files, *, follow: bool) -> None:
    """Append what the files do not have, with `follow` until the container has ended or the engine goes away. Raises
    EngineRefused, OSError (a full disk, too)."""
    query = {"stdout": 1, "stderr": 1, "follow": int(follow)}
    with files.stdout.open("ab", buffering=0) as stdout, files.stderr.open("ab", buffering=0) as stderr:
        lanes = {STDERR: _Lane(stderr, stderr.tell() - own_bytes(files.stderr))}
        plain = _Lane(stdout, stdout.tell())
        async with answer(socket, "GET", f"/containers/{container}/logs", query) as reader:
            while header := await _header(reader):
                lane, pending_bytes = lanes.get(header[0], plain), int.from_bytes(header[4:])
                while pending_bytes:
                    piece = await reader.read(min(pending_bytes, READ_BYTES))
                    if not piece:
                        raise ConnectionError("the engine's answer broke off")
                    lane.take(piece)
                    pending_bytes -= len(piece)


async def _header(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readexactly(HEADER_BYTES)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise ConnectionError("the engine's answer broke off") from error
        return b""


class _Lane:
    __slots__ = ("_file", "_skip")

    def __init__(self, file: BinaryIO, skip: int) -> None:
        self._file = file
        self._skip = max(0, skip)

    def take(self, piece: bytes) -> None:
        if len(piece) > self._skip:
            self._file.write(piece[self._skip :])
        self._skip = max(0, self._skip - len(piece))


#: In a run's directory on this machine.
CHECKPOINT = "checkpoint"


def make_word(path: Path) -> str:
    """Make an empty file that any user in the container may write, and return its path. Its time is 0: no save is reported
    yet.
    """
    path.touch()
    path.chmod(0o666)  # the image's user may be anyone; the directory around it is not mounted
    os.utime(path, ns=(0, 0))
    return str(path.absolute())


def exec_in(api: docker.APIClient, container: str, argv: Sequence[str], env: Mapping[str, str]) -> Executed:
    """Run a command in a container to its end (in a thread: it may take long). Raises docker's errors."""
    created: dict[str, Any] = api.exec_create(container, list(argv), environment=dict(env), stdin=False)
    output = b""
    for piece in api.exec_start(created["Id"], stream=True):
        output = (output + piece)[-OUTPUT_BYTES_MAX:]
    code = api.exec_inspect(created["Id"])["ExitCode"]
    return Executed(code, output.decode(errors="replace").strip())


# ruff: noqa: PTH123, PTH208 -- small files of /proc, as in processes.py


def first_of(pid: int, container: str) -> Tagged | None:
    """The container's first process, as the engine says its number; when it ends, the kernel ends the others."""
    identity = stat_identity(pid) if pid > 0 else None
    if identity is None or not _is_in(pid, container):
        return None
    return Tagged(pid, container, identity[0], leads=True)


def lives(process: Tagged) -> bool:
    """Return True if the process still exists, and its number has not been reused by another one."""
    identity = stat_identity(process.pid)
    return identity is not None and identity[0] == process.start_time


def all_of(container: str) -> list[Tagged]:
    """Every living process of a container; reads a file per process of the machine."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [process for pid in pids if (process := first_of(pid, container)) is not None]


def signal_directly(container: str, first: Tagged | None, number: int) -> bool:
    """The signal, without the engine: to the first process, which passes TERM on; where it is not known, to all. False
    when none was found."""
    if first is not None:
        kill_exactly(first, number)
        return True
    found = all_of(container)
    for process in found:
        kill_exactly(process, number)
    return bool(found)


def _is_in(pid: int, container: str) -> bool:
    try:
        with open(f"/proc/{pid}/cgroup", "rb") as file:
            return len(container) >= 12 and container.encode() in file.read()
    except OSError:
        return False


def number_of(name: str) -> int:
    """Return the signal number from an engine's event: "15" or "SIGTERM"; 0 for any other value."""
    if name.isdecimal():
        return int(name)
    return getattr(signal, name if name.startswith("SIG") else f"SIG{name}", 0)


#: The kernel and the output tell of an end before the engine does; its event gets so long.
EVENT_S = 1.0
#: Time by which a kill for memory may be reported after the end.
LATE_WORD_S = 0.2
#: The rest of an ended container's output is asked for so often (the disk may be full).
REST_TRIES = 3

_log = structlog.get_logger()


class ContainerRun:
    """Agent's knowledge of one run's container."""

    def __init__(self, key: RunKey, name: str, files: Files) -> None:
        self.key = key
        self.name = name
        self.files = files
        #: The engine's full id; "" until it was created.
        self.container = ""
        self.image = ""
        self.task: asyncio.Task[Any] | None = None
        #: It waits for its image, so a stop ends it at once; later a stop keeps it from being started.
        self.is_pulling = False
        self.is_unwanted = False
        self.sent: set[int] = set()
        self.last_sent = 0
        self.foreign = 0
        self.over_memory = False
        #: A signal that was sent past an engine that did not answer.
        self.direct = 0
        #: `EngineLink.outages` when it was last seen running.
        self.outages = 0
        self.first: Tagged | None = None
        self.gone_at = 0.0
        self.news = asyncio.Event()
        self.died = False
        self._pidfd = -1

    def watch_process(self, pid: int) -> None:
        """Hear from the kernel when the first process is gone."""
        self.first = first_of(pid, self.container)
        pidfd = open_exactly(self.first) if self.first is not None else None
        if pidfd is not None:
            self._pidfd = pidfd
            asyncio.get_running_loop().add_reader(pidfd, self._gone)

    def _gone(self) -> None:
        self.let_go()
        self.gone_at = time.monotonic()
        self.news.set()

    def mark_died(self) -> None:
        """The engine says that it has ended."""
        self.died = True
        self.news.set()

    def let_go(self) -> None:
        """Watch its process no longer."""
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def end_knowledge(self, engine: EngineLink) -> EndKnowledge:
        """Return the knowledge of the container in addition to the engine's final state."""
        return EndKnowledge(
            self.last_sent, self.foreign, self.over_memory, self.outages != engine.outages, engine.facts.live_restore
        )


async def end_of(engine: EngineLink, run: ContainerRun) -> Exit:
    """Follow it until it has ended; how. Survives every restart of the engine."""
    try:
        return await _end_of(engine, run)
    finally:
        run.let_go()


async def _end_of(engine: EngineLink, run: ContainerRun) -> Exit:
    outages, copying = engine.outages, asyncio.ensure_future(_copied(engine, run))
    copying.add_done_callback(lambda _: run.news.set())
    try:
        while True:
            found = await _ask(engine, run)
            if isinstance(found, Exit):
                return found
            if found is not None:
                break
            if copying.done():
                outages, copying = engine.outages, asyncio.ensure_future(_copied(engine, run))
                copying.add_done_callback(lambda _: run.news.set())
            await _news(engine, run)
        await asyncio.wait({copying}, timeout=engine.patience.drain_s)
        if not (copying.done() and copying.result() and outages == engine.outages):
            await rest_of(engine, run)
    finally:
        copying.cancel()
    return how(await _last_word(engine, run, found), run.end_knowledge(engine))


async def _news(engine: EngineLink, run: ContainerRun) -> None:
    """Until there is a reason to ask the engine; its own word comes last, and gets a moment."""
    await run.news.wait()
    if not run.died:
        run.news.clear()
        try:
            async with asyncio.timeout(EVENT_S):
                await run.news.wait()
        except TimeoutError:
            pass
    run.news.clear()
    run.died = False


async def _ask(engine: EngineLink, run: ContainerRun) -> dict[str, Any] | Exit | None:
    """Return the container's final state if it has ended; None while it runs or its state is unknown; an Exit if no more can
    be learned.
    """
    try:
        inspected = await engine.call(lambda api: api.inspect_container(run.container), engine.patience.look_s)
    except docker.errors.NotFound:
        return GONE
    except ENGINE_ERRORS:
        return await _unanswered(engine, run)
    state: dict[str, Any] = inspected["State"]
    if not is_running(state["Status"]):
        return state
    run.outages = engine.outages
    if run.first is None:
        run.watch_process(int(state.get("Pid") or 0))
    elif run.gone_at:
        return await _unanswered(engine, run)  # it has not noticed yet
    return None


async def _unanswered(engine: EngineLink, run: ContainerRun) -> Exit | None:
    """Return the exit of a container that the engine does not report on; None to keep waiting.

    A missing process is certain evidence of the end; the way it ended remains unknown after a while.
    """
    if run.gone_at and run.direct:
        message = "ended by the agent itself, since the Docker engine did not answer"
        return Exit(signal=run.direct, message=message) if run.direct == signal.SIGKILL else Exit(message=message)
    if run.gone_at and time.monotonic() - run.gone_at >= engine.patience.silent_s:
        return Exit(message="it has ended, and the Docker engine does not report how")
    await asyncio.sleep(engine.patience.retry_s)
    run.news.set()
    return None


async def _copied(engine: EngineLink, run: ContainerRun) -> bool:
    """Return True if the engine has sent all output up to an end. The engine also ends the answer when it is stopped."""
    try:
        await copy(engine.socket, run.container, run.files, follow=True)
    except (EngineRefused, OSError) as error:
        _log.info("output is asked for again", run=run.key.name, reason=str(error))
        await asyncio.sleep(engine.patience.retry_s)
        return False
    return True


async def rest_of(engine: EngineLink, run: ContainerRun) -> None:
    """Copy the ended container's output that its files do not have yet."""
    for _ in range(REST_TRIES):
        try:
            async with asyncio.timeout(engine.patience.drain_s):
                await copy(engine.socket, run.container, run.files, follow=False)
        except (EngineRefused, OSError) as error:
            _log.warning("output of an ended run cannot be read", run=run.key.name, reason=str(error))
            await asyncio.sleep(engine.patience.retry_s)
        else:
            return


async def _last_word(engine: EngineLink, run: ContainerRun, state: dict[str, Any]) -> dict[str, Any]:
    """Return the container's state, read once more after an end by KILL with an unknown sender."""
    if int(state["ExitCode"]) != SIGNALLED + signal.SIGKILL or run.last_sent or state.get("OOMKilled"):
        return state
    await asyncio.sleep(LATE_WORD_S)
    try:
        return (await engine.call(lambda api: api.inspect_container(run.container), engine.patience.look_s))["State"]
    except ENGINE_ERRORS:
        return state


def is_running(status: str) -> bool:
    """Return True if the engine's container state means started and not ended."""
    return status in ("running", "paused", "restarting")
