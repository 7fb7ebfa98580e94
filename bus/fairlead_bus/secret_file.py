"""Files that hold one secret line: for their owner alone (mode 0600), empty lines and comments (#) aside."""

import os
import stat
from pathlib import Path

_LOOSE = stat.S_IRWXG | stat.S_IRWXO


class BadSecretFile(ValueError):
    """It cannot be used; the message names it, says why and what helps."""


def read_secret(path: Path, name: str, line: str) -> str:
    """The one line. Raises BadSecretFile, in words of `name` ("the bus key") and of what the `line` should be. A file that others
    than its owner may read is refused: whoever has read it can act in this one's name."""
    try:
        with path.open() as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            lines = [each.strip() for each in file.read(4096).splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise BadSecretFile(f"{path}: cannot read {name} ({getattr(error, 'strerror', None) or error})") from error
    if mode & _LOOSE:
        raise BadSecretFile(
            f"{path}: has mode {mode:04o}, expected 0600, since others must not read a key: chmod 600 {path}"
        )
    found = [each for each in lines if each and not each.startswith("#")]
    if len(found) != 1:
        raise BadSecretFile(f"{path}: expected one line with {line}, found {len(found)} lines")
    return found[0]
