"""Whole answer to a what-if: the recorded policy played as control, the change played as variant, the control's grade, and
the effects over paired seeds. `documents.py` has its words.

    study = run_study(record_of(log), read_overlay(words), seeds=5)
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fairlead_bus.port import Stored
from fairlead_replay.whatif.effects import Effects, effects_of
from fairlead_replay.whatif.fidelity import Fidelity, compare, gpus_of, held_ns
from fairlead_replay.whatif.lengths import Basis, Phase, phases_of
from fairlead_replay.whatif.overlay import Overlay, PlannedChange
from fairlead_replay.whatif.record import LogRecording
from fairlead_replay.whatif.replays import Conditions, Outcome, play_recording
from fairlead_replay.whatif.stimuli import followings
from fairlead_schemas.wire import commands as cmd

#: Pairs of plays where nothing else is asked for, and at most.
SEEDS, SEEDS_MAX = 5, 64


class LengthShares(NamedTuple):
    """Parts of the GPU time held in the record whose run lengths are of each basis; they add up to 1, or all are 0."""

    exact: float
    kept: float
    drawn: float
    endless: float


class Study(NamedTuple):
    """A change, and what it would have done."""

    recording: LogRecording
    overlay: Overlay
    seeds: int
    closed: bool
    grid_ns: int
    fidelity: Fidelity
    effects: Effects
    lengths: LengthShares
    #: Submits, and those of them that followed an end of the same user's.
    submits: int
    followed: int
    #: What was not given: {reason: how many}.
    left_out: Counter[str]
    #: Settings that the record changes as the overlay does.
    conflicts: Counter[str]
    control: Outcome
    variant: Outcome

    @property
    def is_withheld(self) -> bool:
        """True where the control is too far from the record for its effects to be shown."""
        return self.fidelity.grade == "C"


class StudyKeeper(NamedTuple):
    """Receivers of the two logs that are kept, of the plays that are not shaken."""

    control: Callable[[Stored], None] | None = None
    variant: Callable[[Stored], None] | None = None


def run_study(
    recording: LogRecording,
    overlay: Overlay,
    *,
    seeds: int = SEEDS,
    closed: bool = False,
    grid_ns: int = 0,
    keeper: StudyKeeper = StudyKeeper(),  # noqa: B008 -- a constant
    progress: Callable[[int, int], None] | None = None,
) -> Study:
    """Play control and variant. `progress` is called with plays done and plays in all. Raises InvalidOverlay, PlayStalled."""
    plays, done = 2 + 2 * seeds, 0

    def play(conditions: Conditions, record: Callable[[Stored], None] | None = None) -> Outcome:
        nonlocal done
        outcome = play_recording(recording, conditions, record=record)
        done += 1
        if progress is not None:
            progress(done, plays)
        return outcome

    def conditions(seed: int, change: PlannedChange | None) -> Conditions:
        return Conditions(change, seed, closed=closed and change is not None, grid_ns=grid_ns)

    change = PlannedChange(overlay, recording)
    control = play(conditions(0, None), keeper.control)
    fidelity = compare(recording, control)
    variant = play(conditions(0, change), keeper.variant)
    pairs = [
        (play(conditions(seed, None)), play(conditions(seed, PlannedChange(overlay, recording))))
        for seed in range(1, seeds + 1)
    ]
    submits = sum(isinstance(getattr(each, "command", None), cmd.SubmitJob) for each in recording.given)
    return Study(
        recording,
        overlay,
        seeds,
        closed,
        grid_ns,
        fidelity,
        effects_of(recording, pairs or [(control, variant)]),
        length_shares(recording),
        submits,
        len(followings(recording)),
        variant.left_out,
        change.conflicts,
        control,
        variant,
    )


def length_shares(recording: LogRecording) -> LengthShares:
    """Return on what the run lengths of a recording rest, by the GPU time that the runs held."""
    held: Counter[Basis] = Counter()
    for job in list(recording.real.jobs.values()):
        held_here = held_ns(job, recording.start.at_ns, recording.end_ns) * gpus_of(job)
        if held_here:
            held[worst_basis(phases_of(job, recording.end_ns, lambda seen: seen + 1))] += int(held_here)
    total = held.total()
    bases: Sequence[Basis] = ("exact", "kept", "drawn", "endless")
    return LengthShares(*(held[basis] / total if total else 0.0 for basis in bases))


def worst_basis(phases: Sequence[Phase]) -> Basis:
    """Return the least sure basis among the phases that a job has reached."""
    order: Sequence[Basis] = ("exact", "kept", "endless", "drawn")
    worst: Basis = "exact"
    for phase in phases:
        is_reached = phase.work is None or phase.work > 1
        if is_reached and order.index(phase.basis) > order.index(worst):
            worst = phase.basis
    return worst
