"""`submit`: from a file, a script or a command line to a job id."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from fairlead import gpu_words, render
from fairlead.client import Client
from fairlead.commands.options import Output, Timeout, connect, pick
from fairlead.commands.products import products, with_products
from fairlead.commands.sending import send
from fairlead.commands.sources import source
from fairlead.render import Format
from fairlead.submit_words import Options, depends_on, moment, override, words_of


class AfterDashes(TyperCommand):
    """Notes whether the words came after `--`: then they are a command, whatever files are called so."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        left = super().parse_args(ctx, args)
        words = ctx.params.get("words") or []
        ctx.meta["fairlead.dashes"] = len(given) > len(words) and given[len(given) - len(words) - 1] == "--"
        return left


def submit(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE|SCRIPT] | -- COMMAND…", show_default=False)
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help='Job file: YAML, JSON or a Kubernetes Job; "-" is stdin.')
    ] = None,
    name: Annotated[str, typer.Option("--name", help="Name of the job.")] = "",
    queue: Annotated[str, typer.Option("--queue", "-q", help="Queue, such as research/vision.")] = "",
    gpus: Annotated[str, typer.Option("--gpus", help="GPUs per node (or task): 8, or a share of one: 0.5.")] = "",
    gpu: Annotated[
        str, typer.Option("--gpu", help="Shorthand: H100:8, 24GB..:2 (model, least memory, count per node).")
    ] = "",
    gpu_model: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu-model", help="GPU model: A100, or a product in full; repeatable: any of them.", show_default=False
        ),
    ] = None,
    gpu_memory: Annotated[str, typer.Option("--gpu-memory", help="Least memory of each GPU: 40Gi.")] = "",
    mig: Annotated[str, typer.Option("--mig", help="MIG instances per node (or task): 3g.20gb, 3g.20gb:2.")] = "",
    nodes: Annotated[
        str, typer.Option("--nodes", "-N", help="Nodes; more than one is a gang; 2-8: as many of them as can be had.")
    ] = "",
    tasks: Annotated[
        int | None, typer.Option("--tasks", help="Tasks in place of nodes; they may share nodes.", show_default=False)
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require", help="All of it within one numa, node, rack, block …; repeatable.", show_default=False
        ),
    ] = None,
    prefer: Annotated[
        list[str] | None, typer.Option("--prefer", help="The same, if it can be had.", show_default=False)
    ] = None,
    toleration: Annotated[
        list[str] | None,
        typer.Option(
            "--toleration",
            help="A taint that it puts up with: key=value:NoSchedule, key; repeatable.",
            show_default=False,
        ),
    ] = None,
    exclusive: Annotated[bool, typer.Option("--exclusive", help="Nobody else's work on its nodes.")] = False,
    cpus: Annotated[str, typer.Option("--cpus", help='CPUs per node: 8, 0.5 or "500m".')] = "",
    memory: Annotated[str, typer.Option("--memory", help="Memory per node (or task): 64Gi.")] = "",
    time: Annotated[
        str, typer.Option("--time", help='Longest run time, over all slices: "1h 30m", 7d, 90 (seconds), 2:00:00.')
    ] = "",
    slice_: Annotated[
        str,
        typer.Option("--slice", help='Least run time before it may be asked to yield to others: "1h", 90 (seconds).'),
    ] = "",
    deadline: Annotated[
        str,
        typer.Option("--deadline", help="By when it shall have ended: an RFC 3339 time with zone, or from now: 8h."),
    ] = "",
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after",
            show_default=False,
            help="Start only after JOB has succeeded, or JOB:failed, JOB:ended (either); repeatable; JOB may be last.",
        ),
    ] = None,
    array: Annotated[str, typer.Option("--array", help="Elements: 8 (0-7), 1-100, or 0-9%2 (two at once).")] = "",
    priority: Annotated[
        int | None, typer.Option("--priority", help="0 to 1000; higher goes first.", show_default=False)
    ] = None,
    retries: Annotated[
        int | None, typer.Option("--retries", help="How often a failed exit is tried again.", show_default=False)
    ] = None,
    kind: Annotated[str, typer.Option("--kind", help="batch, session or service.")] = "",
    image: Annotated[str, typer.Option("--image", help="Container image (docker runtime).")] = "",
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE, repeatable.", show_default=False)
    ] = None,
    workdir: Annotated[
        str | None, typer.Option("--workdir", help="Where it runs; a command or script: here.", show_default=False)
    ] = None,
    project: Annotated[str, typer.Option("--project", help="Whom it is counted for.")] = "",
    key: Annotated[str, typer.Option("--key", help="Idempotency key: repeating the submit gives the same job.")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; exit with the job's own code.")] = False,
    timeout: Timeout = "",
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Say what would become of it (quota, who is ahead, what holds it back), and send nothing."
        ),
    ] = False,
    output: Output = Format.table,
) -> None:
    """Submit a job and print its id.

    fairlead submit -- python train.py

    fairlead submit --gpu H100:8 --nodes 2 --queue research -- torchrun train.py

    fairlead submit train.sh --epochs 3     (#SBATCH lines are followed, or named)

    fairlead submit -f job.yaml --wait

    A script's or command's options come after it; ours come before.
    """
    given = Options(
        name=name, queue=queue, project=project, kind=kind, image=image, priority=priority, retries=retries, array=array,
        env=env or (), nodes=nodes, tasks=tasks, gpus=gpus, mig=mig, cpus=cpus, memory=memory, gpu_model=gpu_model or (),
        gpu_memory=gpu_memory, require=require or (), prefer=prefer or (), toleration=toleration or (), exclusive=exclusive,
        time=time, slice=slice_, deadline=moment(deadline),
    )  # fmt: skip
    loaded, here = source(words or [], file, dashes=bool(ctx.meta.get("fairlead.dashes")))
    for note in loaded.notes:
        render.note(f"warning: {note}")
    with connect() as client:
        own = _words(client, given, gpu, after or [])
        if workdir is not None:
            own["workdir"] = workdir
        elif here and not image:
            own["workdir"] = str(Path.cwd())
        jobs = [with_products(override(job, own), client, offline_ok=dry_run) for job in loaded.jobs]
        send(client, jobs, key=key, wait=wait, timeout=timeout, dry_run=dry_run, output=output)


def _words(client: Client, given: Options, gpu: str, after: list[str]) -> dict[str, Any]:
    """Words of the job file for all options; those that need the cluster's own words ask it."""
    words = words_of(given)
    if after:
        words["dependsOn"] = [depends_on(word, lambda name: pick(client, [name])) for word in after]
    return override(gpu_words.gpu_words(gpu, lambda: products(client)), words) if gpu else words
