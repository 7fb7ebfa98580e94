"""`python -m fairlead_telemetry.rebuild [DIRECTORY]`: drop the tables folded from events or summed from samples, and build
them again from the stored events and samples.

For a disk that returned wrong data, or to check that the result is the same. The service must be stopped meanwhile; the
log is not read.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from fairlead_schemas.units.quantities import progress_text
from fairlead_schemas.wire.conditions import EXIT_STEPPED_DOWN
from fairlead_telemetry.usage.usage_store import refold
from fairlead_telemetry.warehouse.database import FILE, whole_machine
from fairlead_telemetry.warehouse.warehouse import Warehouse, WarehouseBusy, WarehouseRefused

#: Times between two lines of progress.
TERMINAL_EVERY_S, LINE_EVERY_S = 0.5, 10.0


class RebuildProgress:
    """Progress of a rebuild on stderr: one line that is written anew on a terminal, a line now and then elsewhere."""

    def __init__(self, stream: TextIO = sys.stderr, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._is_terminal = stream.isatty()
        self._every_s = TERMINAL_EVERY_S if self._is_terminal else LINE_EVERY_S
        self._began = self._shown = clock()

    def __call__(self, done: int, of: int) -> None:
        """Show how far the work is, unless it was shown a moment ago; work that is done at once shows nothing."""
        now = self._clock()
        if now - self._shown < self._every_s if done < of else self._shown == self._began:
            return
        self._shown = now
        text = progress_text("rebuild", "commits", done, of, now - self._began)
        if self._is_terminal:
            self._stream.write(f"\r\x1b[K{text}" + ("\n" if done >= of else ""))
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()


def main() -> int:
    """The exit code: 0 folded, 1 refused, 75 another process has the warehouse."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("FAIRLEAD_DATA", ".fairlead")) / "telemetry"
    parser.add_argument("directory", nargs="?", type=Path, default=default, help=f"default: {default}")
    directory: Path = parser.parse_args().directory
    if not (directory / FILE).exists():
        sys.stderr.write(f"no warehouse at {directory / FILE}: name the directory that holds it\n")
        return 1
    began = time.monotonic()
    try:
        warehouse = Warehouse(directory, whole_machine())
        events = warehouse.rebuild(RebuildProgress())
        stays = refold(warehouse)
    except WarehouseBusy as busy:
        sys.stderr.write(f"{busy}: stop the telemetry service first\n")
        return EXIT_STEPPED_DOWN
    except WarehouseRefused as refused:
        sys.stderr.write(f"{refused}\n")
        return 1
    sequence = warehouse.cursor.sequence
    warehouse.close()
    took_s = time.monotonic() - began
    sys.stdout.write(f"folded {events} events up to log sequence {sequence}, {stays} stays, in {took_s:.1f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
