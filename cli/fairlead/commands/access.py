"""`access`: who is what where, and why somebody may do something or not."""

from collections.abc import Callable
from typing import Annotated

import typer

from fairlead.client import Client
from fairlead.commands.options import Output, connect, moment_of
from fairlead.render import access_tables, terminal
from fairlead.render.terminal import Format
from fairlead_schemas.http.accounts import AccessGrant
from fairlead_schemas.units.ids import is_job_id

app = typer.Typer(invoke_without_command=True)

Subject = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="A login name, an id, or group:NAME.", show_default=False)
]
Role = Annotated[
    str,
    typer.Argument(metavar="ROLE", help="viewer, member, operator, queue-admin, auditor or admin.", show_default=False),
]
Scope = Annotated[
    str,
    typer.Argument(
        metavar="SCOPE",
        help="queue:research/vision (or research/vision), pool:a100, project:llm, job:812 (or 812), volume:data, or cluster.",
        show_default=False,
    ),
]


def scope_of(word: str) -> str:
    """Return a scope as the API takes it, of a word such as "research/vision", "812" or "pool:a100"."""
    if word == "cluster" or ":" in word:
        return word
    return f"job:{word}" if is_job_id(word) else f"queue:{word}"


@app.callback()
def listed(ctx: typer.Context) -> None:
    """Give and take roles, and say why somebody may do something: a subject is a role in a scope.

    fairlead access     (who is what where)
    """
    if ctx.invoked_subcommand is None:
        list_grants()


@app.command()
def grant(subject: Subject, role: Role, scope: Scope, output: Output = Format.table) -> None:
    """Make a subject a role in a scope, which includes everything below it.

    fairlead access grant ann member queue:research/vision

    fairlead access grant group:vision viewer research

    fairlead access grant bob member job:812     (bob may enter this session)
    """
    _change(lambda client: client.grant(subject, role, scope_of(scope)), "is", output)


@app.command()
def revoke(subject: Subject, role: Role, scope: Scope, output: Output = Format.table) -> None:
    """Take a role back that was granted by hand. What a file or a directory states stays.

    fairlead access revoke ann member queue:research/vision
    """
    _change(lambda client: client.revoke(subject, role, scope_of(scope)), "is no longer", output)


def _change(send: Callable[[Client], AccessGrant], verb: str, output: Format) -> None:
    with connect() as client:
        answer = send(client)
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(answer, output))
        return
    if verb != "is" and answer.sources:
        verb = f"still is, by {', '.join(answer.sources)},"
    terminal.write(f"{answer.subject_name} {verb} {answer.role} in {answer.scope}\n")


@app.command("list")
def list_grants(
    subject: Annotated[
        str, typer.Option("--subject", help="Only of this subject: a login name, an id, or group:NAME.")
    ] = "",
    scope: Annotated[str, typer.Option("--scope", help="Only in this scope.")] = "",
    output: Output = Format.table,
) -> None:
    """List who is what where: your own roles, and those in scopes where you may grant roles.

    fairlead access list

    fairlead access list --scope queue:research/vision -o wide     (with what states each)
    """
    with connect() as client:
        page = client.grants(subject=subject, scope=scope_of(scope) if scope else "")
    terminal.write(terminal.page(page, access_tables.GRANTS, _grant_name, output, empty="no such grants"))


def _grant_name(grant: AccessGrant) -> str:
    return f"{grant.subject_name} {grant.role} {grant.scope}"


@app.command()
def why(
    subject: Subject,
    verb: Annotated[
        str, typer.Argument(metavar="VERB", help="job:submit, job:cancel, queue:set, …", show_default=False)
    ],
    on: Scope,
    at: Annotated[str, typer.Option("--at", help="At this log sequence or RFC 3339 time instead of now.")] = "",
    output: Output = Format.table,
) -> None:
    """Say why a subject may do something, or what is missing and who could grant it. "me" is yourself.

    fairlead access why ann job:submit research/vision

    fairlead access why ann job:cancel research/vision --at 81234

    fairlead access why me job:cancel 812
    """
    with connect() as client:
        answer = client.access_why("" if subject == "me" else subject, verb, scope_of(on), at=moment_of(at))
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(answer, output))
    elif output is Format.names:
        terminal.write("allowed\n" if answer.allowed else "denied\n")
    else:
        terminal.write(terminal.fields(access_tables.why_facts(answer)))


def audit_access(
    about: Annotated[
        str, typer.Argument(metavar="[WHO]", help="Of whom; others than yourself need audit:read.", show_default=False)
    ] = "me",
    start: Annotated[str, typer.Option("--from", help="From this time (RFC 3339).", show_default=False)] = "",
    end: Annotated[str, typer.Option("--to", help="To this time (RFC 3339).", show_default=False)] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="At most this many (0: a whole page).")] = 0,
    next: Annotated[
        str, typer.Option("--next", help="Earlier ones, by what the page before names.", show_default=False)
    ] = "",
    output: Output = Format.table,
) -> None:
    """List who looked into what is yours, and your sign-ins and refusals, the newest first.

    fairlead audit access

    fairlead audit access ann --from 2026-11-01T00:00:00Z
    """
    with connect() as client:
        record = client.record_of_access(about, start=start, end=end, limit=limit, next=next)
    terminal.write(access_tables.record(record, output))
    if record.next:
        terminal.note(f"there are earlier ones: --next {record.next}")
    if record.broken:
        terminal.note(f"the record was changed and is shown as far as it is whole: {record.broken}")
