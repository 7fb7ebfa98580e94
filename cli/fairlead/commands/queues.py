"""`queues` with its verbs, and `move`: who may have how much, and which job is whose."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.client import Client
from fairlead.commands.jobs import each
from fairlead.commands.options import (
    Ids,
    IfMatch,
    ListFormat,
    ListOutput,
    Output,
    carry_out,
    complete_queue,
    connect,
)
from fairlead.errors import InputRefused, NotFound, Unreachable
from fairlead.jobfile.file_lines import Origin, refusal, with_origin
from fairlead.jobfile.reader import read_script
from fairlead.jobfile.yaml_text import read_yaml
from fairlead.render import queue_tables, terminal
from fairlead.render.terminal import Format
from fairlead_schemas.http.api import Page, Queue, QueueFileResult
from fairlead_schemas.queuefile.parse import InvalidQueues, QueueFile, read_queue_file, words_file

FILE_BYTES_MAX = 512 * 1024
#: A terminal at least so wide gets a bar for each queue, of so many signs.
WIDE_COLUMNS = 110
BAR_SIGNS = 30

QueuePath = Annotated[
    str,
    typer.Argument(
        metavar="QUEUE", help="Path, such as research/vision.", autocompletion=complete_queue, show_default=False
    ),
]

app = typer.Typer(invoke_without_command=True)


@app.callback()
def queues(ctx: typer.Context, output: ListOutput = ListFormat.table) -> None:
    """List queues as a tree, or change them.

    fairlead queues     (GPUs guaranteed, used, at most and borrowed; jobs waiting and running; each with those below it)

    fairlead queues -o wide     (fair share, past use, amounts kept for it, budgets, users, CPUs, memory, models)

    fairlead queues -o csv     (all of it, for a spreadsheet)

    fairlead queues -o yaml > queues.yaml     (a queue file; applying it changes nothing)
    """
    if ctx.invoked_subcommand is not None:
        return
    with connect() as client:
        page = client.queues(shares=output is not ListFormat.yaml)
        pools = {pool.name: pool.settings for pool in client.pools().items} if output is ListFormat.yaml else {}
    if output is ListFormat.yaml:
        file = words_file(pools, {queue.path: queue.settings for queue in page.items})
        terminal.write(terminal.document(file, Format.yaml))
        terminal.note(
            f"as of sequence {page.sequence}; apply --if-match {page.sequence} refuses it if others change these"
        )
    elif output is ListFormat.csv:
        items = queue_tables.ordered(page.items)
        terminal.write(terminal.comma_separated(items, queue_tables.queue_columns(items)))
    else:
        _write(page, Format(output.value))
    if page.items and all(queue.share is None for queue in page.items) and output in (ListFormat.wide, ListFormat.csv):
        terminal.note("fair share, past use, kept amounts and budgets are not known: the explainer does not answer")


@app.command()
def apply(
    file: Annotated[
        Path, typer.Option("--file", "-f", help='Queue file: YAML or JSON; "-" is stdin.', show_default=False)
    ],
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove queues and pools that the file does not name; they must be empty.")
    ] = False,
    reclaim: Annotated[
        bool,
        typer.Option(
            "--reclaim",
            help="Ask runs to yield where a queue now holds more than its maximum; otherwise they continue.",
        ),
    ] = False,
    if_match: IfMatch = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print what would change, and whom it would concern at once; nothing is changed."
        ),
    ] = False,
    output: Output = Format.table,
) -> None:
    """Create queues and pools or replace their settings: all settings of a file, or none.

    fairlead queues apply -f queues.yaml --dry-run

    fairlead queues apply -f queues.yaml

    Amounts are GPUs in whole numbers, CPUs and memory in Kubernetes' notation (cpu: "256", memory: 2Ti), durations such as
    5m or 7d. An example of a file:

    {queues: {research: {guaranteed: {nvidia.com/gpu: 16}, queues: {vision: {maximum: {nvidia.com/gpu: 8}}}}}}

    With --if-match N (the sequence that `fairlead queues -o yaml` prints) two people cannot overwrite each other's change.

    A named queue gets exactly the settings of the file: omitted settings get their defaults. Other queues stay as they are.
    """
    document = read(read_script(file, FILE_BYTES_MAX), file.name)
    wanted = check(document)
    with connect() as client:
        if dry_run:
            _preview(client, wanted, document, prune=prune, reclaim=reclaim, output=output)
            return
        answer = client.apply_queues(document, prune=prune, reclaim=reclaim, unchanged_since=if_match)
    if not isinstance(answer, QueueFileResult):
        terminal.note(f"kept as command {answer.command}: the queue service does not answer now and decides later")
        return
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(answer, output))
        return
    _write(Page(items=answer.items, next=None, sequence=answer.sequence), output)
    terminal.note(f"{answer.configured} configured, {answer.removed} removed, {answer.unchanged} as before")


@app.command()
def delete(
    path: QueuePath,
    move_to: Annotated[
        str,
        typer.Option(
            "--move-to", help="Where its waiting jobs go; without it, it must have none.", autocompletion=complete_queue
        ),
    ] = "",
    output: Output = Format.table,
) -> None:
    """Delete a queue.

    fairlead queues delete research/old --move-to research/vision
    """
    with connect() as client:
        answer = client.delete_queue(path, move_to=move_to)
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(answer, output))
    else:
        terminal.write(f"queue/{path}\n" if output is Format.names else f"{path} deleted\n")


QueuePaths = Annotated[
    list[str],
    typer.Argument(
        metavar="QUEUE…", help="Paths, such as research/vision.", autocompletion=complete_queue, show_default=False
    ),
]
ClosingReason = Annotated[str, typer.Option("--reason", help="Shown to those whose jobs wait or are refused.")]


@app.command()
def hold(paths: QueuePaths, reason: ClosingReason = "", output: Output = Format.table) -> None:
    """Start nothing new of queues and of those below them; what runs goes on, and jobs may still be submitted.

    fairlead queues hold research --reason "storage moves until noon"

    The waiting jobs say so (fairlead why). An empty queue: hold it, drain it, and wait for what runs.
    """
    _close(paths, lambda client, path: client.hold_queue(path, reason), "held", output)


@app.command()
def drain(paths: QueuePaths, reason: ClosingReason = "", output: Output = Format.table) -> None:
    """Accept no further jobs in queues and in those below them; what waits and runs in them goes on.

    fairlead queues drain research/old --reason "use research/new"
    """
    _close(paths, lambda client, path: client.drain_queue(path, reason), "drained", output)


@app.command()
def release(paths: QueuePaths, output: Output = Format.table) -> None:
    """End the hold and the drain of queues.

    fairlead queues release research
    """
    _close(paths, Client.release_queue, "released", output)


def _close(paths: list[str], verb: Callable[[Client, str], dict[str, Any]], done: str, output: Format) -> None:
    """Carry a verb out on every queue, even when one refuses; the first refusal decides the exit code."""
    with connect() as client:
        failures = list(carry_out(client, paths, verb, kind="queue", done=done, output=output).values())
    for failure in failures[1:]:
        terminal.note(f"error: {failure}")
    if failures:
        raise failures[0]


def move(
    ids: Ids,
    queue: Annotated[
        str,
        typer.Option(
            "--queue",
            "-q",
            help="Where to, such as research/vision.",
            autocompletion=complete_queue,
            show_default=False,
        ),
    ],
    output: Output = Format.table,
) -> None:
    """Put waiting jobs into another queue.

    fairlead move 812 --queue research/vision
    """
    each(ids, lambda client, job_id: client.move(job_id, queue), f"moved to {queue}", output)


def read(text: str, name: str) -> Any:
    """The plain values of a queue file. Raises Refused."""
    if len(text.encode()) > FILE_BYTES_MAX:
        raise InputRefused(
            f"{name}: expected at most {FILE_BYTES_MAX} bytes", hint="a file may name only some of the queues"
        )
    documents = read_yaml(text, name)
    if not documents:
        raise InputRefused(f"{name}: expected a queue file, found nothing")
    if len(documents) > 1:
        raise InputRefused(f"{name}: expected one queue file, found {len(documents)} documents")
    found = documents[0]
    return with_origin(found, Origin(name, text)) if isinstance(found, dict) else found


def check(values: Any) -> QueueFile:
    """The file as the gateway would read it. Raises Refused with every mistake."""
    try:
        return read_queue_file(values)
    except InvalidQueues as error:
        raise refusal("the queue file is not valid; nothing was sent", [(values, error.errors)]) from error


def _preview(
    client: Client, wanted: QueueFile, document: dict[str, Any], *, prune: bool, reclaim: bool, output: Format
) -> None:
    pools = {pool.name: pool.settings for pool in client.pools().items}
    there = {queue.path: queue.settings for queue in client.queues().items}
    found, unchanged = queue_tables.changes(wanted, pools, there, prune=prune)
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document([change._asdict() for change in found], output))
    elif output is Format.names:
        terminal.write("".join(f"{change.kind}/{change.name}\n" for change in found))
    else:
        terminal.write(queue_tables.change_lines(found, unchanged))
    try:
        tried = client.preview_queues(document, prune=prune, reclaim=True)
    except (NotFound, Unreachable):  # an older gateway, or no explainer
        terminal.note("nothing was changed; whether the queue service would refuse it is known when it is applied")
        return
    for line in queue_tables.concerned_lines(tried, reclaim=reclaim):
        terminal.note(line)


def _write(page: Page[Queue], output: Format) -> None:
    items = queue_tables.ordered(page.items)
    drawn = output is Format.table and terminal.is_terminal() and shutil.get_terminal_size().columns >= WIDE_COLUMNS
    columns = queue_tables.queue_columns(items, BAR_SIGNS if drawn else 0)
    document = Page(items=items, next=page.next, sequence=page.sequence)
    terminal.write(terminal.page(document, columns, lambda q: f"queue/{q.path}", output, empty="no queues"))
    if drawn and any(queue_tables.bar(queue, 1, 1) for queue in items):
        terminal.note(queue_tables.BAR_LEGEND)
