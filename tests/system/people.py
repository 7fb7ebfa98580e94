"""Somebody at a terminal of a job: a real pseudo terminal, that the job's program takes for its own and a thread types into."""

import os
import pty
import threading
import time
from pathlib import Path
from typing import Self

#: Between two lines that are typed.
PAUSE_S = 0.1


class Terminal:
    """`with Terminal() as there`: open until the end, since who closes it hangs up on the job. Nobody types before `type`."""

    def __init__(self) -> None:
        self._person, self._job = pty.openpty()
        #: What the job's program opens: "/dev/pts/7".
        self.path = os.ttyname(self._job)
        self._typing: threading.Thread | None = None
        self._done = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._typing is not None:
            self._typing.join()
        os.close(self._person)
        os.close(self._job)

    def idle_s(self) -> float:
        """As `w` tells it: since when nothing that was typed was read there."""
        return time.time() - Path(self.path).stat().st_atime

    def type(self) -> None:
        """Lines, one after the other, until the end."""
        self._typing = threading.Thread(target=self._lines, name="somebody at a terminal")
        self._typing.start()

    def _lines(self) -> None:
        os.set_blocking(self._person, False)
        while not self._done.wait(PAUSE_S):
            try:
                os.write(self._person, b"ls\n")
                os.read(self._person, 1 << 16)  # the echo: a terminal whose screen nobody reads stops
            except BlockingIOError:
                continue
