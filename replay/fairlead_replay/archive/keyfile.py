"""The file that the archiver keeps its signing key in: mode 0600, one line in the spelling of notes.py."""

import os
import secrets
from pathlib import Path

from fairlead_bus.nkey import BadSecretFile, read_secret
from fairlead_replay.archive.notes import SEED_BYTES, BadNote, Signer, read_signer


def generate(name: str) -> Signer:
    """A new key from the system's randomness. Raises BadNote for a name that cannot be."""
    return Signer(name, secrets.token_bytes(SEED_BYTES))


def read(path: Path) -> Signer:
    """Return the key in a file. Raises BadNote. A file that is readable by users other than its owner is refused: every reader
    of the key can sign another history.
    """
    try:
        spelled = read_secret(path, "the signing key", "a secret key (PRIVATE+KEY+…)")
    except BadSecretFile as error:
        raise BadNote(str(error)) from error
    try:
        return read_signer(spelled)
    except BadNote as error:
        raise BadNote(f"{path}: {error}") from None


def write(path: Path, signer: Signer) -> None:
    """Write a key for its owner alone (0600). Raises FileExistsError: a key is never written over; OSError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(
            f"# Signs checkpoints; public {signer.verifier.spelled}. Whoever reads the next line can sign too.\n"
        )
        file.write(f"{signer.spelled}\n")
        file.flush()
        os.fsync(file.fileno())
