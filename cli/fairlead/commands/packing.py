"""`packing`: by which policy a pool's nodes are chosen, what of the pool is of use, and the largest jobs that could start."""

from typing import Annotated

import typer

from fairlead import packing_words, render
from fairlead.client import Client
from fairlead.commands.options import Output, connect
from fairlead.errors import NotFound, Refused
from fairlead.render import Format
from fairlead_schemas.http.api import QueueFileResult
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, PACKINGS


def packing(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="Name of the pool.")] = DEFAULT_POOL,
    policy: Annotated[
        str,
        typer.Option(
            "--policy", metavar="NAME", help=f"Choose nodes by it from now on: {', '.join(PACKINGS)}.", show_default=False,
            autocompletion=lambda: [*PACKINGS],
        ),
    ] = "",
    at: Annotated[str, typer.Option("--at", metavar="SEQ|TIME", help="As it was then.", show_default=False)] = "",
    output: Output = Format.table,
) -> None:  # fmt: skip
    """Show the packing of a pool and its free resources, or choose its policy.

    fairlead packing

    fairlead packing a100 --at 2026-11-02T09:00:00Z

    fairlead packing a100 --policy most_allocated

    Free GPUs are fragmented to the extent that the usual job cannot use them. The usual job is measured by all jobs of the
    pool, the newer ones more, and by their requests: GPUs, GPU model, CPU and memory. "Could start now" are the largest
    gangs by GPUs alone, on one node, and within one domain of each level that node labels name (rack, block, spine), for a
    job that tolerates no taint. To check a job's CPUs and memory too, use submit --dry-run.

    --policy sets the key packing of the pool in the queue file, and no other; jobs with placement: pack or spread use their
    own setting. The names are explained in docs/reference/queues.md.
    """
    if policy and policy not in PACKINGS:
        raise Refused(f'--policy: expected one of {", ".join(PACKINGS)}, found "{policy}"')
    if policy and at:
        raise Refused("--policy is for from now on, --at shows what was", hint="give one of them")
    with connect() as client:
        if policy:
            _choose(client, pool, policy, output)
            return
        found = client.packing(pool, at=at)
    if output in (Format.json, Format.yaml):
        render.write(render.document(found, output))
    elif output is Format.names:
        render.write(f"pool/{found.pool}\n")
    else:
        render.write("".join(f"{line}\n" for line in packing_words.lines(found)))


def _choose(client: Client, pool: str, policy: str, output: Format) -> None:
    """Set the packing policy of a pool. All settings of the pool are rewritten: another change made at the same moment may be
    lost, as with a queue file.
    """
    settings = {each.name: each.settings for each in client.pools().items}
    if pool not in settings:
        raise NotFound(f'there is no pool "{pool}"; there are {", ".join(settings)}', hint="a queue file makes pools")
    answer = client.apply_queues({"pools": {pool: {**settings[pool], "packing": policy}}})
    if not isinstance(answer, QueueFileResult):
        render.note(f"kept as command {answer.command}: the queue service does not answer now and decides later")
    elif output in (Format.json, Format.yaml):
        render.write(render.document(answer, output))
    elif output is Format.names:
        render.write(f"pool/{pool}\n")
    else:
        render.write(
            f"pool {pool}: nodes are chosen by {policy} {'as before' if answer.unchanged else 'from now on'}\n"
        )
