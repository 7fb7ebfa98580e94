"""Last steps of ready job files, for `submit` and `sbatch`: checked, sent or tried, shown, and waited for.

`--dry-run` requests the outcome from the gateway; without a gateway, the file alone is checked.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import typer

from fairlead.client import Client
from fairlead.commands.foreground import WaitingReasons, attended
from fairlead.errors import FairleadError, InputRefused, Unreachable, hint_for
from fairlead.jobfile import reader
from fairlead.jobfile.file_lines import with_lines
from fairlead.render import explanation, terminal
from fairlead.render.terminal import Format
from fairlead_schemas.http.api import DryRun, Job, SubmitResult
from fairlead_schemas.jobfile.job_spec import JobSpec
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.units import quantities
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.commands import encode_commands


def print_dry_run(client: Client, jobs: list[dict[str, Any]], specs: list[JobSpec], output: Format) -> None:
    """Print what would become of each; ends as the submit would where one would be refused."""
    try:
        with with_lines(jobs):
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
    mail: Sequence[dict[str, Any] | None] = (),
) -> None:
    """Check, submit, print, and make the rules of `mail` about each job; with `wait`, end the program with the job's own exit code."""
    specs = reader.check_all(jobs)
    if dry_run:
        print_dry_run(client, jobs, specs, output)
        return
    with with_lines(jobs):
        results = [client.submit(jobs[0], key=key)] if len(jobs) == 1 else client.submit_many(jobs, key=key)
    refused = [result for result in results if result.state == "rejected"]
    show(results, output, words)
    _add_mail(client, results, mail)
    if refused:
        reasons = [result.reason for result in refused if result.reason]
        hint = next((hint for reason in reasons if (hint := hint_for(reason.code))), "")
        raise InputRefused("\n".join(reason.message for reason in reasons), hint=hint)
    if wait:
        ids = [result.id for result in results if result.id]
        if len(ids) < len(results):
            raise Unreachable("the queue has not decided yet; nothing to wait for", hint="fairlead jobs")
        raise typer.Exit(_wait(client, ids, timeout))


def _add_mail(client: Client, results: list[SubmitResult], wishes: Sequence[dict[str, Any] | None]) -> None:
    """Make a rule of notifications for each job that wishes one; where that cannot be, the remark says why. The job is there in any case."""
    for result, wish in zip(results, wishes, strict=False):
        if wish is None or not result.id:
            continue
        to = wish.get("to", "")
        try:
            try:
                _add_rule(client, result, wish, to or True)
            except InputRefused:
                if not to:
                    raise
                _add_rule(client, result, wish, True)  # with sign-on mail goes to one's own address
                terminal.note(f"warning: --mail-user={to} is NOT FOLLOWED: mail goes to your own address")
        except FairleadError as error:
            what = f"--mail-type is NOT FOLLOWED: {error}"
            terminal.note(f"warning: {what}; once for all of your jobs: fairlead notify add --mail")


def _add_rule(client: Client, result: SubmitResult, wish: dict[str, Any], mail: str | bool) -> None:
    client.add_notification(
        wish["on"],
        mail=mail,
        name=f"job {result.id}",
        scopes=[f"job:{result.id}"],
        elements=wish.get("elements", False),
        after=result.sequence,
    )


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
    with attended(ids):
        ended = client.wait(ids, timeout_s=timeout_s, seen=WaitingReasons().see)
    for job in ended:
        note_end(job)
    return exit_code(ended)


def note_end(job: Job) -> None:
    """Write how a job ended that did not succeed, and where to look."""
    if job.state == "succeeded":
        return
    message = job.reason.message if job.reason else job.state
    see = f"; see: fairlead logs {job.id}" if job.state == "failed" else ""
    terminal.note(f"job {job.id} {message}{see}")


def exit_code(jobs: list[Job]) -> int:
    """The first failure's own code: the job's exit code, 128 + its signal, or 1 where it has neither."""
    for job in jobs:
        if job.state != "succeeded":
            return 128 + job.signal if job.signal else job.exit_code or 1
    return 0
