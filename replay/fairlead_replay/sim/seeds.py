"""Many seeds, on all CPUs: one line per failing seed, then a summary.

    python -m fairlead_replay.sim --seeds 1..200 [--commands N] [--jobs N] [--restless | --operators] [--particular] [--verbose]

Exits 1 on any violation. A seed's line ends with the command that replays it.
"""

import argparse
import gc
import logging
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

import structlog

from fairlead_replay.sim.people import JobUpdaters, Operators, Particular
from fairlead_replay.sim.workload import People
from fairlead_replay.sim.world import COMMANDS, Parts, SeedOutcome, run_seed


def main() -> int:
    """Run the seeds that were asked for."""
    options = _arguments()
    seeds, began = _seeds(options.seeds), time.monotonic()
    outcomes: list[SeedOutcome] = []
    parts = Parts(
        people=people_of(operators=options.operators, restless=options.restless, particular=options.particular)
    )
    for outcome in _run(seeds, options.commands, options.jobs, parts):
        outcomes.append(outcome)
        if options.verbose or outcome.violation:
            print(_line(outcome, options.commands, _people(options)), flush=True)  # noqa: T201 -- a command
    failed = [outcome for outcome in outcomes if outcome.violation]
    events, hours = sum(o.events for o in outcomes), sum(o.virtual_s for o in outcomes) / 3600
    print(  # noqa: T201 -- a command
        f"{len(outcomes)} seeds, {len(failed)} failed; {sum(o.jobs for o in outcomes)} jobs, {events} events, "
        f"{sum(o.disasters for o in outcomes)} disasters, {hours:.1f} simulated hours in {time.monotonic() - began:.1f} s\n"
        f"idle: {_totals(outcome.idle for outcome in outcomes)}\n"
        f"access: {_totals(outcome.access for outcome in outcomes)}\n"
        f"rights: {_totals(_rights(outcome) for outcome in outcomes)}"
    )
    return 1 if failed else 0


class _ParticularRestless(Particular, JobUpdaters):
    pass


class _ParticularOperators(Particular, Operators):
    pass


def people_of(*, operators: bool = False, restless: bool = False, particular: bool = False) -> type[People]:
    """The people of a world."""
    if particular:
        return _ParticularOperators if operators else _ParticularRestless if restless else Particular
    return Operators if operators else JobUpdaters if restless else People


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fairlead_replay.sim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="1..200", help="N or A..B, both included")
    parser.add_argument("--commands", "--events", type=int, default=COMMANDS, help="messages that people send per seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--restless", action="store_true", help="people change the queues and jobs all the time")
    parser.add_argument("--operators", action="store_true", help="people work on the nodes all the time")
    parser.add_argument(
        "--particular", action="store_true", help="people ask for all that a job may ask for; with either"
    )
    parser.add_argument("--verbose", action="store_true", help="a line for every seed, with the log's digest")
    return parser.parse_args()


def _seeds(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def _people(options: argparse.Namespace) -> str:
    kind = " --operators" if options.operators else " --restless" if options.restless else ""
    return kind + (" --particular" if options.particular else "")


def _rights(outcome: SeedOutcome) -> dict[str, int]:
    return {**outcome.rights._asdict(), "denied": outcome.denied}


def _totals(counts: Iterable[dict[str, int]]) -> str:
    totals = sum((Counter(each) for each in counts), Counter[str]())
    return ", ".join(f"{count} {name}" for name, count in sorted(totals.items())) or "nothing"


def _line(outcome: SeedOutcome, commands: int, people: str) -> str:
    size = ("" if commands == COMMANDS else f" --commands {commands}") + people
    return (
        f"seed {outcome.seed}: {outcome.violation or 'ok'} (log sequence {outcome.sequence}, {outcome.events} events, "
        f"{outcome.jobs} jobs, {outcome.virtual_s:.0f} s, log {outcome.digest[:16]})\n"
        f"    replay: python -m fairlead_replay.sim --seeds {outcome.seed}{size} --verbose"
    )


def quiet() -> None:
    """Services log what a simulated crash makes them do; here the events are the record."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        processors=[],
        logger_factory=structlog.ReturnLoggerFactory(),
    )
    gc.freeze()


def _run(seeds: range, commands: int, jobs: int, parts: Parts) -> Iterator[SeedOutcome]:
    if jobs <= 1 or len(seeds) == 1:
        quiet()
        yield from (run_seed(seed, parts=parts, commands=commands) for seed in seeds)
        return
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(seeds)), initializer=quiet) as pool:
        yield from pool.imap(partial(run_seed, parts=parts, commands=commands), seeds)
