"""A week of one Philly virtual cluster, played into a log: `python -m bench.philly_week EXPORT`.

The busiest week of virtual cluster 0e4a51 (tests/data/README.md has its source), on eight nodes of eight GPUs under the default
policy. The trace names no users and no queues: jobs of one GPU are put into queue "single", all others into "multi". The log ends
with the week, whatever runs then. `fairlead audit export --load` makes a load file of it; tests/data/loads has one.
"""

import sys
from pathlib import Path

from bench.fairness.traces import philly
from fairlead_bus.port import Stored
from fairlead_replay.export import write_export
from fairlead_replay.virtual.load import BEGIN_NS, Setting, machines
from fairlead_replay.virtual.play import play
from fairlead_schemas.queuefile.settings import QueueEntry, QueueSettings
from fairlead_schemas.units.timestamps import DAY_NS, MINUTE_NS
from fairlead_schemas.wire.commit import decode_envelope

CLUSTER, FIRST_DAY, DAYS = "0e4a51", 21, 7
NODES = 8
#: What every start costs, and what a run may do after it was asked to stop.
RESTART_NS, NOTICE_NS = MINUTE_NS, MINUTE_NS
#: The guarantee of jobs of one GPU, in milli-GPU.
SINGLE = {"gpu": 16_000}


def week() -> list[Stored]:
    """Return the log of the week."""
    begin_ns, end_ns = FIRST_DAY * DAY_NS, (FIRST_DAY + DAYS) * DAY_NS
    jobs = [
        job._replace(queue="single" if job.gpus == 1 else "multi", submit_ns=job.submit_ns - begin_ns)
        for job in philly()
        if job.queue == CLUSTER and begin_ns <= job.submit_ns < end_ns
    ]
    queues = (
        QueueEntry(path="single", settings=QueueSettings(guaranteed=SINGLE)),
        QueueEntry(path="multi", settings=QueueSettings()),
    )
    log: list[Stored] = []
    play(jobs, Setting(machines(NODES), queues, restart_ns=RESTART_NS, notice_ns=NOTICE_NS), record=log.append)
    last_ns = BEGIN_NS + DAYS * DAY_NS
    return [stored for stored in log if decode_envelope(stored.payload).at_ns <= last_ns]


def main() -> None:
    """Write the export."""
    manifest = write_export(Path(sys.argv[1]), week())
    print(f"{manifest.commits} commits")


if __name__ == "__main__":
    main()
