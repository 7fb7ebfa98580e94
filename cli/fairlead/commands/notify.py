"""`notify`: rules by which events are sent to a webhook or by mail."""

from typing import Annotated

import typer

from fairlead.client import Client
from fairlead.commands.access import scope_of
from fairlead.commands.options import Output, carry_out, connect
from fairlead.errors import FairleadError, InputRefused
from fairlead.render import access_tables, terminal
from fairlead.render.terminal import Format
from fairlead_schemas.policies.notifications import KINDS, MINE

app = typer.Typer(invoke_without_command=True)

_DEFAULT_KINDS = "end,preemption,idle"
Ids = Annotated[list[str], typer.Argument(metavar="RULE…", show_default=False)]


@app.callback()
def listed(ctx: typer.Context) -> None:
    """Send events of your jobs, queues and nodes to a webhook or by mail, by rules of your own.

    fairlead notify     (your rules)
    """
    if ctx.invoked_subcommand is None:
        list_rules()


@app.command()
def add(
    webhook: Annotated[
        str, typer.Option("--webhook", metavar="URL", help="Send to this URL.", show_default=False)
    ] = "",
    mail: Annotated[bool, typer.Option("--mail", help="Send mail to your own address.")] = False,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="ADDRESS", help="Mail: where there is no sign-on, to this one.", show_default=False
        ),
    ] = "",
    on: Annotated[str, typer.Option("--on", metavar="KINDS", help=f"Some of {', '.join(KINDS)}.")] = _DEFAULT_KINDS,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="queue:research/vision (or research/vision), project:llm, pool:a100, job:812 (or 812), cluster; several times for several.  [default: your own jobs, and every queue and node that you may see]",
            show_default=False,
        ),
    ] = None,
    elements: Annotated[
        bool, typer.Option("--elements", help="Elements of arrays, too, not only whole arrays.")
    ] = False,
    name: Annotated[str, typer.Option("--name", help="For you to tell rules apart.", show_default=False)] = "",
    output: Output = Format.table,
) -> None:
    """Make a rule. The key of a webhook's signatures is printed once.

    fairlead notify add --mail

    fairlead notify add --webhook https://hooks.example.org/fairlead --on failure,idle

    fairlead notify add --webhook https://hooks.example.org/team --on end,budget --scope research/vision
    """
    kinds = [word.strip() for word in on.split(",") if word.strip()]
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise InputRefused(f'--on: expected some of {", ".join(KINDS)}, found "{unknown[0]}"')
    if bool(webhook) == (mail or bool(to)):
        raise InputRefused("expected either --webhook URL or --mail")
    scopes = [MINE if word == MINE else scope_of(word) for word in scope or [MINE]]
    with connect() as client:
        made = client.add_notification(
            kinds, webhook=webhook, mail=to or mail, name=name, scopes=scopes, elements=elements
        )
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(made, output))
        return
    terminal.write(f"{made.id}\n" if output is not Format.names else f"notification/{made.id}\n")
    if made.secret:
        terminal.note(f"key of its signatures, which is not shown again: {made.secret}")
    terminal.note(f"to try it: fairlead notify test {made.id}")


@app.command("list")
def list_rules(
    of: Annotated[str, typer.Option("--of", metavar="WHO", help="Of this person.", show_default=False)] = "",
    output: Output = Format.table,
) -> None:
    """List your rules, with the state of each destination and why it fails.

    fairlead notify list
    """
    with connect() as client:
        page = client.notifications(of=of)
    empty = "no rules; fairlead notify add makes one"
    terminal.write(
        terminal.page(page, access_tables.NOTIFICATIONS, lambda rule: f"notification/{rule.id}", output, empty=empty)
    )


@app.command()
def remove(ids: Ids, output: Output = Format.table) -> None:
    """Remove rules; nothing more is sent by them.

    fairlead notify remove n4k2…
    """
    with connect() as client:
        removed = carry_out(client, ids, Client.remove_notification, kind="notification", done="removed", output=output)
    failures = list(removed.values())
    for failure in failures[1:]:
        terminal.note(f"error: {failure}")
    if failures:
        raise failures[0]


@app.command("test")
def send_test(
    rule: Annotated[str, typer.Argument(metavar="RULE", show_default=False)], output: Output = Format.table
) -> None:
    """Send a test message, and say if it arrived. A destination that is paused goes on if it did.

    fairlead notify test n4k2…
    """
    with connect() as client:
        result = client.test_notification(rule)
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(result, output))
    elif result.sent:
        terminal.write(f"{rule} delivered\n" if output is not Format.names else f"notification/{rule}\n")
    if not result.sent:
        raise FairleadError(result.error)
