"""Packing of other lists: `python -m bench.openb.lists [NAME …] [--seeds A..B] [--write]`: the openb cluster under other mixes of work than its own.

A setting can be tuned to one list and fail on the next, so these judge it: more or fewer jobs of several GPUs, more or fewer
shares, models asked for, more or no pods without GPUs, no memory asked for. Drawn from the trace's default list by rule
and a fixed seed, so everybody gets the same lists; the FGD paper has a family alike, whose files are not used here. With
--write the table goes into docs/reference/packing.md.
"""

import argparse
import random
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bench.openb import playing as openb
from bench.openb import trace
from bench.table import filled
from fairlead_placer.packing.policies import DEFAULT
from fairlead_placer.packing.policy import EmptyNode, RequestShape

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "packing.md"
SEEDS = "42..44"
#: What each list is played with: ours, which learns the mix; the published policy and a plain one, the mix given.
PLAYERS = ((DEFAULT, False), ("fgd", True), ("most_allocated", True))
DRAWN_BY = 1

type Kind = Literal["cpu", "share", "one", "several"]
type Pods = list[RequestShape]


def kind_of(pod: RequestShape) -> Kind:
    """No GPU, a part of one, one, or several."""
    if not pod.gpu_count:
        return "cpu"
    return "share" if pod.is_share else "one" if pod.gpu_count == 1 else "several"


def own_mix(pods: Pods) -> dict[Kind, float]:
    """{kind with GPUs: its share of all GPUs asked for}."""
    total = sum(pod.total_milli for pod in pods)
    kinds: tuple[Kind, ...] = ("share", "one", "several")
    return {kind: sum(pod.total_milli for pod in pods if kind_of(pod) == kind) / total for kind in kinds}


def raised(pods: Pods, kind: Kind, share: float) -> Pods:
    """The list with that kind asking for such a share of all GPUs; the others keep their proportions."""
    own = own_mix(pods)
    rest = sum(each for other, each in own.items() if other != kind)
    return mixed(pods, {each: share if each == kind else (1 - share) * own[each] / rest for each in own})


def mixed(pods: Pods, mix: Mapping[Kind, float], without_gpus: float = 1.0) -> Pods:
    """Draw as much GPU work as the list has, in this mix, from its pods of each kind: all of them as often as they fit,
    then some at random. `without_gpus`: how many of the pods that ask for no GPU, 1 for all of them."""
    chance, total, drawn = random.Random(DRAWN_BY), sum(pod.total_milli for pod in pods), list[RequestShape]()
    for kind, share in mix.items():
        some = [pod for pod in pods if kind_of(pod) == kind]
        whole = sum(pod.total_milli for pod in some)
        times = int(share * total // whole)
        drawn += some * times
        chance.shuffle(some)
        got = whole * times
        for pod in some:
            if got >= share * total:
                break
            drawn.append(pod)
            got += pod.total_milli
    plain = [pod for pod in pods if kind_of(pod) == "cpu"]
    count = round(without_gpus * len(plain))
    return drawn + [plain[at % len(plain)] for at in range(count)]


def picky(pods: Pods, share: float, machines: list[EmptyNode]) -> Pods:
    """Let that share of the pods with GPUs ask for one of the cluster's models that can take it, common models more often."""
    chance, made = random.Random(DRAWN_BY), list[RequestShape]()
    kinds = sorted({(m.model, m.cpu_milli, m.memory_mib, m.gpus) for m in machines})
    gpus = {model: sum(m.gpus for m in machines if m.model == model) for model in {m.model for m in machines}}
    for pod in pods:
        if pod.gpu_count and chance.random() < share:
            able = sorted(
                {
                    model
                    for model, cpu, memory, count in kinds
                    if cpu >= pod.cpu_milli and memory >= pod.memory_mib and count >= pod.gpu_count
                }
            )
            made.append(pod._replace(models=tuple(chance.choices(able, [gpus[model] for model in able]))))
        else:
            made.append(pod)
    return made


class Change(NamedTuple):
    """Difference from the default list; a list changes one thing."""

    #: (kind, its share of all GPUs that are asked for): the others keep their proportions.
    raised: tuple[Kind, float] | None = None
    #: The share of the pods with GPUs that ask for a model.
    picky: float = 0
    #: How often the pods without GPUs come.
    without_gpus: float = 1
    #: False: no pod asks for memory.
    memory: bool = True


LISTS: dict[str, Change] = {
    "default": Change(),
    "several GPUs: 20 %": Change(raised=("several", 0.20)),
    "several GPUs: 33 %": Change(raised=("several", 0.33)),
    "several GPUs: 50 %": Change(raised=("several", 0.50)),
    "shares: 40 %": Change(raised=("share", 0.40)),
    "shares: 60 %": Change(raised=("share", 0.60)),
    "shares: 80 %": Change(raised=("share", 0.80)),
    "shares alone": Change(raised=("share", 1)),
    "models asked for: 10 %": Change(picky=0.10),
    "models asked for: 20 %": Change(picky=0.20),
    "models asked for: 33 %": Change(picky=0.33),
    "pods without GPUs x 0": Change(without_gpus=0),
    "pods without GPUs x 0.5": Change(without_gpus=0.5),
    "pods without GPUs x 2": Change(without_gpus=2),
    "no memory asked for": Change(memory=False),
}


def drawn(pods: Pods, machines: list[EmptyNode], change: Change) -> Pods:
    """The list that comes of the default one on these machines."""
    if change.raised is not None:
        pods = raised(pods, *change.raised)
    if change.picky:
        pods = picky(pods, change.picky, machines)
    if change.without_gpus != 1:
        pods = mixed(pods, own_mix(pods), change.without_gpus)
    return pods if change.memory else [pod._replace(memory_mib=0) for pod in pods]


def play(task: tuple[str, str, bool, int]) -> openb.Played:
    """Play one run: list, policy, whether the mix is given, seed."""
    name, policy, given, seed = task
    machines = trace.machines()
    return openb.play(machines, drawn(trace.pods(trace.PODS), machines, LISTS[name]), policy, seed, given=given)


def table(names: list[str], seeds: list[int], found: Mapping[tuple[str, str], Mapping[str, Any]]) -> str:
    """Markdown: a row per list."""
    lines = [
        "| list | ours, learned | FGD, mix given | most_allocated | ours - FGD | 8-GPU dropped: ours, FGD |",
        "|---|---|---|---|---|---|",
    ]
    for name in names:
        each = [found[name, policy] for policy, _ in PLAYERS]
        ours, fgd = each[0], each[1]
        gains = ", ".join(f"{ours['gpu_alloc_pct'][pct] - fgd['gpu_alloc_pct'][pct]:+.1f}" for pct in ("100", "130"))
        shares = " | ".join(f"{one['gpu_alloc_pct']['100']:.1f}, {one['gpu_alloc_pct']['130']:.1f}" for one in each)
        lines.append(f"| {name} | {shares} | {gains} | {ours['drop_8gpu_pct']:.1f}, {fgd['drop_8gpu_pct']:.1f} % |")
    return "\n".join(
        [*lines, "", f"Seeds {seeds[0]} to {seeds[-1]}; GPUs allocated in percent when 100 and 130 % are asked for."]
    )


def main() -> int:
    """Play and print; 1 when a pod that fits was refused."""
    parser = argparse.ArgumentParser(prog="python -m bench.openb.lists", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*LISTS, []], default=[], help="lists to play (default: all)")
    parser.add_argument("--seeds", default=SEEDS, help=f"FIRST..LAST (default: {SEEDS})")
    parser.add_argument("--write", action="store_true", help="write the table into docs/reference/packing.md")
    arguments = parser.parse_args()
    names, (first, _, last) = arguments.names or list(LISTS), arguments.seeds.partition("..")
    seeds = list(range(int(first), int(last or first) + 1))
    tasks = [(name, policy, given, seed) for name in names for policy, given in PLAYERS for seed in seeds]
    runs: dict[tuple[str, str], dict[int, openb.Played]] = {}
    with ProcessPoolExecutor() as pool:
        for (name, policy, _, seed), played in zip(tasks, pool.map(play, tasks), strict=True):
            runs.setdefault((name, policy), {})[seed] = played
            print(
                f"{name}, {policy}, seed {seed}: {played.allocated[100]:.2f}, {played.allocated[130]:.2f} %",
                file=sys.stderr,
                flush=True,
            )
    found = {key: openb.summary(key[1], each) for key, each in runs.items()}
    made = table(names, seeds, found)
    print(made)
    if arguments.write:
        PAGE.write_text(filled(PAGE.read_text(), "lists", made))
    return 1 if any(each["refused_that_fit"] for each in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
