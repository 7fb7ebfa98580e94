"""`up` and `down`: a whole Fairlead on this machine."""

import shlex
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from fairlead.client import Client
from fairlead.client.settings import owner_token
from fairlead.commands.options import Output
from fairlead.errors import Conflict, FairleadError, InputRefused, NotFound, Unreachable, WaitTimedOut
from fairlead.render import terminal
from fairlead.render.terminal import Format
from fairlead.stack import lock, state
from fairlead.stack.local import READY_S, Stack, StackOptions, end_leftovers
from fairlead.stack.processes import end_pid
from fairlead_schemas.http.api import Job
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.wire.lifecycle import END_STATES, STATES

RUNTIMES = ("process", "docker", "hollow")
#: For the help alone: reading the profiles would slow every command line. A test holds it against them.
PROFILES = "dgx-1, dgx-1-p100, dgx-2, dgx-a100, dgx-h100, hgx-h100, rtx4090x8, rtx8000x4"
#: A stack stops its groups one after the other; each may take as long as `processes.STOP_S`.
DOWN_S = 60.0
JOBS_END_S = 60.0
#: Jobs cancelled at a time, and the pause between two looks at what is left.
CANCELS_AT_ONCE = 16
LOOK_S = 0.2
OPEN_STATES = ",".join(state for state in STATES if state not in END_STATES)
IDS_SHOWN = 10
#: Time after which people are shown the jobs that `down --jobs` waits for, and its longest wait for jobs on
#: silent nodes alone.
TELL_S, SILENT_S = 5.0, 10.0

Data = Annotated[
    Path | None,
    typer.Option("--data", help="Data directory.  [default: $FAIRLEAD_DATA or ./.fairlead]", show_default=False),
]


def up(
    nodes: Annotated[int, typer.Option("--nodes", min=0, max=5000, help="Simulated nodes.")] = 4,
    profile: Annotated[str, typer.Option("--profile", help=f"Hardware that they play: {PROFILES}.")] = "dgx-a100",
    runtime: Annotated[
        str, typer.Option("--runtime", help="process, docker, or hollow (nothing is really run).")
    ] = "process",
    data: Data = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="HTTP port (0: any free one).")] = 8080,
    nodes_per_rack: Annotated[
        int, typer.Option("--nodes-per-rack", min=0, help="Simulated nodes per rack (0: no racks).")
    ] = 4,
    racks_per_block: Annotated[
        int, typer.Option("--racks-per-block", min=0, help="Racks of one block (0: no blocks).")
    ] = 4,
    is_open: Annotated[
        bool, typer.Option("--open", help="Without sign-on: whoever reaches the port may do everything.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once it is ready; `fairlead down` ends it.")
    ] = False,
) -> None:
    """Start a cluster on this machine: bus, services, nodes. Ctrl-C stops it; jobs' processes live on.

    fairlead up

    fairlead up --detach --data /srv/fairlead

    fairlead up --runtime hollow --nodes 500 --nodes-per-rack 8
    """
    from fairlead_agent.devices.profiles import profiles  # an agent's, so not loaded by every command line

    if runtime not in RUNTIMES:
        raise InputRefused(f'--runtime: expected one of {", ".join(RUNTIMES)}, found "{runtime}"')
    if profile not in profiles():
        raise InputRefused(f'--profile: expected one of {", ".join(sorted(profiles()))}, found "{profile}"')
    options = StackOptions(
        (data or state.default_data()).absolute(),
        nodes,
        profile,
        runtime,
        port,
        nodes_per_rack,
        racks_per_block,
        is_open,
    )
    if detach:
        _up_detached(options)
    else:
        _up_here(options)


def say(what: str, text: str) -> None:
    """Print one line of progress."""
    terminal.write(f"{what:<9} {text}\n")


def _up_here(options: StackOptions) -> None:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: _interrupt(ended))
    stack = Stack(options, say)
    try:
        stack.up()
        if options.data != state.default_data():
            # Without it no other command would find this stack.
            say("first", f"export FAIRLEAD_DATA={shlex.quote(str(options.data))}")
        say("next", f"fairlead submit -- echo hello | fairlead why last | fairlead top | open {stack.url}")
        # A wait without timeout would keep Python from running the signal's handler on some systems.
        while not ended.wait(1.0):
            pass
    except _Interrupted:
        pass
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    killed = stack.down()
    say("down", "stopped; jobs' processes live on and are taken up again by the next `fairlead up` on this data")
    if killed:
        say("note", f"had to be killed: {', '.join(killed)}")


class _Interrupted(BaseException):
    """A signal came while the stack was starting."""


def _interrupt(ended: threading.Event) -> None:
    if ended.is_set():
        return
    ended.set()
    raise _Interrupted


def _up_detached(options: StackOptions) -> None:
    """The same command without --detach, in a session of its own; its progress lines are repeated here."""
    logs = options.data / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    words = [
        "up",
        "--nodes",
        options.nodes,
        "--profile",
        options.profile,
        "--runtime",
        options.runtime,
        "--data",
        options.data,
        "--port",
        options.port,
        "--nodes-per-rack",
        options.nodes_per_rack,
        "--racks-per-block",
        options.racks_per_block,
        *(["--open"] if options.open else []),
    ]
    path = logs / "up.log"
    with path.open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "fairlead", *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline, shown = time.monotonic() + 2 * READY_S, 0
    while True:
        code = child.poll()
        text = path.read_text(errors="replace")
        complete = text[: text.rfind("\n") + 1]
        progress, failure = _parted(complete)
        terminal.write(progress[shown:])
        shown = len(progress)
        if code is not None:
            raise _ended(code, failure, logs)
        there = state.load(options.data)
        if there is not None and there.ready and there.supervisor.pid == child.pid and "\nnext" in complete:
            return
        if time.monotonic() > deadline:
            child.terminate()
            raise FairleadError("it did not become ready in time", hint=f"see {logs}")
        time.sleep(0.05)


def _parted(text: str) -> tuple[str, str]:
    """Return the progress output of `up`, and the error at its end ("" without one)."""
    at = 0 if text.startswith("error: ") else text.find("\nerror: ") + 1
    return (text[:at], text[at:]) if text.startswith("error: ", at) else (text, "")


def _ended(code: int, failure: str, logs: Path) -> FairleadError:
    """The error of the `up` that ended, as if it had happened here: its words, its hint, its exit code."""
    words, _, hint = failure.strip().removeprefix("error: ").partition("\nhint: ")
    error = FairleadError(words or f"it ended with code {code}", hint=hint or f"see {logs}")
    error.exit_code = max(code, 1)  # below 0: by a signal
    return error


def down(
    data: Data = None,
    jobs: Annotated[bool, typer.Option("--jobs", help="End every job, too, running or waiting.")] = False,
    output: Output = Format.table,
) -> None:
    """Stop the cluster on this machine. Running jobs continue and waiting ones wait, unless --jobs; the data stays.

    fairlead down

    fairlead down --jobs --data /srv/fairlead
    """
    folder = (data or state.default_data()).absolute()
    there = state.load(folder)
    if there is None:
        raise NotFound(f"no stack runs on {folder}", hint="fairlead up")
    token = owner_token(there.url, folder)
    running, ending = _running(there.url, token), _Ending()
    if jobs and running is not None:
        ending = _end_jobs(there.url, token)
        running = ending.left and [job for job in ending.left if job.nodes]
    if not state.lives(there.supervisor):
        with lock.held(folder, "fairlead down"):
            ended = end_leftovers(folder)
        message = f"its supervisor was gone; ended {', '.join(ended) or 'nothing'}"
    else:
        by_itself = end_pid(there.supervisor.pid, lambda: state.lives(there.supervisor), DOWN_S)
        if not by_itself:
            with lock.held(folder, "fairlead down"):
                end_leftovers(folder)
        message = "stopped" if by_itself else "had to be killed"
    document = {"data": str(folder), "stopped": True, "jobs_left_running": [job.id for job in running or []]}
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(document, output))
    else:
        if ending.ended:
            say("jobs", f"{ending.ended} ended")
        say("down", message)
        if running is None:
            say("jobs", "the gateway did not answer; what runs was left alone")
        elif running:
            say("jobs", f"{len(running)} still running, left alone: {_ids(running)}; `fairlead up` takes them up again")
    if ending.left:
        raise WaitTimedOut(f"jobs that did not end: {_ids(ending.left)}", hint=ending.why)


def _running(url: str, token: str) -> list[Job] | None:
    """Jobs that hold nodes; None when the gateway does not answer."""
    try:
        with Client(url, token=token) as client:
            if not client.ready():
                return None
            return [job for job in client.jobs(state="placed,running,stopping").items if job.nodes]
    except FairleadError:
        return None


def _ids(jobs: list[Job]) -> str:
    more = ", …" if len(jobs) > IDS_SHOWN else ""
    return ", ".join(job.id for job in jobs[:IDS_SHOWN]) + more


class _Ending(NamedTuple):
    """Outcome for the jobs that `--jobs` was to end; `left` is None where the gateway no longer answered."""

    ended: int = 0
    left: list[Job] | None = []
    why: str = ""


def _end_jobs(url: str, token: str) -> _Ending:
    """Cancel every job by the front door, so that the log says what became of them.

    Those that wait go first, or the GPUs that come free would start them; and it looks again until
    nothing is left, for what was submitted meanwhile.
    """
    began = time.monotonic()
    deadline, is_noted = began + JOBS_END_S, False
    seen: set[str] = set()
    refused: dict[str, str] = {}
    left: list[Job] | None = None

    with Client(url, token=token) as client, ThreadPoolExecutor(CANCELS_AT_ONCE) as pool:

        def cancel(job: Job) -> None:
            if time.monotonic() >= deadline:
                return
            try:
                client.cancel(job.id)
            except (Conflict, Unreachable):
                pass  # it ends already, or the next look tells
            except FairleadError as error:
                refused[job.id] = str(error)

        while True:
            try:
                left = client.jobs(state=OPEN_STATES).items
            except Unreachable:
                left = None
            found = {job.id for job in left or []}
            # An array is one job: it takes its elements along.
            jobs = [job for job in left or [] if array_of(job.id) not in found]
            seen.update(job.id for job in jobs)
            going = [job for job in jobs if job.id not in refused]
            if (left is not None and not going) or time.monotonic() >= deadline:
                why = next(iter(refused.values()), f"waited {JOBS_END_S:g} s for them")
                return _Ending(len(seen - found), left, why)
            lasted = time.monotonic() - began
            if left is not None and lasted >= TELL_S:
                on_silent = _on_silent_nodes(client, going)
                if not is_noted:
                    is_noted = True
                    terminal.note(f"down: waiting for {_ids(going)} to end{_where(on_silent)}")
                if len(on_silent) == len(going) and lasted >= SILENT_S:
                    words = f"no agent is there to end them{_where(on_silent)}; `fairlead doctor` has the reason"
                    return _Ending(len(seen - found), left, words)
            waiting = [job for job in going if job.state != "stopping"]
            list(pool.map(cancel, sorted(waiting, key=lambda job: bool(job.nodes))))
            time.sleep(LOOK_S)


def _on_silent_nodes(client: Client, jobs: list[Job]) -> dict[str, list[str]]:
    """Return {job: its unheard nodes} for jobs with such a node. The agent of an unheard node does not run, or cannot reach
    the cluster, and a job ends only when all its ranks have.
    """
    readiness = client.readiness()
    unheard = set(readiness.nodes.unheard) if readiness is not None else set[str]()
    return {job.id: sorted(unheard.intersection(job.nodes)) for job in jobs if unheard.intersection(job.nodes)}


def _where(on_silent: dict[str, list[str]]) -> str:
    """Words that name the silent nodes; "" without any."""
    names = sorted({node for nodes in on_silent.values() for node in nodes})
    return f": silent nodes have to end their part ({', '.join(names[:IDS_SHOWN])})" if names else ""
