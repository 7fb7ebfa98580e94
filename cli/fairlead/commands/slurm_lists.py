"""Hidden aliases in Slurm's words that list and change: `squeue sacct sinfo scancel scontrol sprio sshare seff`, with the options
that people and their wrappers type most. Columns and formats: `render/slurm_columns.py`.
"""

from collections.abc import Sequence
from typing import Annotated

import typer

from fairlead.client import Client
from fairlead.commands import jobs as jobs_verbs
from fairlead.commands.job_changes import changes_of
from fairlead.commands.options import OPEN_STATES, connect, time_of
from fairlead.errors import FairleadError, InputRefused
from fairlead.jobfile.sbatch_options import slurm_seconds
from fairlead.render import columns, slurm_columns, terminal
from fairlead.render.terminal import Format, TableColumn
from fairlead_schemas.http.api import Job
from fairlead_schemas.policies.checkpoints import signal_name
from fairlead_schemas.wire.lifecycle import END_STATES

#: Where a job goes that names no queue.
DEFAULT_QUEUE = "default"

_Jobs = Annotated[str, typer.Option("--jobs", "-j", help="Only these jobs (a,b).")]
_User = Annotated[str, typer.Option("--user", "--users", "-u", help="Only these users (a,b).")]
_States = Annotated[str, typer.Option("--states", "--state", "-t", "-s", help="Only these states (a,b).")]
_Names = Annotated[str, typer.Option("--name", "-n", help="Only jobs of these names (a,b).")]
_Plain = Annotated[bool, typer.Option("--noheader", "-h", help="Without the head line.", show_default=False)]


def squeue(
    user: _User = "",
    me: Annotated[bool, typer.Option("--me", show_default=False)] = False,
    partition: Annotated[str, typer.Option("--partition", "-p")] = "",
    jobs: _Jobs = "",
    states: _States = "",
    name: _Names = "",
    nodelist: Annotated[str, typer.Option("--nodelist", "-w", help="Only jobs on these nodes (a,b).")] = "",
    account: Annotated[str, typer.Option("--account", "-A")] = "",
    all_: Annotated[bool, typer.Option("--all", "-a", show_default=False)] = False,
    qos: Annotated[str, typer.Option("--qos", "-q", help="As --partition: limits belong to queues here.")] = "",
    noheader: _Plain = False,
    long: Annotated[bool, typer.Option("--long", "-l", show_default=False)] = False,
    start: Annotated[bool, typer.Option("--start", help="Waiting jobs and why they wait.", show_default=False)] = False,
    sort: Annotated[str, typer.Option("--sort", "-S", help="Field letters: -p,i.")] = "",
    array: Annotated[bool, typer.Option("--array", "-r", show_default=False)] = False,
    format_: Annotated[str, typer.Option("--format", "-o", help='Such as "%.18i %.9P %j %T".')] = "",
    fields: Annotated[str, typer.Option("--Format", "-O", help="Such as JobID:12,Name,State.")] = "",
    json: Annotated[bool, typer.Option("--json", show_default=False)] = False,
) -> None:
    """List open jobs as squeue does (fairlead jobs)."""
    wanted = "pending" if start and not states else states
    if format_ in ("json", "yaml"):
        json, format_ = format_ == "json", ""
    shape = slurm_columns.squeue_format(format_, fields, long=long) if format_ or fields or long else None
    with connect() as client:
        page = client.jobs(
            state=slurm_columns.state_names(wanted, OPEN_STATES),
            queue=",".join(word for word in (partition, qos) if word),
            name=name,
            project=account,
            user=client.me() if me else user,
        )
    rows = [job for job in page.items if not columns.is_spent_array(job)]
    rows = _of_ids(rows, jobs)
    if nodelist:
        rows = [job for job in rows if set(job.nodes) & set(slurm_columns.names(nodelist))]
    if json:
        terminal.write(terminal.document(page, Format.json))
        return
    rows = slurm_columns.sorted_by(rows, sort)
    if shape is None:
        _write([[c.text(job) for c in columns.SQUEUE] for job in rows], columns.SQUEUE, header=not noheader)
    else:
        terminal.write(shape.text(rows, header=not noheader))


def _write(rows: list[list[str]], heads: Sequence[TableColumn], *, header: bool) -> None:
    """Write the usual table, without its head line unless `header`."""
    text = terminal.table(rows, heads)
    terminal.write(text if header else text.partition("\n")[2])


def _of_ids(rows: list[Job], words: str) -> list[Job]:
    """Return the jobs of these ids, with the elements of arrays that are named."""
    if not words:
        return rows
    ids = set(words.replace(".batch", "").split(","))
    return [job for job in rows if job.id in ids or job.id.partition("_")[0] in ids]


def sacct(
    user: _User = "",
    jobs: _Jobs = "",
    starttime: Annotated[str, typer.Option("--starttime", "-S", help="Jobs that had not ended before.")] = "",
    endtime: Annotated[str, typer.Option("--endtime", "-E", help="Jobs that were there before.")] = "",
    states: _States = "",
    name: Annotated[str, typer.Option("--name")] = "",
    allocations: Annotated[bool, typer.Option("--allocations", "-X", show_default=False)] = False,
    allusers: Annotated[bool, typer.Option("--allusers", "-a", show_default=False)] = False,
    account: Annotated[str, typer.Option("--accounts", "--account", "-A")] = "",
    partition: Annotated[str, typer.Option("--partition", "-r")] = "",
    nodelist: Annotated[str, typer.Option("--nodelist", "-N", help="Only jobs that ran on these nodes (a,b).")] = "",
    delimiter: Annotated[str, typer.Option("--delimiter", help="Between columns, in place of the bar.")] = "|",
    helpformat: Annotated[bool, typer.Option("--helpformat", "-e", show_default=False)] = False,
    duplicates: Annotated[bool, typer.Option("--duplicates", "-D", show_default=False)] = False,
    truncate: Annotated[bool, typer.Option("--truncate", "-T", show_default=False)] = False,
    clusters: Annotated[bool, typer.Option("--allclusters", "-L", show_default=False)] = False,
    units: Annotated[str, typer.Option("--units")] = "",
    format_: Annotated[str, typer.Option("--format", "-o", help="Such as JobID,State,Elapsed.")] = "",
    parsable: Annotated[bool, typer.Option("--parsable", "-p", show_default=False)] = False,
    parsable2: Annotated[bool, typer.Option("--parsable2", "-P", show_default=False)] = False,
    noheader: Annotated[bool, typer.Option("--noheader", "-n", show_default=False)] = False,
    long: Annotated[bool, typer.Option("--long", "-l", show_default=False)] = False,
    brief: Annotated[bool, typer.Option("--brief", "-b", show_default=False)] = False,
    json: Annotated[bool, typer.Option("--json", show_default=False)] = False,
) -> None:
    """List jobs, ended ones too, as sacct does (fairlead jobs --all)."""
    if format_ in ("json", "yaml"):
        json, format_ = format_ == "json", ""
    if helpformat:
        terminal.write("\n".join(slurm_columns.job_fields()) + "\n")
        return
    words = "jobid,state,exitcode" if brief else format_
    shape = slurm_columns.sacct_format(words, long=long)
    since = time_of(starttime.replace("T", " ")) if starttime and starttime != "now" else ""
    with connect() as client:
        page = client.jobs(
            state=slurm_columns.state_names(states, ""),
            queue=partition,
            name=name,
            project=account,
            user="" if allusers else user,
            since=since,
        )
    if json:
        terminal.write(terminal.document(page, Format.json))
        return
    rows = _of_ids(page.items, jobs)
    if endtime:
        until = time_of(endtime.replace("T", " "))
        rows = [job for job in rows if job.submitted_at <= until]
    if nodelist:
        rows = [job for job in rows if set(job.nodes) & set(slurm_columns.names(nodelist))]
    rows = sorted(rows, key=lambda job: (int(job.id.partition("_")[0]), job.state in END_STATES, job.id))
    if words or long or parsable or parsable2:
        bars = delimiter if parsable or parsable2 else ""
        terminal.write(shape.text(rows, header=not noheader, bars=bars, last=parsable and not parsable2))
    else:
        _write([[c.text(job) for c in columns.SACCT] for job in rows], columns.SACCT, header=not noheader)


def sinfo(
    partition: Annotated[str, typer.Option("--partition", "-p")] = "",
    nodes: Annotated[str, typer.Option("--nodes", "-n", help="Only these nodes (a,b).")] = "",
    by_node: Annotated[bool, typer.Option("--Node", "-N", show_default=False)] = False,
    states: Annotated[str, typer.Option("--states", "-t")] = "",
    long: Annotated[bool, typer.Option("--long", "-l", show_default=False)] = False,
    reasons: Annotated[bool, typer.Option("--list-reasons", "-R", show_default=False)] = False,
    noheader: _Plain = False,
    summarize: Annotated[bool, typer.Option("--summarize", "-s", show_default=False)] = False,
    all_: Annotated[bool, typer.Option("--all", "-a", show_default=False)] = False,
    exact: Annotated[bool, typer.Option("--exact", "-e", show_default=False)] = False,
    dead: Annotated[
        bool, typer.Option("--dead", "-d", help="Only nodes that do not answer.", show_default=False)
    ] = False,
    responding: Annotated[
        bool, typer.Option("--responding", "-r", help="Only nodes that answer.", show_default=False)
    ] = False,
    format_: Annotated[str, typer.Option("--format", "-o", help='Such as "%P %D %t %G %N".')] = "",
    json: Annotated[bool, typer.Option("--json", show_default=False)] = False,
) -> None:
    """List nodes as sinfo does (fairlead nodes)."""
    if format_ in ("json", "yaml"):
        json, format_ = format_ == "json", ""
    usual = not (format_ or by_node or long or reasons)
    shape = slurm_columns.sinfo_format(format_, by_node=by_node or reasons, long=long, reasons=reasons)
    with connect() as client:
        page = client.nodes()
        if json:
            terminal.write(terminal.document(page, Format.json))
            return
        queues = sorted(client.queues().items, key=lambda queue: queue.path)
    found = [node for node in page.items if not nodes or node.id in slurm_columns.names(nodes)]
    found = [node for node in found if not states or columns.slurm_node_state(node) in states.lower().split(",")]
    if dead or responding:
        found = [node for node in found if (node.state in ("lost", "silent")) == dead]
    if reasons:
        found = [node for node in found if node.reason]
    # Every queue may use every node; a job without a queue goes to the one that is marked.
    partitions = {
        f"{queue.path}*" if queue.path == DEFAULT_QUEUE else queue.path: slurm_columns.closed_as(queue, queues)
        for queue in queues
        if not partition or queue.path in partition.split(",")
    }
    rows = slurm_columns.sinfo_rows(found, partitions, by_node=by_node or reasons)
    if usual:
        _write([[c.text(row) for c in columns.SINFO] for row in rows], columns.SINFO, header=not noheader)
    else:
        terminal.write(shape.text(rows, header=not noheader))


def scancel(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[JOB]…", show_default=False)] = None,
    user: Annotated[str, typer.Option("--user", "-u")] = "",
    me: Annotated[bool, typer.Option("--me", show_default=False)] = False,
    name: Annotated[str, typer.Option("--name", "--jobname", "-n")] = "",
    states: Annotated[str, typer.Option("--state", "-t")] = "",
    partition: Annotated[str, typer.Option("--partition", "-p")] = "",
    account: Annotated[str, typer.Option("--account", "-A")] = "",
    nodelist: Annotated[str, typer.Option("--nodelist", "-w", help="Only jobs on these nodes (a,b).")] = "",
    signal: Annotated[
        str, typer.Option("--signal", "-s", help="USR1, USR2, INT or HUP for its programs; TERM, KILL: end the job.")
    ] = "",
    batch: Annotated[bool, typer.Option("--batch", "-b", show_default=False)] = False,
    full: Annotated[bool, typer.Option("--full", "-f", show_default=False)] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", show_default=False)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-Q", show_default=False)] = False,
) -> None:
    """End jobs (fairlead cancel).

    scancel -u ada --state=pending
    """
    words = list(ids or [])
    sent = bool(signal) and signal_name(signal) not in _ENDING_SIGNALS
    filters = bool(user or me or name or states or partition or account or nodelist)
    if not words and not filters:
        raise InputRefused("expected job ids, or one of --user, --name, --state and --partition, found none")
    if filters:
        with connect() as client:
            page = client.jobs(
                state=slurm_columns.state_names(states, OPEN_STATES),
                queue=partition,
                name=name,
                project=account,
                user=client.me() if me or (not user and not ids) else user,
                elements=bool(nodelist),  # an array as such is on no node
            )
        rows = page.items if not words else _of_ids(page.items, ",".join(words))
        if nodelist:
            rows = [job for job in rows if set(job.nodes) & set(slurm_columns.names(nodelist))]
        # What is stopping ends already, as was asked; a signal is for what runs.
        words = [job.id for job in rows if (job.state == "running" if sent else job.state != "stopping")]
        if not words:
            return
    if sent:
        jobs_verbs.send_signal(words, signal, Format.names)
        return
    jobs_verbs.cancel(words, save=False, output=Format.names)


#: Signals of scancel after which a job ends here: it has TERM, its grace, and then KILL in any case.
_ENDING_SIGNALS = frozenset({"SIGTERM", "SIGKILL", "SIGQUIT"})


def scontrol(
    words: Annotated[list[str] | None, typer.Argument(metavar="VERB [WHAT]…", show_default=False)] = None,
) -> None:
    """Show, hold, release, requeue or change jobs, drain nodes, and close partitions, as scontrol does.

    scontrol show job 12 | show node n1 | hold 12 | requeue 12 | update JobId=12 TimeLimit=2:00:00

    scontrol update PartitionName=research State=DOWN     (fairlead queues hold research)
    """
    given = [word for word in words or [] if not word.startswith("-")]
    match given:
        case ["show", "job" | "jobs", *ids]:
            _show_jobs(ids)
        case ["show", "node" | "nodes", *ids]:
            _show_nodes(ids)
        case ["show", "hostnames" | "hostname", text]:
            terminal.write("".join(f"{name}\n" for name in slurm_columns.names(text)))
        case ["hold" | "uhold", *ids] if ids:
            jobs_verbs.hold(_ids(ids), Format.names)
        case ["requeue", *ids] if ids:
            jobs_verbs.each(_ids(ids), Client.requeue, "requeued", Format.names)
        case ["show", "partition" | "partitions", *paths]:
            _show_partitions(_ids(paths))
        case ["release", *ids] if ids:
            jobs_verbs.release(_ids(ids), Format.names)
        case ["update", *pairs] if pairs:
            _update(dict(_pair(word) for word in pairs))
        case _:
            raise InputRefused(
                f'expected show job, show node, show partition, show hostnames, hold, release, requeue or update, found "{" ".join(given)}"',
                hint="fairlead scontrol show job 12",
            )


def _ids(words: list[str]) -> list[str]:
    return [part for word in words for part in word.split(",") if part]


def _pair(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise InputRefused(f'expected NAME=VALUE such as "TimeLimit=2:00:00", found "{word}"')
    return name.lower(), value


def _update(pairs: dict[str, str]) -> None:
    """Carry out `update JobId=12 TimeLimit=… Priority=… JobName=…`, or `update NodeName=n1 State=drain Reason=…`."""
    if node := pairs.pop("nodename", ""):
        state = pairs.pop("state", "").lower()
        reason = pairs.pop("reason", "")
        if state not in ("drain", "resume", "idle", "undrain") or pairs:
            raise InputRefused(
                'expected State=drain or State=resume of a node, and Reason="…"', hint="fairlead drain n1"
            )
        with connect() as client:
            for name in slurm_columns.names(node):
                if state == "drain":
                    client.drain(name, reason=reason)
                else:
                    client.uncordon(name)
        return
    if path := pairs.pop("partitionname", ""):
        _update_partition(path, pairs.pop("state", "").upper(), pairs)
        return
    job = pairs.pop("jobid", "") or pairs.pop("job", "")
    limit, priority, name = pairs.pop("timelimit", ""), pairs.pop("priority", ""), pairs.pop("jobname", None)
    if not job or pairs:
        raise InputRefused(
            f'expected JobId with TimeLimit, Priority or JobName, found "{next(iter(pairs), "")}"',
            hint="fairlead update JOB --time 4h --priority 70",
        )
    if priority and not priority.isdecimal():
        raise InputRefused(f'Priority: expected 0 to 1000, found "{priority}"')
    changes = changes_of(
        time=f"{slurm_seconds(limit)}s" if limit else "",
        priority=int(priority) if priority else None,
        name=name,
        labels=[],
    )
    jobs_verbs.each(_ids([job]), lambda client, one: client.update(one, changes), "updated", Format.names)


#: {state of Slurm's partitions: the verbs of `fairlead queues` that make it}
_PARTITION_STATES = {"DOWN": ("hold",), "DRAIN": ("drain",), "INACTIVE": ("hold", "drain"), "UP": ("release",)}


def _update_partition(path: str, state: str, rest: dict[str, str]) -> None:
    """Carry out `update PartitionName=research State=DOWN`: a partition is a queue."""
    if state not in _PARTITION_STATES or rest:
        raise InputRefused(
            f'expected State={", ".join(_PARTITION_STATES)} of a partition, found "{next(iter(rest), state)}"',
            hint="fairlead queues hold research",
        )
    verbs = {"hold": Client.hold_queue, "drain": Client.drain_queue, "release": Client.release_queue}
    with connect() as client:
        for verb in _PARTITION_STATES[state]:
            verbs[verb](client, path)


def _show_partitions(paths: list[str]) -> None:
    with connect() as client:
        found = [queue for queue in client.queues().items if not paths or queue.path in paths]
        nodes = client.nodes().items
    if missing := set(paths) - {queue.path for queue in found}:
        raise InputRefused(f"there is no partition {min(missing)}", hint="fairlead queues")
    terminal.write("\n".join(slurm_columns.partition_record(queue, nodes) for queue in found))


def _show_jobs(ids: list[str]) -> None:
    with connect() as client:
        found = [client.job(one) for one in _ids(ids)] if ids else client.jobs(state=OPEN_STATES).items
    terminal.write("\n".join(slurm_columns.job_record(job) for job in found))


def _show_nodes(ids: list[str]) -> None:
    with connect() as client:
        wanted = [name for word in ids for name in slurm_columns.names(word)]
        found = [node for node in client.nodes().items if not wanted or node.id in wanted]
    if missing := set(wanted) - {node.id for node in found}:
        raise InputRefused(f"there is no node {min(missing)}", hint="fairlead nodes")
    terminal.write("\n".join(slurm_columns.node_record(node) for node in found))


def sprio(
    user: _User = "",
    jobs: _Jobs = "",
    long: Annotated[bool, typer.Option("--long", "-l", show_default=False)] = False,
    noheader: _Plain = False,
) -> None:
    """List the priority of waiting jobs as sprio does. The order also depends on the queues' shares: fairlead why JOB."""
    with connect() as client:
        page = client.jobs(state=slurm_columns.state_names("pending", ""), user=user)
    rows = sorted(_of_ids(page.items, jobs), key=lambda job: -job.priority)
    terminal.write(slurm_columns.SPRIO.text(rows, header=not noheader))


def sshare(
    account: Annotated[str, typer.Option("--accounts", "-A", help="Only these queues (a,b).")] = "",
    everything: Annotated[bool, typer.Option("--all", "-a", show_default=False)] = False,
    long: Annotated[bool, typer.Option("--long", "-l", show_default=False)] = False,
    noheader: _Plain = False,
) -> None:
    """List the shares of queues as sshare does (fairlead queues)."""
    with connect() as client:
        queues = [queue for queue in client.queues().items if not account or queue.path in account.split(",")]
    terminal.write(slurm_columns.SSHARE.text(sorted(queues, key=lambda queue: queue.path), header=not noheader))


def seff(job: Annotated[str, typer.Argument(metavar="JOB")]) -> None:
    """Print how well a job used what it had, as seff does (fairlead show JOB)."""
    with connect() as client:
        found = client.job(job)
        try:
            measured = client.job_metrics(found.id)
        except FairleadError:  # no telemetry, or nothing of this job: the rest is true all the same
            measured = None
    terminal.write(slurm_columns.efficiency(found, measured))
