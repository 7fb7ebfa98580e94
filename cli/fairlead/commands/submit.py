"""`submit`: from a file, a script or a command line to a job id."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from fairlead import gpu_words, jobfile, render
from fairlead.client import Client
from fairlead.commands import trial
from fairlead.commands.options import Output, Timeout, connect, pick
from fairlead.errors import Refused, Unreachable, hint_for
from fairlead.render import Format
from fairlead_schemas import quantities
from fairlead_schemas.api import Job, SubmitResult

_FILE_SUFFIXES = (".yaml", ".yml", ".json")


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
    gpus: Annotated[int | None, typer.Option("--gpus", help="GPUs per node.", show_default=False)] = None,
    gpu: Annotated[
        str, typer.Option("--gpu", help="Shorthand: H100:8, 24GB..:2 (model, least memory, count per node).")
    ] = "",
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-N", help="Nodes; more than one is a gang.", show_default=False)
    ] = None,
    cpus: Annotated[str, typer.Option("--cpus", help='CPUs per node: 8, 0.5 or "500m".')] = "",
    memory: Annotated[str, typer.Option("--memory", help="Memory per node: 64Gi.")] = "",
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
    flags = _flags(name=name, queue=queue, gpus=gpus, nodes=nodes, cpus=cpus, memory=memory, time=time, slice=slice_,
                   deadline=moment(deadline), array=array, priority=priority, retries=retries, kind=kind, image=image, env=env or [], project=project)  # fmt: skip
    loaded, here = _source(words or [], file, dashes=bool(ctx.meta.get("fairlead.dashes")))
    for note in loaded.notes:
        render.note(f"warning: {note}")
    with connect() as client:
        if after:
            flags["dependsOn"] = [depends_on(word, lambda name: pick(client, [name])) for word in after]
        if gpu:
            flags = jobfile.merge(gpu_words.gpu_words(gpu, lambda: products(client)), flags)
        if workdir is not None:
            flags["workdir"] = workdir
        elif here and not image:
            flags["workdir"] = str(Path.cwd())
        jobs = [with_products(jobfile.merge(job, flags), client, offline_ok=dry_run) for job in loaded.jobs]
        send(client, jobs, key=key, wait=wait, timeout=timeout, dry_run=dry_run, output=output)


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
    specs = [jobfile.check(job) for job in jobs]
    if dry_run:
        trial.dry_run(client, jobs, specs, output)
        return
    results = [client.submit(jobs[0], key=key)] if len(jobs) == 1 else client.submit_many(jobs, key=key)
    refused = [result for result in results if result.state == "rejected"]
    show(results, output, words)
    if refused:
        reasons = [result.reason for result in refused if result.reason]
        hint = next((hint for reason in reasons if (hint := hint_for(reason.code))), "")
        raise Refused("\n".join(reason.message for reason in reasons), hint=hint)
    if wait:
        ids = [result.id for result in results if result.id]
        if len(ids) < len(results):
            raise Unreachable("the queue has not decided yet; nothing to wait for", hint="fairlead jobs")
        raise typer.Exit(_wait(client, ids, timeout))


def show(results: list[SubmitResult], output: Format, words: str = "") -> None:
    """Print what came of a submit: ids on stdout; on a terminal also why it waits and what to type next."""
    if output in (Format.json, Format.yaml):
        render.write(render.document(results[0] if len(results) == 1 else results, output))
        return
    for result in results:
        if result.id:
            render.write(f"{'job/' if output is Format.names else words}{result.id}\n")
        elif result.command:
            render.note(f"kept as command {result.command}: the queue does not answer now and decides later")
    if render.is_terminal() and len(results) == 1 and results[0].id:
        job_id = results[0].id
        if results[0].reason:
            render.note(f"waiting: {results[0].reason.message}")
        render.note(f"next: fairlead why {job_id} | fairlead logs -f {job_id} | fairlead cancel {job_id}")


def _wait(client: Client, ids: list[str], timeout: str) -> int:
    timeout_s = quantities.parse_duration(timeout) / quantities.SECOND_NS if timeout else None
    ended = client.wait(ids, timeout_s=timeout_s)
    for job in ended:
        if job.state != "succeeded":
            told = job.reason.message if job.reason else job.state
            render.note(
                f"job {job.id} {told}" if job.state != "failed" else f"job {job.id} {told}; see: fairlead logs {job.id}"
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
    return [label for node in client.nodes().items if (label := node.labels.get(gpu_words.PRODUCT_LABEL))]


def with_products(job: dict[str, Any], client: Client, *, offline_ok: bool) -> dict[str, Any]:
    """Slurm's short GPU types (`gpu:a100:4`) become the product label that they stand for."""
    selector = job.get("nodeSelector")
    model = selector.get(gpu_words.PRODUCT_LABEL) if isinstance(selector, dict) else None
    if not isinstance(model, str) or model.upper().startswith("NVIDIA-"):
        return job
    try:
        label = gpu_words.product_label(model, lambda: products(client))
    except Unreachable:
        if not offline_ok:
            raise
        render.note(f'warning: "{model}" is not yet a product label, because the cluster cannot be asked')
        return job
    return jobfile.merge(job, {"nodeSelector": {gpu_words.PRODUCT_LABEL: label}})


def _source(words: list[str], file: Path | None, *, dashes: bool) -> tuple[jobfile.Loaded, bool]:
    """The job files, and whether they belong to the current directory as scripts and commands do."""
    if file is not None:
        if words and not dashes:
            raise Refused(f'expected either --file or a script, found both ("{words[0]}")')
        loaded = jobfile.load(read_script(file), name=file.name)
        return (
            (jobfile.Loaded([{**job, "command": words} for job in loaded.jobs], loaded.notes), False)
            if words
            else (loaded, False)
        )
    if dashes:
        return jobfile.Loaded([{"command": words}], []), True
    if not words:
        raise Refused(
            "expected a script, a job file or `-- COMMAND`, found nothing", hint="fairlead submit -- echo hello"
        )
    path = Path(words[0])
    if not path.is_file():
        raise Refused(f'there is no file "{path}"', hint=f"for a command: fairlead submit -- {' '.join(words)}")
    text = read_script(path)
    if path.suffix not in _FILE_SUFFIXES and not text.startswith("#!") and "\n#SBATCH" not in f"\n{text}":
        raise Refused(
            f'{path}: expected a script that starts with "#!", or a .yaml or .json file',
            hint=f"for a command: fairlead submit -- {' '.join(words)}",
        )
    return jobfile.load(text, name=path.name, arguments=words[1:]), path.suffix not in _FILE_SUFFIXES


def read_script(path: Path, limit: int = jobfile.FILE_BYTES_MAX) -> str:
    """A file's text ("-": stdin), cut one byte over the limit. Raises Refused."""
    try:
        raw = sys.stdin.buffer.read(limit + 1) if str(path) == "-" else _head(path, limit)
        return raw.decode()
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Refused(f"{path}: expected text in UTF-8, found other bytes at {error.start}") from error


def _head(path: Path, limit: int) -> bytes:
    """One byte over the limit is enough to know that a file is too large."""
    with path.open("rb") as file:
        return file.read(limit + 1)


def moment(text: str) -> str:
    """A time as a job file has it: as it stands, or for a duration ("8h") so long from now."""
    try:
        ahead_s = quantities.parse_duration(text) / quantities.SECOND_NS
    except quantities.QuantityError:
        return text  # checked with the rest of the job file
    return f"{datetime.now(UTC) + timedelta(seconds=ahead_s):%Y-%m-%dT%H:%M:%SZ}"


def depends_on(word: str, pick_jobs: Callable[[str], list[str]]) -> dict[str, str] | str:
    """`12` or `last:ended` as a job file has it. Raises Refused for what names no single job."""
    name, colon, state = word.partition(":")
    jobs = pick_jobs(name)
    if len(jobs) != 1:
        raise Refused(f'--after: expected one job such as "12", "12_3" or "last", found "{name}"')
    return {"job": jobs[0], "state": state} if colon else jobs[0]


def _flags(**given: Any) -> dict[str, Any]:
    """Command line options as job file words; what was not given is left out."""
    flags: dict[str, Any] = {
        k: given[k]
        for k in ("name", "queue", "nodes", "priority", "kind", "image", "project", "deadline")
        if given[k] not in ("", None)
    }
    resources = {"nvidia.com/gpu": given["gpus"], "cpu": given["cpus"], "memory": given["memory"]}
    if wanted := {k: v for k, v in resources.items() if v not in ("", None)}:
        flags["resources"] = wanted
    if times := {k: v for k, v in (("total", given["time"]), ("slice", given["slice"])) if v}:
        flags["time"] = times
    if given["retries"] is not None:
        flags["retries"] = {"max": given["retries"]}
    if given["array"]:
        flags["array"] = int(given["array"]) if given["array"].isdecimal() else given["array"]
    if given["env"]:
        pairs = [item.partition("=") for item in given["env"]]
        if bad := [name for name, equals, _ in pairs if not equals or not name]:
            raise Refused(f'--env: expected NAME=VALUE, found "{bad[0]}"')
        flags["env"] = {name: value for name, _, value in pairs}
    return flags
