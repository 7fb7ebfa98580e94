"""`submit`: from a file, a script or a command line to a job id."""

from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from fairlead import gpu_words, render
from fairlead.client import Client
from fairlead.commands import submit_options as options
from fairlead.commands.options import Output, Timeout, connect, pick
from fairlead.commands.products import products, with_products
from fairlead.commands.sending import send
from fairlead.commands.sources import source
from fairlead.jobfile import require_kept
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
    ctx: typer.Context, words: options.Words = None, file: options.File = None, name: options.Name = "",
    queue: options.Queue = "", gpus: options.Gpus = "", gpu: options.Gpu = "", gpu_model: options.GpuModel = None,
    gpu_memory: options.GpuMemory = "", mig: options.Mig = "", nodes: options.Nodes = "", tasks: options.Tasks = None,
    require: options.Require = None, prefer: options.Prefer = None, toleration: options.Toleration = None,
    exclusive: options.Exclusive = False, cpus: options.Cpus = "", memory: options.Memory = "",
    time: options.Time = "", slice_: options.Slice = "", deadline: options.Deadline = "", after: options.After = None,
    array: options.Array = "", priority: options.Priority = None, retries: options.Retries = None,
    kind: options.Kind = "", image: options.Image = "", env: options.Env = None, workdir: options.Workdir = None,
    project: options.Project = "", key: options.Key = "", wait: options.Wait = False, timeout: Timeout = "",
    dry_run: options.DryRun = False, ignore: options.Ignore = None, output: Output = Format.table,
) -> None:  # fmt: skip
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
    for note in [*loaded.notes, *require_kept(loaded.unkept, ignore or ())]:
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
