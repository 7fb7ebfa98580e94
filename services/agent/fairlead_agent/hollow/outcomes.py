"""Duration and exit code of a simulated run, read from its command. Pure.

`true` takes no time, `false` fails, `sleep X` takes X seconds, `exit N` (also inside `sh -c`) ends with N;
words joined by ";" or "&&" in `sh -c` add up. Any other command takes no time and ends with 0.
"""

import msgspec

from fairlead_agent.launch.plan import Program
from fairlead_schemas.units.quantities import QuantityError, parse_duration

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
        #: By the job file's bytes, or by the hash that names it in the SPEC store.
        self._known: dict[bytes | str, tuple[float, int]] = {}
        self._decoder = msgspec.json.Decoder(Program)

    def of(self, spec: bytes) -> tuple[float, int]:
        """(seconds, exit code) for a job file; an unreadable one ends with 127, as an unknown command does."""
        found = self._known.get(spec)
        if found is None:
            found = self._remember(spec, spec)
        return found

    def named(self, digest: str) -> tuple[float, int] | None:
        """The same for a job file that the SPEC store holds; None: it was not `learn`ed, or was forgotten."""
        return self._known.get(digest)

    def learn(self, digest: str, spec: bytes) -> None:
        """Remember the duration and exit code of a job file, under its hash in the SPEC store."""
        self._remember(digest, spec)

    def _remember(self, key: bytes | str, spec: bytes) -> tuple[float, int]:
        try:
            found = played(self._decoder.decode(spec))
        except (msgspec.MsgspecError, IndexError):
            found = (0.0, 127)
        if len(self._known) >= self.REMEMBERED_MAX:
            self._known.clear()
        self._known[key] = found
        return found
