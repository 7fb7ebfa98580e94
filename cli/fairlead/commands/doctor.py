"""`doctor`: what this machine has and lacks, each with one cause and one fix; and its checks of a node, each with the
command that mends it.
"""

import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from fairlead import interpreter
from fairlead.client import Client
from fairlead.client.settings import owner_token
from fairlead.commands.options import Output
from fairlead.errors import FairleadError
from fairlead.render import terminal
from fairlead.render.terminal import Format, TableColumn
from fairlead.stack import nats_server, state
from fairlead_agent.doctor import checks, collect
from fairlead_agent.setup import layout
from fairlead_bus.nats.store_check import check_store, store_dir_of
from fairlead_bus.port import ServerUnfit
from fairlead_replay.compiled import cores_build
from fairlead_schemas.units.timestamps import rfc3339_seconds


def is_node(root: Path) -> bool:
    """Return True if `agent install` has run under this root."""
    return (root / layout.ENV_FILE.lstrip("/")).exists()


def check_node(root: Path, output: Format) -> None:
    """Print what there is to say of the node; exit code 1 when anything fails."""
    found = checks.judge(collect.read(root))
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document([check._asdict() for check in found], output))
    elif output is Format.names:
        terminal.write("".join(f"{check.name}\n" for check in found if check.level == "FAIL"))
    else:
        columns = [TableColumn(head, lambda row: row) for head in ("WHAT", "", "FOUND", "MEND")]
        terminal.write(terminal.table([[c.name, c.level, c.finding, c.mend or " "] for c in found], columns))
    if any(check.level == "FAIL" for check in found):
        raise typer.Exit(1)


DISK_LEAST_GIB = 2
FSYNC_ROUNDS = 20
FSYNC_SLOW_MS = 5.0
CLOCK_S = 5.0
CLOCK_FIX = "run an NTP client when using several machines"
DOCKER_SOCKET = Path("/var/run/docker.sock")


class DoctorFinding(NamedTuple):
    """Result of one check: `ok` (fine), `note` (missing, but only some need it), `bad` (nothing works without it)."""

    what: str
    verdict: str
    found: str
    fix: str = ""


def doctor(
    data: Annotated[Path | None, typer.Option("--data", help="Data directory to look at.", show_default=False)] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="HTTP port that `up` would use.")] = 8080,
    node: Annotated[
        bool, typer.Option("--node", help="Look at it as a node, though `agent install` was not here.")
    ] = False,
    root: Annotated[Path, typer.Option("--root", help="Of a node: its settings are under this directory.")] = Path("/"),
    output: Output = Format.table,
) -> None:
    """Look at this machine: exit code 0 when a cluster can run here, or the node that it is can take work; 1 otherwise.

    fairlead doctor

    fairlead doctor --node -o json     (on a node: settings, bus, key, engine, driver, disk, clock, kernel)
    """
    if node or is_node(root):
        check_node(root, output)
        return
    folder = (data or state.default_data()).absolute()
    looks: tuple[Callable[[], DoctorFinding], ...] = (
        _python,
        _cores,
        _nats,
        _docker,
        _driver,
        lambda: _port(port, folder),
        lambda: _disk(folder),
        lambda: _fsync(folder),
        _clock,
        lambda: _stack(folder),
        lambda: _warehouse(folder),
    )
    findings = [*(look() for look in looks), *_stores(folder, root), *_conditions(folder)]
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document([finding._asdict() for finding in findings], output))
    elif output is Format.names:
        terminal.write("".join(f"{f.what}\n" for f in findings if f.verdict == "bad"))
    else:
        columns = [
            TableColumn("WHAT", lambda f: f),
            TableColumn("", lambda f: f),
            TableColumn("FOUND", lambda f: f),
            TableColumn("FIX", lambda f: f),
        ]
        terminal.write(terminal.table([[f.what, f.verdict, f.found, f.fix or " "] for f in findings], columns))
    if any(finding.verdict == "bad" for finding in findings):
        raise typer.Exit(1)


def _warehouse(folder: Path) -> DoctorFinding:
    telemetry = folder / "telemetry"
    if (telemetry / "warehouse.damaged").exists():
        return DoctorFinding(
            "warehouse",
            "bad",
            "its database is damaged",
            "restart telemetry: it rebuilds the database from log and files",
        )
    aside = sorted(path.name for path in telemetry.glob("warehouse.duckdb.damaged-*") if not path.name.endswith(".wal"))
    if aside:
        return DoctorFinding(
            "warehouse",
            "note",
            f"{', '.join(aside)} was damaged and has been rebuilt",
            "delete it once it is no longer needed for diagnosis",
        )
    return DoctorFinding("warehouse", "ok", "no damage was seen")


#: Configuration of the bus of an installation (deploy/systemd/fairlead-nats.service).
INSTALLED_BUS = "etc/fairlead/nats.conf"


def _stores(folder: Path, root: Path) -> list[DoctorFinding]:
    """Findings on stores of nats-servers here: the stack's, and the installation's. A store that its server would delete is bad.
    A configuration that this user may not read is left to those who may.
    """
    found: list[DoctorFinding] = []
    for config in (folder / "nats" / "nats.conf", root / INSTALLED_BUS):
        store = store_dir_of(config)
        if store is None:
            continue
        try:
            check_store(store, config)
        except ServerUnfit as error:
            finding, _, cure = str(error).partition(" Not started. ")
            found.append(DoctorFinding("store", "bad", finding, cure))
        except OSError as error:
            found.append(DoctorFinding("store", "note", f"{store} cannot be read: {error.strerror}", "look as root"))
        else:
            found.append(DoctorFinding("store", "ok", f"{store} suits {config}"))
    return found


def _python() -> DoctorFinding:
    version = platform.python_version()
    if sys.version_info >= (3, 12):  # noqa: UP036 -- pip may have been told to ignore it
        found = interpreter.this()
        text = f"{version} at {sys.executable}, built {found.build}; a short loop takes {found.loop_ms:.1f} ms"
        if found.build == interpreter.PLAIN:
            return DoctorFinding("python", "note", text, "one with PGO and LTO takes a fifth less CPU: FAIRLEAD_PYTHON")
        return DoctorFinding("python", "ok", text)
    return DoctorFinding("python", "bad", version, "install Python 3.12 or newer")


def _cores() -> DoctorFinding:
    return DoctorFinding("cores", "ok", cores_build())


def _nats() -> DoctorFinding:
    try:
        found = nats_server.find()
    except FairleadError as error:
        return DoctorFinding("nats-server", "bad", str(error), error.hint)
    if found.kind == "external":
        if silent := nats_server.why_silent(found.url):
            return DoctorFinding(
                "nats-server", "bad", f"{found.note}, and it cannot be reached: {silent}", nats_server.EXTERNAL_HINT
            )
        return DoctorFinding("nats-server", "ok", found.note)
    return DoctorFinding("nats-server", "note" if found.note else "ok", f"{found.version} ({found.kind})", found.note)


def _docker() -> DoctorFinding:
    """The engine is asked over its own socket: the `docker` program may be there without one."""
    host = os.environ.get("DOCKER_HOST", "")
    path = Path(host.removeprefix("unix://")) if host.startswith("unix://") else DOCKER_SOCKET
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(2.0)
            connection.connect(str(path))
            connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            answer = connection.recv(4096).decode("latin-1")
    except OSError as error:
        return DoctorFinding(
            "docker",
            "note",
            f"no engine at {path}: {error.strerror or error}",
            "only --runtime docker needs it: start dockerd",
        )
    version = next(
        (line.partition(":")[2].strip() for line in answer.splitlines() if line.lower().startswith("api-version")), "?"
    )
    return DoctorFinding("docker", "ok", f"engine at {path}, API {version}")


def _driver() -> DoctorFinding:
    program = shutil.which("nvidia-smi")
    if program is None:
        return DoctorFinding(
            "nvidia driver", "note", "no nvidia-smi found", "GPUs are simulated; for real ones install NVIDIA's driver"
        )
    try:
        done = subprocess.run(
            [program, "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return DoctorFinding(
            "nvidia driver", "note", f"nvidia-smi does not answer: {error}", "reload the driver or reboot"
        )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        printed = (done.stdout + done.stderr).strip().splitlines()
        found = printed[0][:120] if printed else f"nvidia-smi printed nothing (exit code {done.returncode})"
        return DoctorFinding("nvidia driver", "note", found, "reload the driver or reboot")
    return DoctorFinding("nvidia driver", "ok", f"{len(lines)} GPUs: {lines[0]}")


def _port(port: int, folder: Path) -> DoctorFinding:
    if nats_server.is_free(port):
        return DoctorFinding("port", "ok", f"{port} is free")
    there = state.load(folder)
    if there is not None and there.url.endswith(f":{port}") and state.lives(there.supervisor):
        return DoctorFinding("port", "ok", f"{port} is used by the stack on {folder}")
    return DoctorFinding(
        "port", "note", f"{port} is taken by another program", f"fairlead up --port {nats_server.free_port()}"
    )


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _disk(folder: Path) -> DoctorFinding:
    free_gib = shutil.disk_usage(_existing(folder)).free / 2**30
    found = f"{free_gib:.1f} GiB free for {folder}"
    return (
        DoctorFinding("disk", "ok", found)
        if free_gib >= DISK_LEAST_GIB
        else DoctorFinding("disk", "bad", found, f"free at least {DISK_LEAST_GIB} GiB, or use another --data")
    )


def _fsync(folder: Path) -> DoctorFinding:
    """Every stored message waits for one fsync, so this is what bounds a bus on this disk."""
    path = _existing(folder) / f".fairlead-fsync-{os.getpid()}"
    times: list[float] = []
    try:
        with path.open("wb") as file:
            for _ in range(FSYNC_ROUNDS):
                file.write(b"x" * 512)
                file.flush()
                began = time.perf_counter()
                os.fsync(file.fileno())
                times.append((time.perf_counter() - began) * 1000)
    except OSError as error:
        return DoctorFinding(
            "data directory", "bad", f"{path.parent} cannot be written: {error.strerror}", "use another --data"
        )
    finally:
        path.unlink(missing_ok=True)
    median = sorted(times)[len(times) // 2]
    slow = "a local SSD makes submits faster" if median > FSYNC_SLOW_MS else ""
    return DoctorFinding("fsync", "note" if slow else "ok", f"median {median:.2f} ms", slow)


def _clock() -> DoctorFinding:
    """Return a finding on the kernel's clock synchronisation; an unknown state is reported as unknown."""
    program = shutil.which("timedatectl")
    if program is None:
        return DoctorFinding(
            "clock",
            "note",
            f"{rfc3339_seconds(time.time_ns())}; no timedatectl to ask",
            CLOCK_FIX,
        )
    try:
        done = subprocess.run(
            [program, "show", "-p", "NTPSynchronized", "--value"],
            capture_output=True,
            text=True,
            timeout=CLOCK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return DoctorFinding("clock", "note", f"timedatectl does not answer: {error}", CLOCK_FIX)
    if done.stdout.strip() == "yes":
        return DoctorFinding("clock", "ok", "synchronised")
    return DoctorFinding("clock", "note", "not synchronised, or not known", CLOCK_FIX)


def _stack(folder: Path) -> DoctorFinding:
    there = state.load(folder)
    if there is None:
        return DoctorFinding("stack", "ok", f"none on {folder}")
    if not state.lives(there.supervisor):
        return DoctorFinding(
            "stack", "note", f"what is noted in {folder / state.FILE} no longer runs", "fairlead down, or fairlead up"
        )
    with Client(there.url, token=owner_token(there.url, folder)) as client:
        readiness = client.readiness()
    missing = state.missing(there)
    word = "does not answer" if readiness is None else "ready" if readiness.ready else "not ready"
    found = f"{there.url} {word}"
    found += f"; not running: {', '.join(missing)}" if missing else ""
    verdict = "bad" if word != "ready" else "note" if missing else "ok"
    return DoctorFinding("stack", verdict, found, "" if verdict == "ok" else f"see {folder / 'logs'}")


def _conditions(folder: Path) -> list[DoctorFinding]:
    """Conditions that the running gateway or the last `up` found, each with the commands to type."""
    there = state.load(folder)
    found = state.load_conditions(folder)
    lives = there is not None and state.lives(there.supervisor)
    unanswered = False
    if there is not None and lives:
        with Client(there.url, token=owner_token(there.url, folder)) as client:
            readiness = client.readiness()
        unanswered = readiness is None  # which conditions hold is not known then; `_stack` reports the silence
        if readiness is not None:  # it is newer than a note: a loss may have been accepted meanwhile
            noted = [each for each in found if each.code != "commands_lost"]
            found = list(dict.fromkeys([*noted, *readiness.conditions]))
    data = "" if folder == state.default_data() else str(folder)
    held = [
        DoctorFinding(
            each.code, "bad" if each.blocks else "note", each.message, each.hint(data, asked="fairlead doctor")
        )
        for each in found
    ]
    if held or unanswered:
        return held
    if not lives:
        return [DoctorFinding("cluster", "note", "conditions are not known: no stack runs here")]
    return [DoctorFinding("cluster", "ok", "no condition of docs/how-to/troubleshooting.md holds")]
