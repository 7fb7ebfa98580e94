"""State of a simulation: the script, its start, and the runs on the GPUs. The script file is read again after a change."""

from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from fairlead_agent.devices.script import BadScript, Moment, PlayedXid, Script, active, read_script

_log = structlog.get_logger()


class Stage:
    """Simulation state of one machine. Times are those of `clock`, in seconds without an epoch."""

    def __init__(self, gpus: int, path: Path | None, clock: Callable[[], float]) -> None:
        """Raises OSError or BadScript: what is to be played from the beginning must be playable."""
        self._gpus, self._path, self._clock = gpus, path, clock
        self._opened = clock()
        #: {index: (run, when it took the GPU)}; {index: when a run on it was known to have ended}.
        self._runs: dict[int, tuple[str, float]] = {}
        self._ends: dict[int, float] = {}
        #: XIDs that were reported: (which, GPU, when the run took it).
        self._fired: set[tuple[PlayedXid, int, float]] = set()
        self._stamp = self._stamped()
        self.script = self._read() if path is not None else Script()

    def look(self) -> None:
        """Take up the file if it has changed. One that cannot be read changes nothing, and is logged once."""
        stamp = self._stamped()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.script = self._read() if stamp is not None else Script()
            _log.info("another simulation is played", file=str(self._path))
        except (OSError, BadScript) as error:
            _log.error("the simulation stays as it was", file=str(self._path), reason=str(error))

    def _stamped(self) -> tuple[int, int] | None:
        """Return (mtime in ns, size) of the script file; None without a file, and then no script is played."""
        if self._path is None:
            return None
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return (stat.st_mtime_ns, stat.st_size)

    def _read(self) -> Script:
        assert self._path is not None
        return read_script(self._path.read_bytes(), toml=self._path.suffix == ".toml", gpus=self._gpus)

    def held(self, runs: Mapping[int, str]) -> None:
        """Record the run that holds each GPU now; "" for a free GPU."""
        now = self._clock()
        for index, run in runs.items():
            known = self._runs.get(index)
            if run and (known is None or known[0] != run):
                self._runs[index] = (run, now)
                self._ends.pop(index, None)
            elif not run and known is not None:
                del self._runs[index]
                self._ends.setdefault(index, now)

    def moment(self, index: int) -> Moment:
        """Now, on that GPU."""
        now = self._clock()
        known = self._runs.get(index)
        return Moment(now - self._opened, now - known[1] if known is not None else None)

    def seconds_since_free_query(self, index: int) -> float:
        """Return the seconds since the first query about whether the GPU is free again. The run counts as ended at that query."""
        now = self._clock()
        return now - self._ends.setdefault(index, now)

    def ended(self, index: int) -> float | None:
        """Seconds since the end of a run on it; None while none has ended since one took it."""
        end = self._ends.get(index)
        return None if end is None else self._clock() - end

    def xids(self, index: int) -> list[int]:
        """Return the XID codes that are due and have not been returned yet."""
        moment, since = self.moment(index), self._runs.get(index, ("", 0.0))[1]
        found: list[int] = []
        for each in sorted(self.script.xid, key=lambda act: act.begin):
            mark = (each, index, since if each.since == "run" else 0.0)
            if active(each, index, moment) is not None and mark not in self._fired:
                self._fired.add(mark)
                found.append(each.code)
        return found
