"""`people`, `service-accounts` and `tokens`: who there is, and by what they sign in."""

import getpass
import sys
from typing import Annotated, Any

import typer

from fairlead.client import Client
from fairlead.commands.options import Output, carry_out, connect
from fairlead.render import access_tables, terminal
from fairlead.render.terminal import Format
from fairlead_schemas.http.accounts import Person

people = typer.Typer(no_args_is_help=True, help="List people, add local users, suspend or forget people.")
service_accounts = typer.Typer(no_args_is_help=True, help="List or add service accounts: programs that have roles.")
tokens = typer.Typer(no_args_is_help=True, help="List, make or revoke tokens.")

Login = Annotated[str, typer.Argument(metavar="LOGIN", help="1 to 63 of a-z 0-9 _ -.", show_default=False)]
Who = Annotated[list[str], typer.Argument(metavar="WHO…", help="Login names or ids.", show_default=False)]
FullName = Annotated[str, typer.Option("--name", help="Name for people to read.", show_default=False)]


@people.command("list")
def list_people(output: Output = Format.table) -> None:
    """List people.

    fairlead people list
    """
    with connect() as client:
        page = client.people()
    terminal.write(terminal.page(page, access_tables.PEOPLE, lambda p: f"person/{p.login or p.id}", output))


@people.command("add")
def add_person(
    login: Login,
    name: FullName = "",
    email: Annotated[str, typer.Option("--email", show_default=False)] = "",
    password: Annotated[
        bool, typer.Option("--password", help="Give them a password: it is asked for, or the first line of stdin.")
    ] = False,
    output: Output = Format.table,
) -> None:
    """Add a local user, who has no role yet.

    fairlead people add ann --name "Ann Lee" --password

    fairlead access grant ann member queue:research/vision
    """
    secret = _password(f"Password for {login}: ") if password else ""
    with connect() as client:
        person = client.add_person(login, name=name, email=email, password=secret)
    _write(person, "person", f"{login} added as {person.id}; no role yet: fairlead access grant {login} …", output)


def _password(prompt: str) -> str:
    return getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")


@people.command()
def suspend(who: Who, output: Output = Format.table) -> None:
    """Take all rights from people at once, and end their sign-ins and tokens. Their grants are kept for their return.

    fairlead people suspend ann
    """
    _each(who, "suspend_person", "suspended", output)


@people.command()
def admit(who: Who, output: Output = Format.table) -> None:
    """Let suspended people in again.

    fairlead people admit ann
    """
    _each(who, "admit_person", "admitted", output)


@people.command()
def forget(
    who: Who,
    yes: Annotated[bool, typer.Option("--yes", help="Without a question: it cannot be undone.")] = False,
    output: Output = Format.table,
) -> None:
    """Suspend people and erase their names, addresses and identities for good. The log keeps their opaque ids.

    fairlead people forget ann --yes
    """
    if not yes:
        typer.confirm(f"Erase {', '.join(who)} for good?", abort=True, err=True)
    _each(who, "forget_person", "forgotten", output)


def _each(who: list[str], method: str, done: str, output: Format) -> None:
    def send(client: Client, name: str) -> dict[str, Any]:
        return terminal.plain(getattr(client, method)(name))

    with connect() as client:
        failures = list(carry_out(client, who, send, kind="person", done=done, output=output).values())
    for failure in failures[1:]:
        terminal.note(f"error: {failure}")
    if failures:
        raise failures[0]


@service_accounts.command("list")
def list_service_accounts(output: Output = Format.table) -> None:
    """List service accounts.

    fairlead service-accounts list
    """
    with connect() as client:
        page = client.service_accounts()
    terminal.write(
        terminal.page(
            page,
            access_tables.PEOPLE,
            lambda p: f"service-account/{p.login or p.id}",
            output,
            empty="no service accounts",
        )
    )


@service_accounts.command("add")
def add_service_account(login: Login, name: FullName = "", output: Output = Format.table) -> None:
    """Add a service account, which has no role and no token yet.

    fairlead service-accounts add ci

    fairlead access grant ci member queue:ci

    fairlead tokens create nightly --for ci
    """
    with connect() as client:
        account = client.add_service_account(login, name=name)
    _write(account, "service-account", f"{login} added as {account.id}; no role and no token yet", output)


def _write(person: Person, kind: str, line: str, output: Format) -> None:
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(person, output))
    else:
        terminal.write(f"{kind}/{person.login}\n" if output is Format.names else f"{line}\n")


@tokens.command("list")
def list_tokens(
    of: Annotated[
        str, typer.Option("--of", metavar="WHO", help="Of this person or service account.", show_default=False)
    ] = "",
    output: Output = Format.table,
) -> None:
    """List tokens in force: yours, or those of another.

    fairlead tokens list

    fairlead tokens list --of ci
    """
    with connect() as client:
        page = client.tokens(of=of)
    terminal.write(terminal.page(page, access_tables.TOKENS, lambda t: f"token/{t.id}", output, empty="no tokens"))


@tokens.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name for people to read.", show_default=False)],
    for_: Annotated[
        str, typer.Option("--for", metavar="ACCOUNT", help="For this service account.", show_default=False)
    ] = "",
    verb: Annotated[
        list[str] | None,
        typer.Option("--verb", help="It may do this at most; several times for several.", show_default=False),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="It acts here only; several times for several.", show_default=False),
    ] = None,
    expires_in: Annotated[
        str, typer.Option("--expires-in", help='Such as "90d".  [default: 30d]', show_default=False)
    ] = "",
    output: Output = Format.table,
) -> None:
    """Make a token and print its text, once. It never gives more than its owner has; a token makes no token.

    fairlead tokens create laptop --verb job:read --verb job:submit --scope queue:research/vision

    fairlead tokens create nightly --for ci --expires-in 7d

    export FAIRLEAD_TOKEN=$(fairlead tokens create script -o name)
    """
    from fairlead.commands.access import scope_of

    with connect() as client:
        made = client.make_token(
            name, for_=for_, verbs=verb or [], scopes=[scope_of(each) for each in scope or []], expires_in=expires_in
        )
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(made, output))
        return
    terminal.write(f"{made.token}\n")
    if output is not Format.names:
        terminal.note(f"token {made.id}, which expires at {made.expires_at}; its text is not shown again")


@tokens.command("revoke")
def revoke_tokens(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", show_default=False)], output: Output = Format.table
) -> None:
    """Revoke tokens: from now on they are refused.

    fairlead tokens revoke t4k2…
    """
    with connect() as client:
        failures = list(
            carry_out(client, ids, Client.revoke_token, kind="token", done="revoked", output=output).values()
        )
    for failure in failures[1:]:
        terminal.note(f"error: {failure}")
    if failures:
        raise failures[0]
