"""Plain processes as a runtime: no isolation, no limits enforced; for laptops, CI and trusted nodes.

Runs are children of the node's spawner (`spawner.py`), which outlives the agent; this is its client. It asks
the spawner to start and signal, and hears how runs ended (`spawner_client.py`). Only runs whose spawner was killed are watched
here (`reaper.py`). Nothing on the way of a run is worth a system call too many: hundreds end per second. What the
job file says of image, CPU and memory is not enforced here; README says so.

Command run next to a process: in its directory, with the environment of its start, in a session of its own.

Both are read from /proc, so that a run which an earlier agent process has started is no different. The tag in the
environment makes the command part of the run: a stop that sweeps up the run's leftovers finds the command, too.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import structlog

from fairlead_agent.core.output_retention import KEEP_ENDED, Keep
from fairlead_agent.core.runs import Emit, Exit, Found, ProgramStarted, RunExited, RunKey, RunStartFailed, parse_name
from fairlead_agent.launch.plan import Launch
from fairlead_agent.linux.processes import (
    TAG,
    Tagged,
    kill_exactly,
    kill_marked,
    mark_of,
    run_of,
    signal_tagged,
    tag,
    tag_prefix,
    tagged,
)
from fairlead_agent.runtimes.entered import CannotEnter
from fairlead_agent.runtimes.port import OUTPUT_BYTES_MAX, Executed, RuntimeUnfit
from fairlead_agent.runtimes.process.entered_process import EnteredProcess
from fairlead_agent.runtimes.process.reaper import OrphanWatch, Sweeper, Whose, end_strangers
from fairlead_agent.runtimes.process.spawner_client import Conversation, Ended, Failed, Listing, Started
from fairlead_agent.runtimes.run_directory import RunDirectories
from fairlead_agent.runtimes.run_files import WORK
from fairlead_schemas.jobfile.agent_fields import OutputBounds
from fairlead_schemas.wire.terminal import StartCommand


async def run_beside(pid: int, argv: Sequence[str], timeout_s: float, more: Mapping[str, str]) -> Executed:
    """Run the command to its end, or kill it after `timeout_s`. The result names a process that is gone, or a program that is
    missing.
    """
    try:
        environ = await asyncio.to_thread(Path(f"/proc/{pid}/environ").read_bytes)
        variables = (each.partition(b"=") for each in environ.split(b"\0") if b"=" in each)
        env = {os.fsdecode(name): os.fsdecode(value) for name, _, value in variables} | dict(more)
        with tempfile.TemporaryFile() as output:
            child = await asyncio.create_subprocess_exec(
                *argv,
                env=env,
                cwd=f"/proc/{pid}/cwd",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            code = await _wait(child, timeout_s)
            output.seek(max(0, output.seek(0, os.SEEK_END) - OUTPUT_BYTES_MAX))
            return Executed(code, output.read().decode(errors="replace").strip())
    except (OSError, ValueError) as error:
        return Executed(None, str(error))


async def _wait(child: asyncio.subprocess.Process, timeout_s: float) -> int | None:
    """Return the child's exit code; None if it was killed, here or elsewhere."""
    try:
        async with asyncio.timeout(timeout_s):
            code = await child.wait()
        return code if code >= 0 else None
    except TimeoutError:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()


#: In a run's directory: its word that it has saved.
CHECKPOINT = "checkpoint"
OVER_MEMORY = "killed by the kernel for memory"
#: End of a run that had no parent any more.
LOST = Exit(message="its spawner was killed while it ran")

_log = structlog.get_logger()


class _Run:
    __slots__ = ("inside", "key", "mark", "orphan", "pid", "request", "signalled", "unsent", "was_entered")

    def __init__(self, key: RunKey, request: dict[str, object] | None = None) -> None:
        self.key = key
        #: Asked for and not answered: what was sent. None once it was started.
        self.request = request
        #: What it was last sent; 0 for nothing.
        self.signalled = 0
        self.unsent = False
        #: Of its program; 0: not known.
        self.pid = 0
        #: Of its processes (processes.py); 0: not known.
        self.mark = 0
        #: Commands that people run inside it now. They are the agent's children, so no spawner ends what they leave behind.
        self.inside: set[EnteredProcess] = set()
        self.was_entered = False
        #: Its spawner was killed: the run has no parent, and this runtime watches it.
        self.orphan: Tagged | None = None

    @property
    def program(self) -> int:
        """The process id of its program; 0: not known."""
        return self.orphan.pid if self.orphan is not None else self.pid


class ProcessRuntime:
    """Runs of one node as plain processes."""

    name = "process"
    holdings = None

    def __init__(self, base: Path, node: str, incarnation: str, *, keep: int | Keep = KEEP_ENDED) -> None:
        self.directories = RunDirectories(base / "runs", keep)
        self._base = str(self.directories.base.absolute())
        self._home = str(base.absolute())
        self._whose = Whose(node, incarnation, self._home)
        self._prefix = tag_prefix(node, incarnation)
        self._runs: dict[str, _Run] = {}
        self._forget: list[str] = []
        self._sweeper = Sweeper(self._prefix, self._swept)
        #: While it is broken off, what is asked for waits in `_runs`.
        self._talk = Conversation(self._home, self._on_event, self._resolve)
        self._orphans = OrphanWatch(self._orphan_gone)
        self._emit: Emit

    @property
    def spawner_lives(self) -> bool:
        """True if the spawner, the parent of the runs, answers."""
        return self._talk.ready

    async def open(self, emit: Emit) -> None:
        """Raises RuntimeUnfit where the kernel lacks something or no spawner can be started."""
        if not hasattr(os, "pidfd_open"):
            raise RuntimeUnfit("the process runtime needs Linux with pidfd (5.3 or newer)")
        self._emit = emit
        await self._talk.open()

    # ------------------------------------------------------------------ start and end

    async def prepare(self, launch: Launch) -> None:
        """A process waits for nothing."""

    def start(self, launch: Launch) -> None:
        """Request the start of a run; the result is emitted."""
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
            "op": "spawn",
            "key": name,
            "argv": launch.argv,
            "env": env,
            "cwd": f"{directory}/{WORK}" if launch.work else launch.workdir,
            "dir": directory,
            "hostfile": launch.hostfile,
            "spare": "" if launch.hostfile else self.directories.spare(),
            "work": launch.work,
        }
        if name in self._runs:
            self._emit(RunStartFailed(key, "could not be started: it was started already"))
            return
        try:
            if self._talk.ready:
                self._talk.send(request)
        except (TypeError, ValueError) as error:
            self._emit(RunStartFailed(key, f"could not be started: {error}"))
            return
        self.directories.bound(key, launch.output)
        self._runs[name] = _Run(key, request)

    def terminate(self, key: RunKey) -> None:
        """TERM to the run's group."""
        self._signal(key, signal.SIGTERM)

    def kill(self, key: RunKey) -> None:
        """KILL to the run's group."""
        self._signal(key, signal.SIGKILL)

    def signal(self, key: RunKey, name: str) -> None:
        """Send a signal to the program alone. A request lost with its spawner stays lost; an orphan is signalled from here."""
        run, number = self._runs.get(key.name), signal.Signals[name]
        if run is not None and run.orphan is not None:
            kill_exactly(run.orphan, number)
        elif run is not None:
            self._talk.send({"op": "notify", "key": key.name, "number": number})

    async def exec(self, key: RunKey, argv: Sequence[str], timeout_s: float, env: Mapping[str, str]) -> Executed:
        """Run a command next to the program, as a child of the agent. It ends with its time or its run."""
        run = self._runs.get(key.name)
        pid = run.program if run is not None else 0
        return await run_beside(pid, argv, timeout_s, env) if pid else Executed(None, "it does not run")

    async def enter(self, key: RunKey, command: StartCommand) -> EnteredProcess:
        """Start a command as a child of the agent; it takes over what the run's program has of the machine, its tag and mark, too."""
        run = self._runs.get(key.name)
        if run is None or not run.program:
            raise CannotEnter("the run is not running on this node")
        try:
            proc = os.open(f"/proc/{run.program}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            raise CannotEnter("the run has ended") from None
        run.was_entered, run.mark = True, run.mark or mark_of(run.program)
        try:
            entered = await EnteredProcess.start(proc, tag(self._prefix, key.name, self._home), command)
        finally:
            os.close(proc)
        if self._runs.get(key.name) is not run:
            entered.kill()  # nobody else ends it any more
            raise CannotEnter("the run has ended")
        run.inside.add(entered)
        entered.on_end(lambda: run.inside.discard(entered))
        return entered

    def checkpoint_file(self, key: RunKey) -> Path:
        """In its directory."""
        return Path(f"{self._base}/{key.name}/{CHECKPOINT}")

    def release(self, key: RunKey) -> None:
        """The spawner may forget it; the directory may go once newer ones have ended."""
        if not self._forget:
            asyncio.get_running_loop().call_soon(self._send_forget)
        self._forget.append(key.name)
        self.directories.ended(key)

    async def look_at_directories(self) -> None:
        """Apply the bounds on run directories."""
        await self.directories.look()

    def output(self, key: RunKey) -> tuple[Path, Path]:
        """stdout and stderr files."""
        stdout, stderr = self.output_paths(key)
        return Path(stdout), Path(stderr)

    def output_paths(self, key: RunKey) -> tuple[str, str]:
        """stdout and stderr files."""
        directory = f"{self._base}/{key.name}"
        return directory + "/stdout", directory + "/stderr"

    def bounds(self, key: RunKey) -> OutputBounds:
        """Of its directory."""
        return self.directories.bounds(key)

    async def owners(self, pids: Collection[int]) -> dict[int, RunKey]:
        """By the tag in their environment or, where a process has overwritten that, in its parent's."""
        found = {pid: parse_name(run) for pid in pids if (run := run_of(pid, self._prefix))}
        return {pid: key for pid, key in found.items() if key is not None}

    def programs(self) -> dict[RunKey, int]:
        """Return {run: pid of its program} as reported by the spawner or left by it."""
        return {run.key: run.program for run in self._runs.values() if run.program}

    def injection(self, gpus: Sequence[str]) -> str:
        """Return "environment" if there are GPUs: a process may open any device of its user, so a variable names its own."""
        return "environment" if gpus else ""

    async def close(self) -> None:
        """Stop watching; runs continue."""
        self._sweeper.close()
        self._send_forget()
        self._talk.close()
        self._orphans.close()
        self._runs.clear()

    def _signal(self, key: RunKey, number: int) -> None:
        run = self._runs.get(key.name)
        if run is None:
            return
        run.signalled = number
        if run.orphan is not None:
            signal_tagged(self._prefix + key.name, number)
        elif self._talk.ready:
            self._talk.send({"op": "signal", "key": key.name, "number": number})
        run.unsent = not self._talk.ready

    def _send_forget(self) -> None:
        if self._forget:  # what is lost on a broken connection, the next listing shows
            self._talk.send({"op": "forget", "keys": self._forget})
            self._forget = []

    # ------------------------------------------------------------------ what the spawner says

    def _on_event(self, event: Started | Failed | Ended) -> None:
        run = self._runs.get(event.key)
        if run is None:
            return
        if isinstance(event, Failed):
            if run.request is not None:
                del self._runs[event.key]
                self._emit(RunStartFailed(run.key, f"could not be started: {event.text}"))
            return
        if run.request is not None:  # started, or ended when that report met a broken connection
            run.request = None
            run.pid = event.pid if isinstance(event, Started) else 0
            self._emit(ProgramStarted(run.key))
        if isinstance(event, Ended):
            self._ended(run, Exit(event.code, event.signal, OVER_MEMORY if event.oom else "", over_memory=event.oom))

    def _ended(self, run: _Run, exit: Exit) -> None:
        self._runs.pop(run.key.name, None)
        for each in [*run.inside]:
            each.kill()
        if not run.signalled and run.orphan is None and not run.was_entered:
            self._emit(RunExited(run.key, exit))
            return
        self._sweeper.sweep(run.key, exit, run.mark)  # of an orphan no spawner ends what it has left

    def _swept(self, key: RunKey, exit: Exit) -> None:
        self._emit(RunExited(key, exit))

    # ------------------------------------------------------------------ after a restart, of the agent or the spawner

    async def adopt(self, keys: Collection[RunKey], epochs: Mapping[RunKey, int] | None = None) -> dict[RunKey, Found]:
        """(A process tells no epoch: the tag in its environment names journal and run.) End what runs and is in no journal; then ask the spawner what it knows. Raises RuntimeUnfit."""
        known = {key.name for key in keys}
        await end_strangers(self._talk, self._whose, known)
        listing = self._talk.understood(
            await self._talk.listing()
        )  # from here on without a wait: held events are delivered after this
        found = self._find(keys, listing)
        self._forget_beyond(listing, known)
        self.directories.open_only(set(keys))
        return found

    def _resolve(self, listing: Listing) -> None:
        """The connection broke, perhaps because the spawner was killed: what became of the runs meanwhile?"""
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
            self._talk.send(run.request)
            return
        if run.request is not None:
            run.request = None
            self._emit(ProgramStarted(run.key))
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
        run.mark = listing.marks.get(name, 0)
        run.was_entered = True  # perhaps, over an agent that has ended since
        if name in listing.running:
            run.pid = listing.running[name]
            return Found("running")
        orphan = next((process for process in processes if process.pid == listing.orphans.get(name)), None)
        if orphan is not None and self._orphans.watch(key, orphan):
            run.orphan = orphan
            return Found("running")
        del self._runs[name]
        if name in listing.ended:
            return Found("ended", Exit(*listing.ended[name]))
        for process in processes:
            kill_exactly(process)
        kill_marked({run.mark})
        if not os.path.exists(f"{self._base}/{name}/stdout"):  # noqa: PTH110
            return Found("never")  # it is opened before the program is there
        return Found("lost")

    def _forget_beyond(self, listing: Listing, known: Collection[str]) -> None:
        old = [name for name in (*listing.ended, *listing.orphans) if name not in known]
        if old:
            self._talk.send({"op": "forget", "keys": old})

    def _orphan_gone(self, key: RunKey) -> None:
        run = self._runs[key.name]
        self._ended(run, Exit(signal=signal.SIGKILL) if run.signalled == signal.SIGKILL else LOST)
