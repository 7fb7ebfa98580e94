"""Commands `extend`, `idle`, `idle policies`, `idle apply`, `idle report`: idle jobs, their further treatment, and the
policies behind it.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.commands.jobs import each
from fairlead.commands.options import Ids, Output, connect
from fairlead.errors import InputRefused
from fairlead.jobfile.file_lines import Origin, refusal, with_origin
from fairlead.jobfile.reader import read_script
from fairlead.jobfile.yaml_text import read_yaml
from fairlead.render import columns, terminal
from fairlead.render.terminal import Format
from fairlead_schemas.http.api import Page, SubmitResult
from fairlead_schemas.policies.idle_file import InvalidPolicies, read_policy_file
from fairlead_schemas.units.quantities import parse_duration

FILE_BYTES_MAX = 64 * 1024

app = typer.Typer(invoke_without_command=True)


def extend(
    ids: Ids,
    for_: Annotated[
        str,
        typer.Option(
            "--for", help='How long, such as "2h"; without it as long as the policy allows.', show_default=False
        ),
    ] = "",
    output: Output = Format.table,
) -> None:
    """Keep idle jobs: no idle policy acts on them for a while.

    fairlead extend 812

    fairlead extend 812 --for 2h
    """
    if for_:
        parse_duration(for_)
    each(ids, lambda client, job: client.extend(job, for_), f"extended{f' for {for_}' if for_ else ''}", output)


@app.callback()
def idle(ctx: typer.Context, output: Output = Format.table) -> None:
    """List jobs that lie idle: since when, what follows and when, and the evidence.

    fairlead idle

    fairlead idle -o json     (policies and the savings of dry runs, too)
    """
    if ctx.invoked_subcommand is not None:
        return
    with connect() as client:
        found = client.idle()
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(found, output))
        return
    page = Page(items=found.items, next=None, sequence=found.sequence)
    terminal.write(terminal.page(page, columns.RUNS, lambda run: f"job/{run.job}", output, empty="no idle runs"))


@app.command()
def policies(output: Output = Format.table) -> None:
    """List the idle policies of all scopes.

    fairlead idle policies

    fairlead idle policies -o yaml > idle.yaml     (a policy file; applying it changes nothing)
    """
    with connect() as client:
        found = client.idle()
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document({"scopes": {scope.scope: scope.policies for scope in found.policies}}, output))
        return
    rows = [columns.PolicyRow(scope, policy) for scope in found.policies for policy in scope.policies]
    page = Page(items=rows, next=None, sequence=found.sequence)
    empty = "no policies: nothing ever counts as idle; fairlead idle apply -f FILE sets some"
    terminal.write(terminal.page(page, columns.POLICIES, lambda row: f"scope/{row.scope}", output, empty=empty))


@app.command()
def apply(
    file: Annotated[
        Path, typer.Option("--file", "-f", help='Policy file: YAML or JSON; "-" is stdin.', show_default=False)
    ],
    output: Output = Format.table,
) -> None:
    """Set the idle policies of the scopes that a file names, all or none; others stay as they are.

    fairlead idle apply -f idle.yaml

    An example of a file:

    {scopes: {global: [{rule: utilization, below: {gpu: 5%, network: 10KiB/s}, after: 20m, notice: 5m, action: stop,
    mode: on_demand, extend: 2h, extensions: 2}]}}

    Scopes are global, project:NAME and user:NAME. A scope gets exactly the policies listed for it; an empty list removes
    its policies. Rules: utilization (below its thresholds), interaction (no input in its terminals), lifetime. Actions:
    note, warn, stop, requeue, shrink. Modes: dry_run (the default: see fairlead idle report), on_demand (only while a job
    waits for those GPUs), always.
    """
    scopes = read(read_script(file, FILE_BYTES_MAX), file.name)
    with connect() as client:
        answer = client.apply_idle_policies(scopes)
    if isinstance(answer, SubmitResult):
        terminal.note(f"kept as command {answer.command}: telemetry does not answer now and decides later")
    else:
        for scope in answer.items:
            count = len(scope.policies)
            terminal.note(
                f"{scope.scope}: {f'{count} polic{"y" if count == 1 else "ies"}' if count else 'no policies any more'}"
            )
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(answer, output))


def read(text: str, name: str) -> dict[str, list[Any]]:
    """{scope: its policies as they stand} of a policy file. Raises Refused with every mistake, before anything is sent."""
    documents = read_yaml(text, name)
    if len(documents) != 1:
        raise InputRefused(f"{name}: expected one policy file, found {len(documents)} documents")
    values = documents[0]
    try:
        read_policy_file(values)
    except InvalidPolicies as error:
        found = with_origin(values, Origin(name, text)) if isinstance(values, dict) else values
        raise refusal("the policy file is not valid; nothing was sent", [(found, error.errors)]) from error
    return {scope: words or [] for scope, words in values["scopes"].items()}


@app.command()
def report(output: Output = Format.table) -> None:
    """Say what policies on trial would have saved: runs that they would have reclaimed, GPU-hours that these held afterwards, and
    how many came alive again, whose work would have been lost.

    fairlead idle report
    """
    with connect() as client:
        found = client.idle()
    page = Page(items=found.savings, next=None, sequence=found.sequence)
    empty = "no policy on trial has found anything yet"
    terminal.write(
        terminal.page(page, columns.SAVINGS, lambda saving: f"{saving.scope}/{saving.rule}", output, empty=empty)
    )
