"""Containers as a runtime: the Docker engine, talked to in threads.

One container per run, of the fixed shape in `docker_template.py`. A follower per running container copies its
output into the run's files and then waits for its end. Labels and names are how a later agent process
finds them. Not for thousands of runs a second; for isolation.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests.exceptions

from fairlead_agent.launch import Launch, devices_of
from fairlead_agent.run import Exit, Found, RunKey
from fairlead_agent.runtimes import docker_template as template
from fairlead_agent.runtimes.port import RuntimeUnfit, RunWatcher
from fairlead_agent.runtimes.run_directory import KEEP_ENDED, RunDirectories

#: Each running container holds two (its output).
THREADS_MAX = 512
CALL_TIMEOUT_S = 60
#: While the engine is away its containers go on or not; it is asked again this often.
ENGINE_RETRY_S = 1.0
#: Containers of an earlier journal are removed; one that takes longer hangs in the engine or the kernel.
STRANGERS_S = 60.0
STRANGERS_POLL_S = 0.5
TERM, KILL = "SIGTERM", "SIGKILL"
ENGINE_ERRORS = (docker.errors.DockerException, requests.exceptions.RequestException, OSError)


class DockerRuntime:
    """Runs of one node as containers."""

    name = "docker"

    def __init__(
        self, base: Path, node: str, incarnation: str, *, simulated: bool, network: str = "", keep: int = KEEP_ENDED
    ) -> None:
        self.directories = RunDirectories(base / "runs", keep)
        self._node = node
        self._incarnation = incarnation
        self._home = str(base.absolute())
        self._simulated = simulated
        self._network = network
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="docker")
        self._names: dict[RunKey, str] = {}
        self._signalled: dict[RunKey, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._engine = template.Engine()
        self._api: docker.APIClient
        self._watcher: RunWatcher

    async def open(self, watcher: RunWatcher) -> None:
        """Ask the engine what it can do. Raises RuntimeUnfit when none answers."""
        self._watcher = watcher
        try:
            self._api = await self._call(lambda: docker.APIClient(version="auto", timeout=CALL_TIMEOUT_S))
            networks = {network["Name"] for network in await self._call(self._api.networks)}
            info = await self._call(self._api.info)
        except ENGINE_ERRORS as error:
            raise RuntimeUnfit(
                f"no Docker engine answers ({error}); start one or use FAIRLEAD_RUNTIME=process"
            ) from error
        # An engine without its bridge (CI) can still run containers without a network.
        network = self._network or ("default" if "bridge" in networks else "none")
        self._engine = template.Engine(network, bool(info.get("InitBinary")), _cdi_devices())

    # ------------------------------------------------------------------ start and end

    def start(self, launch: Launch) -> None:
        """Start a container; the watcher hears of it later."""
        self._names[launch.key] = template.container_name(launch.key, len(launch.order.hosts) > 1)
        self._spawn(self._start(launch))

    async def _start(self, launch: Launch) -> None:
        key = launch.key
        try:
            await self._call(lambda: self._create(launch))
        except (*ENGINE_ERRORS, ValueError) as error:
            self._watcher.start_failed(key, _why(error))
            return
        self._watcher.started(key)
        await self._follow(key)

    def _create(self, launch: Launch) -> None:
        if not launch.image:
            raise ValueError("the job file names no image, which the Docker runtime needs")
        directory = self.directories.path(launch.key)
        directory.mkdir(mode=0o750)
        hostfile = directory / "hostfile" if launch.hostfile else None
        if hostfile is not None:
            hostfile.write_text(launch.hostfile)
        path = template.gpu_path(devices_of(launch.order), self._simulated, self._engine)
        wanted = template.host_config(launch, self._engine, path, str(hostfile or ""))
        name = self._names[launch.key]
        config = {
            "Image": launch.image, "Cmd": launch.argv, "Entrypoint": [], "WorkingDir": launch.workdir,
            "Env": [f"{key}={value}" for key, value in sorted(template.environment(launch, path).items())],
            "Labels": template.labels(launch, self._node, self._incarnation, self._home, path), "HostConfig": wanted,
        }  # fmt: skip
        self._api.create_container_from_config(config, name)
        wrong = template.differences(wanted, self._api.inspect_container(name))
        if wrong:
            self._remove(name)
            raise ValueError("the engine created another container than asked for: " + "; ".join(wrong))
        try:
            self._api.start(name)
        except ENGINE_ERRORS:
            self._remove(name)
            raise

    def _remove(self, name: str) -> None:
        with contextlib.suppress(*ENGINE_ERRORS):
            self._api.remove_container(name, force=True)

    def terminate(self, key: RunKey) -> None:
        """TERM to the container."""
        self._signal(key, TERM)

    def kill(self, key: RunKey) -> None:
        """KILL to the container."""
        self._signal(key, KILL)

    def _signal(self, key: RunKey, signal: str) -> None:
        name = self._names.get(key)
        if name is not None:
            self._signalled[key] = signal
            self._spawn(self._kill(name, signal))

    async def _kill(self, name: str, signal: str) -> None:
        with contextlib.suppress(*ENGINE_ERRORS):  # it has ended, or the kill is repeated by the core
            await self._call(lambda: self._api.kill(name, signal))

    def release(self, key: RunKey) -> None:
        """The container's end is journalled: it goes; its output files stay for a while."""
        name = self._names.pop(key, None)
        self._signalled.pop(key, None)
        self.directories.ended(key)
        if name is not None:
            self._spawn(self._call(lambda: self._remove(name)))

    def output(self, key: RunKey) -> tuple[Path, Path]:
        """stdout and stderr files."""
        directory = self.directories.path(key)
        return directory / "stdout", directory / "stderr"

    async def close(self) -> None:
        """Let go; containers go on."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------ following

    async def _follow(self, key: RunKey) -> None:
        """Copy output until the container has ended, then say how."""
        name = self._names[key]
        while True:
            try:
                await self._copy_output(key, name)
                result = await self._call(lambda: self._api.wait(name, timeout=None))
                state = (await self._call(lambda: self._api.inspect_container(name)))["State"]
                break
            except docker.errors.NotFound:
                self._watcher.exited(key, Exit(message="its container was removed by somebody else"))
                return
            except ENGINE_ERRORS:  # the engine is away: it is asked again until it knows
                await asyncio.sleep(ENGINE_RETRY_S)
        self._watcher.exited(key, self._how(key, result["StatusCode"], state))

    async def _copy_output(self, key: RunKey, name: str) -> None:
        """Append to the run's files what they do not have yet, until the container has ended. (`logs` and not
        `attach`: an attach to a container that has just ended waits for ever.)"""
        out, err = self.output(key)
        await asyncio.gather(
            self._call(lambda: self._copy(name, out, stdout=True, stderr=False)),
            self._call(lambda: self._copy(name, err, stdout=False, stderr=True)),
        )

    def _copy(self, name: str, path: Path, *, stdout: bool, stderr: bool) -> None:
        """The engine gives output from its beginning, so what the file has is skipped (an engine that has rotated
        its log by then begins later: a gap)."""
        with path.open("ab", buffering=0) as file:
            skip = file.tell()
            for piece in self._api.logs(name, stdout=stdout, stderr=stderr, stream=True, follow=True):
                if self._closed:
                    return
                file.write(piece[skip:])
                skip = max(0, skip - len(piece))

    def _how(self, key: RunKey, code: int, state: dict[str, Any]) -> Exit:
        """The engine gives 128+n for a signal and for `exit 128+n` alike; it is a signal for certain only where
        the agent sent it or the kernel killed for memory."""
        if state.get("OOMKilled"):
            return Exit(signal=9, message="killed: over its memory limit")
        if self._signalled.get(key) is not None and code in (128 + 9, 128 + 15):
            return Exit(signal=code - 128)
        return Exit(code=code, message=str(state.get("Error") or "")[:200])

    # ------------------------------------------------------------------ after a restart

    async def adopt(self, keys: Collection[RunKey]) -> dict[RunKey, Found]:
        """Find this node's containers by their labels; what an earlier journal has left goes first."""
        await self._end_strangers()
        filters = {
            "label": [f"{template.LABEL_NODE}={self._node}", f"{template.LABEL_INCARNATION}={self._incarnation}"]
        }
        containers: list[dict[str, Any]] = await self._call(lambda: self._api.containers(all=True, filters=filters))
        found: dict[RunKey, Found] = {key: Found("never") for key in keys}
        for container in containers:
            label = container["Labels"]
            key = RunKey(label[template.LABEL_JOB], int(label[template.LABEL_ATTEMPT]), int(label[template.LABEL_RANK]))
            name = container["Names"][0].lstrip("/")
            if key not in found:
                await self._call(lambda name=name: self._remove(name))
                continue
            self._names[key] = name
            found[key] = await self._adopt(key, name)
        for key, what in found.items():
            if what.state == "never" and self.directories.path(key).exists():
                found[key] = Found("lost", Exit(message="its container is gone"))
        self.directories.open_only(set(keys))
        return found

    async def _end_strangers(self) -> None:
        """What runs from an earlier journal of this directory is gone before the node is reported as free."""
        filters = {"label": [f"{template.LABEL_NODE}={self._node}", f"{template.LABEL_DIRECTORY}={self._home}"]}
        strangers: list[str] = []
        try:
            async with asyncio.timeout(STRANGERS_S):
                while True:
                    there: list[dict[str, Any]] = await self._call(
                        lambda: self._api.containers(all=True, filters=filters)
                    )
                    strangers = [c["Id"] for c in there if c["Labels"][template.LABEL_INCARNATION] != self._incarnation]
                    if not strangers:
                        return
                    await asyncio.gather(*(self._call(lambda name=name: self._remove(name)) for name in strangers))
                    await asyncio.sleep(STRANGERS_POLL_S)
        except TimeoutError as error:
            raise RuntimeUnfit(
                f"these containers run without a journal in {self._home} and cannot be removed: {', '.join(strangers)}; "
                "the node cannot be used before they are gone: remove them, or boot it anew"
            ) from error

    async def _adopt(self, key: RunKey, name: str) -> Found:
        state = (await self._call(lambda: self._api.inspect_container(name)))["State"]
        if state["Running"] or state.get("Restarting") or state.get("Paused"):
            self._spawn(self._follow(key))
            return Found("running")
        if state["Status"] == "created":
            return Found("never")
        with contextlib.suppress(*ENGINE_ERRORS):
            await self._copy_output(key, name)
        return Found("ended", self._how(key, int(state["ExitCode"]), state))

    # ------------------------------------------------------------------ threads

    async def _call[T](self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _cdi_devices() -> frozenset[str]:
    """Names that the CDI specifications of this machine list (JSON ones; nvidia-ctk writes them with --format=json)."""
    names: set[str] = set()
    for path in [*Path("/etc/cdi").glob("*.json"), *Path("/var/run/cdi").glob("*.json")]:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            spec = json.loads(path.read_bytes())
            names.update(f"{spec['kind']}={device['name']}" for device in spec["devices"])
    return frozenset(names)


def _why(error: Exception) -> str:
    return str(getattr(error, "explanation", None) or error)
