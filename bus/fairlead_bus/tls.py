"""TLS of a listening service: a certificate and its key from two files, and new ones from the same files without a restart.

Open connections keep the certificate that they began with; every later handshake uses the newest pair that could be read. A pair
that does not fit (a renewal writes one file after the other) leaves the old one in use and is tried again. A pair that has expired, or
will soon, is taken, too: clients refuse it by themselves, and a gateway that refused it could not say so over HTTP. It is a condition of
`/readyz` and a warning in the log. Start at `Certificate`.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

import structlog

from fairlead_bus.environment_settings import BadSetting
from fairlead_schemas.units.timestamps import SECOND_NS, rfc3339
from fairlead_schemas.wire.conditions import Condition

log = structlog.get_logger()

CERT_SETTING, KEY_SETTING = "FAIRLEAD_TLS_CERT", "FAIRLEAD_TLS_KEY"
#: Seconds between two looks at the files.
LOOK_S = 5.0
DAY_S = 86_400.0
#: Days before its end from which on a pair is warned of. Renewals are due at 30 days and earlier, so one has failed for two weeks.
WARN_DAYS = 14


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

    def __init__(self, files: TlsFiles, clock: Callable[[], float] = time.time) -> None:
        """Load both files. `clock`: Unix s. Raises BadSetting."""
        self._files = files
        self._clock = clock
        self._failure = ""
        try:
            self._marks: tuple[tuple[int, int, int], ...] = files.marks()
            self.context = self._newest = _context(files)
            self._validity = _validity(files)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise BadSetting(f"{CERT_SETTING}, {KEY_SETTING}: {files.cert}, {files.key}: {error}") from error
        self.context.sni_callback = self._take_newest
        self.report("certificate in use")

    def _take_newest(self, handshake: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        handshake.context = self._newest

    def reload(self) -> bool:
        """Take what the files have now, if it is new and whole. Return True if it was taken."""
        try:
            marks = self._files.marks()
            if marks == self._marks:
                return False
            context, validity = _context(self._files), _validity(self._files)
        except (OSError, ValueError) as error:
            if str(error) != self._failure:
                self._failure = str(error)
                log.error("certificate not taken; the old one stays in use", reason=self._failure)
            return False
        self._marks, self._failure, self._newest, self._validity = marks, "", context, validity
        self.report("new certificate taken")
        return True

    def condition(self) -> Condition | None:
        """Return the condition of a pair that is not valid yet, has expired, or will within WARN_DAYS; None for any other."""
        begins_s, ends_s = self._validity
        now_s, file = self._clock(), self._files.cert
        if now_s < begins_s:
            message = f"the certificate in {file} is not valid before {_shown(begins_s)}: clients refuse the connection"
        elif now_s >= ends_s:
            message = f"the certificate in {file} expired at {_shown(ends_s)}: clients refuse the connection"
        elif ends_s - now_s < WARN_DAYS * DAY_S:
            message = f"the certificate in {file} expires at {_shown(ends_s)}, in {(ends_s - now_s) / DAY_S:.1f} days"
        else:
            return None
        return Condition(code="certificate_expires", message=message)

    def report(self, event: str) -> None:
        """Log how long the pair in use is valid, as a warning where there is a condition."""
        found, ends_s = self.condition(), self._validity[1]
        days = round((ends_s - self._clock()) / DAY_S, 1)
        log.info(event, file=str(self._files.cert), valid_until=_shown(ends_s), valid_days=days)
        if found is not None:
            log.warning("certificate needs a renewal", reason=found.message)

    async def watch(self) -> None:
        """Look for new files until cancelled, and log once a day how long the pair in use is valid."""
        reported_s = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_S)
            if self.reload():
                reported_s = time.monotonic()
            elif time.monotonic() - reported_s >= DAY_S:
                reported_s = time.monotonic()
                self.report("certificate in use")


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A key with a passphrase would be asked for at the terminal.
    context.load_cert_chain(files.cert, files.key, password=_no_passphrase)
    return context


def _validity(files: TlsFiles) -> tuple[float, float]:
    """Return from when to when a certificate is valid, of a chain its first (Unix s). Raises OSError, ValueError."""
    from cryptography import x509  # a few MiB, which a gateway without TLS does not need

    leaf = x509.load_pem_x509_certificates(files.cert.read_bytes())[0]
    return leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()


def _shown(at_s: float) -> str:
    return rfc3339(int(at_s) * SECOND_NS)


def _no_passphrase() -> str:
    raise ValueError("expected a private key without a passphrase")
