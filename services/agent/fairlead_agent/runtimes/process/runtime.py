"""Plain processes as a runtime: no isolation, no limits enforced; for laptops, CI and trusted nodes.

Runs are children of the node's spawner (`spawner.py`), which outlives the agent; this is its client. It asks
the spawner to start and signal, and hears how runs ended. Only runs whose spawner was killed are watched here,
by pidfd. Nothing on the way of a run is worth a system call too many: hundreds end per second. What the
job file says of image, CPU and memory is not enforced here; README says so.
"""

import asyncio
import os
import signal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import structlog

from fairlead_agent.launch import Launch
from fairlead_agent.run import Exit, Found, RunKey, parse_name
from fairlead_agent.runtimes.port import Executed, RuntimeUnfit, RunWatcher
from fairlead_agent.runtimes.process.beside import run_beside
from fairlead_agent.runtimes.process.link import PROTOCOLS, Ended, Event, Failed, Listing, SpawnerLink, Started
from fairlead_agent.runtimes.process.sweeping import SWEEP_S, Sweeper
from fairlead_agent.runtimes.processes import (
    TAG,
    Tagged,
    end_exactly,
    kill_exactly,
    left_by_others,
    open_exactly,
    run_of,
    tag,
    tag_prefix,
    tagged,
)
from fairlead_agent.runtimes.run_directory import KEEP_ENDED, RunDirectories

LISTING_S = 30.0
LISTING_TRIES = 5
RECONNECT_S = 0.5
#: What no journal knows is killed; a process that takes longer to go hangs in the kernel.
STRANGERS_S = 30.0
#: In a run's directory: its word that it has saved.
CHECKPOINT = "checkpoint"
#: The end of a run that was nobody's child any more.
LOST = Exit(message="its spawner was killed while it ran")

_log = structlog.get_logger()


class _Run:
    __slots__ = ("key", "orphan", "pid", "pidfd", "request", "signalled", "unsent")

    def __init__(self, key: RunKey, request: dict[str, object] | None = None) -> None:
        self.key = key
        #: Asked for and not answered: what was sent. None once it was started.
        self.request = request
        #: What it was last sent; 0 for nothing.
        self.signalled = 0
        self.unsent = False
        #: Of its program; 0: not known.
        self.pid = 0
        #: Its spawner was killed: it is nobody's child, and we watch it.
        self.orphan: Tagged | None = None
        self.pidfd = -1


class ProcessRuntime:
    """Runs of one node as plain processes."""

    name = "process"

    def __init__(self, base: Path, node: str, incarnation: str, *, keep: int = KEEP_ENDED) -> None:
        self.directories = RunDirectories(base / "runs", keep)
        self._base = str(self.directories.base.absolute())
        self._home = str(base.absolute())
        self._node = node
        self._incarnation = incarnation
        self._prefix = tag_prefix(node, incarnation)
        self._runs: dict[str, _Run] = {}
        self._forget: list[str] = []
        self._sweeper = Sweeper(self._prefix, self._swept)
        #: False while the connection is broken: what is asked for waits in `_runs`.
        self._ready = False
        self._held: list[Event] | None = None
        self._listing: asyncio.Future[Listing] | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._watcher: RunWatcher
        self._loop: asyncio.AbstractEventLoop
        self._link: SpawnerLink

    @property
    def spawner_lives(self) -> bool:
        """Whether the parent of its runs answers."""
        return self._ready

    async def open(self, watcher: RunWatcher) -> None:
        """Raises RuntimeUnfit where the kernel lacks something or no spawner can be started."""
        if not hasattr(os, "pidfd_open"):
            raise RuntimeUnfit("the process runtime needs Linux with pidfd (5.3 or newer)")
        self._watcher = watcher
        self._loop = asyncio.get_running_loop()
        self._link = SpawnerLink(self._home, self._heard, self._lost)
        try:
            await self._link.connect()
        except OSError as error:
            raise RuntimeUnfit(f"no spawner answers in {self._home}: {error}; see spawner.log there") from error
        self._ready = True

    # ------------------------------------------------------------------ start and end

    async def prepare(self, launch: Launch) -> None:
        """A process waits for nothing."""

    def start(self, launch: Launch) -> None:
        """Ask for a run; the watcher is told what came of it."""
        key = launch.key
        name = key.name
        directory = f"{self._base}/{name}"
        env = launch.env
        env[TAG] = tag(self._prefix, name, self._home)
        if launch.order.checkpoint is not None:
            env["FAIRLEAD_CHECKPOINT_FILE"] = f"{directory}/{CHECKPOINT}"
        if launch.hostfile:
            env["FAIRLEAD_HOSTFILE"] = directory + "/hostfile"
        request: dict[str, object] = {
            "op": "spawn", "key": name, "argv": launch.argv, "env": env, "cwd": launch.workdir, "dir": directory,
            "hostfile": launch.hostfile, "spare": "" if launch.hostfile else self.directories.spare(),
        }  # fmt: skip
        if name in self._runs:
            self._watcher.start_failed(key, "could not be started: it was started already")
            return
        try:
            if self._ready:
                self._link.send(request)
        except (TypeError, ValueError) as error:
            self._watcher.start_failed(key, f"could not be started: {error}")
            return
        self._runs[name] = _Run(key, request)

    def terminate(self, key: RunKey) -> None:
        """TERM to the run's group."""
        self._signal(key, signal.SIGTERM)

    def kill(self, key: RunKey) -> None:
        """KILL to the run's group."""
        self._signal(key, signal.SIGKILL)

    def signal(self, key: RunKey, name: str) -> None:
        """To the program alone. What is lost with the spawner is lost: the run is nobody's child then, and is told here."""
        run, number = self._runs.get(key.name), signal.Signals[name]
        if run is not None and run.orphan is not None:
            kill_exactly(run.orphan, number)
        elif run is not None:
            self._link.send({"op": "notify", "key": key.name, "number": number})

    async def exec(self, key: RunKey, argv: Sequence[str], timeout_s: float, env: Mapping[str, str]) -> Executed:
        """Beside the program, as a child of the agent; it ends with its time or its run."""
        run = self._runs.get(key.name)
        pid = run.orphan.pid if run is not None and run.orphan is not None else run.pid if run is not None else 0
        return await run_beside(pid, argv, timeout_s, env) if pid else Executed(None, "it does not run")

    def checkpoint_file(self, key: RunKey) -> Path:
        """In its directory."""
        return Path(f"{self._base}/{key.name}/{CHECKPOINT}")

    def release(self, key: RunKey) -> None:
        """The spawner may forget it; the directory may go once newer ones have ended."""
        if not self._forget:
            self._loop.call_soon(self._send_forget)
        self._forget.append(key.name)
        self.directories.ended(key)

    def output(self, key: RunKey) -> tuple[Path, Path]:
        """stdout and stderr files."""
        directory = f"{self._base}/{key.name}"
        return Path(directory + "/stdout"), Path(directory + "/stderr")

    async def owners(self, pids: Collection[int]) -> dict[int, RunKey]:
        """By the tag in their environment or, where a process has overwritten that, in its parent's."""
        found = {pid: parse_name(run) for pid in pids if (run := run_of(pid, self._prefix))}
        return {pid: key for pid, key in found.items() if key is not None}

    def programs(self) -> dict[RunKey, int]:
        """As the spawner, or what it left, says."""
        pids = {run.key: run.orphan.pid if run.orphan is not None else run.pid for run in self._runs.values()}
        return {key: pid for key, pid in pids.items() if pid}

    async def close(self) -> None:
        """Stop watching; runs go on."""
        if self._reconnecting is not None:
            self._reconnecting.cancel()
        self._sweeper.close()
        self._send_forget()
        self._link.close()
        for run in self._runs.values():
            self._let_go(run)
        self._runs.clear()

    def _signal(self, key: RunKey, number: int) -> None:
        run = self._runs.get(key.name)
        if run is None:
            return
        run.signalled = number
        if run.orphan is not None:
            self._kill_tagged(key, number)
        elif self._ready:
            self._link.send({"op": "signal", "key": key.name, "number": number})
        run.unsent = not self._ready

    def _send_forget(self) -> None:
        if self._forget:  # what is lost on a broken connection, the next listing shows
            self._link.send({"op": "forget", "keys": self._forget})
            self._forget = []

    # ------------------------------------------------------------------ what the spawner says

    def _heard(self, event: Event) -> None:
        if self._held is not None:
            self._held.append(event)
        elif isinstance(event, Listing):
            if self._listing is not None and not self._listing.done():
                self._held = []  # until who asked has dealt with it
                self._listing.set_result(event)
        elif (run := self._runs.get(event.key)) is not None:
            if isinstance(event, Failed):
                if run.request is not None:
                    del self._runs[event.key]
                    self._watcher.start_failed(run.key, f"could not be started: {event.text}")
                return
            if run.request is not None:  # started, or ended when that was said to a broken connection
                run.request = None
                run.pid = event.pid if isinstance(event, Started) else 0
                self._watcher.started(run.key)
            if isinstance(event, Ended):
                self._ended(run, Exit(event.code, event.signal))

    def _ended(self, run: _Run, exit: Exit) -> None:
        self._runs.pop(run.key.name, None)
        if not run.signalled and run.orphan is None:
            self._watcher.exited(run.key, exit)
            return
        self._sweeper.sweep(run.key, exit)  # a stop ends also what has left the group

    def _swept(self, key: RunKey, exit: Exit) -> None:
        self._watcher.exited(key, exit)

    def _kill_tagged(self, key: RunKey, number: int) -> None:
        for process in tagged(self._prefix + key.name):
            if process.run == "":  # the tag ends here: this run, not one whose name begins alike
                kill_exactly(process, number)

    # ------------------------------------------------------------------ after a restart, of the agent or the spawner

    async def adopt(self, keys: Collection[RunKey], epochs: Mapping[RunKey, int] | None = None) -> dict[RunKey, Found]:
        """(A process tells no epoch: the tag in its environment names journal and run.) End what runs and is in no journal; then ask the spawner what it knows. Raises RuntimeUnfit."""
        await self._end_strangers({key.name for key in keys})
        listing = self._understood(
            await self._first_listing()
        )  # from here on without a wait: held events are told after us
        found = self._find(keys, listing)
        self._forget_beyond(listing, {key.name for key in keys})
        self.directories.open_only(set(keys))
        return found

    async def _end_strangers(self, known: Collection[str]) -> None:
        """What runs from an earlier journal of this directory is gone before the node is reported as free. Where the
        directory was moved away, another spawner, there, is its parent: only its tag finds it."""
        strangers: Collection[str] = ()
        try:
            async with asyncio.timeout(STRANGERS_S):
                while strangers := (await self._first_listing()).running.keys() - known:
                    _log.warning("runs that are in no journal are killed", runs=sorted(strangers))
                    for name in strangers:
                        self._link.send({"op": "signal", "key": name, "number": signal.SIGKILL})
                    await asyncio.sleep(SWEEP_S)
                while left := left_by_others(self._node, self._incarnation, self._home):
                    strangers = [f"{process.run} (process {process.pid})" for process in left]
                    _log.warning("processes of an earlier journal are killed", processes=strangers)
                    await asyncio.gather(*map(end_exactly, left))
                    await asyncio.sleep(SWEEP_S)
        except TimeoutError as error:
            raise RuntimeUnfit(
                f"these run without a journal in {self._home} and do not end when killed: {', '.join(sorted(strangers))}; "
                "the node cannot be used before they are gone: see what they hang in, or boot it anew"
            ) from error

    async def _first_listing(self) -> Listing:
        for _ in range(LISTING_TRIES):  # an idle spawner may end while we connect
            if self._reconnecting is not None:
                await self._reconnecting
            try:
                return await self._list()
            except ConnectionError:
                continue
            except TimeoutError:
                break
        raise RuntimeUnfit(f"the spawner in {self._home} does not answer; see spawner.log there")

    def _understood(self, listing: Listing) -> Listing:
        if listing.protocol not in PROTOCOLS:
            raise RuntimeUnfit(
                f"the spawner in {self._home} speaks version {listing.protocol} of its protocol, this agent knows "
                f"{PROTOCOLS[0]} to {PROTOCOLS[-1]}: a newer agent has started it; start that version again, or drain the node first"
            )
        return listing

    async def _list(self) -> Listing:
        self._listing = self._loop.create_future()
        self._link.send({"op": "list"})
        async with asyncio.timeout(LISTING_S):
            listing = await self._listing
        self._loop.call_soon(self._go_on)  # after what the caller does with it, up to its next wait
        return listing

    def _go_on(self) -> None:
        held, self._held = self._held, None
        for event in held or ():
            self._heard(event)

    def _lost(self) -> None:
        self._ready, self._held = False, None
        if self._listing is not None and not self._listing.done():
            self._listing.set_exception(ConnectionError("the spawner has gone"))
        if self._reconnecting is None or self._reconnecting.done():
            self._reconnecting = self._loop.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        while not self._ready:
            try:
                await self._link.connect()
                self._resolve(await self._list())
            except (OSError, TimeoutError) as error:
                _log.error("no spawner answers; runs go on", directory=self._home, reason=str(error))
                self._link.close()
                await asyncio.sleep(RECONNECT_S)

    def _resolve(self, listing: Listing) -> None:
        """The connection broke, perhaps because the spawner was killed: what became of the runs meanwhile?"""
        self._ready = True
        runs = [run for run in self._runs.values() if run.orphan is None]
        known = {*self._runs, *self._sweeper.left}
        _log.warning("connected to the spawner again", runs=len(runs), orphans=len(listing.orphans))
        found = self._find([run.key for run in runs], listing)
        for run in runs:
            self._resolve_one(run, found[run.key])
        self._forget_beyond(listing, known)

    def _resolve_one(self, run: _Run, found: Found) -> None:
        if found.state == "never" and run.request is not None:
            self._runs[run.key.name] = run
            self._link.send(run.request)
            return
        if run.request is not None:
            run.request = None
            self._watcher.started(run.key)
        if found.state == "running":
            if run.unsent:
                self._signal(run.key, run.signalled)
        else:
            self._ended(run, found.exit if found.state == "ended" else LOST)

    def _find(self, keys: Collection[RunKey], listing: Listing) -> dict[RunKey, Found]:
        processes: dict[RunKey, list[Tagged]] = {}
        for process in tagged(self._prefix):
            key = parse_name(process.run)
            if key is None or (key not in keys and process.run not in self._runs):
                kill_exactly(process)
            else:
                processes.setdefault(key, []).append(process)
        return {key: self._find_one(key, listing, processes.get(key, [])) for key in keys}

    def _find_one(self, key: RunKey, listing: Listing, processes: list[Tagged]) -> Found:
        name = key.name
        run = self._runs.setdefault(name, _Run(key))
        if name in listing.running:
            run.pid = listing.running[name]
            return Found("running")
        orphan = next((process for process in processes if process.pid == listing.orphans.get(name)), None)
        if orphan is not None and self._watch_orphan(run, orphan):
            return Found("running")
        del self._runs[name]
        if name in listing.ended:
            return Found("ended", Exit(*listing.ended[name]))
        for process in processes:
            kill_exactly(process)
        if not os.path.exists(f"{self._base}/{name}/stdout"):  # noqa: PTH110
            return Found("never")  # it is opened before the program is there
        return Found("lost")

    def _forget_beyond(self, listing: Listing, known: Collection[str]) -> None:
        old = [name for name in (*listing.ended, *listing.orphans) if name not in known]
        if old:
            self._link.send({"op": "forget", "keys": old})

    def _watch_orphan(self, run: _Run, orphan: Tagged) -> bool:
        pidfd = open_exactly(orphan)
        if pidfd is None:
            return False
        run.orphan, run.pidfd = orphan, pidfd
        self._loop.add_reader(pidfd, self._orphan_ended, run)
        return True

    def _orphan_ended(self, run: _Run) -> None:
        self._let_go(run)
        killed = run.signalled == signal.SIGKILL
        self._ended(run, Exit(signal=signal.SIGKILL) if killed else LOST)

    def _let_go(self, run: _Run) -> None:
        if run.pidfd >= 0:
            self._loop.remove_reader(run.pidfd)
            os.close(run.pidfd)
            run.pidfd = -1
