"""Options of `fairlead submit` as Typer reads them: the name, type and help of each. What they mean: `jobfile/submit_flags.py`."""

from pathlib import Path
from typing import Annotated

import typer

Words = Annotated[list[str] | None, typer.Argument(metavar="[FILE|SCRIPT] | -- COMMAND…", show_default=False)]
File = Annotated[
    Path | None, typer.Option("--file", "-f", help='Job file: YAML, JSON or a Kubernetes Job; "-" is stdin.')
]
Again = Annotated[
    str,
    typer.Option(
        "--again",
        metavar="JOB",
        help="The job file of this job, as a new job, under the other options; of an element of an array that element alone.",
        show_default=False,
    ),
]
Name = Annotated[str, typer.Option("--name", help="Name of the job.")]
Queue = Annotated[str, typer.Option("--queue", "-q", help="Queue, such as research/vision.")]
Gpus = Annotated[str, typer.Option("--gpus", help="GPUs per node (or task): 8, or a share of one: 0.5.")]
Gpu = Annotated[str, typer.Option("--gpu", help="Shorthand: H100:8, 24GB..:2 (model, least memory, count per node).")]
GpuModel = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu-model", help="GPU model: A100, or a product in full; repeatable: any of them.", show_default=False
    ),
]
GpuMemory = Annotated[str, typer.Option("--gpu-memory", help="Least memory of each GPU: 40Gi.")]
Mig = Annotated[str, typer.Option("--mig", help="MIG instances per node (or task): 3g.20gb, 3g.20gb:2.")]
Nodes = Annotated[
    str, typer.Option("--nodes", "-N", help="Nodes; more than one is a gang; 2-8: as many of them as can be had.")
]
Tasks = Annotated[
    int | None, typer.Option("--tasks", help="Tasks in place of nodes; they may share nodes.", show_default=False)
]
Require = Annotated[
    list[str] | None,
    typer.Option("--require", help="All of it within one numa, node, rack, block …; repeatable.", show_default=False),
]
Prefer = Annotated[list[str] | None, typer.Option("--prefer", help="The same, if it can be had.", show_default=False)]
Toleration = Annotated[
    list[str] | None,
    typer.Option(
        "--toleration",
        help="A taint that it puts up with: key=value:NoSchedule, key; repeatable.",
        show_default=False,
    ),
]
Exclusive = Annotated[bool, typer.Option("--exclusive", help="No other job's work on its nodes.")]
Nodelist = Annotated[
    str, typer.Option("--nodelist", "-w", metavar="NODES", help="Only on these nodes: n1,n[3-5].", show_default=False)
]
Exclude = Annotated[
    str, typer.Option("--exclude", "-x", metavar="NODES", help="On none of these nodes: n[1-3,7].", show_default=False)
]
Hold = Annotated[bool, typer.Option("--hold", "-H", help="Let it wait until it is released (fairlead release JOB).")]
Cpus = Annotated[str, typer.Option("--cpus", help='CPUs per node: 8, 0.5 or "500m".')]
Memory = Annotated[str, typer.Option("--memory", help="Memory per node (or task): 64Gi.")]
Time = Annotated[
    str, typer.Option("--time", help='Longest run time, over all slices: "1h 30m", 7d, 90 (seconds), 2:00:00.')
]
Slice = Annotated[
    str,
    typer.Option("--slice", help='Least run time before it may be asked to yield to others: "1h", 90 (seconds).'),
]
Deadline = Annotated[
    str,
    typer.Option("--deadline", help="By when it shall have ended: an RFC 3339 time with zone, or from now: 8h."),
]
After = Annotated[
    list[str] | None,
    typer.Option(
        "--after",
        show_default=False,
        help="Start only after JOB has succeeded, or JOB:failed, JOB:ended (either); repeatable; JOB may be last.",
    ),
]
Array = Annotated[str, typer.Option("--array", help="Elements: 8 (0-7), 1-100, or 0-9%2 (two at once).")]
Priority = Annotated[int | None, typer.Option("--priority", help="0 to 1000; higher goes first.", show_default=False)]
Retries = Annotated[
    int | None, typer.Option("--retries", help="How often a failed exit is tried again.", show_default=False)
]
Kind = Annotated[str, typer.Option("--kind", help="batch, session or service.")]
Image = Annotated[str, typer.Option("--image", help="Container image (docker runtime).")]
Env = Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE, repeatable.", show_default=False)]
Workdir = Annotated[
    str | None, typer.Option("--workdir", help="Where it runs; a command or script: here.", show_default=False)
]
Sync = Annotated[
    str,
    typer.Option(
        "--sync",
        metavar="DIR",
        help="Send this directory with the job, which runs in a copy of it; its .gitignore is kept.",
    ),
]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--outputs",
        metavar="NAME=PATH",
        help="Keep files of its directory by a name after its end: model=checkpoints/*.pt; repeatable.",
        show_default=False,
    ),
]
Project = Annotated[str, typer.Option("--project", help="Whom it is counted for.")]
OutputKeep = Annotated[
    str,
    typer.Option("--output-keep", help='How long its output is kept after its end: "1h", 7d; else as the node has it.'),
]
OutputMax = Annotated[
    str, typer.Option("--output-max", help="The most that is kept of stdout and of stderr, their last part: 64Mi, 1Gi.")
]
Key = Annotated[str, typer.Option("--key", help="Idempotency key: repeating the submit gives the same job.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end; exit with the job's own code.")]
DryRunFlag = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Say what would become of it (quota, who is ahead, what holds it back), and send nothing."
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore",
        show_default=False,
        help="Submit without this word of the file, which cannot be kept here; repeatable.",
    ),
]
