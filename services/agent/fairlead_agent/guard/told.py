"""What the guard has done, on disk, for the agent that comes back: it alone can report it.

One file per look, `<directory>/guard/<nanoseconds since boot>.json`, written before the first signal of it goes out. The agent
removes those of which no run is open any more. Nobody writes to a file of another.
"""

import contextlib
import json
import os
from collections.abc import Collection
from pathlib import Path

DIRECTORY = "guard"


def tell(directory: Path, runs: Collection[str], silence_s: float, now_ns: int) -> None:
    """Note that these runs are told to end. Raises OSError."""
    folder = directory / DIRECTORY
    folder.mkdir(mode=0o750, exist_ok=True)
    new = folder / f"{now_ns}.new"
    new.write_text(json.dumps({"runs": sorted(runs), "silence_s": round(silence_s, 1)}))
    new.rename(folder / f"{now_ns}.json")


class Told:
    """The agent's look at it; `how` is asked at every end of a run, so it reads only what is new."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / DIRECTORY
        self._changed_ns = -1
        self._files: dict[Path, list[str]] = {}
        self._how: dict[str, str] = {}

    def how(self, run: str) -> str:
        """What to say of a run that the guard has told to end; "" of any other."""
        self._read()
        return self._how.get(run, "")

    def forget(self, still_open: Collection[str]) -> None:
        """Remove what is about none of these runs."""
        self._read()
        for path, runs in list(self._files.items()):
            if not any(run in still_open for run in runs):
                with contextlib.suppress(OSError):
                    path.unlink()

    def _read(self) -> None:
        try:
            changed_ns = os.stat(self._folder).st_mtime_ns  # noqa: PTH116 -- at every end of a run
        except OSError:
            return
        if changed_ns == self._changed_ns:
            return
        self._changed_ns, self._files, self._how = changed_ns, {}, {}
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                said = json.loads(path.read_bytes())
                self._files[path] = [str(run) for run in said["runs"]]
                words = f"the guard ended it: its agent had had no lease for {said['silence_s']:g} s"
                self._how.update(dict.fromkeys(self._files[path], words))
