"""Files that hold one secret line: for their owner alone (mode 0600), empty lines and comments (#) aside."""

import os
import stat
from pathlib import Path

_LOOSE = stat.S_IRWXG | stat.S_IRWXO


class BadSecretFile(ValueError):
    """The secret file cannot be used: the message gives its name, the reason and a remedy."""


def read_secret(path: Path, name: str, line: str) -> str:
    """Return the one line of a secret file. Raises BadSecretFile, in words of `name` ("the bus key") and of the expected
    `line`.

    A file that is readable by users other than its owner is refused: every reader of the secret can act in the owner's
    name.
    """
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
