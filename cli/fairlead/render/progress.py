"""Progress of long work: how much of how much, how fast, and how long it takes still.

A bar on a terminal, a line now and then where a person's output is piped, nothing for programs (`-o json`, `yaml`, `name`). Both are on
stderr, so that stdout has the answer alone. Work that is done at once shows nothing. Start at `progress`.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fairlead.render import terminal
from fairlead.render.terminal import Format
from fairlead_schemas.units.quantities import progress_text

#: Called with how much is done, and of how much.
type Seen = Callable[[int, int], None]

#: Work that takes longer than this is shown on a terminal, so often; piped, a line comes so often.
SHOWN_AFTER_S, REDRAWN_S, LINE_S = 0.5, 0.1, 10.0


@contextmanager
def progress(
    what: str, unit: str, output: Format = Format.table, *, clock: Callable[[], float] = time.monotonic
) -> Iterator[Seen]:
    """Show the progress of the work within the context, which calls the function that it is given."""
    if output in (Format.json, Format.yaml, Format.names):
        yield lambda done, of: None
        return
    shown = _Bar() if terminal.is_terminal(sys.stderr) else _Lines()
    began, next_s = clock(), shown.first_s

    def seen(done: int, of: int) -> None:
        nonlocal next_s
        seconds = clock() - began
        if seconds >= next_s:
            shown.show(progress_text(what, unit, done, of, seconds), done, of)
            next_s = seconds + shown.every_s

    try:
        yield seen
    finally:
        shown.end()


class _Lines:
    """Lines for a file or a pipe."""

    first_s = every_s = LINE_S

    def show(self, text: str, done: int, of: int) -> None:
        terminal.note(text)

    def end(self) -> None: ...


class _Bar:
    """One line with a bar, which is gone when the work is done."""

    first_s, every_s = SHOWN_AFTER_S, REDRAWN_S

    def __init__(self) -> None:
        self._drawn: Any = None

    def show(self, text: str, done: int, of: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        if self._drawn is None:
            columns = BarColumn(bar_width=20), TextColumn("{task.description}", markup=False)
            self._drawn = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
            self._drawn.start()
            self._drawn.add_task(text)
        self._drawn.update(0, description=text, completed=done, total=of or None, refresh=True)

    def end(self) -> None:
        if self._drawn is not None:
            self._drawn.stop()
