"""Walks through the house: the source files that four things cross, as they really run.

    python -m tests.house.walks

A walk runs one request, decision or sample through the product's code and records every call that enters another source file. It
counts the files, and the ways back: pairs of files in which the later one on the walk calls the earlier one again. Calls of
libraries and between functions of one file do not count.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from bench.cores import NOW_NS, Pair
from fairlead_bus.core import Input
from fairlead_placer.apply.draft import PlacerDraft
from fairlead_placer.scheduling import allocate
from fairlead_queue.core import QueueCore
from fairlead_schemas.jobfile import job_spec, resolve
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit
from fairlead_schemas.wire.samples import GpuSample, SampleBatch, decode_columns, encode_samples
from fairlead_telemetry.samples.intake import SampleBook
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.house.measure import PARTS, ROOT
from tests.kit.idle_world import Scene, policy

BODY = b'{"command":["true"],"resources":{"nvidia.com/gpu":1,"cpu":"1","memory":"1Gi"}}'
_ROOTS = tuple(f"{ROOT / part}/" for part in PARTS)


class Walk(NamedTuple):
    """Files in the order in which they were entered, and the ways back, (from, to)."""

    files: list[str]
    back: set[tuple[str, str]]


@contextmanager
def recorded(walk: Walk) -> Iterator[None]:
    """Record the calls between source files while the block runs."""
    order: dict[str, int] = {file: at for at, file in enumerate(walk.files)}

    def called(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not (file := frame.f_code.co_filename).startswith(_ROOTS):
            return
        if file not in order:
            order[file] = len(order)
            walk.files.append(file)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(_ROOTS):
            caller = caller.f_back
        if caller is not None:
            before = caller.f_code.co_filename
            if before != file and order.get(before, -1) > order[file]:
                walk.back.add((before, file))

    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(None)


def submit(walk: Walk) -> None:
    """A job file's bytes become a job in the queue's state."""
    queue = QueueCore()
    with recorded(walk):
        command = resolve.resolve(job_spec.decode_job(BODY), command_id="1", user="ada")
        decision = queue.decide([Input("CMD", 1, [command])], NOW_NS)
    commit = Commit(
        v=VERSION, writer="queue", n=1, basis=0, at_ns=NOW_NS, cursors={}, prev=GENESIS, events=decision.events
    )
    with recorded(walk):
        queue.evolve(1, commit)


def place(walk: Walk) -> None:
    """An offered job gets its GPU: from the action that allocates to the placer's state."""
    pair, allocate_place = Pair(), allocate.place

    def recorded_place(draft: PlacerDraft) -> bool:
        with recorded(walk):
            return allocate_place(draft)

    pair.run(1)
    command = resolve.resolve(job_spec.decode_job(BODY), command_id="1", user="ada")
    pair.fold("queue", pair.queue.decide([Input("CMD", 2, [command])], NOW_NS))
    allocate.place = recorded_place
    try:
        decision = pair.placer.decide([], NOW_NS)
    finally:
        allocate.place = allocate_place
    assert any(isinstance(event, ev.JobPlaced) for event in decision.events)


def sample(walk: Walk) -> None:
    """A node's batch of samples becomes rows."""
    gpu = GpuSample(uuid="GPU-1", run="1.1", memory_used_mib=1)
    payload = encode_samples(SampleBatch(node="n1", incarnation="i", n=1, at_ns=NOW_NS, gpus=[gpu]))
    with tempfile.TemporaryDirectory() as directory:
        warehouse = Warehouse(Path(directory))
        with recorded(walk):
            book = SampleBook({})
            book.add(decode_columns(payload))
            warehouse.store([], {}, "", book.take())
        warehouse.close()


def idle(walk: Walk) -> None:
    """A policy and a GPU that does nothing become the request to end an idle run."""
    with recorded(walk):
        scene = Scene(policy())
        scene.run("1")
        events = scene.go(20)
    assert any(isinstance(event, ev.ReclaimRequested) for event in events)


WALKS: dict[str, Callable[[Walk], None]] = {
    "submit: bytes of a job → JobSubmitted in the queue's state": submit,
    "place: an offered job → JobPlaced": place,
    "sample: bytes of a batch → rows": sample,
    "idle: a policy and samples → ReclaimRequested": idle,
}


def main() -> None:
    """Print the table, and with `--files` the files of each walk."""
    print("| walk | files | ways back |\n|---|---:|---:|")
    for name, run in WALKS.items():
        walk = Walk([], set())
        run(walk)
        print(f"| {name} | {len(walk.files)} | {len(walk.back)} |")
        if "--files" in sys.argv:
            for file in walk.files:
                print(f"    {Path(file).relative_to(ROOT)}")
            for one, other in sorted(walk.back):
                print(f"    back: {Path(one).relative_to(ROOT)} -> {Path(other).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
