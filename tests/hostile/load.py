"""Load under which faults happen, and the marks that its jobs leave: which attempts began, and whether two overlapped.

Every submit carries an idempotency key and is repeated until it is acknowledged, as a careful client does. Each program
appends one line when it begins (appends of a line are atomic) and holds a lock file while it lives, so that an attempt
that begins while another of its job lives is seen, however both end. Start at `Load`.
"""

import itertools
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fairlead.client import Client
from fairlead.errors import Conflict, FairleadError, InputRefused, NotFound

#: Acknowledged and not ended. A slow machine is given no more to do at a time than a fast one.
OPEN_MAX = 40
SUBMIT_PAUSE_S = 0.05

_PROGRAM = """
exec 9>"{marks}/$FAIRLEAD_JOB.$FAIRLEAD_RANK.lock"
flock -n 9 || echo "overlap $FAIRLEAD_JOB $FAIRLEAD_ATTEMPT $FAIRLEAD_RANK" >>"{marks}/marks"
echo "start $FAIRLEAD_JOB $FAIRLEAD_ATTEMPT $FAIRLEAD_RANK" >>"{marks}/marks"
sleep {sleep}
exit {code}
"""


class Marks(NamedTuple):
    """Lines that jobs have left."""

    starts: "Counter[tuple[str, str, str]]"
    overlaps: list[str]

    @property
    def doubles(self) -> list[tuple[str, str, str]]:
        """(job, attempt, rank) that began more than once."""
        return [which for which, count in self.starts.items() if count > 1]


def read_marks(directory: Path) -> Marks:
    """Read what the jobs of a load have left so far."""
    path = directory / "marks"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    starts = Counter((words[1], words[2], words[3]) for words in lines if words[0] == "start")
    return Marks(starts, [" ".join(words) for words in lines if words[0] == "overlap"])


class Gateways(Protocol):
    """What a load is given to: a stack, or an installation with several gateways."""

    @property
    def url(self) -> str: ...

    def client(self) -> Client: ...


class Load:
    """Submits small jobs of several shapes from threads until it is stopped."""

    def __init__(self, stack: Gateways, directory: Path, *, threads: int = 2, prefix: str = "load") -> None:
        self.stack, self.directory = stack, directory
        directory.mkdir(parents=True, exist_ok=True)
        #: {job id: how many elements or 0}; of every submit that was answered with an id.
        self.jobs: dict[str, int] = {}
        #: Command ids that were answered 202 and whose job is not known yet.
        self.undecided: dict[str, int] = {}
        self.errors: Counter[str] = Counter()
        self.sent = 0
        self._prefix = prefix
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]

    def start(self) -> None:
        """Begin to submit."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End; submits under way are finished first."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    @property
    def acknowledged(self) -> int:
        """Submits that were answered 201, 200 or 202."""
        return len(self.jobs) + len(self.undecided)

    def shape(self, number: int) -> dict[str, Any]:
        """Return the number's job file: quick ones, gangs, arrays, failing and retried ones in turn."""
        code = 1 if number % 11 == 0 else 0
        text = _PROGRAM.format(marks=self.directory, sleep=f"{number % 4 * 0.3:.1f}", code=code)
        job: dict[str, Any] = {
            "command": ["/bin/sh", "-c", text],
            "resources": {"nvidia.com/gpu": number % 3, "cpu": "100m", "memory": "16Mi"},
        }
        if number % 13 == 0:
            job["nodes"] = 2
        if number % 17 == 0:
            job["array"] = 3
        if number % 11 == 0:
            job["retries"] = {"max": 1}
        return job

    def _run(self) -> None:
        client = self.stack.client()
        while not self._stop.is_set():
            number = next(self._numbers)
            job, key = self.shape(number), f"{self._prefix}-{number}"
            while not self._stop.is_set():
                try:
                    result = client.submit(job, key=key)
                except (InputRefused, Conflict, NotFound) as error:
                    self._note(f"refused: {str(error)[:120]}")
                    break
                except FairleadError as error:
                    self._note(type(error).__name__)
                    time.sleep(0.3)
                    if self.stack.url and ",".join(client.urls) != self.stack.url:
                        client.close()
                        client = self.stack.client()
                    continue
                self._acknowledge(result.id or "", result.command or "", job)
                break
            while self.open_jobs() > OPEN_MAX and not self._stop.is_set():
                time.sleep(0.2)
            time.sleep(SUBMIT_PAUSE_S)
        client.close()

    def open_jobs(self) -> int:
        """Return about how many submits have not begun yet."""
        return self.acknowledged - len({job.partition("_")[0] for job, _, _ in read_marks(self.directory).starts})

    def _note(self, error: str) -> None:
        with self._lock:
            self.errors[error] += 1

    def _acknowledge(self, job: str, command: str, file: dict[str, Any]) -> None:
        with self._lock:
            self.sent += 1
            if job:
                self.jobs[job] = int(file.get("array", 0))
            else:
                self.undecided[command] = int(file.get("array", 0))
