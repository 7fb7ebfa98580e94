"""All about one node as text: its state and why, what is not well about it, and the labels that jobs may select by."""

from fairlead import render
from fairlead_schemas.http.api import HealthIssue, Node
from fairlead_schemas.units.quantities import format_memory, format_milli

_DONE = {"note": "work goes on", "gpu": "the GPU gets no new work", "node": "the node gets no new work"}


def described(node: Node) -> str:
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
    return render.fields(pairs) + ailments + (f"\nlabels\n{labels}" if labels else "")


def _release(node: Node) -> str:
    return f"fairlead unquarantine {node.id}" if node.state in ("quarantined", "suspect") else ""


def _ailment(node: Node, seen: HealthIssue) -> str:
    heading = f"\n{seen.gpu or 'the node itself'}: {seen.code}, since {seen.since}\n"
    pairs = [
        ("  meaning", seen.words), ("  seen", seen.evidence), ("  so", _DONE.get(seen.severity, seen.severity)),
        ("  until", seen.returns), ("  restore", f"fairlead restore {node.id} {seen.gpu}".strip()),
    ]  # fmt: skip
    return heading + render.fields(pairs)
