"""Every route at random past moments, byte for byte against a gateway that stands there, over logs of the simulator.

`python -m bench past --sweep [SEEDS] [MOMENTS]` (200 and 20): the answers of a gateway that folds by itself, and of the process for the past with
keyframes every 500 events, are compared with those of a gateway whose log ends at the moment. Prints each difference; exit code 1 if there
was one. A fast slice runs in tests/replay/past.
"""

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import structlog

from fairlead_bus.port import Stored
from fairlead_replay.past.documents import PastDocuments
from fairlead_replay.past.keyframe_writer import build
from fairlead_replay.sim.world import Parts
from fairlead_schemas.queries.past import PastQuestion
from tests.gateway.standing import StandingGateway, furnished, paths_at
from tests.replay.worlds import recorded

SEEDS, MOMENTS = 200, 20
#: Weight between two keyframes: many in a short log.
WEIGHT = 500


class Swept(NamedTuple):
    """Answers compared, and what differed: seed, sequence, path, and where the answer came from."""

    asked: int
    different: list[str]


async def sweep(messages: list[Stored], seed: int, moments: int, directory: Path, *, first: int = 1) -> Swept:
    """Compare every route at random moments of one log, from the sequence `first` on."""
    chance, different, asked = random.Random(seed), list[str](), 0
    store = build(messages, directory, weight_max=WEIGHT)
    if store is not None:
        store.read_weight = 0  # each is read, however near the state in memory is
    async with StandingGateway(messages) as now:
        documents = PastDocuments(now.bus, now.gateway.folding, lambda: store)
        documents.gateway.past.clock = now.gateway.past.clock
        now.views.silent_s = lambda _node: 0
        for _ in range(moments):
            sequence = chance.randint(first, len(messages))
            async with StandingGateway(messages[:sequence]) as then:
                for path in paths_at(then.views):
                    expected = (await then.get(path)).content
                    target, _, query = path.partition("?")
                    question = PastQuestion(path=target, query=f"{query}&at={sequence}".lstrip("&"))
                    answers = {
                        "gateway": (await now.get(path, sequence)).content,
                        "past": (await documents.answer(question))[2],
                    }
                    for where, found in answers.items():
                        asked += 1
                        if found != expected:
                            different.append(f"seed {seed}, sequence {sequence}: {path} by the {where}")
    return Swept(asked, different)


def main(words: list[str]) -> int:
    """Sweep as many seeds and moments as named; 1 when an answer differed."""
    seeds, moments = (int(word) for word in (*words, *map(str, (SEEDS, MOMENTS)[len(words) :])))
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # the simulator's faults are loud
    began, asked, different = time.monotonic(), 0, list[str]()
    for seed in range(1, seeds + 1):
        messages = furnished(recorded(seed, Parts()), seed)
        with tempfile.TemporaryDirectory() as folder:
            swept = asyncio.run(sweep(messages, seed, moments, Path(folder)))
        asked += swept.asked
        different += swept.different
        for each in swept.different:
            print(f"DIFFERS {each}", flush=True)
        if seed % 10 == 0 or seed == seeds:
            print(
                f"{seed} seeds, {asked:,} answers, {len(different)} differ, {time.monotonic() - began:.0f} s",
                flush=True,
            )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
