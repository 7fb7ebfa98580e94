"""Keyframes: the folded views of the gateway at places of the log, in a directory that may be lost.

A keyframe is a file: the digest of everything behind it, a line of JSON (the log, the shape, the place, each writer's newest commit),
and the compressed state. One that does not verify, is of another log or shape, or is gone, is as if it were not there: the log has it
all, and a fold from an older one gives the same bytes. Start at `KeyframeStore`.
"""

import asyncio
import contextlib
import hashlib
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from fairlead_bus.log import LogHead, built_upon
from fairlead_bus.port import Bus, LogDamaged
from fairlead_gateway.views.fold import SCHEMA, Views

SUFFIX = ".keyframe"
#: Format of the file.
FORMAT = 1
#: Speed and size of zlib; 1 is the fastest. Level 6 makes a tenth less of it in three times the time.
LEVEL = 1
#: Bytes of all keyframes of a log, unless set.
BYTES_MAX = 4 * 1024**3
#: A state in memory is folded on rather than a keyframe read, where that saves no more than these events, and commits times
#: COMMIT_WEIGHT: reading one takes as long.
READ_WEIGHT = 15_000
#: A commit takes as long to read and check as so many events to fold.
COMMIT_WEIGHT = 3
#: Characters of a log's hash in the name of its folder.
LOG_CHARS = 16

log = structlog.get_logger()


class KeyframePlace(NamedTuple):
    """Place of a keyframe in the log: sequence, the log's time there (Unix ns), events up to there; and the file's bytes."""

    sequence: int
    at_ns: int
    events: int
    bytes: int


class Keyframe(NamedTuple):
    """State at a place, and the way on from there."""

    sequence: int
    views: Views
    heads: dict[str, LogHead]
    events: int


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    log_id: str
    schema: str
    sequence: int
    at_ns: int
    events: int
    heads: dict[str, LogHead]


_heads = msgspec.json.Decoder(_Head)
_encode = msgspec.json.Encoder(order="deterministic").encode


def encode_keyframe(log_id: str, views: bytes, place: KeyframePlace, heads: dict[str, LogHead]) -> bytes:
    """Return the bytes of a file."""
    head = _Head(
        format=FORMAT,
        log_id=log_id,
        schema=SCHEMA,
        sequence=place.sequence,
        at_ns=place.at_ns,
        events=place.events,
        heads=heads,
    )
    rest = _encode(head) + b"\n" + zlib.compress(views, LEVEL)
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


class BadKeyframe(Exception):
    """A file that is no keyframe of this log and shape; the text says why."""


def decode_keyframe(data: bytes, log_id: str, sequence: int) -> Keyframe:
    """Return what a file holds. Raises BadKeyframe."""
    digest, _, rest = data.partition(b"\n")
    if hashlib.sha256(rest).hexdigest().encode() != digest:
        raise BadKeyframe("its digest is not that of its content: it is cut, or damaged")
    head, _, state = rest.partition(b"\n")
    try:
        found = _heads.decode(head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadKeyframe(f"its head cannot be read: {error}") from error
    if found.log_id != log_id:
        raise BadKeyframe("it is of another log")
    if found.format != FORMAT or found.schema != SCHEMA:
        raise BadKeyframe(f"it has the shape {found.schema}, expected {SCHEMA}")
    if found.sequence != sequence:
        raise BadKeyframe(f"it is of sequence {found.sequence}, its name says {sequence}")
    views = Views.restore(zlib.decompress(state))
    if views is None or views.sequence != sequence:
        raise BadKeyframe("its state cannot be read")
    return Keyframe(sequence, views, found.heads, found.events)


class KeyframeStore:
    """Keyframes of one log in a directory. `bytes_max`: of all files; 0 keeps none. Several processes may share the directory."""

    def __init__(self, directory: Path, log_id: str, bytes_max: int = BYTES_MAX) -> None:
        self._log_id = log_id
        self._bytes_max = bytes_max
        self.read_weight = READ_WEIGHT
        self._folder = directory / log_id[:LOG_CHARS] / SCHEMA
        #: {sequence: place}, by sequence.
        self._places: dict[int, KeyframePlace] = {}

    @property
    def places(self) -> list[KeyframePlace]:
        """Places of all keyframes, in the order of the log."""
        return list(self._places.values())

    def is_nearer(self, sequence: int, last: int, at_ns: int = 0) -> bool:
        """Return True if the newest keyframe up to `last`, not later than a Unix time (0: any), is so far beyond a state at `sequence`
        that it is faster to read than to fold up to.
        """
        before, newest = KeyframePlace(0, 0, 0, 0), None
        for place in self._places.values():
            if place.sequence > last or (at_ns and place.at_ns > at_ns):
                break
            before, newest = newest or before, place
        if newest is None or newest.sequence <= sequence:
            return False
        if sequence < before.sequence:
            return True
        commits = newest.sequence - sequence
        events = (newest.events - before.events) * commits // (newest.sequence - before.sequence)
        return events + COMMIT_WEIGHT * commits > self.read_weight

    def open(self) -> None:
        """Find the keyframes that are there; the heads of files are read, their states are not."""
        found: list[KeyframePlace] = []
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
                with path.open("rb") as file:
                    file.readline()
                    head = _heads.decode(file.readline())
                if head.log_id == self._log_id and head.schema == SCHEMA and head.sequence == int(path.stem):
                    found.append(KeyframePlace(head.sequence, head.at_ns, head.events, path.stat().st_size))
        self._places = {place.sequence: place for place in sorted(found)}
        self._remove_other_shapes()

    def _remove_other_shapes(self) -> None:
        """Remove keyframes of other shapes of this log, which another version has left. Those of other logs stay."""
        if not self._folder.parent.is_dir():
            return
        for folder in self._folder.parent.iterdir():
            if folder.name != SCHEMA and folder.is_dir():
                for path in folder.glob(f"*{SUFFIX}"):
                    self._remove(path)
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def nearest(self, sequence: int, at_ns: int = 0) -> Keyframe | None:
        """Return the newest keyframe that is not beyond a sequence, nor later than a Unix time (0: any) and that can be read."""
        for place in reversed(self.places):
            if place.sequence <= sequence and not (at_ns and place.at_ns > at_ns):
                found = self._read(place)
                if found is not None:
                    return found
        return None

    async def nearest_of_log(self, bus: Bus, sequence: int, at_ns: int = 0) -> Keyframe | None:
        """Return the keyframe of `nearest` whose commits the log still holds. One of an end that was cut off, as by a restored backup,
        is removed: another history may have followed. Raises Unavailable.
        """
        while (found := await asyncio.to_thread(self.nearest, sequence, at_ns)) is not None:
            try:
                for head in found.heads.values():
                    await built_upon(bus, head)
            except LogDamaged as error:
                log.warning("keyframe is not of this log any more", sequence=found.sequence, reason=str(error))
                self._places.pop(found.sequence, None)
                self._remove(self._path(found.sequence))
            else:
                return found
        return None

    def _read(self, place: KeyframePlace) -> Keyframe | None:
        path = self._path(place.sequence)
        try:
            return decode_keyframe(path.read_bytes(), self._log_id, place.sequence)
        except FileNotFoundError:  # another process has removed it
            self._places.pop(place.sequence, None)
        except (BadKeyframe, OSError, zlib.error) as error:
            log.warning("keyframe is not used", path=str(path), reason=str(error))
            self._places.pop(place.sequence, None)
            self._remove(path)
        return None

    def write(self, views: bytes, place: KeyframePlace, heads: dict[str, LogHead]) -> bool:
        """Store a keyframe, and keep to the bound. False where that was not possible: it is only missing then."""
        if not self._bytes_max:
            return False
        path = self._path(place.sequence)
        data = encode_keyframe(self._log_id, views, place, heads)
        beside = path.with_name(f"{path.name}.{os.getpid()}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError as error:
            log.warning("keyframe not stored", path=str(path), reason=str(error))
            self._remove(beside)
            return False
        self._places[place.sequence] = place._replace(bytes=len(data))
        self._places = dict(sorted(self._places.items()))
        self.thin()
        return True

    def thin(self) -> None:
        """Keep to the bound: every second keyframe of the oldest half goes, so that gaps are bounded and known."""
        while sum(place.bytes for place in self._places.values()) > self._bytes_max:
            oldest = list(self._places)[: max(1, len(self._places) // 2)]
            gone: Iterable[int] = oldest[::2]
            for sequence in gone:
                self._places.pop(sequence, None)
                self._remove(self._path(sequence))

    def _path(self, sequence: int) -> Path:
        return self._folder / f"{sequence:020}{SUFFIX}"

    @staticmethod
    def _remove(path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
