"""Command `nodes` and the verbs on nodes, such as cordon, drain, taint, quarantine and restore. Also the text that
describes one node.
"""

import shutil
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from fairlead.client import Client
from fairlead.commands.options import (
    NodeName,
    NodeNames,
    NodesDryRun,
    Output,
    Selector,
    carry_out,
    complete_node,
    connect,
    expand_nodes,
    labels_of,
    moment_of,
)
from fairlead.errors import InputRefused, NotFound
from fairlead.render import columns, terminal
from fairlead.render.cluster_map import By, draw
from fairlead.render.terminal import Format
from fairlead_schemas.http.api import HealthIssue, Node
from fairlead_schemas.units import quantities
from fairlead_schemas.units.quantities import format_memory, format_milli

#: Verbs of their own that people look for below `nodes`.
_OWN_VERBS = ("cordon", "uncordon", "drain")
_DONE = {"note": "work continues", "gpu": "the GPU gets no new work", "node": "the node gets no new work"}


def node_description(node: Node) -> str:
    """Fields, one to a line, then what is not well with its evidence, then labels."""
    played = " simulated" if node.simulated else ""
    pairs = [
        ("node", node.id), ("state", node.state), ("why", node.reason), ("set by", node.setter),
        ("failed fast here", ", ".join(node.blamed_by)), ("release", _release(node)),
        ("gpus", f"{node.gpus_free} of {node.gpus} free, {node.gpu_model}{played}" if node.gpus else "none"),
        ("not free", ", ".join(f"{count} {state}" for state, count in sorted(node.gpu_states.items()) if state != "free")),
        ("silent for", f"{node.silent_seconds} s" if node.silent_seconds else ""),
        ("cpu", f"{format_milli(node.cpu_milli_free)} of {format_milli(node.cpu_milli)} free"),
        ("memory", f"{format_memory(node.memory_mib_free)} of {format_memory(node.memory_mib)} free"),
        ("runtime", node.runtime), ("address", node.address), ("host", node.hostname), ("taints", ", ".join(node.taints)),
        ("inside", node.inside), ("mig", node.mig), ("jobs", ", ".join(node.jobs)),
        ("health", "" if node.health else "nothing is known to be wrong"),
    ]  # fmt: skip
    labels = "".join(f"  {key}={node.labels[key]}\n" for key in sorted(node.labels))
    ailments = "".join(_ailment(node, each) for each in node.health)
    return terminal.fields(pairs) + ailments + (f"\nlabels\n{labels}" if labels else "")


def _release(node: Node) -> str:
    return f"fairlead unquarantine {node.id}" if node.state in ("quarantined", "suspect") else ""


def _ailment(node: Node, seen: HealthIssue) -> str:
    heading = f"\n{seen.gpu or 'the node itself'}: {seen.code}, since {seen.since}\n"
    pairs = [
        ("  meaning", seen.words),
        ("  seen", seen.evidence),
        ("  so", _DONE.get(seen.severity, seen.severity)),
        ("  until", seen.returns),
        ("  restore", f"fairlead restore {node.id} {seen.gpu}".strip()),
    ]
    return heading + terminal.fields(pairs)


Reason = Annotated[str, typer.Option("--reason", help="Shown wherever the node is shown.")]

#: Width of a picture in columns where the output has no known width.
PIPE_COLUMNS = 80
#: Jobs of a node that one line names.
JOBS_SHOWN_MAX = 5


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[describe NODE | remove NODE…]", help="All about one node; forget nodes.", show_default=False
    ),
]


def nodes(
    words: Words = None,
    output: Output = Format.table,
    drawn: Annotated[bool, typer.Option("--map", help="Draw every GPU, by who holds it.")] = False,
    by: Annotated[By, typer.Option("--by", help="With --map: what has a letter and a colour.")] = By.job,
    pool: Annotated[
        str, typer.Option("--pool", help="With --map: only the nodes of this pool.", show_default=False)
    ] = "",
    rack: Annotated[
        str, typer.Option("--rack", help="With --map: only the nodes of this rack.", show_default=False)
    ] = "",
    at: Annotated[
        str, typer.Option("--at", metavar="SEQ|TIME", help="With --map: as it was then.", show_default=False)
    ] = "",
    reason: Annotated[
        str, typer.Option("--reason", help="With remove: why; it stays in the log.", show_default=False)
    ] = "",
) -> None:
    """List nodes with their free resources, draw them, describe one in detail, or remove some permanently.

    fairlead nodes -o wide

    fairlead nodes describe sim-1     (its state and why, and its faults, with the evidence and since when)

    fairlead nodes remove sim-1 --reason sold     (a lost node that runs nothing any more: it is forgotten)

    fairlead nodes --map     (pools, racks and their nodes: a sign for each GPU, a letter for each of the largest jobs)

    fairlead nodes --map --by queue --rack r12

    fairlead nodes --map -o wide     (a line for each node, however many; -o json has the same facts)

    Counts of --map: a GPU is free when no job holds any of it, it is healthy, MIG does not cut it, and its node accepts
    work of every user. A free GPU is fragmented when others of its node are not free: work that needs whole nodes cannot
    have it. "Could start now" is the largest job by GPUs alone, on one node, and of whole nodes within one rack, block,
    spine and the pool (node labels fairlead/rack, fairlead/block, fairlead/spine). To check CPUs and memory too, use submit
    --dry-run.
    """
    if words:
        _about_named(words, output, reason)
        return
    if reason:
        raise InputRefused("--reason is of remove", hint='fairlead nodes remove sim-1 --reason "sold"')
    if drawn:
        _draw(output, by, pool, rack, at)
        return
    if pool or rack or at or by is not By.job:
        raise InputRefused("--by, --pool, --rack and --at are of the map", hint="fairlead nodes --map")
    with connect() as client:
        page = client.nodes()
        footer = _breaker(client) + _clocks(client) if output in (Format.table, Format.wide) else ""
    table = terminal.page(page, columns.NODES, lambda n: f"node/{n.id}", output, empty="no nodes have joined")
    terminal.write(f"{table}{footer}")


def _breaker(client: Client) -> str:
    """Return one line if the breaker has tripped, else "". A tripped breaker stops all automatic action on nodes."""
    tripped = client.breaker().tripped
    if not tripped:
        return ""
    kinds = ", ".join(f"{each.found} of {each.of} nodes ({each.kind})" for each in tripped)
    return f"the breaker has tripped: {kinds}; nodes are not acted upon automatically until `fairlead breaker reset`\n"


def _clocks(client: Client) -> str:
    """Return lines about clocks that were set, or that differ: times that are shown are off then."""
    readiness = None if client.at else client.readiness()  # it is of the present
    found = readiness.conditions if readiness is not None else []
    return "".join(f"clock: {each.message}\n" for each in found if each.code in ("clock_differs", "clock_stepped"))


def _about_named(words: list[str], output: Format, reason: str) -> None:
    verb, names = words[0], words[1:]
    if verb == "remove" and names:
        chosen = NodeWords(names, None, dry_run=False)
        _each(chosen, lambda client, node: client.ask_node(node, "remove", reason=reason), "removed", output)
        return
    if verb != "describe" or len(names) != 1:
        raise InputRefused(
            f'expected "describe NODE" or "remove NODE…", found "{" ".join(words)}"',
            hint=f"fairlead {' '.join(words)}" if verb in _OWN_VERBS and names else "fairlead nodes describe sim-1",
        )
    with connect() as client:
        node = client.node(names[0])
        for_people = output in (Format.table, Format.wide)
        footer = _breaker(client) if for_people else ""
    terminal.write(f"{node_description(node)}{footer}" if for_people else terminal.document(node, output))


def _draw(output: Format, by: By, pool: str, rack: str, at: str) -> None:
    with connect() as client:
        facts = client.cluster_map(pool=pool, rack=rack, at=moment_of(at))
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(facts, output))
    elif output is Format.names:
        terminal.write("".join(f"node/{node.id}\n" for node in facts.nodes))
    elif not facts.nodes:
        where = "".join(f" in {what} {name}" for what, name in (("rack", rack), ("pool", pool)) if name)
        terminal.write(f"there are no nodes{where}\n")
    else:
        width = shutil.get_terminal_size().columns if terminal.is_terminal() else PIPE_COLUMNS
        terminal.write_picture(draw(facts, by, width, each=output is Format.wide))


def cordon(
    nodes: NodeNames = None,
    reason: Reason = "",
    selector: Selector = None,
    dry_run: NodesDryRun = False,
    output: Output = Format.table,
) -> None:
    """Give nodes no new work; their present runs continue.

    fairlead cordon sim-1 --reason "fan is loud"

    fairlead cordon sim-1 "sim-[3-8]"     (one request and one line for each; exit code 1 if one of them is refused)

    fairlead cordon -l fairlead/rack=r1 --dry-run     (which nodes that would be; nothing is sent)
    """
    _each(
        NodeWords(nodes, selector, dry_run),
        lambda client, node: client.cordon(node, reason),
        "cordoned",
        output,
        would="cordoned",
    )


def uncordon(
    nodes: NodeNames = None, selector: Selector = None, dry_run: NodesDryRun = False, output: Output = Format.table
) -> None:
    """Give nodes work again (ends a drain, too).

    fairlead uncordon sim-1 sim-2
    """
    _each(NodeWords(nodes, selector, dry_run), Client.uncordon, _uncordoned, output, would="uncordoned")


def _uncordoned(node: dict[str, Any]) -> str:
    """Return the result of an uncordon in words: other states than a cordon keep a node from work, too."""
    state = node.get("state", "ready")  # a node that no view has yet is answered by its name alone
    if state == "quarantined":
        return f"is uncordoned but still quarantined, so it takes no work: fairlead unquarantine {node['id']}"
    if state in ("lost", "silent"):
        return f"is uncordoned but {state}: it takes work when its agent reports again"
    return "takes work again"


def drain(
    nodes: NodeNames = None,
    reason: Reason = "",
    deadline: Annotated[
        str, typer.Option("--deadline", help='Move what still runs there after this long ("30m"); without it: wait.')
    ] = "",
    selector: Selector = None,
    dry_run: NodesDryRun = False,
    output: Output = Format.table,
) -> None:
    """Empty nodes: no new work, and at the deadline their jobs go elsewhere.

    fairlead drain sim-1 --reason "new driver" --deadline 30m
    """
    if deadline:
        quantities.parse_duration(deadline)
    _each(
        NodeWords(nodes, selector, dry_run),
        lambda client, node: client.drain(node, reason, deadline),
        "draining",
        output,
        would="drained",
    )


Tainted = Annotated[
    list[str],
    typer.Argument(
        metavar="NODE… TAINT",
        help="sim-1, sim-1,sim-2 or sim-[1-4]; then key=value:Effect.",
        autocompletion=complete_node,
        show_default=False,
    ),
]


def taint(
    words: Tainted,
    reason: Reason = "",
    selector: Selector = None,
    dry_run: NodesDryRun = False,
    output: Output = Format.table,
) -> None:
    """Keep work that does not tolerate the taint from nodes.

    fairlead taint sim-1 sim-2 team=vision:NoSchedule

    fairlead taint -l fairlead/rack=r1 team=vision:NoSchedule     (every node with this label)

    Effects: NoSchedule (nothing new), PreferNoSchedule (only where nothing else has room), NoExecute (what runs there
    leaves, too).
    """
    nodes, taint = words[:-1], words[-1]
    _each(
        NodeWords(nodes, selector, dry_run),
        lambda client, node: client.ask_node(node, "taint", taint=taint, reason=reason),
        "tainted",
        output,
        would=f"tainted with {taint}",
    )


def untaint(
    words: Tainted, selector: Selector = None, dry_run: NodesDryRun = False, output: Output = Format.table
) -> None:
    """Remove nodes' taints that match (key, key:Effect or key=value:Effect), but those that health or the node itself has set.

    fairlead untaint sim-1 team
    """
    nodes, taint = words[:-1], words[-1]
    _each(
        NodeWords(nodes, selector, dry_run),
        lambda client, node: client.ask_node(node, "untaint", taint=taint),
        "untainted",
        output,
        would=f"freed of {taint}",
    )


def quarantine(
    nodes: NodeNames = None,
    reason: Reason = "",
    selector: Selector = None,
    dry_run: NodesDryRun = False,
    output: Output = Format.table,
) -> None:
    """Give nodes no work until they are released; their present runs continue.

    fairlead quarantine sim-1 --reason "smells"
    """
    _each(
        NodeWords(nodes, selector, dry_run),
        lambda client, node: client.ask_node(node, "quarantine", reason=reason),
        "in quarantine",
        output,
        would="quarantined",
    )


def unquarantine(
    nodes: NodeNames = None, selector: Selector = None, dry_run: NodesDryRun = False, output: Output = Format.table
) -> None:
    """End nodes' quarantine, or the suspicion against them.

    fairlead unquarantine sim-1
    """
    _each(
        NodeWords(nodes, selector, dry_run),
        lambda client, node: client.ask_node(node, "unquarantine"),
        "released",
        output,
        would="released",
    )


def declare_dead(
    nodes: NodeNames = None,
    reason: Reason = "",
    selector: Selector = None,
    dry_run: NodesDryRun = False,
    output: Output = Format.table,
) -> None:
    """Say that nothing runs on lost nodes any more, so that their jobs may start elsewhere, strict ones, too.

    fairlead declare-dead n7 --reason "switched off at the rack"

    Only what you have seen: if a node still runs a job, the job will run twice.
    """
    _each(
        NodeWords(nodes, selector, dry_run),
        lambda client, node: client.ask_node(node, "declare-dead", reason=reason),
        "declared dead",
        output,
        would="declared dead",
    )


def restore(
    node: NodeName,
    gpu: Annotated[
        str,
        typer.Argument(metavar="[GPU]", help="Its UUID, which nodes describe shows, or its index.", show_default=False),
    ] = "",
    output: Output = Format.table,
) -> None:
    """Use a faulted GPU of a node again; without one, what is wrong with the node itself is over.

    fairlead restore sim-1 3
    """

    def send(client: Client, name: str) -> dict[str, Any]:
        return client.ask_node(name, "restore", gpu=_uuid(client, name, gpu) if gpu.isdecimal() else gpu)

    _each(
        NodeWords([node], None, dry_run=False),
        send,
        f"uses {gpu} again" if gpu else "is well again",
        output,
    )


def _uuid(client: Client, node: str, index: str) -> str:
    """Return the UUID of a node's GPU. Raises NotFound."""
    gpus = {each.index: each.uuid for found in client.cluster_map().nodes if found.id == node for each in found.gpus}
    if int(index) not in gpus:
        raise NotFound(f"expected the index of a GPU of {node}, found {index}", hint=f"fairlead nodes describe {node}")
    return gpus[int(index)]


class NodeWords(NamedTuple):
    """Nodes of a command line."""

    words: list[str] | None
    selector: list[str] | None
    #: Nothing is to be sent.
    dry_run: bool


def _each(
    choice: NodeWords,
    verb: Callable[[Client, str], dict[str, Any]],
    done: str | Callable[[dict[str, Any]], str],
    output: Format,
    *,
    would: str = "",
) -> None:
    """Carry a verb out on every node. The refusal of a single node decides the exit code; of several, each refusal is one
    line and the exit code is 1. With `dry_run`: write what `would` be done.
    """
    with connect() as client:
        names = _chosen(client, choice)
        if choice.dry_run:
            _print_dry_run(client, names, would, output)
            return
        refusals = carry_out(client, names, verb, kind="node", done=done, output=output)
    for node, refusal in refusals.items():
        if len(names) == 1:
            raise refusal
        terminal.note(f"error: {node}: {' '.join(str(refusal).split())}")
    if refusals:
        raise typer.Exit(1)


def _chosen(client: Client, choice: NodeWords) -> list[str]:
    """Return the nodes of a choice: those named, then those with every label. Raises InputRefused, NotFound."""
    names, labels = expand_nodes(choice.words or ()), labels_of(choice.selector)
    if labels:
        matching = [node.id for node in client.nodes().items if labels.items() <= node.labels.items()]
        if not matching:
            words = ", ".join(f"{key}={value}" for key, value in labels.items())
            raise NotFound(f"no node has the label {words}", hint="fairlead nodes describe NODE shows a node's labels")
        names = list(dict.fromkeys([*names, *matching]))
    if not names:
        raise InputRefused(
            "expected at least one node or --selector, found none",
            hint='fairlead cordon "sim-[1-4]" | -l fairlead/rack=r1',
        )
    return names


def _print_dry_run(client: Client, names: list[str], would: str, output: Format) -> None:
    """Write what would be done to each node. Raises NotFound for the first that does not exist, after the others."""
    known = {node.id: node for node in client.nodes().items}
    found = [known[name] for name in names if name in known]
    if output in (Format.json, Format.yaml):
        facts = [{"node": node.id, "would_be": would, "state": node.state, "jobs": node.jobs} for node in found]
        terminal.write(terminal.document(facts, output))
    elif output is Format.names:
        terminal.write("".join(f"node/{node.id}\n" for node in found))
    else:
        lines = (f"{node.id} would be {would}; it is {node.state}, {_jobs(node)}\n" for node in found)
        terminal.write("".join(lines))
    terminal.note("nothing was sent; whether the node's state allows it is decided when it is")
    missing = [name for name in names if name not in known]
    if missing:
        raise NotFound(f"there is no node {', '.join(missing)}", hint="fairlead nodes")


def _jobs(node: Node) -> str:
    shown = ", ".join(node.jobs[:JOBS_SHOWN_MAX]) + (", …" if len(node.jobs) > JOBS_SHOWN_MAX else "")
    return f"with {len(node.jobs)} job{'' if len(node.jobs) == 1 else 's'}: {shown}" if node.jobs else "without jobs"
