"""Share of the openb trace's cluster that is used, compared with the published policy and a plain one in the same run."""

from typing import Any

from bench.openb import playing as openb
from bench.openb import trace
from bench.table import Row
from fairlead_placer.packing.policies import DEFAULT

#: `python -m bench.openb` plays ten seeds, 42 to 51, as published.
SEEDS = range(42, 45)
SHOWN_PCT = ("95", "100", "130")
#: Percent of all GPUs allocated at each of these; a run's seconds.
GOALS, GOAL_S = (94.9, 95.9, 96.0), 20
#: What the published policy drops of the pods of 8 GPUs, about, in percent.
DROPPED_PCT = 8.0


def row() -> Row:
    """Return the row for the table of `python -m bench`."""
    ours = _played(DEFAULT)
    fgd, plain = _played("fgd", given=True), _played("most_allocated")
    shares = [ours["gpu_alloc_pct"][pct] for pct in SHOWN_PCT]
    met = all(share >= goal for share, goal in zip(shares, GOALS, strict=True))
    met &= not ours["refused_that_fit"] and ours["drop_8gpu_pct"] <= max(fgd["drop_8gpu_pct"], DROPPED_PCT)
    published = trace.published("FGD")
    return Row(
        f"openb trace, GPUs allocated when 95, 100 and 130 % are asked for, seeds {SEEDS[0]} to {SEEDS[-1]} (all ten: `python -m bench.openb`)",
        f"{_said(ours)}; refused though they fit: {ours['refused_that_fit']}; {ours['seconds_max']:.1f} s a run",
        f"≥ {', '.join(map(str, GOALS))} %; 8-GPU pods dropped ≤ FGD; none refused that fits; ≤ {GOAL_S} s",
        met and ours["seconds_max"] <= GOAL_S,
        f"FGD, the mix given: {_said(fgd)}; most_allocated: {_said(plain)}; FGD as published: "
        + ", ".join(f"{published[int(pct)]:.1f}" for pct in SHOWN_PCT)
        + " %",
    )


def _played(policy: str, given: bool = False) -> dict[str, Any]:
    machines, pods = trace.machines(), trace.pods(trace.PODS)
    return openb.summary(policy, {seed: openb.play(machines, pods, policy, seed, given=given) for seed in SEEDS})


def _said(found: dict[str, Any]) -> str:
    shares = ", ".join(f"{found['gpu_alloc_pct'][pct]:.1f}" for pct in SHOWN_PCT)
    return f"{shares} % (8-GPU pods dropped until 100 %: {found['drop_8gpu_pct']:.1f} %)"
