"""Keys of bus users: an Ed25519 key pair in NATS's spelling, and the file in which a process keeps its seed.

The spelling (base32 of a prefix, 32 bytes, and a CRC-16 with the low byte first) is that of github.com/nats-io/nkeys.
The official Python package for it is published as a source archive only, and pip would fetch its build tools without
checking their hashes. So the spelling is implemented here, and the signing is the cryptography package's.

Seeds never leave their own machine: an admin needs the public key alone.

Files that hold one secret line: for their owner alone (mode 0600), empty lines and comments (#) aside.
"""

import base64
import binascii
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


#: First letter "S" with the second "U": a user's seed. First letter "U": a user's public key.
_SEED, _USER = 18 << 3, 20 << 3
_KEY_BYTES = 32
SETTING = "FAIRLEAD_NATS_NKEY_FILE"


class BadKey(ValueError):
    """A key, or the file that should hold one, cannot be used; the message says why and what helps."""


class KeyPair:
    """Key pair of one user. `public` may be published; `seed` is secret."""

    def __init__(self, raw: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # only where keys are used

        self._key = Ed25519PrivateKey.from_private_bytes(raw)
        self.seed = _spelled(bytes([_SEED | _USER >> 5, (_USER & 31) << 3]) + raw)
        self.public = _spelled(bytes([_USER]) + self._key.public_key().public_bytes_raw())

    def sign(self, nonce: bytes) -> bytes:
        """64 bytes that only the holder of the seed can make."""
        return self._key.sign(nonce)


def generate() -> KeyPair:
    """A new key pair from the system's randomness."""
    return KeyPair(os.urandom(_KEY_BYTES))


def from_seed(seed: str) -> KeyPair:
    """Return the key pair of a seed ("SU…"). Raises BadKey; the message does not repeat the text found."""
    raw = _read(seed.strip(), 2 + _KEY_BYTES, "a user's seed, 58 characters that begin with SU")
    if raw[0] & 0xF8 != _SEED or (raw[0] & 7) << 5 | raw[1] >> 3 != _USER:
        raise BadKey("expected a user's seed (SU…), found a key of another kind")
    return KeyPair(raw[2:])


def check_public(key: str) -> str:
    """The key, if it is a user's public key ("U…"). Raises BadKey."""
    raw = _read(key, 1 + _KEY_BYTES, "a user's public key, 56 characters that begin with U")
    if raw[0] != _USER:
        raise BadKey("expected a user's public key (U…), found a key of another kind")
    return key


def _spelled(raw: bytes) -> str:
    # crc_hqx from 0 is CRC-16/XMODEM, the one that nkeys use.
    crc = binascii.crc_hqx(raw, 0).to_bytes(2, "little")
    return base64.b32encode(raw + crc).decode().rstrip("=")


def _read(text: str, size: int, what: str) -> bytes:
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raise BadKey(f"expected {what}") from None
    if len(raw) != size + 2 or binascii.crc_hqx(raw[:-2], 0).to_bytes(2, "little") != raw[-2:]:
        raise BadKey(f"expected {what}; this one is cut short or misspelled")
    return raw[:-2]


def read_file(path: Path) -> KeyPair:
    """Read a key pair from a file with its seed: one line, others empty or comments (#). Raises BadKey.

    A file that is readable by users other than its owner is refused: every reader of the seed can act in this user's name.
    """
    try:
        seed = read_secret(path, "the bus key", "a user's seed (SU…)")
    except BadSecretFile as error:
        raise BadKey(str(error)) from error
    try:
        return from_seed(seed)
    except BadKey as error:
        raise BadKey(f"{path}: {error}") from None


def write_file(path: Path, pair: KeyPair, name: str) -> None:
    """Write a seed for its owner alone (0600), in one step. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(
                f"# Bus key of {name}, public {pair.public}. The next line is secret: it authenticates as {name}.\n{pair.seed}\n"
            )
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
