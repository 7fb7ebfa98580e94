"""`exec`: a command inside a job that runs. `attach`: its output as it comes, and its exit code."""

import asyncio
import contextlib
import os
import signal
from typing import Annotated

import typer

from fairlead import terminal_link
from fairlead.client import Client
from fairlead.commands.options import connect, pick
from fairlead.errors import Conflict, FairleadError, InputRefused
from fairlead.render import terminal
from fairlead.render.terminal import OutputWriter
from fairlead_schemas.wire.lifecycle import END_STATES
from fairlead_schemas.wire.terminal import CommandExit, StartCommand, encode_start

#: As ssh has it: the connection ended, and not the command.
LOST = 255


def exec_(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id or name of a job that runs, or `last`.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND…]", help="Command; none: a shell.", show_default=False)
    ] = None,
    rank: Annotated[int, typer.Option("--rank", min=0, help="Of a job of several nodes: the rank.")] = 0,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass stdin to the command.")] = False,
    tty: Annotated[
        bool, typer.Option("--tty", "-t", help="Give the command a terminal; with -i as a shell wants it.")
    ] = False,
) -> None:
    """Run a command inside a running job, where and as its program runs; exit with the command's exit code.

    fairlead exec last -- nvidia-smi

    fairlead exec -it train --rank 1 -- bash

    Without a command it is a shell. A lost connection ends the command by SIGHUP; `~.` at the beginning of a line ends the connection.
    """
    if not command and os.isatty(0) and os.isatty(1):
        stdin = tty = True
    if tty and stdin and not os.isatty(0):
        raise InputRefused("-t needs a terminal at stdin; for a pipe use -i alone")
    start = terminal_link.start_command(command or [], tty=tty, input=stdin, environment=os.environ)
    try:
        encode_start(start)
    except ValueError as error:
        raise InputRefused(str(error)) from error
    with connect() as client:
        (job_id,) = pick(client, [job], names=True)
        raise typer.Exit(_run(client, job_id, rank, start))


def _run(client: Client, job: str, rank: int, start: StartCommand) -> int:
    found = client.job(job)
    if found.state != "running":
        raise Conflict(
            f"job {job} is {found.state}; a command runs only inside a job that runs", hint=f"fairlead why {job}"
        )
    tunnel = client.open_terminal(job, rank=rank)
    is_raw = start.tty and start.input
    link = terminal_link.CommandLink(start)
    try:
        with terminal_link.raw_terminal(0) if is_raw else contextlib.nullcontext():
            end = asyncio.run(link.run(tunnel))
    except terminal_link.ConnectionLost as lost:
        return _lost(client, job, str(lost))
    except terminal_link.NobodyReads:
        return 128 + signal.SIGPIPE
    if end is None:
        terminal.note(f"left job {job}; the command gets SIGHUP")
        return LOST
    return code_of(end)


def _lost(client: Client, job: str, how: str) -> int:
    """Say why a connection has ended: by its job, as far as can be known."""
    with contextlib.suppress(FairleadError):
        found = client.job(job)
        if found.state in END_STATES or found.state != "running":
            terminal.note(f"the connection has ended with the run: job {job} is {found.state}")
            return LOST
    terminal.note(f"the connection to job {job} is lost ({how}); the command gets SIGHUP")
    return LOST


def code_of(end: CommandExit) -> int:
    """Return the exit code for how a command ended, as a shell has it; say the reason, if there is one."""
    if end.reason:
        terminal.note(end.reason)
    if end.code is not None:
        return end.code
    if end.signal in signal.Signals.__members__:
        return 128 + signal.Signals[end.signal]
    return LOST


def attach(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Id or name of a job, or `last`.")],
    rank: Annotated[int | None, typer.Option("--rank", help="Only this rank of a gang.", show_default=False)] = None,
    tail: Annotated[int, typer.Option("--tail", min=0, max=10_000, help="So many lines before now (0: all).")] = 10,
    raw: Annotated[bool, typer.Option("--raw", help="To a terminal, too, every byte as the job wrote it.")] = False,
) -> None:
    """Follow a job's output until it has ended, and exit with its exit code. Ctrl-C leaves the job as it is.

    fairlead attach last

    A job reads no input; `fairlead exec -it JOB` is a shell inside it.
    """
    from fairlead.commands.submission import exit_code

    with connect() as client:
        (job_id,) = pick(client, [job], names=True)
        writer = OutputWriter(raw=raw)
        try:
            for piece in client.logs(job_id, follow=True, rank=rank, tail=tail):
                writer.write(piece)
            writer.end()
            ended = client.wait([job_id])
        except KeyboardInterrupt:
            terminal.note(f"left job {job_id}, which goes on; `fairlead attach {job_id}` follows it again")
            raise typer.Exit(0) from None
        for each in ended:
            terminal.note(f"job {each.id} {each.state}")
        raise typer.Exit(exit_code(ended))
