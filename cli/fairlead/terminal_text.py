"""Filter for other people's text on its way to a terminal. A job's output may hold sequences that rename the window, move
the cursor over existing text, or make the terminal answer as if a person had typed; colours alone pass.
"""

import re

#: An escape sequence that is longer than this is no sequence that terminals know.
_SEQUENCE_BYTES_MAX = 256
#: Colours and other renditions (SGR); every other control sequence; texts for the terminal (titles, clipboard, …); two-byte
#: escapes; single control characters, NEL and CSI as one byte among them as UTF-8 encodes them.
_CONTROL = re.compile(
    rb"(?P<colour>\x1b\[[0-9;:]*m)"
    rb"|\x1b\[[0-?]*[ -/]*[@-~]"
    rb"|\x1b[\]PX^_].*?(?:\x07|\x1b\\)"
    rb"|\x1b[ -/]*[0-~]"
    rb"|\xc2[\x80-\x9f]"
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]",
    re.DOTALL,
)
#: What may be the beginning of one of them at the end of a piece.
_BEGUN = re.compile(rb"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07]*|[ -/]*)?|\xc2)\Z", re.DOTALL)


class TerminalFilter:
    """Removes control sequences from a stream of bytes whose pieces may end anywhere."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return what may be shown so far; the beginning of a sequence is held until its end has come."""
        data = self._held + piece
        begun = _BEGUN.search(data, max(0, len(data) - _SEQUENCE_BYTES_MAX))
        self._held = data[begun.start() :] if begun else b""
        return _shown(data[: len(data) - len(self._held)])

    def end(self) -> bytes:
        """Return what was held at the end of the stream."""
        held, self._held = self._held, b""
        return _shown(held)


def _shown(data: bytes) -> bytes:
    return _CONTROL.sub(lambda found: found["colour"] or b"", data)
