"""The morning that `fairlead demo` plays: its jobs, and what must become of each. Pure data and its check.

Every wait in it ends by something that the story does (a cancel frees its GPUs), never by luck of
timing, so the outcome is the same on a fast and on a slow machine. Nothing but the processes' length is made up:
they are real processes; the GPUs are simulated.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fairlead_schemas.http.api import Job

NODES = 4
GPUS_PER_NODE = 8

#: The queue file of the morning: both teams may use all, but vision holds at most 8 GPUs.
QUEUE_FILE: dict[str, Any] = {
    "queues": {"research": {"queues": {"llm": {}, "vision": {"maximum": {"nvidia.com/gpu": 8}}}}}
}

_RANK = 'echo "rank $NODE_RANK of $NNODES, master $MASTER_ADDR:$MASTER_PORT, $GPUS_PER_NODE GPUs here"; sleep 2'
_LONG = ["sleep", "3600"]


class Part(NamedTuple):
    """Job of the story with its expected outcome."""

    key: str
    spec: dict[str, Any]
    state: str
    exit_code: int | None = None
    #: The reason that it must give while it waits; "" when it need not wait.
    waits: str = ""
    #: Nodes that it must have run on; 0: it must never have had one.
    nodes: int = 1
    #: Code of the refusal, where it must not even enter.
    refused: str = ""
    told: str = ""
    #: What its `why` must say at the end; "" for anything.
    why: str = ""


def _job(name: str, queue: str, gpus: int, command: list[str], **more: Any) -> dict[str, Any]:
    resources = {"nvidia.com/gpu": gpus, "cpu": "1", "memory": "256Mi"}
    return {"name": name, "queue": queue, "command": command, "resources": resources, "time": {"grace": "1s"}, **more}


STORY: tuple[Part, ...] = (
    Part(
        "notebook",
        _job("notebook", "research/vision", 2, _LONG, kind="session"),
        "cancelled",
        told="a session; its owner ends it",
    ),
    Part(
        "train",
        _job("train-llm", "research/llm", 8, ["sh", "-c", _RANK], nodes=2),
        "succeeded",
        0,
        nodes=2,
        told="a gang: 2 nodes x 8 GPUs, all or nothing",
    ),
    Part(
        "eval",
        _job("eval", "research/vision", 8, ["sleep", "0.5"]),
        "succeeded",
        0,
        waits="maximum",
        told="over its queue's maximum until the notebook ends",
    ),
    Part(
        "sweep", _job("sweep", "research/llm", 1, ["sleep", "1"], array=8), "succeeded", nodes=0, told="an array of 8"
    ),
    Part(
        "broken",
        _job("broken", "research/llm", 1, ["sh", "-c", "echo no data >&2; exit 3"]),
        "failed",
        3,
        told="its own exit code 3",
    ),
    Part(
        "huge",
        _job("huge", "research/llm", 8, _LONG, nodes=NODES + 1),
        "cancelled",
        waits="larger_than_cluster",
        nodes=0,
        told="more than the cluster has: waits for nodes",
    ),
    Part(
        "wide",
        _job("wide", "research/llm", 16, _LONG),
        "",
        nodes=0,
        refused="larger_than_any_node",
        told="more GPUs per node than any node has",
    ),
    Part("oops", _job("oops", "research/llm", 1, _LONG), "cancelled", told="started by mistake, cancelled"),
)
#: The session says of its simulated GPUs that they do nothing, one line each, and stays open.
_LEFT_OPEN = 'for gpu in $(echo "$FAIRLEAD_GPUS" | tr , " "); do echo "$gpu 4000 0%"; done > "$FAIRLEAD_SIMULATED_GPUS/$$"; exec sleep 3600'
EXPLORE = Part(
    "explore", _job("explore", "research/llm", 2, ["sh", "-c", _LEFT_OPEN], kind="session"), "failed",
    told="a session left open: idle, extended once, reclaimed", why="it lay idle by the utilization policy of global (GPU at most 0 % of 5 %",
)  # fmt: skip
FINETUNE = Part(
    "finetune", _job("finetune", "research/llm", 8, _LONG, nodes=NODES), "cancelled", nodes=NODES,
    told="needs every GPU: gets those left idle, too", why="gave back: it lay idle by the utilization policy of global",
)  # fmt: skip


class Told(NamedTuple):
    """Actual outcome of one part."""

    part: Part
    job: Job | None
    #: Code and message of the refusal.
    refusal: tuple[str, str] = ("", "")
    #: Code and message that `why` gave while it waited.
    waited: tuple[str, str] = ("", "")
    #: The message of its `why` at the end, where it was asked for.
    why: str = ""


def differences(told: Mapping[str, Told], elements: Mapping[str, Job]) -> list[str]:
    """Everything that is not as the story has it, one line each; empty: all as expected.

    `elements` are the array's elements by id.
    """
    found: list[str] = []
    for part in (*STORY, EXPLORE, FINETUNE):
        if part.key not in told:
            found.append(f"{part.key}: nothing became of it")
            continue
        found += [f"{part.key}: {what}" for what in _part_differences(told[part.key])]
    ended = sorted(job.state for job in elements.values())
    _expect(found, "sweep: its elements", ["succeeded"] * 8, ended)
    return found


def _part_differences(told: Told) -> list[str]:
    part, job, found = told.part, told.job, list[str]()
    _expect(found, "refusal", part.refused, told.refusal[0])
    if part.waits:
        _expect(found, "reason while it waited", part.waits, told.waited[0])
    if part.why and part.why not in told.why:
        found.append(f"why: expected {part.why!r} in {told.why!r}")
    if part.refused or job is None:
        if job is None and not part.refused:
            found.append("was not submitted")
        return found
    _expect(found, "state", part.state, job.state)
    if part.exit_code is not None:
        _expect(found, "exit code", part.exit_code, job.exit_code)
    if part.nodes:
        _expect(found, "nodes", part.nodes, len(job.nodes))
        gpus = part.spec["resources"]["nvidia.com/gpu"]
        _expect(found, "GPUs on each node", [gpus] * part.nodes, [len(job.gpus.get(node, [])) for node in job.nodes])
    elif not job.array:
        _expect(found, "nodes", [], job.nodes)
    return found


def _expect(found: list[str], what: str, expected: object, real: object) -> None:
    if expected != real:
        found.append(f"{what}: expected {expected!r}, found {real!r}")


def outcome(told: Told) -> str:
    """Return the text of one cell of the final table."""
    if told.refusal[0]:
        return "refused"
    if told.job is None:
        return "-"
    if told.job.state == "failed" and told.job.reason is not None and told.job.reason.detail.get("reason") == "idle":
        return "failed (idle)"
    ended = f" (exit {told.job.exit_code})" if told.job.exit_code and told.job.state == "failed" else ""
    return told.job.state + ended


type Say = Callable[[str, str], None]
