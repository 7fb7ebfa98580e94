"""A process that forks others, which store events and days of samples until they are killed. One line of stdin, one child.

python -m tests.telemetry.samples.storing_days DIRECTORY

A child says "stored" after each transaction, "filed" after each span that has left for files, and "done" at the end. The parent never opens
DuckDB, so that a fork is safe.
"""

import os
import sys
from pathlib import Path

from fairlead_schemas.wire.commit import decode_envelope
from fairlead_schemas.wire.samples import SampleBatch, columns_of
from fairlead_telemetry.samples.day_spans import SETTLE_NS
from fairlead_telemetry.samples.intake import SampleBook
from fairlead_telemetry.warehouse.warehouse import CommitBytes, Warehouse
from tests.telemetry.samples.nodes import day
from tests.telemetry.story import Story, busy

JOBS, DAYS = 1500, 4
COMMITS_AT_ONCE, BATCHES_AT_ONCE = 10, 8


def everything() -> tuple[Story, list[SampleBatch]]:
    """What is stored, in its order."""
    batches = [batch for number in range(DAYS) for batch in day(number, every_s=900, first=1 + 96 * number)]
    return busy(JOBS), batches


def store_all(directory: Path, story: Story, batches: list[SampleBatch], say: object = None) -> None:
    """From where it was left to the end; days leave as they are over."""
    warehouse = Warehouse(directory)
    while True:
        done = warehouse.cursor.sequence
        book = SampleBook(warehouse.sample_heads())
        known = max((head.n for head in warehouse.sample_heads().values()), default=0)
        commits = [
            CommitBytes.of(sequence, decode_envelope(payload))
            for sequence, (_, _, payload) in enumerate(story.commits[done:][:COMMITS_AT_ONCE], done + 1)
        ]
        fresh = batches[known:][:BATCHES_AT_ONCE]
        if not commits and not fresh:
            break
        for batch in fresh:
            book.add(columns_of(batch))
        warehouse.store(commits, {}, "a log", book.take())
        tell("stored")
        now_ns = (fresh[-1] if fresh else batches[-1]).at_ns
        warehouse.roll_up(now_ns)
        if warehouse.file_samples(now_ns + SETTLE_NS):
            tell("filed")
    warehouse.roll_up(batches[-1].at_ns + 3600 * 10**9)
    warehouse.close()
    tell("done")


def tell(words: str) -> None:
    print(words, flush=True)


def main() -> None:
    story, batches = everything()
    for _ in sys.stdin:
        pid = os.fork()
        if not pid:
            store_all(Path(sys.argv[1]), story, batches)
            os._exit(0)
        tell(str(pid))
        os.waitpid(pid, 0)
        tell("gone")


if __name__ == "__main__":
    main()
