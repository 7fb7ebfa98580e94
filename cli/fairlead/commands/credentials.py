"""Command `credentials`: the users of the bus and their keys, for the operator of the nats-server.

The list and the server's copy of it are files of one directory (fairlead_bus/bus_users.py). A key's secret half is
written once, to a file of its own, or made on the node and never seen here (--public).
"""

import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from fairlead.commands.options import Output
from fairlead.errors import FairleadError, InputRefused, NotFound
from fairlead.render import terminal
from fairlead.render.terminal import Format, TableColumn
from fairlead_bus import bus_users, nkey
from fairlead_bus.bus_users import BadUser, User, UserKind
from fairlead_bus.permissions import SERVICES

app = typer.Typer(no_args_is_help=True, help="Users of the bus and their keys.")

DIRECTORY = Path("/etc/fairlead/bus")

Directory = Annotated[Path, typer.Option("--dir", help="Directory of users.json and accounts.conf.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A node's id; with --service a service's name.")]
Service = Annotated[bool, typer.Option("--service", help="NAME is a service, not a node.")]
Pid = Annotated[
    Path | None,
    typer.Option(
        "--pid-file", help="The server's pid_file: the server is signalled to reload its users.", show_default=False
    ),
]


@app.command()
def init(
    directory: Directory = DIRECTORY,
    pid_file: Pid = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Make no keys: write the list with the permissions of this version.")
    ] = False,
) -> None:
    """Make the services' keys, and the list of users. Again: what there is stays as it is.

    fairlead credentials init

    fairlead credentials init --refresh     (after an upgrade)

    Each service reads its own file: FAIRLEAD_NATS_NKEY_FILE=/etc/fairlead/bus/queue.nk. The server includes
    /etc/fairlead/bus/accounts.conf.
    """
    with _readable_errors():
        users = bus_users.load(directory)
        for name in () if refresh else SERVICES:
            path = directory / f"{name}.nk"
            known = bus_users.find(users, "service", name)
            if path.exists():
                public = nkey.read_file(path).public
                if known is None or public not in known.keys:
                    _change(directory, lambda users, n=name, p=public: bus_users.with_key(users, "service", n, p))
                terminal.note(f"kept   {path}")
            elif known is not None:
                terminal.note(f"kept   service {name}: its key is elsewhere")
            else:
                _make(directory, "service", name, path)
        _change(directory, lambda users: users)
    _tell(pid_file, directory)


@app.command()
def add(
    name: Name,
    directory: Directory = DIRECTORY,
    service: Service = False,
    public: Annotated[
        str, typer.Option("--public", help="The public key (U…) that the node made itself.", show_default=False)
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", help="Make a key and write its seed here (0600).", show_default=False)
    ] = None,
    pid_file: Pid = None,
) -> None:
    """Admit a node (or another service's process). One that has a key already gets a second key, to change over.

    fairlead credentials add n7 --public UBJ3…     (`fairlead agent install` on the node has printed it)

    fairlead credentials add n7 --out n7.nk     (copy it to the node as /etc/fairlead/node.nk, then delete it here)
    """
    if bool(public) == (out is not None):
        raise InputRefused(
            "expected either --public KEY or --out FILE",
            hint=f"fairlead credentials add {name} --out {name}.nk",
        )
    kind = _kind(service)
    with _readable_errors():
        if out is not None:
            _make(directory, kind, name, out)
        else:
            _change(directory, lambda users: bus_users.with_key(users, kind, name, nkey.check_public(public)))
            terminal.note(f"added  {kind} {name} with the key {public}")
    _tell(pid_file, directory)


@app.command()
def retire(name: Name, directory: Directory = DIRECTORY, service: Service = False, pid_file: Pid = None) -> None:
    """End a change of keys: only the newest one stays valid, and who still uses the older one is cut off.

    fairlead credentials retire n7
    """
    with _readable_errors():
        _change(directory, lambda users: bus_users.with_newest_only(users, _kind(service), name))
    terminal.note(f"kept   the newest key of {_kind(service)} {name} alone")
    _tell(pid_file, directory)


@app.command()
def revoke(name: Name, directory: Directory = DIRECTORY, service: Service = False, pid_file: Pid = None) -> None:
    """Cut a node off the bus: none of its keys is valid any more. Its runs end by themselves, as in a partition.

    fairlead credentials revoke n7
    """
    with _readable_errors():
        _change(directory, lambda users: bus_users.without(users, _kind(service), name))
    terminal.note(f"gone   {_kind(service)} {name}")
    _tell(pid_file, directory)


@app.command("list")
def list_users(directory: Directory = DIRECTORY, output: Output = Format.table) -> None:
    """Show who may speak.

    fairlead credentials list
    """
    with _readable_errors():
        users = bus_users.load(directory)
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(users, output))
    elif output is Format.names:
        terminal.write("".join(f"{user.kind}/{user.name}\n" for user in users))
    else:
        heads = [TableColumn(head, lambda row: row) for head in ("KIND", "NAME", "KEYS")]
        terminal.write(terminal.table([[user.kind, user.name, " ".join(user.keys)] for user in users], heads))


def _kind(service: bool) -> UserKind:
    return "service" if service else "node"


def _make(directory: Path, kind: UserKind, name: str, path: Path) -> None:
    """The seed first: a key that is on the list and lost would have to be retired."""
    if path.exists():
        raise InputRefused(f"{path} exists already", hint="another --out, or move it away first")
    pair = nkey.generate()
    path.parent.mkdir(parents=True, exist_ok=True)
    nkey.write_file(path, pair, f"{kind} {name}")
    try:
        _change(directory, lambda users: bus_users.with_key(users, kind, name, pair.public))
    except BaseException:
        path.unlink()
        raise
    terminal.note(f"made   {path}, the key {pair.public} of {kind} {name}")


def _change(directory: Path, how: Callable[[list[User]], list[User]]) -> None:
    bus_users.change(directory, how)


@contextmanager
def _readable_errors() -> Generator[None]:
    """Errors of the list and of keys in the command's own words."""
    try:
        yield
    except (BadUser, nkey.BadKey) as error:
        if str(error).startswith("there is no"):
            raise NotFound(str(error), hint="fairlead credentials list") from error
        raise InputRefused(str(error)) from error
    except OSError as error:
        raise FairleadError(f"{error.filename}: {error.strerror}", hint="another --dir, or run it as root") from error


def _tell(pid_file: Path | None, directory: Path) -> None:
    """Signal the server to read its users again, or print the command for it without a pid file."""
    if pid_file is None:
        terminal.note(
            f"next   nats-server --signal reload=PID_FILE, so that the server reads {directory / bus_users.ACCOUNTS} again"
        )
        return
    try:
        os.kill(int(pid_file.read_text()), signal.SIGHUP)
    except (OSError, ValueError) as error:
        raise FairleadError(
            f"the server was not signalled: {pid_file}: {error}", hint="nats-server --signal reload=PID_FILE"
        ) from error
    terminal.note("signalled the server to reload its users")
