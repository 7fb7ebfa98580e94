"""`defrag`: which runs would be moved so that big jobs start."""

from typing import Annotated

import typer

from fairlead import defrag_words, render
from fairlead.commands.options import Output, connect
from fairlead.render import Format
from fairlead_schemas.queuefile.settings import DEFAULT_POOL


def defrag(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="Name of the pool.")] = DEFAULT_POOL,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="The only way there is: this verb moves nothing.")] = True,
    output: Output = Format.table,
) -> None:
    """Show which runs would be moved for jobs that fit nowhere though enough GPUs are free.

    fairlead defrag

    fairlead defrag a100 -o json

    Batch jobs that name a time.slice, and have run so long, may be moved; each must fit elsewhere now. A plan is carried out
    only in pools with {defragment: true} in the queue file, and when the job gains more GPU time than the moves cost: it
    gains its GPUs for as long again as it has waited, a move costs the run's time since its start, at most a slice, and
    two minutes.
    """
    with connect() as client:
        found = client.defrag(pool)
    if output in (Format.json, Format.yaml):
        render.write(render.document(found, output))
    elif output is Format.names:
        render.write("".join(f"job/{plan.job}\n" for plan in found.plans if plan.moves))
    else:
        render.write("".join(f"{line}\n" for line in defrag_words.lines(found)))
