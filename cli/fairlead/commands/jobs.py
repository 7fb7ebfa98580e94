"""`jobs show why logs wait cancel hold release`: what became of jobs, and their reins."""

import shutil
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from fairlead.client import Client
from fairlead.commands.options import (
    Ids,
    ListFormat,
    ListOutput,
    NamedId,
    NamedIds,
    Output,
    Timeout,
    carry_out,
    connect,
    moment_of,
    pick,
    time_of,
)
from fairlead.errors import FairleadError, InputRefused
from fairlead.render import columns, terminal
from fairlead.render.progress import progress
from fairlead.render.terminal import Format, OutputWriter
from fairlead_schemas.http.api import Job, Page
from fairlead_schemas.policies.checkpoints import signal_fault, signal_name
from fairlead_schemas.queries.telemetry import JobMetrics
from fairlead_schemas.units import quantities
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.lifecycle import END_STATES

#: How long ago a job has ended at most that is listed by default.
DEFAULT_SINCE = "1d"


def jobs(
    state: Annotated[
        str, typer.Option("--state", help="Only jobs in these states (running, queued, failed, …; a,b).")
    ] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", help="Only these queues and those below them (a,b).")] = "",
    user: Annotated[str, typer.Option("--user", "-u", help='Only these users (a,b; "me": yours).')] = "",
    name: Annotated[str, typer.Option("--name", help='Only jobs of these names (a,b); "*": any characters.')] = "",
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label", help="Only jobs with this label: team=vision, or team; repeatable.", show_default=False
        ),
    ] = None,
    project: Annotated[str, typer.Option("--project", help="Only jobs of these projects (a,b).")] = "",
    since: Annotated[
        str,
        typer.Option(
            "--since",
            help='Without jobs that had ended before: "2h" ago, "03:00", yesterday, "2026-01-31 03:00".  [default: 1d]',
            show_default=False,
        ),
    ] = "",
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also jobs that have ended long ago.", show_default=False)
    ] = False,
    elements: Annotated[
        bool, typer.Option("--elements", help="Each element of an array in a line of its own.", show_default=False)
    ] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="At most this many (0: all).")] = 0,
    output: ListOutput = ListFormat.table,
) -> None:
    """List jobs: those that have not ended, and those that ended in the last day. An array is one line.

    fairlead jobs --state running

    fairlead jobs -u me --since yesterday -o json

    fairlead jobs --all --name 'train-*' --label team=vision -o csv
    """
    if everything and since:
        raise InputRefused("expected --all or --since, found both")
    with connect() as client:
        page = client.jobs(
            state=state,
            queue=queue,
            user=_users(client, user),
            name=name,
            label=",".join(label or ()),
            project=project,
            since="" if everything else time_of(since) if since else DEFAULT_SINCE,
            elements=elements,
            limit=limit,
        )
    if output is ListFormat.csv:
        terminal.write(terminal.comma_separated(page.items, columns.JOBS))
        return
    filters = bool(state or queue or user or name or label or project or since)
    empty = "no such jobs" if filters else "no jobs; try: fairlead submit -- echo hello"
    if not everything and not since:
        empty += " (of the last day; --all lists all)"
    terminal.write(terminal.page(page, columns.JOBS, lambda j: f"job/{j.id}", Format(output.value), empty=empty))


def _users(client: Client, names: str) -> str:
    return ",".join(client.me() if name == "me" else name for name in names.split(","))


def show(
    ids: NamedIds,
    plot: Annotated[
        bool, typer.Option("--plot", help="Its GPUs over time, instead; with -o json the numbers.")
    ] = False,
    step: Annotated[
        str, typer.Option("--step", help='Of the plot: how long a step is ("30s", "5m").', show_default=False)
    ] = "",
    output: Output = Format.table,
) -> None:
    """Show everything about jobs.

    fairlead show last

    fairlead show 812 --plot

    fairlead show 812 -o yaml
    """
    with connect() as client:
        if plot:
            _plot([client.job_metrics(job_id, step=step) for job_id in pick(client, ids, names=True)], output)
            return
        found = [client.job(job_id) for job_id in pick(client, ids, names=True)]
        as_facts = output is Format.wide or (output is Format.table and len(found) == 1)
        nodes = client.nodes().items if as_facts and any(job.nodes for job in found) else []
        kept = {job.id: _kept_outputs(client, job) for job in found} if as_facts else {}
    if as_facts:
        from fairlead.render.job_facts import job_facts, played_how

        played = {node.id: played_how(node) for node in nodes}
        terminal.write("\n".join(terminal.fields(job_facts(job, played, kept[job.id])) for job in found))
    else:
        _write(found, output)


def _kept_outputs(client: Client, job: Job) -> str:
    """Return the names of the outputs that the node of an ended job has kept, and what fetches one; "" for none."""
    if b'"outputs"' not in bytes(job.spec) or job.state not in END_STATES or not job.nodes:
        return ""
    try:
        names = [entry.name for entry in client.files(job.id, "/").entries]
    except FairleadError as error:
        return f"not known: {error}"
    return f"{', '.join(names)} (fairlead cp {job.id}:{names[0]} .)" if names else "none"


def _plot(found: list[JobMetrics], output: Format) -> None:
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(found[0] if len(found) == 1 else found, output))
        return
    from fairlead.render import plot as picture

    width, signs = shutil.get_terminal_size(fallback=(120, 24)).columns, picture.signs_for(sys.stdout.encoding)
    pictures = ("".join(f"{line}\n" for line in picture.plot(metrics, width, signs)) for metrics in found)
    terminal.write("\n".join(pictures))


def _write(found: list[Job], output: Format) -> None:
    """Write one job as its document, several as the API's list."""
    if len(found) == 1 and output in (Format.json, Format.yaml):
        terminal.write(terminal.document(found[0], output))
        return
    page = Page(items=found, next=None, sequence=min((job.sequence for job in found), default=0))
    terminal.write(terminal.page(page, columns.JOBS, lambda j: f"job/{j.id}", output))


def why(
    ids: NamedIds,
    at: Annotated[str, typer.Option("--at", help="At this log sequence or RFC 3339 time instead of now.")] = "",
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Say also when a waiting job starts; takes up to some seconds.")
    ] = False,
    output: Output = Format.table,
) -> None:
    """Say why a job is where it is: one reason, its evidence, what would start it now, the next step.

    fairlead why last

    fairlead why train-llm

    fairlead why 812 --estimate

    fairlead why 812 --at 40213
    """
    with connect() as client:
        moment = moment_of(at)
        answers = [client.why(each, at=moment, estimate=estimate) for each in pick(client, ids, names=True)]
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(answers[0] if len(answers) == 1 else answers, output))
    elif output is Format.names:
        terminal.write("".join(f"{(answer.get('reason') or {}).get('code', '')}\n" for answer in answers))
    else:
        from fairlead.render import explanation

        terminal.write("\n".join(terminal.fields(explanation.facts(answer)) for answer in answers))


def estimates(output: Output = Format.table) -> None:
    """Show how right the estimates of starts were: by queue, then those that were furthest off.

    HELD: the part of the 80 % intervals in which the job started. LOSS: pinball loss in log seconds, 0 is best. WIDTH: the interval's
    length over its middle. LOSS OVER THAT OF: below 1, the estimates are better than that simple way.

    fairlead estimates

    fairlead estimates -o json
    """
    with connect() as client:
        found = client.estimates()
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(found, output))
    elif output is Format.names:
        terminal.write("".join(f"{each.queue}\n" for each in found.queues))
    else:
        from fairlead.render import start_forecast

        terminal.write("".join(start_forecast.tables(found)))


def logs(
    job: NamedId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the job has ended.")] = False,
    rank: Annotated[int | None, typer.Option("--rank", help="Only this rank of a gang.", show_default=False)] = None,
    attempt: Annotated[int | None, typer.Option("--attempt", help="An earlier attempt.", show_default=False)] = None,
    tail: Annotated[int, typer.Option("--tail", min=0, max=10_000, help="Only so many last lines (0: all).")] = 0,
    raw: Annotated[bool, typer.Option("--raw", help="To a terminal, too, every byte as the job wrote it.")] = False,
) -> None:
    """Print a job's output. To a terminal colours are kept and other control sequences left out, unless --raw.

    fairlead logs -f last

    fairlead logs 812 --rank 1

    fairlead logs 812 --tail 200
    """
    with connect() as client:
        for job_id in pick(client, [job], names=True):
            writer = OutputWriter(raw=raw)
            for piece in client.logs(job_id, follow=follow, rank=rank, attempt=attempt, tail=tail):
                writer.write(piece)
            writer.end()


def wait(ids: NamedIds, timeout: Timeout = "", output: Output = Format.table) -> None:
    """Wait until jobs have ended; exit with the first failure's own code (0: all succeeded).

    fairlead wait last --timeout 10m
    """
    timeout_s = quantities.parse_duration(timeout) / SECOND_NS if timeout else None
    from fairlead.commands.submission import exit_code

    with connect() as client, progress("wait", "jobs ended", output) as seen:
        chosen = pick(client, ids, names=True)
        over: set[str] = set()

        def see(job: Job) -> None:
            if job.state in END_STATES:
                over.add(job.id)
            seen(len(over), len(chosen))

        ended = client.wait(chosen, timeout_s=timeout_s, seen=see)
    _write(ended, output)
    raise typer.Exit(exit_code(ended))


def cancel(
    ids: Ids,
    save: Annotated[
        bool, typer.Option("--save", help="Let running jobs save first, as set by `checkpoint` in the job file.")
    ] = False,
    signal: Annotated[
        str,
        typer.Option(
            "--signal", help="Send USR1, USR2, INT or HUP to the programs of running jobs, which are not cancelled."
        ),
    ] = "",
    output: Output = Format.table,
) -> None:
    """End jobs, waiting or running (an array with all its elements), or send their programs a signal.

    fairlead cancel 812

    fairlead cancel --save 812

    fairlead cancel --signal USR1 812

    fairlead cancel all
    """
    if signal:
        if save:
            raise InputRefused(
                "--signal: expected no --save with it, found both; a signal ends no job",
                hint="fairlead cancel --save JOB gives a job the signal of its job file, and ends it",
            )
        send_signal(ids, signal, output)
        return
    each(ids, lambda client, job: client.cancel(job, save=save), "asked to end", output)


def send_signal(ids: list[str], word: str, output: Format) -> None:
    """Send a signal to the programs of running jobs."""
    name = signal_name(word)
    if fault := signal_fault(name):
        raise InputRefused(f"--signal: {fault}", hint="fairlead cancel --signal USR1 JOB")
    each(ids, lambda client, job: client.signal(job, name), f"gets {name}", output)


def hold(ids: Ids, output: Output = Format.table) -> None:
    """Keep waiting jobs from starting.

    fairlead hold last
    """
    each(ids, Client.hold, "held", output)


def release(ids: Ids, output: Output = Format.table) -> None:
    """End a hold.

    fairlead release 812
    """
    each(ids, Client.release, "released", output)


def each(words: list[str], verb: Callable[[Client, str], dict[str, Any]], done: str, output: Format) -> None:
    """Carry a verb out on every job, even when one refuses; the first refusal decides the exit code."""
    with connect() as client:
        chosen = pick(client, words)
        if not chosen:
            terminal.note(f"none of your jobs is open; nothing {done}")
        failures = list(carry_out(client, chosen, verb, kind="job", done=done, output=output).values())
    for failure in failures[1:]:
        terminal.note(f"error: {failure}")
    if failures:
        raise failures[0]
