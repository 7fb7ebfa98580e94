"""Sealed texts: encrypted and authenticated with a key of the gateways, for cookies and for refresh tokens at rest.

All gateways of a cluster share the key file. Its first line seals; the other lines only open, so a key is replaced by putting a new line
above it, and removing the old one a day later.
"""

import base64
import binascii
import os
import secrets
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead_bus.environment_settings import BadSetting

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
KEYS_MAX = 2
_NONCE_BYTES = 12


class Sealing:
    """Seals with the first key and opens with any. `purpose` binds a text to its use, so that none serves as another."""

    def __init__(self, keys: list[bytes]) -> None:
        assert keys, "expected a key"
        self._keys = keys

    @cached_property
    def _boxes(self) -> "list[AESGCM]":
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # as in passwords.py: most gateways seal nothing

        return [AESGCM(key) for key in self._keys]

    def seal(self, value: bytes, purpose: str) -> str:
        """Return the sealed text, in base64url."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = self._boxes[0].encrypt(nonce, value, purpose.encode())
        return base64.urlsafe_b64encode(nonce + sealed).decode().rstrip("=")

    def open(self, text: str, purpose: str) -> bytes | None:
        """Return what was sealed for this purpose; None for anything else."""
        from cryptography.exceptions import InvalidTag

        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except (binascii.Error, ValueError):
            return None
        for box in self._boxes:
            try:
                return box.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], purpose.encode())
            except (InvalidTag, ValueError):
                continue
        return None


def read_keys(path: Path) -> list[bytes]:
    """Return the keys of a key file, which is made with one key if it is missing. Raise BadSetting."""
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode() + "\n")
    require_private(path)
    lines = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    try:
        keys = [base64.b64decode(line, validate=True) for line in lines]
    except binascii.Error:
        keys = []
    if not 0 < len(keys) <= KEYS_MAX or any(len(key) != KEY_BYTES for key in keys):
        raise BadSetting(f"{path}: expected one or two lines, each of {KEY_BYTES} bytes in base64")
    return keys


def require_private(path: Path) -> None:
    """Raise BadSetting for a file that others may read."""
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise BadSetting(f"{path}: expected mode 0600, found {mode:04o}, since it contains a secret")
