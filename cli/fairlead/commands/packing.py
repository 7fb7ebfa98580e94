"""`packing`: by which policy a pool's nodes are chosen, what of the pool is of use, and the largest jobs that could start.

Further parts:
- texts on the packing of a pool and its free resources;
- a plan to move runs, in words;
- `defrag`: which runs would be moved so that big jobs start.
"""

from collections.abc import Iterator
from typing import Annotated

import typer

from fairlead.client import Client
from fairlead.commands.options import Output, connect, moment_of
from fairlead.errors import InputRefused, NotFound
from fairlead.render import terminal
from fairlead.render.terminal import Format, hidden_jobs
from fairlead_schemas.http.api import QueueFileResult
from fairlead_schemas.queries.cluster_map import DomainCapacity, PoolPacking
from fairlead_schemas.queries.explainer import Defrag, DefragMove, DefragPlan
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, PACKINGS
from fairlead_schemas.units.hardware import DOMAIN_LABELS
from fairlead_schemas.units.quantities import format_milli


def packing_lines(found: PoolPacking) -> Iterator[str]:
    """The policy; what is free and how much of it is of no use; the largest jobs that could start. Of the past: as of when."""
    then = found.at is not None
    yield f"pool {found.pool}: nodes {'were' if then else 'are'} chosen by {found.policy}"
    if then:
        yield f"as of log sequence {found.sequence}, {found.at}"
    if not found.nodes:
        yield "no node is of this pool"
        return
    free, aside = format_milli(found.gpu_milli_free), format_milli(found.gpu_milli_aside)
    more = f", and {aside} on nodes that do not take everybody's work" if found.gpu_milli_aside else ""
    yield f"{_count(found.nodes, 'node')}, {_count(found.gpus, 'GPU')}: {free} free{more}"
    yield _fragmentation(found)
    one = found.largest_on_one_node
    if one is None:
        yield f"could start {'then' if then else 'now'}: nothing that needs a whole GPU"
        return
    yield f"could start {'then' if then else 'now'}, by GPUs alone:"
    yield f"  on one node: {_count(one.gpus, 'GPU')} ({one.node})"
    for level in (*DOMAIN_LABELS, "pool"):
        rooms = found.largest_gangs.get(level)
        if rooms:
            yield f"  in {'the pool' if level == 'pool' else f'one {level}'}: {', '.join(_room(level, room) for room in rooms)}"


def _fragmentation(found: PoolPacking) -> str:
    if not found.gpu_milli_free:
        return "fragmentation: nothing is free"
    if not found.requests_seen:
        return "fragmentation: not known before a job has asked for GPUs here"
    percent = 100 * found.gpu_milli_unusable // found.gpu_milli_free
    unusable = f"{format_milli(found.gpu_milli_unusable)} of the free GPUs ({percent} %)"
    return f"fragmentation: {unusable} are of no use to the usual job, of {found.requests_seen} that have come"


def _room(level: str, room: DomainCapacity) -> str:
    where = "" if level == "pool" else f" ({room.domain})"
    return f"{_count(room.nodes, 'node')} x {_count(room.gpus_per_node, 'GPU')}{where}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def packing(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="Name of the pool.")] = DEFAULT_POOL,
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="NAME",
            help=f"Choose nodes by it from now on: {', '.join(PACKINGS)}.",
            show_default=False,
            autocompletion=lambda: [*PACKINGS],
        ),
    ] = "",
    at: Annotated[str, typer.Option("--at", metavar="SEQ|TIME", help="As it was then.", show_default=False)] = "",
    output: Output = Format.table,
) -> None:
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
        raise InputRefused(f'--policy: expected one of {", ".join(PACKINGS)}, found "{policy}"')
    if policy and at:
        raise InputRefused("--policy is for from now on, --at shows what was", hint="give one of them")
    with connect() as client:
        if policy:
            _choose(client, pool, policy, output)
            return
        found = client.packing(pool, at=moment_of(at))
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(found, output))
    elif output is Format.names:
        terminal.write(f"pool/{found.pool}\n")
    else:
        terminal.write("".join(f"{line}\n" for line in packing_lines(found)))


def _choose(client: Client, pool: str, policy: str, output: Format) -> None:
    """Set the packing policy of a pool. All settings of the pool are rewritten: another change made at the same moment may be
    lost, as with a queue file.
    """
    settings = {each.name: each.settings for each in client.pools().items}
    if pool not in settings:
        raise NotFound(f'there is no pool "{pool}"; there are {", ".join(settings)}', hint="a queue file makes pools")
    answer = client.apply_queues({"pools": {pool: {**settings[pool], "packing": policy}}})
    if not isinstance(answer, QueueFileResult):
        terminal.note(f"kept as command {answer.command}: the queue service does not answer now and decides later")
    elif output in (Format.json, Format.yaml):
        terminal.write(terminal.document(answer, output))
    elif output is Format.names:
        terminal.write(f"pool/{pool}\n")
    else:
        terminal.write(
            f"pool {pool}: nodes are chosen by {policy} {'as before' if answer.unchanged else 'from now on'}\n"
        )


NODES_SHOWN = 4


def defrag_lines(found: Defrag) -> Iterator[str]:
    """The pool, and for each job what would be moved and what would start, or why nothing is moved."""
    state = "on: plans that gain are carried out, one at a time" if found.on else "off: nothing is ever moved"
    yield f"pool {found.pool}: defragmentation is {state}"
    if not found.plans and not found.plans_hidden:
        yield "no job waits for a place"
    for plan in found.plans:
        yield from _plan(plan)
    for text in hidden_jobs(found.plans_hidden):
        yield f"{text}: a place is wanted for {'it' if found.plans_hidden == 1 else 'each'}"


def _plan(plan: DefragPlan) -> Iterator[str]:
    yield f"job {plan.job} ({format_milli(plan.gpu_milli)} GPUs): {_verdict(plan)}"
    for move in plan.moves:
        yield f"  move {_move(move)}"
    for text in hidden_jobs(plan.moves_hidden):
        yield f"  move {text}"


def _verdict(plan: DefragPlan) -> str:
    if not plan.moves and not plan.moves_hidden:
        return plan.message
    sums = f"gains {plan.gain_gpu_s} GPU-seconds, costs {plan.cost_gpu_s}"
    start = f"would start on {_names(plan.nodes)}"
    return f"{start}, but {plan.message}: {sums}" if plan.why_not else f"{start}: {sums}"


def _move(move: DefragMove) -> str:
    where = f"from {_names(move.sources)} to {_names(move.targets)}"
    return f"job {move.job} ({format_milli(move.gpu_milli)} GPUs) {where}, costs {move.cost_gpu_s} GPU-seconds"


def _names(nodes: tuple[str, ...]) -> str:
    more = f" and {len(nodes) - NODES_SHOWN} more" if len(nodes) > NODES_SHOWN else ""
    return ", ".join(nodes[:NODES_SHOWN]) + more


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
        terminal.write(terminal.document(found, output))
    elif output is Format.names:
        terminal.write("".join(f"job/{plan.job}\n" for plan in found.plans if plan.moves))
    else:
        terminal.write("".join(f"{line}\n" for line in defrag_lines(found)))
