"""Planted changes: `python -m bench whatif --planted [--seeds N]`.

Twelve changes of one recorded hour: six hurt one queue, six change nothing. Each is studied with paired, shaken plays. A change that
hurts is found where the queue's mean wait is "worse" by 15 % or more, and no other queue's is; one that changes nothing, where no
measure of any queue is called changed.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from fairlead_replay.whatif.overlay import read_overlay
from fairlead_replay.whatif.record import record_of
from fairlead_replay.whatif.study import Study, run_study
from tests.replay.whatif.scenes import shared_hour

#: A change that hurts moves the mean wait of its queue by this part at least.
HURT_PART = 0.15
SEEDS = 5


def _gpus(count: int) -> dict[str, int]:
    return {"nvidia.com/gpu": count}


class PlantedChange(NamedTuple):
    """A change, and the queue that it hurts; "": none."""

    name: str
    words: dict[str, Any]
    hurts: str = ""


PLANTED = (
    PlantedChange(
        "research gets a low maximum",
        {"queues": {"research": {"guaranteed": _gpus(4), "maximum": _gpus(6)}}},
        "research",
    ),
    PlantedChange("teaching may not borrow", {"queues": {"teaching": {"maximum": _gpus(8)}}}, "teaching"),
    PlantedChange(
        "a user of teaching gets 4 GPUs", {"queues": {"teaching": {"users": {"default": _gpus(4)}}}}, "teaching"
    ),
    PlantedChange(
        "a user of research gets 2 GPUs", {"queues": {"research": {"users": {"default": _gpus(2)}}}}, "research"
    ),
    PlantedChange(
        "a user of teaching gets 2 GPUs", {"queues": {"teaching": {"users": {"default": _gpus(2)}}}}, "teaching"
    ),
    PlantedChange(
        "teaching gets a low maximum",
        {"queues": {"teaching": {"guaranteed": _gpus(4), "maximum": _gpus(6)}}},
        "teaching",
    ),
    PlantedChange("research may have what there is", {"queues": {"research": {"maximum": _gpus(16)}}}),
    PlantedChange("teaching may have what there is", {"queues": {"teaching": {"maximum": _gpus(16)}}}),
    PlantedChange("equal weights are said", {"queues": {"research": {"weight": 1}, "teaching": {"weight": 1}}}),
    PlantedChange("a longer memory of past use", {"pools": {"default": {"halfLife": "30d"}}}),
    PlantedChange("a user of research may have all", {"queues": {"research": {"users": {"default": _gpus(64)}}}}),
    PlantedChange("a user of teaching may have all", {"queues": {"teaching": {"users": {"default": _gpus(64)}}}}),
)


class Verdict(NamedTuple):
    """What a study said of a planted change."""

    change: PlantedChange
    grade: str
    #: {queue: part by which its mean wait is worse}, of those that are called worse.
    worse: dict[str, float]
    #: (queue, measure) that are called changed.
    changed: tuple[tuple[str, str], ...]

    @property
    def is_right(self) -> bool:
        """True where the queue that is hurt is named and no other, or nothing is."""
        if self.grade == "C":
            return False
        if not self.change.hurts:
            return not self.changed
        return list(self.worse) == [self.change.hurts] and self.worse[self.change.hurts] >= HURT_PART


def verdict_of(change: PlantedChange, study: Study) -> Verdict:
    """Return what a study says of a change."""
    queues = [each for each in study.effects.effects if each.group.kind == "queue"]
    worse = {
        each.group.name: each.difference / max(each.control, 1e-9)
        for each in queues
        if each.measure == "wait_mean" and each.verdict == "worse"
    }
    changed = tuple((each.group.name, each.measure) for each in queues if each.changed)
    return Verdict(change, study.fidelity.grade, worse, changed)


def verdicts(seeds: int = SEEDS) -> Iterator[Verdict]:
    """Study every planted change."""
    recording = record_of(shared_hour())
    for change in PLANTED:
        yield verdict_of(change, run_study(recording, read_overlay(change.words), seeds=seeds))


def report(seeds: int) -> int:
    """Print each verdict and the sum; 1 where one is wrong."""
    cpu_s, wall_s, right, false = time.process_time(), time.perf_counter(), 0, 0
    for each in verdicts(seeds):
        right += each.is_right and bool(each.change.hurts)
        false += not each.is_right and not each.change.hurts
        found = ", ".join(f"{queue} worse by {part:.0%}" for queue, part in each.worse.items()) or "nothing worse"
        print(f"{'ok   ' if each.is_right else 'WRONG'} {each.change.name}: grade {each.grade}, {found}", flush=True)
    hurting = sum(bool(each.hurts) for each in PLANTED)
    took = f"{time.process_time() - cpu_s:.1f} CPU-s, {time.perf_counter() - wall_s:.1f} s wall"
    is_met = right == hurting and not false
    print(
        f"planted: {right} of {hurting} flagged with the right queue, {false} false; {seeds} pairs each; {took}; {'met' if is_met else 'MISSED'}"
    )
    return 0 if is_met else 1
