"""TLS of the gateway: a certificate and its key from two files, and new ones from the same files without a restart.

Open connections keep the certificate that they began with; every later handshake uses the newest pair that could be read. A pair
that does not fit (a renewal writes one file after the other) leaves the old one in use and is tried again. Start at
`Certificate`.
"""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

import structlog

from fairlead_bus.environment_settings import BadSetting

log = structlog.get_logger()

CERT_SETTING, KEY_SETTING = "FAIRLEAD_TLS_CERT", "FAIRLEAD_TLS_KEY"
#: Seconds between two looks at the files.
LOOK_S = 5.0


class TlsFiles(NamedTuple):
    """Paths of a certificate (with its chain) and its private key, both PEM."""

    cert: Path
    key: Path

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Self | None:
        """Read FAIRLEAD_TLS_CERT and FAIRLEAD_TLS_KEY; None where neither is set. Raises BadSetting."""
        cert, key = env.get(CERT_SETTING, ""), env.get(KEY_SETTING, "")
        if not cert and not key:
            return None
        for setting, value, other in ((CERT_SETTING, cert, KEY_SETTING), (KEY_SETTING, key, CERT_SETTING)):
            if not value:
                raise BadSetting(f"{setting}: expected the path of a PEM file, because {other} is set; found nothing")
        return cls(Path(cert), Path(key))

    def marks(self) -> tuple[tuple[int, int, int], ...]:
        """Return what changes when a file is written or replaced. Raises OSError."""
        stats = self.cert.stat(), self.key.stat()
        return tuple((each.st_mtime_ns, each.st_ino, each.st_size) for each in stats)


class Certificate:
    """Certificate in use. `context` is for the listening socket; each handshake goes on with the newest pair's own context. A context
    that takes a second pair keeps one of each kind of key, and would go on to show the old one of another kind.
    """

    def __init__(self, files: TlsFiles) -> None:
        """Load both files. Raises BadSetting."""
        self._files = files
        self._failure = ""
        try:
            self._marks = files.marks()
            self.context = self._newest = _context(files)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise BadSetting(f"{CERT_SETTING}, {KEY_SETTING}: {files.cert}, {files.key}: {error}") from error
        self.context.sni_callback = self._take_newest

    def _take_newest(self, handshake: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        handshake.context = self._newest

    def reload(self) -> bool:
        """Take what the files have now, if it is new and whole. Return True if it was taken."""
        try:
            marks = self._files.marks()
            if marks == self._marks:
                return False
            self._newest = _context(self._files)
        except (OSError, ValueError) as error:
            if str(error) != self._failure:
                self._failure = str(error)
                log.error("certificate not taken; the old one stays in use", reason=self._failure)
            return False
        self._marks, self._failure = marks, ""
        log.info("new certificate taken", file=str(self._files.cert))
        return True

    async def watch(self) -> None:
        """Look for new files until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.reload()


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A key with a passphrase would be asked for at the terminal.
    context.load_cert_chain(files.cert, files.key, password=_no_passphrase)
    return context


def _no_passphrase() -> str:
    raise ValueError("expected a private key without a passphrase")
