"""`run`: a job in the foreground, as `srun` and `dstack apply` have it: submitted, followed, and ended with its exit code."""

import inspect
from collections.abc import Callable, Collection
from typing import Any

import typer

from fairlead.client import Client
from fairlead.commands.foreground import attended, follow_to_end
from fairlead.commands.options import connect
from fairlead.commands.submission import exit_code, note_end
from fairlead.commands.submit import AfterDashes, job_files, submit
from fairlead.errors import InputRefused, Unreachable
from fairlead.jobfile import reader
from fairlead.jobfile.file_lines import with_lines
from fairlead.render import terminal

#: Options of `submit` that a command with output has no use for.
_WITHOUT = frozenset({"array", "wait", "timeout", "dry_run", "output"})
TYPER_SETTINGS: dict[str, dict[str, Any]] = {
    "run": {"cls": AfterDashes, "context_settings": {"allow_interspersed_args": False}}
}


def options_of_submit[F: Callable[..., None]](without: Collection[str]) -> Callable[[F], F]:
    """Give a verb the options of `submit` but some, for Typer, which reads the signature. Its own parameters come first."""

    def give(verb: F) -> F:
        own = [each for each in inspect.signature(verb).parameters.values() if each.kind is not each.VAR_KEYWORD]
        names = {*without, *(each.name for each in own)}
        found = inspect.signature(submit)
        kept = [each for name, each in found.parameters.items() if name not in names]
        verb.__dict__["__signature__"] = found.replace(parameters=[*own, *kept])
        return verb

    return give


@options_of_submit(_WITHOUT)
def run(ctx: typer.Context, **_options: Any) -> None:
    """Run a command or script as a job: wait, show its output, and exit with its exit code.

    fairlead run -- python train.py

    fairlead run --gpus 1 --queue research -- nvidia-smi

    While the job waits, the reason is shown. Ctrl-C asks whether to detach from the job or to cancel it.
    """
    with connect() as client:
        raise typer.Exit(run_job(client, job_files(ctx, client, array="", dry_run=False), key=ctx.params["key"]))


def run_job(client: Client, jobs: list[dict[str, Any]], *, key: str = "") -> int:
    """Submit a single job, follow it to its end, and return its exit code. Raises InputRefused for several jobs and for arrays."""
    if len(jobs) != 1 or reader.check(jobs[0]).array is not None:
        found = "an array" if len(jobs) == 1 else f"{len(jobs)} jobs"
        raise InputRefused(
            f"expected one job, whose output can be shown, found {found}", hint="fairlead submit --wait takes several"
        )
    with with_lines(jobs):
        result = client.submit(jobs[0], key=key)
    for warning in result.warnings:
        terminal.note(f"warning: {warning}")
    if not result.id:
        raise Unreachable(
            f"the queue has not decided command {result.command} yet; it may start later", hint="fairlead jobs -u me"
        )
    if terminal.is_terminal():
        terminal.note(f"job {result.id}")
    with attended([result.id]):
        ended = follow_to_end(client, result.id)
    note_end(ended)
    return exit_code([ended])
