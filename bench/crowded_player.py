"""The crowded player: Philly's four clusters on 16 nodes, which always have a queue, with guarantees: `python -m bench player`.

Both cores decide in virtual time, as in `bench.fairness.philly`. CPU time counts: nearly all of it is the order of the open
offers, the help for starving jobs, and the placer's search for places.
"""

import time

from bench import table
from bench.fairness import philly, traces
from fairlead_replay.virtual.play import play

NODES, JOBS = 16, 300
GOAL = 450


def row() -> table.Row:
    """Return the row for the table of `python -m bench`."""
    load = [job for job in traces.philly() if job.request.nodes <= NODES][:JOBS]
    setting = philly.setting(philly.Variant(NODES, "drf", guaranteed=True))
    began = time.process_time()
    played = play(load, setting)
    rate = len(load) / (time.process_time() - began)
    return table.Row(
        f"crowded, player: jobs per CPU second (Philly, {NODES} nodes, guarantees, {JOBS} jobs)",
        f"{rate:,.0f}/s",
        f"≥ {GOAL}/s",
        rate >= GOAL,
        f"{sum(played.events.values()) / len(load):,.0f} events per job",
    )
