"""`submit`: from a file, a script or a command line to a job id.

Its options: `submit_options.py`. The last steps, which `sbatch` shares: `submission.py`. Short names of GPU models become the
product labels that the cluster's nodes have.
"""

import copy
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import typer
from typer.core import TyperCommand

from fairlead.client import Client
from fairlead.commands import submit_options as option
from fairlead.commands.options import Output, Timeout, connect, pick
from fairlead.commands.submission import send
from fairlead.errors import InputRefused, NotFound, Unreachable
from fairlead.jobfile import gpu_models, reader
from fairlead.jobfile.reader import require_kept, source
from fairlead.jobfile.sbatch_options import take_mail
from fairlead.jobfile.submit_flags import SubmitOptions, depends_on, jobfile_words, moment, override
from fairlead.render import terminal
from fairlead.render.terminal import Format
from fairlead_schemas.policies.storage import StorageWordError, parse_dataset


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
    words: option.Words = None,
    file: option.File = None,
    again: option.Again = "",
    name: option.Name = "",
    queue: option.Queue = "",
    gpus: option.Gpus = "",
    gpu: option.Gpu = "",
    gpu_model: option.GpuModel = None,
    gpu_memory: option.GpuMemory = "",
    mig: option.Mig = "",
    nodes: option.Nodes = "",
    tasks: option.Tasks = None,
    require: option.Require = None,
    prefer: option.Prefer = None,
    toleration: option.Toleration = None,
    exclusive: option.Exclusive = False,
    nodelist: option.Nodelist = "",
    exclude: option.Exclude = "",
    hold: option.Hold = False,
    cpus: option.Cpus = "",
    memory: option.Memory = "",
    time: option.Time = "",
    slice_: option.Slice = "",
    deadline: option.Deadline = "",
    after: option.After = None,
    array: option.Array = "",
    priority: option.Priority = None,
    retries: option.Retries = None,
    kind: option.Kind = "",
    image: option.Image = "",
    env: option.Env = None,
    workdir: option.Workdir = None,
    sync: option.Sync = "",
    outputs: option.Outputs = None,
    project: option.Project = "",
    output_keep: option.OutputKeep = "",
    output_max: option.OutputMax = "",
    key: option.Key = "",
    wait: option.Wait = False,
    timeout: Timeout = "",
    dry_run: option.DryRunFlag = False,
    ignore: option.Ignore = None,
    output: Output = Format.table,
) -> None:
    """Submit a job and print its id.

    fairlead submit -- python train.py

    fairlead submit --gpu H100:8 --nodes 2 --queue research -- torchrun train.py

    fairlead submit train.sh --epochs 3     (#SBATCH lines are followed, or named)

    fairlead submit -f job.yaml --wait

    fairlead submit --again 812 --time 8h     (the same job once more, with another limit)

    A script's or command's options come after it; ours come before.
    """
    with connect() as client:
        jobs = job_files(ctx, client, array=array, dry_run=dry_run)
        mail = ctx.meta["fairlead.mail"]
        send(client, jobs, key=key, wait=wait, timeout=timeout, dry_run=dry_run, output=output, mail=mail)


def job_files(ctx: typer.Context, client: Client, *, array: str, dry_run: bool) -> list[dict[str, Any]]:
    """Return the job files of a command line with the options of `submit`: those of the file or script, under the options.
    Writes remarks. Raises InputRefused.
    """
    options = ctx.params
    given = _given({**options, "array": array})
    file = Path(options["file"]) if options["file"] else None
    dashes = bool(ctx.meta.get("fairlead.dashes"))
    if options["again"]:
        if file is not None or (options["words"] and not dashes):
            raise InputRefused("expected --again, or a file or script, found both", hint="fairlead submit --again 812")
        loaded, here = once_more(client, options["again"], options["words"] or []), False
    else:
        loaded, here = source(options["words"] or [], file, dashes=dashes)
    for note in [*loaded.notes, *require_kept(loaded.unkept, options["ignore"] or ())]:
        terminal.note(f"warning: {note}")
    ctx.meta["fairlead.mail"] = take_mail(loaded.jobs)
    own = _words(client, given, options["gpu"], options["after"] or [])
    own |= _workdir(options["workdir"], here=False)
    present = _workdir(None, here=here and not options["image"])
    jobs = [as_submitted(override(job, own), present) for job in loaded.jobs]
    base = _base(file, options["words"] or [], here=here or bool(options["sync"] or options["again"]))
    jobs = with_directories(jobs, base, None if dry_run else client)
    return [with_products(job, client, offline_ok=dry_run) for job in jobs]


def option_words(ctx: typer.Context, client: Client) -> dict[str, Any]:
    """Return the words of a job file for the options of a command line that takes no file; a directory that it names is sent."""
    options = ctx.params
    words = _words(client, _given(options), options.get("gpu", ""), options.get("after") or [])
    words |= _workdir(options.get("workdir"), here=False)
    return with_directories([words], Path.cwd(), client)[0]


def _base(file: Path | None, words: list[str], *, here: bool) -> Path:
    """Return the directory from which a `sync` is meant: that of the file that has it, else the present one."""
    named = file if file is not None else Path(words[0]) if words else None
    return Path.cwd() if here or named is None or str(named) == "-" else named.parent


def with_directories(jobs: list[dict[str, Any]], base: Path, client: Client | None) -> list[dict[str, Any]]:
    """Send the directories that jobs name by `sync`, each once, and name them as the cluster does; without a client nothing is sent. The
    name of a dataset's version ("flowers@1") stands for its directory, where there is none of this name here. Raises InputRefused.
    """
    wanted = dict.fromkeys(sync for job in jobs if isinstance(sync := job.get("sync"), str) and sync)
    if not wanted:
        return jobs
    from fairlead.sync.send import is_name, send_directory
    from fairlead_schemas.wire.trees import DIGEST_BYTES, name_of_tree

    unsent = name_of_tree(bytes(DIGEST_BYTES))
    reader.check_all(
        [override(job, {"sync": unsent}) if job.get("sync") else job for job in jobs]
    )  # before much is sent
    names: dict[str, str] = {}
    for sync in wanted:
        if is_name(sync):
            names[sync] = sync
            continue
        if is_dataset(sync) and not (base / sync).exists():
            names[sync] = unsent if client is None else _digest_of(client, sync)
            continue
        sent = send_directory(base / Path(sync).expanduser(), client, terminal.note)
        terminal.note(sent.words())
        names[sync] = sent.name
    return [override(job, {"sync": names[job["sync"]]}) if job.get("sync") in names else job for job in jobs]


def is_dataset(text: str) -> bool:
    """Return True for the name of a dataset's version."""
    try:
        parse_dataset(text)
    except StorageWordError:
        return False
    return True


def _digest_of(client: Client, dataset: str) -> str:
    """Return the name of a dataset's directory, as job files have it. Raises InputRefused for one that is not there or not readable, and for
    a retired one.
    """
    try:
        found = client.dataset(dataset)
    except NotFound:
        raise InputRefused(
            f'sync: expected a directory or a dataset that you may read, found "{dataset}"',
            hint="fairlead datasets list",
        ) from None
    if found.retired:
        raise InputRefused(f"sync: dataset {dataset} is retired", hint="fairlead datasets list shows other versions")
    return found.digest


#: Words of a job file that were for the time of its submit.
_OF_ITS_TIME = ("held", "startAt", "deadline", "dependsOn")


def once_more(client: Client, word: str, command: list[str]) -> reader.Loaded:
    """Return the job file of a job that was submitted before (an id, a name, `last`), with another command where one is given; without what
    was for the time of its submit. Raises InputRefused for several jobs.
    """
    ids = pick(client, [word], names=True)
    if len(ids) != 1:
        raise InputRefused(f'--again: expected one job such as "12", "12_3" or "last", found "{word}"')
    spec: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(client.job(ids[0]).spec))
    index = ids[0].partition("_")[2]
    if index:
        spec["array"] = f"{index}-{index}"
    left = [name for name in _OF_ITS_TIME if spec.pop(name, None)]
    notes = [f"{name} of job {ids[0]} was for its own time and is left out" for name in left]
    return reader.Loaded([{**spec, "command": command, "args": []} if command else spec], notes)


def as_submitted(job: dict[str, Any], present: dict[str, Any]) -> dict[str, Any]:
    """Return the job with what only its submit knows: fields for those that it omits (`present`), the directory and host for a script of
    Slurm's, and a start from now on as a time.
    """
    found = copy.copy(job)
    owns = bool(job.get("sync") or job.get("outputs"))
    for name, value in present.items() if not owns else ():
        found.setdefault(name, value)
    if job.get("launcher") == "slurm":
        here = {"SLURM_SUBMIT_DIR": str(Path.cwd()), "SLURM_SUBMIT_HOST": socket.gethostname()}
        found["env"] = {**here, **job.get("env", {})}
        if not owns:
            found["workdir"] = str(Path.cwd() / found.get("workdir", "."))
    if isinstance(start := job.get("startAt"), str) and start:
        found["startAt"] = moment(start)
    return found


def _given(options: Mapping[str, Any]) -> SubmitOptions:
    """Return the options of the job itself, by the names of `submit`'s parameters. Raises InputRefused for a bad deadline."""
    given = {name: options[name] for name in SubmitOptions._fields if options.get(name) is not None}
    return SubmitOptions(**{**given, "slice": options["slice_"], "deadline": moment(options["deadline"])})


def _workdir(given: str | None, *, here: bool) -> dict[str, Any]:
    """Return the working directory as a word of the job file: the given one, else the present one if the job runs `here`."""
    if given is not None:
        return {"workdir": given}
    return {"workdir": str(Path.cwd())} if here else {}


def _words(client: Client, given: SubmitOptions, gpu: str, after: list[str]) -> dict[str, Any]:
    """Words of the job file for all options; those that need the cluster's own words ask it."""
    words = jobfile_words(given)
    if after:
        words["dependsOn"] = [depends_on(word, lambda name: pick(client, [name])) for word in after]
    return override(gpu_models.gpu_words(gpu, lambda: products(client)), words) if gpu else words
