"""Lines of the agent's own in a run's output. The program writes to the same file, so each says whose it is."""

import os
from pathlib import Path

MARK = "fairlead: "


def write_note(stderr: Path, text: str) -> None:
    """Append a line. A second file beside it counts how many bytes are not the program's, for a runtime that copies output
    and resumes by its length. A file that cannot be written is passed over: the note is a courtesy."""
    line = f"{MARK}{' '.join(text.split())}\n".encode()
    try:
        count = own_bytes(stderr) + len(line)
        _counter(stderr).write_text(str(count))
        with open(stderr, "ab", buffering=0, opener=_here) as file:
            file.write(line)
    except OSError:
        return


def clear(stderr: Path) -> None:
    """Whatever the agent and a program have said there is gone."""
    for path in (stderr, _counter(stderr)):
        path.unlink(missing_ok=True)


def own_bytes(path: Path) -> int:
    """How many bytes of an output file are the agent's."""
    try:
        return int(_counter(path).read_text())
    except (OSError, ValueError):
        return 0


def _counter(path: Path) -> Path:
    return path.with_name(f"{path.name}.own")


def _here(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
