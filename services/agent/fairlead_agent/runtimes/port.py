"""Port of a runtime. Adapters: `process.ProcessRuntime` and `docker.DockerRuntime`; one contract suite.

A runtime never decides: it starts each ordered run once, and emits what becomes of it
(`core/runs.py`), in the event loop. No method blocks the loop; slow work goes to threads and is answered later.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from fairlead_agent.core.runs import Emit, Found, RunKey
from fairlead_agent.launch.plan import Launch
from fairlead_agent.runtimes.entered import Entered
from fairlead_agent.runtimes.stored_volumes import StoredVolumes
from fairlead_schemas.jobfile.agent_fields import OutputBounds
from fairlead_schemas.wire.terminal import StartCommand
from fairlead_schemas.wire.volumes import VolumeGrant

#: Of what a command has printed, the end.
OUTPUT_BYTES_MAX = 1000


class Executed(NamedTuple):
    """Result of a command that was run in a run's environment."""

    #: None: it could not be run, took too long, or was killed.
    code: int | None
    output: str = ""


class VolumeHoldings(Protocol):
    """Volumes that a runtime has mounted for its runs. The methods block."""

    stored: StoredVolumes

    def grants(self) -> dict[RunKey, list[VolumeGrant]]:
        """Return the volumes of each run that holds some."""
        ...

    def note(self, key: RunKey, grants: Sequence[VolumeGrant]) -> None:
        """Note the volumes of a run as they are now."""
        ...


class Runtime(Protocol):
    """Runtime for programs of one kind."""

    #: "process" or "docker", as the inventory states it.
    name: str

    @property
    def holdings(self) -> VolumeHoldings | None:
        """Volumes that it mounts into its runs; None where its runs are not in containers."""
        ...

    async def open(self, emit: Emit) -> None:
        """Get ready to start runs, and to emit RunPreparing, RunStarted, RunStartFailed and RunExited. Raises RuntimeUnfit with a
        sentence that says how to mend it.
        """
        ...

    async def adopt(self, keys: Collection[RunKey], epochs: Mapping[RunKey, int] | None = None) -> dict[RunKey, Found]:
        """Look for runs that an earlier agent process left, and watch those that still run. What is found of
        this node's runs beyond `keys`, or under another epoch than the journal's, is killed: no journal knows it. What ran under another journal of the same
        directory is gone when this returns; raises RuntimeUnfit where it does not go."""
        ...

    async def prepare(self, launch: Launch) -> None:
        """Get what the start would wait for (an image), for a run whose ranks are to start together. Raises Unlaunchable."""
        ...

    def start(self, launch: Launch) -> None:
        """Start a run; emits RunStarted or RunStartFailed, now or later."""
        ...

    def terminate(self, key: RunKey) -> None:
        """Ask it to end (TERM to all of it). Nothing happens when it has ended or has not started."""
        ...

    def kill(self, key: RunKey) -> None:
        """End it (KILL to all of it)."""
        ...

    def signal(self, key: RunKey, name: str) -> None:
        """A signal by its name ("SIGUSR1") to the run's program itself, not to its children. As with `terminate`."""
        ...

    async def exec(self, key: RunKey, argv: Sequence[str], timeout_s: float, env: Mapping[str, str]) -> Executed:
        """Run a command next to the run's program: in the same place, as the same user, with its environment and `env`.

        A command that takes longer than `timeout_s` is not awaited; it ends with the run at the latest. Never raises for the
        command's failure.
        """
        ...

    async def enter(self, key: RunKey, command: StartCommand) -> Entered:
        """Start a command that a person talks to, next to the run's program: in the same place, as the same user, with its
        environment, namespaces, control group and limits. It ends with the run. Raises CannotEnter.
        """
        ...

    def checkpoint_file(self, key: RunKey) -> Path:
        """Return the path of the run's save report on this machine. A file of time 0, or a missing one, means no report yet."""
        ...

    def release(self, key: RunKey) -> None:
        """Forget the run, because its end is journalled. The newest few runs' files are kept."""
        ...

    async def look_at_directories(self) -> None:
        """Remove files of ended runs that are too old or too many (run_directory.Keep)."""
        ...

    def output(self, key: RunKey) -> tuple[Path, Path]:
        """Files of its stdout and stderr, whether they exist or not."""
        ...

    def output_paths(self, key: RunKey) -> tuple[str, str]:
        """Return the paths of `output` as strings, for code that runs for every run: a `Path` costs more than a look at the file."""
        ...

    def bounds(self, key: RunKey) -> OutputBounds:
        """Return what the run's job file states for its output, until its files are removed."""
        ...

    async def owners(self, pids: Collection[int]) -> dict[int, RunKey]:
        """Return {pid: run} for those of the machine's processes that belong to this node's runs, children included. Others are
        left out.
        """
        ...

    def programs(self) -> dict[RunKey, int]:
        """The pid on this machine of each running run's first process, where it is known."""
        ...

    def injection(self, gpus: Sequence[str]) -> str:
        """Return the way in which these GPUs get into a run: "environment", "cdi", "device-request", "simulated"; "" without GPUs,
        or before `open`.
        """
        ...

    async def close(self) -> None:
        """Release all resources; runs continue."""
        ...


class RuntimeUnfit(Exception):
    """The runtime cannot work on this machine; the message says what is missing."""
