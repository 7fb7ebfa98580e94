"""`submit`: from a file, a script or a command line to a job id.

Further parts:
- the options of `submit`, as Typer reads them;
- `submit --dry-run`: what would become of the jobs, asked of the gateway; without one, the file alone is checked;
- last steps of ready job files: checked, sent or tried, shown, and waited for.

Short names of GPU models as the product labels that the cluster's nodes have.
"""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from typer.core import TyperCommand

from fairlead.client import Client
from fairlead.commands.options import Output, Timeout, connect, pick
from fairlead.errors import InputRefused, Unreachable, hint_for
from fairlead.jobfile import gpu_models, reader
from fairlead.jobfile.reader import require_kept, source
from fairlead.jobfile.submit_flags import SubmitOptions, depends_on, jobfile_words, moment, override
from fairlead.render import explanation, terminal
from fairlead.render.terminal import Format
from fairlead_schemas.http.api import DryRun, Job, SubmitResult
from fairlead_schemas.jobfile.job_spec import JobSpec
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.units import quantities
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.commands import encode_commands

Words = Annotated[list[str] | None, typer.Argument(metavar="[FILE|SCRIPT] | -- COMMAND…", show_default=False)]
File = Annotated[
    Path | None, typer.Option("--file", "-f", help='Job file: YAML, JSON or a Kubernetes Job; "-" is stdin.')
]
Name = Annotated[str, typer.Option("--name", help="Name of the job.")]
Queue = Annotated[str, typer.Option("--queue", "-q", help="Queue, such as research/vision.")]
Gpus = Annotated[str, typer.Option("--gpus", help="GPUs per node (or task): 8, or a share of one: 0.5.")]
Gpu = Annotated[str, typer.Option("--gpu", help="Shorthand: H100:8, 24GB..:2 (model, least memory, count per node).")]
GpuModel = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu-model", help="GPU model: A100, or a product in full; repeatable: any of them.", show_default=False
    ),
]
GpuMemory = Annotated[str, typer.Option("--gpu-memory", help="Least memory of each GPU: 40Gi.")]
Mig = Annotated[str, typer.Option("--mig", help="MIG instances per node (or task): 3g.20gb, 3g.20gb:2.")]
Nodes = Annotated[
    str, typer.Option("--nodes", "-N", help="Nodes; more than one is a gang; 2-8: as many of them as can be had.")
]
Tasks = Annotated[
    int | None, typer.Option("--tasks", help="Tasks in place of nodes; they may share nodes.", show_default=False)
]
Require = Annotated[
    list[str] | None,
    typer.Option("--require", help="All of it within one numa, node, rack, block …; repeatable.", show_default=False),
]
Prefer = Annotated[list[str] | None, typer.Option("--prefer", help="The same, if it can be had.", show_default=False)]
Toleration = Annotated[
    list[str] | None,
    typer.Option(
        "--toleration",
        help="A taint that it puts up with: key=value:NoSchedule, key; repeatable.",
        show_default=False,
    ),
]
Exclusive = Annotated[bool, typer.Option("--exclusive", help="No other job's work on its nodes.")]
Cpus = Annotated[str, typer.Option("--cpus", help='CPUs per node: 8, 0.5 or "500m".')]
Memory = Annotated[str, typer.Option("--memory", help="Memory per node (or task): 64Gi.")]
Time = Annotated[
    str, typer.Option("--time", help='Longest run time, over all slices: "1h 30m", 7d, 90 (seconds), 2:00:00.')
]
Slice = Annotated[
    str,
    typer.Option("--slice", help='Least run time before it may be asked to yield to others: "1h", 90 (seconds).'),
]
Deadline = Annotated[
    str,
    typer.Option("--deadline", help="By when it shall have ended: an RFC 3339 time with zone, or from now: 8h."),
]
After = Annotated[
    list[str] | None,
    typer.Option(
        "--after",
        show_default=False,
        help="Start only after JOB has succeeded, or JOB:failed, JOB:ended (either); repeatable; JOB may be last.",
    ),
]
Array = Annotated[str, typer.Option("--array", help="Elements: 8 (0-7), 1-100, or 0-9%2 (two at once).")]
Priority = Annotated[int | None, typer.Option("--priority", help="0 to 1000; higher goes first.", show_default=False)]
Retries = Annotated[
    int | None, typer.Option("--retries", help="How often a failed exit is tried again.", show_default=False)
]
Kind = Annotated[str, typer.Option("--kind", help="batch, session or service.")]
Image = Annotated[str, typer.Option("--image", help="Container image (docker runtime).")]
Env = Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE, repeatable.", show_default=False)]
Workdir = Annotated[
    str | None, typer.Option("--workdir", help="Where it runs; a command or script: here.", show_default=False)
]
Project = Annotated[str, typer.Option("--project", help="Whom it is counted for.")]
OutputKeep = Annotated[
    str,
    typer.Option("--output-keep", help='How long its output is kept after its end: "1h", 7d; else as the node has it.'),
]
OutputMax = Annotated[
    str, typer.Option("--output-max", help="The most that is kept of stdout and of stderr, their last part: 64Mi, 1Gi.")
]
Key = Annotated[str, typer.Option("--key", help="Idempotency key: repeating the submit gives the same job.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end; exit with the job's own code.")]
DryRunFlag = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Say what would become of it (quota, who is ahead, what holds it back), and send nothing."
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore",
        show_default=False,
        help="Submit without this word of the file, which cannot be kept here; repeatable.",
    ),
]


def print_dry_run(client: Client, jobs: list[dict[str, Any]], specs: list[JobSpec], output: Format) -> None:
    """Print what would become of each; ends as the submit would where one would be refused."""
    try:
        found = client.dry_run(jobs)
    except Unreachable as error:
        found = [_file_only(spec, client.user, str(error)) for spec in specs]
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(found[0] if len(found) == 1 else found, output))
    else:
        terminal.write("\n".join(terminal.fields(explanation.dry_run_facts(one)) for one in found))
    terminal.note("nothing was sent; the job file, as it would be: -o yaml, under command.spec")
    refused = [one for one in found if not one.valid]
    if refused:
        hint = next((hint for one in refused if (hint := hint_for(one.code))), "")
        raise InputRefused("\n".join(one.message for one in refused), hint=hint)


def _file_only(spec: JobSpec, user: str, why_not: str) -> DryRun:
    """Return a dry run's result without the cluster, from the file alone."""
    command = encode_commands([resolve(spec, command_id="", user=user)])[1:-1]
    message = f"checked: file only; the cluster could not be asked ({why_not})"
    return DryRun(checked="file", message=message, command=msgspec.Raw(command), sequence=0)


def send(
    client: Client,
    jobs: list[dict[str, Any]],
    *,
    key: str,
    wait: bool,
    timeout: str,
    dry_run: bool,
    output: Format,
    words: str = "",
) -> None:
    """Check, submit, print; with `wait`, end the program with the job's own exit code."""
    specs = [reader.check(job) for job in jobs]
    if dry_run:
        print_dry_run(client, jobs, specs, output)
        return
    results = [client.submit(jobs[0], key=key)] if len(jobs) == 1 else client.submit_many(jobs, key=key)
    refused = [result for result in results if result.state == "rejected"]
    show(results, output, words)
    if refused:
        reasons = [result.reason for result in refused if result.reason]
        hint = next((hint for reason in reasons if (hint := hint_for(reason.code))), "")
        raise InputRefused("\n".join(reason.message for reason in reasons), hint=hint)
    if wait:
        ids = [result.id for result in results if result.id]
        if len(ids) < len(results):
            raise Unreachable("the queue has not decided yet; nothing to wait for", hint="fairlead jobs")
        raise typer.Exit(_wait(client, ids, timeout))


def show(results: list[SubmitResult], output: Format, words: str = "") -> None:
    """Print what came of a submit: ids on stdout; on a terminal also why it waits and what to type next."""
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(results[0] if len(results) == 1 else results, output))
        return
    for warning in dict.fromkeys(warning for result in results for warning in result.warnings):
        terminal.note(f"warning: {warning}")
    for result in results:
        if result.id:
            terminal.write(f"{'job/' if output is Format.names else words}{result.id}\n")
        elif result.command:
            terminal.note(f"kept as command {result.command}: the queue does not answer now and decides later")
    if terminal.is_terminal() and len(results) == 1 and results[0].id:
        job_id = results[0].id
        if results[0].reason:
            terminal.note(f"waiting: {results[0].reason.message}")
        terminal.note(f"next: fairlead why {job_id} | fairlead logs -f {job_id} | fairlead cancel {job_id}")


def _wait(client: Client, ids: list[str], timeout: str) -> int:
    timeout_s = quantities.parse_duration(timeout) / SECOND_NS if timeout else None
    ended = client.wait(ids, timeout_s=timeout_s)
    for job in ended:
        if job.state != "succeeded":
            message = job.reason.message if job.reason else job.state
            terminal.note(
                f"job {job.id} {message}"
                if job.state != "failed"
                else f"job {job.id} {message}; see: fairlead logs {job.id}"
            )
    return exit_code(ended)


def exit_code(jobs: list[Job]) -> int:
    """The first failure's own code: the job's exit code, 128 + its signal, or 1 where it has neither."""
    for job in jobs:
        if job.state != "succeeded":
            return 128 + job.signal if job.signal else job.exit_code or 1
    return 0


def products(client: Client) -> list[str]:
    """Product labels of the cluster's GPU nodes."""
    return [label for node in client.nodes().items if (label := node.labels.get(gpu_models.PRODUCT_LABEL))]


def with_products(job: dict[str, Any], client: Client, *, offline_ok: bool) -> dict[str, Any]:
    """Slurm's short GPU types (`gpu:a100:4`) become the product label that they stand for."""
    selector = job.get("nodeSelector")
    model = selector.get(gpu_models.PRODUCT_LABEL) if isinstance(selector, dict) else None
    if not isinstance(model, str) or model.upper().startswith("NVIDIA-"):
        return job
    try:
        label = gpu_models.product_label(model, lambda: products(client))
    except Unreachable:
        if not offline_ok:
            raise
        terminal.note(f'warning: "{model}" is not yet a product label, because the cluster cannot be asked')
        return job
    return reader.merge(job, {"nodeSelector": {gpu_models.PRODUCT_LABEL: label}})


class AfterDashes(TyperCommand):
    """Notes whether the words came after `--`: then they are a command, whatever files are called so."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = ctx.params.get("words") or []
        ctx.meta["fairlead.dashes"] = len(given) > len(words) and given[len(given) - len(words) - 1] == "--"
        return rest


#: Options after the first word are the script's or the command's.
TYPER_SETTINGS: dict[str, dict[str, Any]] = {
    "submit": {"cls": AfterDashes, "context_settings": {"allow_interspersed_args": False}}
}


def submit(
    ctx: typer.Context,
    words: Words = None,
    file: File = None,
    name: Name = "",
    queue: Queue = "",
    gpus: Gpus = "",
    gpu: Gpu = "",
    gpu_model: GpuModel = None,
    gpu_memory: GpuMemory = "",
    mig: Mig = "",
    nodes: Nodes = "",
    tasks: Tasks = None,
    require: Require = None,
    prefer: Prefer = None,
    toleration: Toleration = None,
    exclusive: Exclusive = False,
    cpus: Cpus = "",
    memory: Memory = "",
    time: Time = "",
    slice_: Slice = "",
    deadline: Deadline = "",
    after: After = None,
    array: Array = "",
    priority: Priority = None,
    retries: Retries = None,
    kind: Kind = "",
    image: Image = "",
    env: Env = None,
    workdir: Workdir = None,
    project: Project = "",
    output_keep: OutputKeep = "",
    output_max: OutputMax = "",
    key: Key = "",
    wait: Wait = False,
    timeout: Timeout = "",
    dry_run: DryRunFlag = False,
    ignore: Ignore = None,
    output: Output = Format.table,
) -> None:
    """Submit a job and print its id.

    fairlead submit -- python train.py

    fairlead submit --gpu H100:8 --nodes 2 --queue research -- torchrun train.py

    fairlead submit train.sh --epochs 3     (#SBATCH lines are followed, or named)

    fairlead submit -f job.yaml --wait

    A script's or command's options come after it; ours come before.
    """
    given = SubmitOptions(
        name=name,
        queue=queue,
        project=project,
        kind=kind,
        image=image,
        priority=priority,
        retries=retries,
        array=array,
        env=env or (),
        nodes=nodes,
        tasks=tasks,
        gpus=gpus,
        mig=mig,
        cpus=cpus,
        memory=memory,
        gpu_model=gpu_model or (),
        gpu_memory=gpu_memory,
        require=require or (),
        prefer=prefer or (),
        toleration=toleration or (),
        exclusive=exclusive,
        time=time,
        slice=slice_,
        deadline=moment(deadline),
        output_keep=output_keep,
        output_max=output_max,
    )
    loaded, here = source(words or [], file, dashes=bool(ctx.meta.get("fairlead.dashes")))
    for note in [*loaded.notes, *require_kept(loaded.unkept, ignore or ())]:
        terminal.note(f"warning: {note}")
    with connect() as client:
        own = _words(client, given, gpu, after or [])
        if workdir is not None:
            own["workdir"] = workdir
        elif here and not image:
            own["workdir"] = str(Path.cwd())
        jobs = [with_products(override(job, own), client, offline_ok=dry_run) for job in loaded.jobs]
        send(client, jobs, key=key, wait=wait, timeout=timeout, dry_run=dry_run, output=output)


def _words(client: Client, given: SubmitOptions, gpu: str, after: list[str]) -> dict[str, Any]:
    """Words of the job file for all options; those that need the cluster's own words ask it."""
    words = jobfile_words(given)
    if after:
        words["dependsOn"] = [depends_on(word, lambda name: pick(client, [name])) for word in after]
    return override(gpu_models.gpu_words(gpu, lambda: products(client)), words) if gpu else words
