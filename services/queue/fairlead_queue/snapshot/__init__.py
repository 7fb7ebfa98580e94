"""The queue's state as canonical bytes: equal states have equal bytes, whatever their history.

Only what cannot be derived is written: lines, open counts, charges and timers are rebuilt from the
jobs. Lists that have an order in the state (finished jobs, keys, what is owed) keep it; all else is
sorted. Rows are arrays for size: a snapshot of 100,000 jobs is a few tens of megabytes at most.
"""

from fairlead_queue.snapshot.dump import dump
from fairlead_queue.snapshot.load import load
from fairlead_queue.snapshot.rows import SCHEMA

__all__ = ["SCHEMA", "dump", "load"]
