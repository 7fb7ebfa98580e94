"""Containers as a runtime: one per run, of the fixed shape in `template.py`.

Labels and names are how a later agent process finds them (`adoption.py`). Each has one task here: image
(`images.py`), creation, start, then its output and its end (`container_run.py`). Start at `_life`.
"""

import asyncio
import contextlib
import signal
from collections.abc import Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import docker
import docker.errors
import structlog

from fairlead_agent.core.output_retention import KEEP_ENDED, Keep
from fairlead_agent.core.runs import Emit, Exit, Found, ProgramStarted, RunExited, RunKey, RunPreparing, RunStartFailed
from fairlead_agent.launch.plan import Launch, Unlaunchable
from fairlead_agent.linux.processes import container_of
from fairlead_agent.runtimes.docker import adoption, template
from fairlead_agent.runtimes.docker.container_run import (
    CHECKPOINT,
    ContainerRun,
    Files,
    end_of,
    exec_in,
    is_running,
    lives,
    number_of,
    rest_of,
    signal_directly,
)
from fairlead_agent.runtimes.docker.creation import PULLING, RunNotes, cdi_devices, create, make_directory, own_files
from fairlead_agent.runtimes.docker.ends import how
from fairlead_agent.runtimes.docker.engine import ENGINE_ERRORS, EngineLink, EngineNews, Patience, why
from fairlead_agent.runtimes.docker.entered_container import EnteredContainer, hang_up_left
from fairlead_agent.runtimes.docker.fitness import HostLimits, engine_of, unfit
from fairlead_agent.runtimes.docker.holdings import Holdings, NotGranted
from fairlead_agent.runtimes.docker.images import PUBLIC_ONLY, Images, PullFailed
from fairlead_agent.runtimes.entered import CannotEnter
from fairlead_agent.runtimes.port import Executed, RuntimeUnfit
from fairlead_agent.runtimes.run_directory import RunDirectories
from fairlead_agent.settings import DOCKER_SOCKET, GangNetwork, Grants
from fairlead_schemas.jobfile.agent_fields import OutputBounds
from fairlead_schemas.units.image_names import Registries
from fairlead_schemas.wire.events import StartFault
from fairlead_schemas.wire.terminal import StartCommand

CONFLICT = 409
#: runc's words where the image has no such program.
NOT_A_PROGRAM = 'exec: "'
#: Errors that a start is known to end with; others are also logged with their traceback.
START_ERRORS = (*ENGINE_ERRORS, PullFailed, RuntimeUnfit, ValueError)
UNWANTED = "was asked to stop before it was started"

_log = structlog.get_logger()


class DockerRuntime:
    """Runs of one node as containers."""

    name = "docker"

    def __init__(
        self,
        base: Path,
        node: str,
        incarnation: str,
        *,
        simulated: bool,
        network: str = "",
        keep: int | Keep = KEEP_ENDED,
        socket: str = DOCKER_SOCKET,
        patience: Patience = Patience(),  # noqa: B008 -- immutable
        limits: HostLimits = HostLimits(),  # noqa: B008 -- immutable
        grants: Grants = Grants(),  # noqa: B008 -- immutable
        require_userns: bool = False,
        gang_network: GangNetwork = "bridge",
        registries: Registries = PUBLIC_ONLY,
    ) -> None:
        self.holdings = Holdings(base, grants, node)
        self._limits = limits
        self._require_userns = require_userns
        self._gang_network: GangNetwork = gang_network
        self.directories = RunDirectories(base / "runs", keep)
        self.engine = EngineLink(socket, patience)
        self.images = Images(self.engine, registries)
        self._whose = adoption.Installation(node, str(base.absolute()), incarnation)
        self._simulated = simulated
        self._network = network
        self._runs: dict[RunKey, ContainerRun] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._adopted = False
        self._emit: Emit

    async def open(self, emit: Emit) -> None:
        """Ask the engine what it can do. Raises RuntimeUnfit when none answers."""
        self._emit = emit
        await self.engine.open()
        self._engine_now()
        news = EngineNews(self.engine, f"{template.LABEL_NODE}={self._whose.node}", self._on_event, self._compare)
        self._spawn(news.listen())
        self._spawn(news.look())

    def _engine_now(self) -> template.ContainerEngine:
        """Return the engine's current abilities from its latest answer; it may have come back with other settings. Raises
        RuntimeUnfit.
        """
        info = self.engine.info
        if reason := unfit(info, require_userns=self._require_userns, host_network=self._gang_network == "host"):
            raise RuntimeUnfit(reason)
        # An engine without its bridge (CI) can still run containers without a network.
        network = self._network or ("default" if "bridge" in self.engine.networks else "none")
        return engine_of(
            info,
            self.engine.facts.api,
            network=network,
            cdi_devices=cdi_devices(),
            limits=self._limits,
            gang_network="host" if self._gang_network == "host" else network,
            simulated=self._simulated,
        )

    # ------------------------------------------------------------------ one run

    async def prepare(self, launch: Launch) -> None:
        """Get the run's image onto the node. Raises Unlaunchable."""
        try:
            await self.images.ready(launch.image, lambda _: self._emit(RunPreparing(launch.key)))
        except PullFailed as error:
            raise Unlaunchable(str(error), error.failure.fault) from error
        except ENGINE_ERRORS as error:
            raise Unlaunchable(why(error)) from error

    def start(self, launch: Launch) -> None:
        """Start a container, once its image is there; its start is emitted later."""
        key = launch.key
        if key in self._runs:
            self._emit(RunStartFailed(key, "could not be started: it was started already"))
            return
        name = template.container_name(key, len(launch.order.hosts) > 1, self._whose.mark)
        run = self._runs[key] = ContainerRun(key, name, Files(*self.output(key)))
        run.task = self._spawn(self._life(run, launch))

    async def _life(self, run: ContainerRun, launch: Launch) -> None:
        try:
            await self._begin(run, launch)
        except asyncio.CancelledError:
            if not run.is_unwanted:
                raise  # the agent lets go
            self._failed(run, UNWANTED)
            return
        except Exception as error:  # noqa: BLE001 -- a run that neither starts nor ends would hold its GPUs for ever
            if not isinstance(error, START_ERRORS):
                _log.error("a run could not be started", run=run.key.name, exc_info=error)
            self._failed(run, why(error), fault_of(error))
            return
        run.outages = self.engine.outages
        self._emit(ProgramStarted(run.key, run.image))
        await self._follow(run)

    async def _begin(self, run: ContainerRun, launch: Launch) -> None:
        if not launch.image:
            raise Unlaunchable("the job file names no image, which the Docker runtime needs", "job")
        directory = self.directories.path(run.key)
        notes = RunNotes(directory, run.files.stderr)

        def say(words: str) -> None:
            notes.say(words)
            self._emit(RunPreparing(run.key))

        run.is_pulling = True
        try:
            image = await self.images.ready(launch.image, say)
        except PullFailed as error:
            say(str(error))
            raise
        finally:
            run.is_pulling = False
        run.image = image.digest
        if not notes.written:
            make_directory(directory)
        self.directories.bound(run.key, launch.output)
        try:
            await self.engine.call_slowly(lambda api: self._create(api, run, launch, image.id))
        except docker.errors.APIError as error:
            if error.status_code != CONFLICT:  # that name is another container's
                await self._undo(run)
            raise
        except Exception:
            await self._undo(run)
            raise

    def _create(self, api: docker.APIClient, run: ContainerRun, launch: Launch, image: str) -> None:
        """Create, check, start; in a thread. `image`: the engine's id, so that what runs is what was looked at."""
        directory = self.directories.path(launch.key)
        labels = {adoption.LABEL_IMAGE: run.image}
        (directory / PULLING).unlink(missing_ok=True)
        try:
            run.container = create(
                api,
                launch,
                self._engine_now(),
                self._whose,
                self.holdings,
                name=run.name,
                image=image,
                files=own_files(launch, directory),
                labels=labels,
            )
            if run.is_unwanted:
                raise ValueError(UNWANTED)
            api.start(run.container)
        except BaseException:
            self.holdings.drop(launch.key)
            raise

    async def _undo(self, run: ContainerRun) -> None:
        """Remove the run's container; it is gone when this returns.

        A failed call may have been carried out all the same, or may be later, when an engine that hung continues. So the
        removal is repeated until the engine confirms it.
        """
        while True:
            try:
                await self.engine.call(lambda api: api.remove_container(run.container or run.name, v=True, force=True))
            except docker.errors.NotFound:
                return
            except ENGINE_ERRORS:
                await asyncio.sleep(self.engine.patience.retry_s)
            else:
                return

    def _failed(self, run: ContainerRun, message: str, fault: StartFault = "") -> None:
        del self._runs[run.key]
        self._emit(RunStartFailed(run.key, message, fault))

    async def _follow(self, run: ContainerRun) -> None:
        try:
            exit = await end_of(self.engine, run)
        except Exception as error:  # noqa: BLE001 -- as in `_life`: nobody else would see its end
            _log.error("a run could not be followed and is ended", run=run.key.name, exc_info=error)
            await self._undo(run)
            exit = Exit(message=f"it was ended, since its agent could not follow it: {why(error)}")
        self._emit(RunExited(run.key, exit))

    def terminate(self, key: RunKey) -> None:
        """TERM to the container; a run that waits for its image ends at once."""
        self._signal(key, signal.SIGTERM)

    def kill(self, key: RunKey) -> None:
        """KILL to the container."""
        self._signal(key, signal.SIGKILL)

    def _signal(self, key: RunKey, number: int) -> None:
        run = self._runs.get(key)
        if run is None:
            return
        run.is_unwanted = True
        if run.is_pulling and run.task is not None:
            run.task.cancel()
        elif run.container:
            run.sent.add(number)
            run.last_sent = number
            self._spawn(self._send(run, number))

    async def _send(self, run: ContainerRun, number: int) -> None:
        """Through the engine; past it, where it does not answer in time."""
        try:
            name = signal.Signals(number).name
            await self.engine.call(lambda api: api.kill(run.container, name), self.engine.patience.signal_s)
        except docker.errors.APIError as error:
            if error.status_code in (404, CONFLICT):
                return  # it has ended
        except ENGINE_ERRORS:
            pass
        else:
            return
        if signal_directly(run.container, run.first, number):
            run.direct = number
            _log.warning("a signal was sent past the engine, which does not answer", run=run.key.name, signal=number)

    def signal(self, key: RunKey, name: str) -> None:
        """To the container's first process, which hands it on to the program."""
        run = self._runs.get(key)
        if run is not None and run.container:
            number = signal.Signals[name].value
            run.sent.add(number)
            self._spawn(self._send(run, number))

    async def exec(self, key: RunKey, argv: Sequence[str], timeout_s: float, env: Mapping[str, str]) -> Executed:
        """In the container."""
        run = self._runs.get(key)
        if run is None or not run.container:
            return Executed(None, "it does not run")
        try:
            return await self.engine.call(lambda api: exec_in(api, run.container, argv, env), timeout_s)
        except ENGINE_ERRORS as error:
            return Executed(None, why(error) or f"it took longer than {timeout_s:.0f} s")

    async def enter(self, key: RunKey, command: StartCommand) -> EnteredContainer:
        """Start a command in the container."""
        run = self._runs.get(key)
        if run is None or not run.container:
            raise CannotEnter("the run is not running on this node")
        return await EnteredContainer.start(self.engine, run.container, command)

    def checkpoint_file(self, key: RunKey) -> Path:
        """In the run's directory; mounted into the container."""
        return self.directories.path(key) / CHECKPOINT

    def release(self, key: RunKey) -> None:
        """The container's end is journalled: it goes; its output files stay for a while."""
        run = self._runs.pop(key, None)
        self.directories.ended(key)
        if run is not None and run.container:
            self._spawn(self._forget(run))

    async def _forget(self, run: ContainerRun) -> None:
        await asyncio.to_thread(self.holdings.drop, run.key)  # whether the engine answers or not
        await adoption.remove(self.engine, [run.container])  # an engine that is away removes it at the next comparison

    async def look_at_directories(self) -> None:
        """Apply the bounds on run directories."""
        await self.directories.look()

    def output(self, key: RunKey) -> tuple[Path, Path]:
        """stdout and stderr files."""
        directory = self.directories.path(key)
        return directory / "stdout", directory / "stderr"

    def output_paths(self, key: RunKey) -> tuple[str, str]:
        """stdout and stderr files."""
        stdout, stderr = self.output(key)
        return str(stdout), str(stderr)

    def bounds(self, key: RunKey) -> OutputBounds:
        """Of its directory."""
        return self.directories.bounds(key)

    async def owners(self, pids: Collection[int]) -> dict[int, RunKey]:
        """By the container whose control groups they are in."""
        keys = {run.container: run.key for run in self._runs.values()}
        containers = {pid: found for pid in pids if (found := container_of(pid))}
        return {pid: keys[found] for pid, found in containers.items() if found in keys}

    def programs(self) -> dict[RunKey, int]:
        """Return {run: pid of its first process} as the engine reported it, where the agent sees the machine's processes."""
        firsts = {run.key: run.first for run in self._runs.values()}
        return {key: first.pid for key, first in firsts.items() if first is not None and lives(first)}

    def injection(self, gpus: Sequence[str]) -> str:
        """Return the injection path for all these GPUs together (`template.gpu_path`); "" if there is none."""
        if gpus and self.engine.info:
            with contextlib.suppress(RuntimeUnfit):  # then nothing gets in
                return template.gpu_path(gpus, self._engine_now())
        return ""

    async def close(self) -> None:
        """Stop following the containers; they continue to run."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.engine.close()

    # ------------------------------------------------------------------ what the engine says

    def _on_event(self, container: str, action: str, attributes: dict[str, str]) -> None:
        run = next((run for run in self._runs.values() if run.container == container), None)
        if run is None:
            return
        if action == "die":
            run.mark_died()
        elif action == "oom":
            run.over_memory = True
        elif action == "kill" and (number := number_of(attributes.get("signal", ""))) not in run.sent:
            run.foreign = number

    async def _compare(self) -> None:
        """Events were lost, perhaps: which containers run, which have ended, and which should not be there?"""
        runs = {run.container: run for run in self._runs.values() if run.container}
        there = {each.container: each for each in await adoption.list_all(self.engine, self._whose)}
        for container, run in runs.items():
            if container in there and is_running(there[container].status):
                run.outages = self.engine.outages
            else:
                run.mark_died()
        if self._adopted:
            names = {run.name for run in self._runs.values()}
            await adoption.remove(self.engine, [id for id, each in there.items() if each.name not in names])

    # ------------------------------------------------------------------ after a restart

    async def adopt(self, keys: Collection[RunKey], epochs: Mapping[RunKey, int] | None = None) -> dict[RunKey, Found]:
        """Find this node's containers by their labels; what no journal knows goes first."""
        wanted = {key: (epochs or {}).get(key) for key in keys}
        there = await adoption.end_others(self.engine, self._whose, wanted)
        found = {key: Found("never") for key in keys}
        adopted = await asyncio.gather(*map(self._adopt, there))
        found.update({each.key: what for each, what in zip(there, adopted, strict=True) if each.key is not None})
        for key, what in found.items():
            directory = self.directories.path(key)
            if what.state == "never" and directory.exists() and not (directory / PULLING).exists():
                found[key] = Found("lost", Exit(message="its container is gone"))
        self.directories.open_only(set(keys))
        running = [key for key, what in found.items() if what.state == "running"]
        await asyncio.to_thread(self.holdings.keep_only, running)
        self._adopted = True
        return found

    async def _adopt(self, there: adoption.There) -> Found:
        assert there.key is not None
        run = self._runs[there.key] = ContainerRun(there.key, there.name, Files(*self.output(there.key)))
        run.container, run.image = there.container, there.labels.get(adoption.LABEL_IMAGE, "")
        run.outages = self.engine.outages
        if is_running(there.status):
            run.task = self._spawn(self._follow(run))
            self._spawn(hang_up_left(self.engine, run.container))
            return Found("running", image=run.image)
        if there.status == "created":
            return Found("never")
        state = (await self.engine.call(lambda api: api.inspect_container(run.container)))["State"]
        if state["Status"] == "created":
            return Found("never")
        await rest_of(self.engine, run)
        return Found("ended", how(state, run.end_knowledge(self.engine)), image=run.image)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a task of the Docker runtime has failed", exc_info=error)


def fault_of(error: Exception) -> StartFault:
    """The cause of a failed start; "" where the error does not tell."""
    match error:
        case PullFailed():
            return error.failure.fault
        case Unlaunchable() | NotGranted():
            return error.fault
        case RuntimeUnfit():
            return "node"
        case docker.errors.APIError() if NOT_A_PROGRAM in str(error.explanation):
            return "job"
        case _:
            return ""
