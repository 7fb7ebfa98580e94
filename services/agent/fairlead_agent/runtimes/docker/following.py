"""One run as a container: its output is copied, and its end is waited for and told truthfully, once.

Three things wake the wait: the engine's event, the end of the output, and the kernel (the first process is gone).
None of them is believed: the engine is asked how it ended, for as long as it takes to answer. Start at `end_of`.
"""

import asyncio
import os
import signal
import time
from typing import Any

import docker.errors
import structlog

from fairlead_agent.run import Exit, RunKey
from fairlead_agent.runtimes.docker.ends import GONE, SIGNALLED, Heard, how
from fairlead_agent.runtimes.docker.engine import ENGINE_ERRORS, EngineLink
from fairlead_agent.runtimes.docker.output import Files, copy
from fairlead_agent.runtimes.docker.processes import first_of
from fairlead_agent.runtimes.docker.streams import EngineRefused
from fairlead_agent.runtimes.processes import Tagged, open_exactly

#: The kernel and the output tell of an end before the engine does; its event gets so long.
EVENT_S = 1.0
#: A kill for memory may be told just after the end.
LATE_WORD_S = 0.2
#: The rest of an ended container's output is asked for so often (the disk may be full).
REST_TRIES = 3

_log = structlog.get_logger()


class ContainerRun:
    """What the agent knows of one run's container."""

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

    def told_died(self) -> None:
        """The engine says that it has ended."""
        self.died = True
        self.news.set()

    def let_go(self) -> None:
        """Watch its process no longer."""
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def heard(self, engine: EngineLink) -> Heard:
        """What is known of it besides the engine's last word."""
        return Heard(
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
    return how(await _last_word(engine, run, found), run.heard(engine))


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
    """Its last state if it has ended; None while it runs or nobody knows; an Exit where nobody will say more."""
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
    """Nobody says how it is. Its process being gone is certain; how it ended then stays unknown after a while."""
    if run.gone_at and run.direct:
        message = "ended by the agent itself, since the Docker engine did not answer"
        return Exit(signal=run.direct, message=message) if run.direct == signal.SIGKILL else Exit(message=message)
    if run.gone_at and time.monotonic() - run.gone_at >= engine.patience.silent_s:
        return Exit(message="it has ended, and the Docker engine does not say how")
    await asyncio.sleep(engine.patience.retry_s)
    run.news.set()
    return None


async def _copied(engine: EngineLink, run: ContainerRun) -> bool:
    """Whether the engine has given all output up to an end; it also ends the answer when it is stopped."""
    try:
        await copy(engine.socket, run.container, run.files, follow=True)
    except (EngineRefused, OSError) as error:
        _log.info("output is asked for again", run=run.key.name, reason=str(error))
        await asyncio.sleep(engine.patience.retry_s)
        return False
    return True


async def rest_of(engine: EngineLink, run: ContainerRun) -> None:
    """What an ended container has printed and the files do not have."""
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
    """Of an end by KILL that nobody is known to have sent, once more."""
    if int(state["ExitCode"]) != SIGNALLED + signal.SIGKILL or run.last_sent or state.get("OOMKilled"):
        return state
    await asyncio.sleep(LATE_WORD_S)
    try:
        return (await engine.call(lambda api: api.inspect_container(run.container), engine.patience.look_s))["State"]
    except ENGINE_ERRORS:
        return state


def is_running(status: str) -> bool:
    """Of a container's state in the engine's words: it has been started, and not ended."""
    return status in ("running", "paused", "restarting")
