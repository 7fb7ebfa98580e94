"""A process of its own that stores a busy story, a hundred commits per transaction, and says so after each, until it is killed.
After each it takes the write-ahead log in, so that kills fall into that, too.

python -m tests.telemetry.storing DIRECTORY JOBS
"""

import sys
from pathlib import Path

from fairlead_telemetry.warehouse import database
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import store
from tests.telemetry.story import busy

if __name__ == "__main__":
    story = busy(int(sys.argv[2]))
    database.SETTLE_BYTES = 1
    warehouse = Warehouse(Path(sys.argv[1]))
    print("storing", flush=True)
    while warehouse.cursor.sequence < len(story.commits):
        store(warehouse, story, first=warehouse.cursor.sequence, count=100)
        print("stored", flush=True)
        warehouse.settle()
