"""Last steps of ready job files: checked, sent or tried, shown, and waited for."""

from typing import Any

import typer

from fairlead import jobfile, render
from fairlead.client import Client
from fairlead.commands import trial
from fairlead.errors import Refused, Unreachable, hint_for
from fairlead.render import Format
from fairlead_schemas.http.api import Job, SubmitResult
from fairlead_schemas.units import quantities


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
    for warning in dict.fromkeys(warning for result in results for warning in result.warnings):
        render.note(f"warning: {warning}")
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
