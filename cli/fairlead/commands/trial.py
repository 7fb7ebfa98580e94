"""`submit --dry-run`: what would become of the jobs, asked of the gateway; without one, the file alone is checked."""

from typing import Any

import msgspec

from fairlead import render, trial_words
from fairlead.client import Client
from fairlead.errors import Refused, Unreachable, hint_for
from fairlead.render import Format
from fairlead_schemas.http.api import DryRun
from fairlead_schemas.jobfile.job_spec import JobSpec
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.wire.commands import encode_commands


def dry_run(client: Client, jobs: list[dict[str, Any]], specs: list[JobSpec], output: Format) -> None:
    """Print what would become of each; ends as the submit would where one would be refused."""
    try:
        found = client.dry_run(jobs)
    except Unreachable as error:
        found = [_file_only(spec, client.user, str(error)) for spec in specs]
    if output in (Format.json, Format.yaml):
        render.write(render.document(found[0] if len(found) == 1 else found, output))
    else:
        render.write("\n".join(render.fields(trial_words.facts(one)) for one in found))
    render.note("nothing was sent; the job file, as it would be: -o yaml, under command.spec")
    refused = [one for one in found if not one.valid]
    if refused:
        hint = next((hint for one in refused if (hint := hint_for(one.code))), "")
        raise Refused("\n".join(one.message for one in refused), hint=hint)


def _file_only(spec: JobSpec, user: str, why_not: str) -> DryRun:
    """Return a dry run's result without the cluster, from the file alone."""
    command = encode_commands([resolve(spec, command_id="", user=user)])[1:-1]
    told = f"checked: file only; the cluster could not be asked ({why_not})"
    return DryRun(checked="file", message=told, command=msgspec.Raw(command), sequence=0)
