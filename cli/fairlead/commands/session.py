"""`session` and `open`: applications in the browser, such as a notebook. Started, listed, opened, shared and stopped.

A session is a job of the kind `session` whose job file names an application. Start at `start`.
"""

import contextlib
import socket
import sys
import time
import webbrowser
import zlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fairlead.client import Client
from fairlead.commands.foreground import WaitingReasons, attended
from fairlead.commands.options import Id, NamedId, NamedIds, Output, carry_out, connect, pick
from fairlead.commands.run import options_of_submit
from fairlead.commands.submit import option_words, with_products
from fairlead.errors import Conflict, FairleadError, InputRefused, Unreachable
from fairlead.jobfile import reader
from fairlead.render import columns, terminal
from fairlead.render.terminal import Format
from fairlead.tunnel_link import Forwarder, connect_proxy, is_this_machine
from fairlead_schemas.http.api import Job, Page
from fairlead_schemas.http.tunnels import NewEntry
from fairlead_schemas.policies.apps import PROFILES
from fairlead_schemas.units.suggestions import did_you_mean
from fairlead_schemas.wire.lifecycle import END_STATES, STATES

#: Other names of profiles.
ALIASES = {
    "jupyter": "jupyterlab",
    "lab": "jupyterlab",
    "code": "code-server",
    "vscode": "code-server",
    "shell": "terminal",
}
LOOK_S = 0.3
#: Ports of this machine to which apps are carried: each app has its own as long as it is free, so that an open page goes on.
PORTS_FROM, PORTS = 20_000, 10_000
_OPEN = ",".join(state for state in STATES if state not in END_STATES)
_UNUSED = frozenset(
    {
        "words",
        "file",
        "again",
        "array",
        "tasks",
        "nodes",
        "kind",
        "wait",
        "timeout",
        "dry_run",
        "ignore",
        "output",
        "hold",
    }
)

NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Print the address, and open no browser.")]
Port = Annotated[
    int, typer.Option("--port", min=0, max=65535, help="Port of this machine, where the app is carried to it; 0: any.")
]


class SessionGroup(TyperGroup):
    """Group whose first word may also be the name of an application: `fairlead session jupyter`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command of a word, `start` for a word that is none."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            return "start", self.commands["start"], args
        return super().resolve_command(ctx, args)


session = typer.Typer(
    cls=SessionGroup,
    no_args_is_help=True,
    help="Start an application in the browser, such as a notebook; list, open, share or stop sessions.",
)


@session.command("start")
@options_of_submit(_UNUSED)
def start(
    ctx: typer.Context,
    app: Annotated[str, typer.Argument(metavar="APP", help=f"{', '.join(PROFILES)}.", show_default=False)],
    no_browser: NoBrowser = False,
    detach: Annotated[bool, typer.Option("--detach", help="Submit, print the job's id, and wait for nothing.")] = False,
    **_options: Any,
) -> None:
    """Start a session, wait until its application serves, and open it. `start` may be left out.

    fairlead session jupyter --gpus 1

    fairlead session code --image ghcr.io/acme/dev:1 --time 8h --detach

    While it waits, the reason is shown. Ctrl-C asks whether to detach from the session or to cancel it.
    """
    name = ALIASES.get(app, app)
    profile = PROFILES.get(name)
    if profile is None:
        raise InputRefused(
            f'expected one of {", ".join(PROFILES)}, found "{app}"{did_you_mean(app, [*PROFILES, *ALIASES])}'
        )
    if not profile.command:
        raise InputRefused(f"{name} needs a command: name it in a job file", hint="docs/how-to/sessions.md")
    with connect() as client:
        job = with_products({"kind": "session", "app": name, **option_words(ctx, client)}, client, offline_ok=False)
        reader.check(job)
        _say_estimate(client, job)
        result = client.submit(job)
        for warning in result.warnings:
            terminal.note(f"warning: {warning}")
        if not result.id:
            raise Unreachable(
                "the queue has not decided yet; the session may start later", hint="fairlead session list"
            )
        if detach:
            terminal.write(f"{result.id}\n")
            return
        terminal.note(f"session {result.id}")
        with attended([result.id]):
            found = _ready(client, result.id)
        _open(client, found, no_browser=no_browser, port=0)


@session.command("list")
def list_sessions(output: Output = Format.table) -> None:
    """List your sessions that wait or run.

    fairlead session list
    """
    with connect() as client:
        found = [
            job for job in client.jobs(user=client.me(), state=_OPEN, elements=False).items if job.kind == "session"
        ]
    page = Page(items=found, next=None, sequence=max((job.sequence for job in found), default=0))
    terminal.write(terminal.page(page, columns.SESSIONS, lambda job: f"job/{job.id}", output))


@session.command("open")
def open_session(job: NamedId, no_browser: NoBrowser = False, port: Port = 0) -> None:
    """Open the application of a session. The same as `fairlead open`.

    fairlead session open last
    """
    open_app(job, no_browser=no_browser, port=port)


@session.command("share")
def share(
    job: Id,
    who: Annotated[list[str], typer.Argument(metavar="LOGIN…", help="People or groups.", show_default=False)],
    end: Annotated[bool, typer.Option("--end", help="Take it back: what they have open ends within seconds.")] = False,
) -> None:
    """Let others into a session, or put them out. They see the job, too, and may cancel it.

    fairlead session share 812 bob

    fairlead session share 812 bob --end
    """
    with connect() as client:
        (job_id,) = pick(client, [job], names=True)
        for each in who:
            if end:
                client.revoke(each, "member", f"job:{job_id}")
                terminal.note(f"{each} is out of session {job_id}")
            else:
                client.grant(each, "member", f"job:{job_id}")
                terminal.note(f"{each} may enter: fairlead open {job_id}")


@session.command("stop")
def stop(ids: NamedIds, output: Output = Format.table) -> None:
    """End sessions.

    fairlead session stop last
    """
    with connect() as client:
        refused = carry_out(
            client,
            pick(client, ids, names=True),
            lambda c, name: c.cancel(name),
            kind="job",
            done="stopped",
            output=output,
        )
    for error in refused.values():
        raise error


def open_app(job: NamedId, no_browser: NoBrowser = False, port: Port = 0) -> None:
    """Open the application of a running session in the browser.

    fairlead open last

    Where applications have no names in the DNS, it is carried to this machine until Ctrl-C.
    """
    with connect() as client:
        (job_id,) = pick(client, [job], names=True)
        _open(client, _ready(client, job_id), no_browser=no_browser, port=port)


def _say_estimate(client: Client, job: dict[str, Any]) -> None:
    """Say before the launch when it may start, where that is not at once."""
    with contextlib.suppress(FairleadError):
        [found] = client.dry_run([job])
        if found.valid and found.reason is not None:
            when = found.estimate.start_at if found.estimate is not None else None
            terminal.note(f"it will wait: {found.reason.message}{f'; may start at {when}' if when else ''}")


def _ready(client: Client, job_id: str) -> Job:
    """Wait until the application of a job serves. Raises Conflict where it ends before."""
    reasons, said = WaitingReasons(), False
    while True:
        job = client.job(job_id)
        reasons.see(job)
        if job.state in END_STATES:
            why = f": {job.reason.message}" if job.reason is not None else ""
            raise Conflict(f"session {job_id} has ended ({job.state}){why}", hint=f"fairlead logs {job_id}")
        if job.ready_at is not None:
            return job
        if job.state == "running" and not said:
            terminal.note(f"session {job_id} runs on {', '.join(job.nodes)}; its application starts")
            said = True
        time.sleep(LOOK_S)


def _open(client: Client, job: Job, *, no_browser: bool, port: int) -> None:
    entry = client.enter_app(job.id)
    if entry.origin:
        _show(entry.origin + entry.path, no_browser)
        return
    if is_this_machine(entry.address) and not port:
        _show(f"http://{entry.label}.localhost:{entry.address.rpartition(':')[2]}{entry.path}", no_browser)
        return
    carrier = _carrier(entry, port)
    # The code is young once more: to find a port may have asked a person something.
    entry = client.enter_app(job.id)
    _show(f"http://{entry.label}.localhost:{carrier.port}{entry.path}", no_browser)
    terminal.note("carried to this machine until Ctrl-C")
    try:
        carrier.run()
    except KeyboardInterrupt:
        terminal.note("")
    finally:
        carrier.close()


def _carrier(entry: NewEntry, port: int) -> Forwarder:
    def failed(error: FairleadError) -> None:
        terminal.note(f"connection refused: {error}")

    own = port or PORTS_FROM + zlib.crc32(entry.label.encode()) % PORTS
    if not port and not _is_free(own):
        own = 0
    try:
        return Forwarder("127.0.0.1", own, lambda: connect_proxy(entry.address), failed)
    except OSError as error:
        message = f"port {own} of this machine cannot be listened on: {error.strerror}"
        raise InputRefused(message, hint="--port 0 takes any") from error


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _show(url: str, no_browser: bool) -> None:
    """Print the address, which lets in once, and open it where a person sits at this machine."""
    terminal.write(f"{url}\n")
    if not no_browser and sys.stdout.isatty():
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(url)
