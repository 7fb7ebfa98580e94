"""Shared parts of the `audit` verbs: their command group, the options that name a log, and the bus that has it.

A log is an exported directory, a running stack, or the data of a stopped one (its bus is started alone for the reading,
and stopped again).
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from fairlead.errors import FairleadError, InputRefused, NotFound, Unreachable
from fairlead.stack import lock, nats_server, state
from fairlead_bus.port import BusError, LogDamaged

app = typer.Typer(help="Check or export the log.", no_args_is_help=True)

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="An exported log, or a stack's data.  [default: $FAIRLEAD_DATA or ./.fairlead]",
        show_default=False,
    ),
]
Nats = Annotated[
    str,
    typer.Option(
        "--nats", help="A bus by its address (nats://token@host:port).", envvar="FAIRLEAD_NATS", show_default=False
    ),
]


@contextmanager
def bus_url(data: Path, nats: str) -> Iterator[str]:
    """The address of the bus that holds the log of a data directory, for as long as it is needed."""
    if nats:
        yield nats
        return
    there = state.load(data)
    if there is not None and _has_bus(there):
        yield there.nats_url
        return
    if not (data / "nats" / "store").is_dir():
        raise NotFound(f"there is no log in {data}", hint="name one with --data, or start a cluster with `fairlead up`")
    with _bus_alone(data) as (url, _):
        yield url


def _has_bus(there: state.StackState) -> bool:
    """True while the stack's bus can be asked, also one that a killed supervisor left behind."""
    return state.lives(there.supervisor) or any(p.name == "nats" and state.lives(p) for p in there.processes)


@contextmanager
def _bus_alone(data: Path) -> Iterator[tuple[str, str]]:
    """The bus of a stopped stack and its monitoring page, without any service. No `up` meanwhile."""
    with lock.held(data, "fairlead audit or replay") as taken:
        found = nats_server.find({"PATH": os.environ.get("PATH", "")})
        port, monitor_port = nats_server.free_port(), nats_server.free_port()
        config, token = nats_server.configure(data, port, monitor_port)
        process = subprocess.Popen(
            [found.path, "-c", str(config)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            taken.name(state.identify("nats", process.pid))
            if not nats_server.wait_ready(port, token):
                raise FairleadError(f"nats-server could not be started on {data}", hint="fairlead doctor")
            yield f"nats://{token}@127.0.0.1:{port}", f"http://127.0.0.1:{monitor_port}"
        finally:
            process.terminate()
            process.wait()


@contextmanager
def new_bus(data: Path, nats: str) -> Iterator[str]:
    """The address of a bus to restore into: the one that is named, or one in a directory that has none yet."""
    if nats:
        yield nats
        return
    if (data / "nats" / "store").exists():
        raise InputRefused(
            f"{data.name} holds a log already; an old one is never written over", hint="name a new directory"
        )
    data.mkdir(parents=True, exist_ok=True)
    with _bus_alone(data) as (url, monitor):
        os.environ["FAIRLEAD_NATS_MONITOR"] = monitor  # where it is seen that this server fsyncs
        yield url


def is_export(data: Path) -> bool:
    """True for a directory that `audit export` wrote."""
    from fairlead_replay.export import LOG_FILE

    return (data / LOG_FILE).exists()


@contextmanager
def translated() -> Iterator[None]:
    """The bus's and the reader's failures as errors of the command line."""
    try:
        yield
    except LogDamaged as error:
        raise FairleadError(f"DAMAGED: {error}") from error
    except BusError as error:
        raise Unreachable(str(error)) from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise FairleadError(str(error)) from error
