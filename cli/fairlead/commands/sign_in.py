"""`login`, `logout`, `whoami` and `context`: clusters by name, and the sign-in at each."""

import getpass
import os
import re
import sys
from typing import Annotated
from urllib.parse import urlsplit

import typer

from fairlead.client import contexts, sign_in
from fairlead.client.settings import is_loopback, settings_of
from fairlead.commands.options import Output, connect
from fairlead.errors import FairleadError, InputRefused, NotFound
from fairlead.render import access_tables, terminal
from fairlead.render.terminal import Format, TableColumn

context = typer.Typer(no_args_is_help=True, help="List, choose, add or remove clusters by name.")

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
_CONTEXTS = (
    TableColumn("CURRENT", lambda row: "*" if row["current"] else ""),
    TableColumn("NAME", lambda row: row["name"]),
    TableColumn("URL", lambda row: row["url"]),
    TableColumn("SIGNED-IN", lambda row: "yes" if row["signed_in"] else "no"),
)


def login(
    url: Annotated[
        str, typer.Argument(metavar="[URL]", help="The gateway; without one, that of the context.", show_default=False)
    ] = "",
    local: Annotated[
        str,
        typer.Option(
            "--local", metavar="NAME", help="As this local user; the password is asked for.", show_default=False
        ),
    ] = "",
    device: Annotated[
        bool, typer.Option("--device", help="With a browser on another machine, by a code that you type there.")
    ] = False,
) -> None:
    """Sign in at a cluster, and make it the current context.

    fairlead login https://fairlead.example.org

    fairlead login --device

    fairlead login --local ada     (from a terminal the password is asked for, otherwise it is the first line of stdin)

    The context is that of --context, else the one with this address, else a new one with the host's name. Tokens are kept in a file of
    mode 0600 in ~/.config/fairlead/credentials, and renewed until you log out, or for 30 days.
    """
    known = contexts.load()
    name = os.environ.get("FAIRLEAD_CONTEXT", "")
    address = url.rstrip("/") or settings_of().url
    name = name or known.name_of(address) or _name_for(address)
    known = known.adding(name, address)
    if local:
        signed_in = _local(address, local)
    else:
        from fairlead.client import browser_sign_in

        how = browser_sign_in.by_device if device else browser_sign_in.by_browser
        signed_in = how(address, terminal.note)
    sign_in.store(contexts.sign_in_path(name), signed_in)
    contexts.save(contexts.Contexts(name, known.contexts))
    terminal.note(f"signed in at {address}; this is the context {name}")


def _name_for(address: str) -> str:
    host = urlsplit(address.partition(",")[0]).hostname or ""
    return re.sub(r"[^a-z0-9_-]+", "-", host.lower()).strip("-_")[:63] or "default"


def _local(address: str, login: str) -> contexts.StoredTokens:
    """Sign in with a password. Raises InputRefused where the network would carry it in the clear, Denied for a wrong one."""
    first = address.partition(",")[0]
    if not first.startswith("https:") and not is_loopback(first):
        raise InputRefused(f"{first} is not encrypted: the network would see the password", hint="use an https address")
    password = getpass.getpass(f"Password of {login}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    return sign_in.by_password(address, login, password)


def logout() -> None:
    """End the sign-in at the current context, or at that of --context, and forget its tokens.

    fairlead logout
    """
    known = contexts.load()
    name = os.environ.get("FAIRLEAD_CONTEXT") or known.current
    path = contexts.sign_in_path(name)
    if not name or contexts.read_sign_in(path) is None:
        raise NotFound("you are not signed in", hint="fairlead login")
    from fairlead.client import Client

    try:
        with Client(context=name) as client:
            client.sign_out()
    except FairleadError as error:  # the tokens are forgotten in any case
        terminal.note(f"the gateway has not ended the sign-in: {error}")
    path.unlink(missing_ok=True)
    terminal.note(f"signed out of the context {name}")


def whoami(output: Output = Format.table) -> None:
    """Say who you are for the cluster, your groups, and your roles.

    fairlead whoami
    """
    with connect() as client:
        me = client.whoami()
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(me, output))
    elif output is Format.names:
        terminal.write(f"{me.login or me.principal}\n")
    else:
        terminal.write(terminal.fields(access_tables.whoami_facts(me)))


@context.command("list")
def list_contexts(output: Output = Format.table) -> None:
    """List the clusters that have a name.

    fairlead context list
    """
    known = contexts.load()
    rows = [
        {
            "name": name,
            "url": each.url,
            "current": name == known.current,
            "signed_in": contexts.sign_in_path(name).exists(),
        }
        for name, each in known.contexts.items()
    ]
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(rows, output))
    elif output is Format.names:
        terminal.write("".join(f"context/{row['name']}\n" for row in rows))
    elif rows:
        shown = terminal.shown(_CONTEXTS, output)
        terminal.write(terminal.table([[column.text(row) for column in shown] for row in rows], shown))
    else:
        terminal.write("no contexts; try: fairlead login https://…\n")


@context.command()
def use(name: Name) -> None:
    """Make a context the current one: commands go there where neither --url nor --context names another.

    fairlead context use prod
    """
    known = contexts.load()
    url = known.named(name).url
    contexts.save(contexts.Contexts(name, known.contexts))
    terminal.note(f"the current context is {name}: {url}")


@context.command()
def add(name: Name, url: Annotated[str, typer.Argument(metavar="URL", show_default=False)]) -> None:
    """Give a cluster a name. Several gateways of one cluster are separated by commas.

    fairlead context add prod https://fairlead.example.org
    """
    from fairlead.client.answers import addresses_of

    known = contexts.load()
    if name in known.contexts and known.contexts[name].url != url:
        contexts.sign_in_path(name).unlink(missing_ok=True)  # it is not for the new address
    contexts.save(known.adding(name, ",".join(addresses_of(url))))
    terminal.note(f"context {name}: {url}")


@context.command()
def remove(name: Name) -> None:
    """Forget a context, and its sign-in on this machine; `fairlead logout` also ends it at the gateway.

    fairlead context remove old
    """
    contexts.save(contexts.load().without(name))
    contexts.sign_in_path(name).unlink(missing_ok=True)
    terminal.note(f"removed the context {name}")
