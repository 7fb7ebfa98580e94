"""Hidden aliases in Slurm's words, with Slurm's column order: `squeue sinfo sbatch srun scancel sacct`."""

import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from fairlead.commands import jobs as jobs_verbs
from fairlead.commands.options import OPEN_STATES, Ids, Output, connect
from fairlead.commands.run import run_job
from fairlead.commands.submission import send
from fairlead.commands.submit import with_products
from fairlead.errors import InputRefused
from fairlead.jobfile import reader, sbatch, sbatch_options
from fairlead.jobfile.reader import read_script
from fairlead.jobfile.submit_flags import override
from fairlead.render import columns, terminal
from fairlead.render.terminal import Format
from fairlead_schemas.http.api import Node
from fairlead_schemas.wire.lifecycle import END_STATES

_SPLIT: dict[str, Any] = {"context_settings": {"ignore_unknown_options": True, "allow_interspersed_args": False}}
#: Options of sbatch and srun are parsed by `split`.
TYPER_SETTINGS: dict[str, dict[str, Any]] = {"sbatch": _SPLIT, "srun": _SPLIT}
#: Where a job goes that names no queue.
DEFAULT_QUEUE = "default"


def squeue(
    user: Annotated[str, typer.Option("--user", "-u")] = "",
    me: Annotated[bool, typer.Option("--me")] = False,
    partition: Annotated[str, typer.Option("--partition", "-p")] = "",
    output: Output = Format.table,
) -> None:
    """List open jobs as squeue does (fairlead jobs)."""
    with connect() as client:
        page = client.jobs(state=OPEN_STATES, queue=partition, user=client.me() if me else user)
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(page, output))
    else:
        terminal.write(
            terminal.table(
                [[c.text(job) for c in columns.SQUEUE] for job in page.items if not columns.is_spent_array(job)],
                columns.SQUEUE,
            )
        )


def sinfo(output: Output = Format.table) -> None:
    """List nodes as sinfo does (fairlead nodes)."""
    with connect() as client:
        page = client.nodes()
        if output in (Format.json, Format.yaml):
            terminal.write(terminal.document(page, output))
            return
        queues = sorted(queue.path for queue in client.queues().items)
    groups: dict[str, list[str]] = {}
    for node in page.items:
        groups.setdefault(columns.slurm_node_state(node), []).append(_id(node))
    # Every queue may use every node; a job without a queue goes to the one that is marked.
    partitions = [f"{path}*" if path == DEFAULT_QUEUE else path for path in queues]
    rows = [(partition, state, names) for partition in partitions for state, names in sorted(groups.items())]
    terminal.write(terminal.table([[c.text(row) for c in columns.SINFO] for row in rows], columns.SINFO))


def _id(node: Node) -> str:
    return node.id


def sacct(
    user: Annotated[str, typer.Option("--user", "-u")] = "",
    output: Output = Format.table,
) -> None:
    """List jobs, ended ones too, as sacct does (fairlead jobs)."""
    with connect() as client:
        page = client.jobs(user=user)
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(page, output))
        return
    rows = sorted(page.items, key=lambda job: (int(job.id.partition("_")[0]), job.state in END_STATES, job.id))
    terminal.write(terminal.table([[c.text(job) for c in columns.SACCT] for job in rows], columns.SACCT))


def scancel(ids: Ids) -> None:
    """End jobs (fairlead cancel)."""
    jobs_verbs.cancel(ids, save=False, output=Format.names)


def sbatch_verb(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTIONS] SCRIPT [ARGUMENTS]", show_default=False)
    ] = None,
) -> None:
    """Submit a batch script with sbatch's own options (fairlead submit).

    fairlead sbatch --nodes=2 --gres=gpu:8 train.sh

    fairlead sbatch --wrap "python train.py"
    """
    own, script, arguments, mode = split(words or [])
    options, remarks = sbatch.parse_options(own)
    flags = sbatch_options.translate(options)
    if mode.wrap:
        loaded = reader.Loaded([{"name": "wrap", "command": ["/bin/sh", "-c", mode.wrap]}], [])
    elif script == "":
        loaded = reader.load(sys.stdin.read(reader.FILE_BYTES_MAX + 1), name="sbatch", arguments=[])
    else:
        loaded = reader.load(read_script(Path(script)), name=Path(script).name, arguments=arguments)
    ignored = reader.require_kept({**loaded.unkept, **flags.unkept}, mode.ignore)
    for note in [*loaded.notes, *remarks, *flags.notes, *ignored]:
        terminal.note(f"warning: {note}")
    here = {"workdir": str(Path.cwd())}
    with connect() as client:
        jobs = [
            with_products({**here, **override(job, flags.job)}, client, offline_ok=mode.test_only)
            for job in loaded.jobs
        ]
        send(
            client,
            jobs,
            key="",
            wait=mode.wait,
            timeout="",
            dry_run=mode.test_only,
            output=Format.table,
            words="" if mode.parsable else "Submitted batch job ",
        )


def srun(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTIONS] COMMAND [ARGUMENTS]", show_default=False)
    ] = None,
) -> None:
    """Run a command as a job with srun's own options (fairlead run).

    fairlead srun --gpus=1 nvidia-smi
    """
    own, command, arguments, mode = split(words or [])
    if not command:
        raise InputRefused("expected a command, found nothing", hint="fairlead srun --gpus=1 nvidia-smi")
    options, remarks = sbatch.parse_options(own)
    flags = sbatch_options.translate(options)
    for note in [*remarks, *flags.notes, *reader.require_kept(flags.unkept, mode.ignore)]:
        terminal.note(f"warning: {note}")
    job = override({"workdir": str(Path.cwd()), "command": [command, *arguments]}, flags.job)
    with connect() as client:
        raise typer.Exit(run_job(client, [with_products(job, client, offline_ok=False)]))


class SbatchMode(NamedTuple):
    """Options that address sbatch itself rather than the job."""

    wrap: str = ""
    wait: bool = False
    parsable: bool = False
    test_only: bool = False
    #: Options that cannot be kept here, and are to be left out.
    ignore: tuple[str, ...] = ()


def split(words: list[str]) -> tuple[list[str], str, list[str], SbatchMode]:
    """(the job's options, script, its arguments, what sbatch itself shall do): options end at the script."""
    own: list[str] = []
    mode = SbatchMode()
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--wrap" and rest:
            mode = mode._replace(wrap=rest.pop(0))
        elif word.startswith("--wrap="):
            mode = mode._replace(wrap=word.partition("=")[2])
        elif word == "--ignore" and rest:
            mode = mode._replace(ignore=(*mode.ignore, rest.pop(0)))
        elif word.startswith("--ignore="):
            mode = mode._replace(ignore=(*mode.ignore, word.partition("=")[2]))
        elif word in ("--wait", "-W"):
            mode = mode._replace(wait=True)
        elif word == "--parsable":
            mode = mode._replace(parsable=True)
        elif word == "--test-only":
            mode = mode._replace(test_only=True)
        else:
            own.append(word)
            if sbatch.wants_value(word) and rest:
                own.append(rest.pop(0))
    if mode.wrap and rest:
        raise InputRefused(f'expected either --wrap or a script, found both ("{rest[0]}")')
    return own, rest[0] if rest else "", rest[1:], mode
