"""How long a played run takes and how it ends, read off its command. Pure.

`true` takes no time, `false` fails, `sleep X` takes X seconds, `exit N` (also inside `sh -c`) ends with N;
words joined by ";" or "&&" in `sh -c` add up. Anything else takes no time and ends with 0.
"""

import msgspec

from fairlead_agent.launch import Program
from fairlead_schemas.quantities import QuantityError, parse_duration

SHELLS = frozenset({"sh", "bash", "/bin/sh", "/bin/bash"})


def played(program: Program) -> tuple[float, int]:
    """(seconds, exit code) of one run."""
    words = [*program.command, *program.args]
    if len(words) >= 3 and words[0] in SHELLS and words[1] in ("-c", "-ec", "-lc"):
        return _script(words[2])
    return _words(words)


def _script(text: str) -> tuple[float, int]:
    seconds, code = 0.0, 0
    for part in text.replace("&&", ";").split(";"):
        words = part.split()
        if words:
            took, code = _words(words)
            seconds += took
            if code:
                break
    return seconds, code


def _words(words: list[str]) -> tuple[float, int]:
    name = words[0].rpartition("/")[2]
    if name == "false":
        return 0.0, 1
    if name == "exit":
        return 0.0, int(words[1]) % 256 if len(words) > 1 and words[1].isdecimal() else 0
    if name == "sleep":
        return sum(_seconds(word) for word in words[1:]), 0
    return 0.0, 0


def _seconds(word: str) -> float:
    try:
        return max(0.0, float(word))
    except ValueError:
        pass
    try:
        return parse_duration(word) / 1e9
    except QuantityError:
        return 0.0


class PlayedCommands:
    """Remembers what commands mean: thousands of runs share a few job files."""

    REMEMBERED_MAX = 10_000

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[float, int]] = {}
        self._decoder = msgspec.json.Decoder(Program)

    def of(self, spec: msgspec.Raw) -> tuple[float, int]:
        """(seconds, exit code) for a job file; an unreadable one ends with 127, as an unknown command does."""
        key = bytes(spec)
        found = self._known.get(key)
        if found is None:
            try:
                found = played(self._decoder.decode(key))
            except (msgspec.MsgspecError, IndexError):
                found = (0.0, 127)
            if len(self._known) >= self.REMEMBERED_MAX:
                self._known.clear()
            self._known[key] = found
        return found
