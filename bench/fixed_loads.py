"""Fixed loads of the pure parts in CPU time: `python -m bench.fixed_loads` prints seconds of each as JSON.

Each load is the same work each time: jobs, nodes and chance are constants, and the work that was done is counted. Nothing waits, so
CPU time is all there is; the smallest of some repetitions is what the code takes, and the rest is the machine. The product is
imported from where PYTHONPATH finds it, so this file's loads also run on the product of another revision (regression.py).
Start at `LOADS`.
"""

import gc
import sys
import time
from collections.abc import Callable, Iterable
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType

import msgspec

import fairlead_queue
from bench import crowd, lives, queueing
from bench.placing.cluster import Cluster
from fairlead_bus.core import Core
from fairlead_bus.main import collect_rarely
from fairlead_placer.core import PlacerCore
from fairlead_queue.core import QueueCore
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import decode_commit

REPETITIONS = 3
WAITING, OFFERS = 5_000, 3_000
NODES, OFFERED, BATCH = 500, 3_000, 200
LIVES, LIVES_PER_COMMIT = 4_000, 10
CROWD = 1_500


class Done(msgspec.Struct):
    """What a process has measured: where its product was imported from, and the CPU seconds of each load."""

    product: str
    seconds: dict[str, float]


def queue() -> tuple[float, int]:
    """Offers out of a full line of 1,000 queues, placed and ended, until so many are made."""
    cluster, made = queueing.Cluster(WAITING), 0
    cluster.core.decide([], queueing.NOW_NS)  # builds the order of all queues
    _settle()
    began = time.process_time()
    while made < OFFERS:
        jobs = cluster.place(cluster.decide())
        made += len(jobs)
        cluster.end(jobs)
        cluster.fold("queue", [ev.JobSucceeded(cause="1.0", job=job, attempt=1) for job in jobs])
    return time.process_time() - began, made


def placing() -> tuple[float, int]:
    """Offers of the constrained mix, decided on a cluster that fills up and stays full."""
    cluster, done = Cluster(NODES, mixed=True), 0
    _settle()
    began = time.process_time()
    for _ in range(0, OFFERED, BATCH):
        cluster.offer(BATCH)
        while True:
            placed, refused, _ = cluster.decide()
            done += placed + refused
            if not placed and not refused:
                break
        cluster.withdraw()
        if cluster.used > 0.95 * cluster.capacity:
            cluster.end()
    return time.process_time() - began, done


def replay() -> tuple[float, int]:
    """Lives of jobs, decoded and folded into both cores."""
    maker = lives.LogMaker(None)  # type: ignore[arg-type] -- its commits are taken, none is appended
    steps: Iterable[lives.Step] = (*lives.opening(), *lives.lives(1, LIVES, LIVES_PER_COMMIT))
    payloads = [maker.commit(writer, list(events)) for writer, events in steps]
    cores: tuple[Core, Core] = (QueueCore(), PlacerCore())
    _settle()
    began = time.process_time()
    for sequence, payload in enumerate(payloads, 1):
        commit = decode_commit(payload)
        for core in cores:
            core.evolve(sequence, commit)
    return time.process_time() - began, maker.events


def crowded() -> tuple[float, int]:
    """Both cores deciding the load of the row `crowded`: submitted, offered, placed, started, ended."""
    jobs = crowd.load(CROWD).jobs
    pair, submits = crowd.pair(), crowd.submits(jobs)
    _settle()
    began = time.process_time()
    pair.play(submits)
    return time.process_time() - began, pair.sequence


LOADS: dict[str, Callable[[], tuple[float, int]]] = {
    "queue": queue,
    "placing": placing,
    "replay": replay,
    "cores": crowded,
}


def _settle() -> None:
    gc.collect()
    gc.freeze()


def _check_plain() -> None:
    """Raise RuntimeError if a module of the product is an extension module: compiled against plain would compare two builds."""
    compiled = [name for name, each in sys.modules.items() if name.startswith("fairlead") and _is_extension(each)]
    if compiled:
        raise RuntimeError(f"expected plain Python, found compiled {', '.join(sorted(compiled))}: unset PYTHONPATH")


def _is_extension(module: ModuleType) -> bool:
    return isinstance(module.__loader__, ExtensionFileLoader)


def measure(repetitions: int = REPETITIONS) -> Done:
    """Run each load so many times. Raises RuntimeError if one did not do the same work each time, or if a core is compiled."""
    _check_plain()
    seconds: dict[str, float] = {}
    for name, load in LOADS.items():
        runs = [load() for _ in range(repetitions)]
        gc.unfreeze()
        if len({work for _, work in runs}) != 1:
            raise RuntimeError(f"load {name}: expected the same work each time, found {[work for _, work in runs]}")
        seconds[name] = min(took for took, _ in runs)
    return Done(str(Path(fairlead_queue.__file__).parents[3]), seconds)


if __name__ == "__main__":
    collect_rarely()  # as the services do
    sys.stdout.write(msgspec.json.encode(measure()).decode())
