"""Load file: a window of a log in one file, as the engine plays it; small enough for a repository.

    <name>.load.jsonl.gz    a line of head, then a line for each thing that was given, and for each job what was real of it

The head names the log that it was made of (its identity, its last commit), and the SHA-256 of the lines behind it. Nothing is
taken from a file whose lines do not have that digest. Sizes are bounded before anything is read, and while it is.
"""

import gzip
import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from fairlead_bus.core import Decision
from fairlead_bus.log import LogHead
from fairlead_replay.whatif.given import Given, GivenCommand, GivenEvents, GivenFact
from fairlead_replay.whatif.real_cluster import RealAttempt, RealCluster, RealJob, RunCall
from fairlead_replay.whatif.record import Absence, LogRecording, Start
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.resources import Inventory

FORMAT = 1
SUFFIX = ".load.jsonl.gz"
#: Bounds of a file as it is stored, of its lines together, and of one line.
FILE_BYTES_MAX = 256 * 1024**2
LINES_BYTES_MAX = 2 * 1024**3
LINE_BYTES_MAX = 64 * 1024**2
LEVEL = 9


class LoadFileError(ValueError):
    """A file that is no load file which can be played; the message says what was expected and what was found."""


class LoadHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """First line of a load file."""

    #: Format of the file.
    load: int
    #: SHA-256 of all lines behind this one.
    sha256: str
    #: Identity of the log, and the SHA-256 of the last commit that was read of it.
    log: str
    commit: str
    #: Sequences of the window's commits, and its bounds in Unix ns (0: the log's start).
    sequences: tuple[int, int]
    from_ns: int
    to_ns: int
    jobs: int
    anonymous: bool


class _Line(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", forbid_unknown_fields=True
):
    pass


class StartLine(_Line, frozen=True, kw_only=True, tag="start"):
    """State at the window's begin, and what is said of the recording as a whole."""

    sequence: int
    at_ns: int
    end_ns: int
    begin_ns: int
    first: int
    last: int
    heads: dict[str, LogHead] = {}
    snapshots: dict[str, bytes] = {}
    positions: dict[str, int] = {}
    cuts_ns: dict[str, list[int]] = {}
    unknown: dict[str, int] = {}
    absences: list[tuple[str, int, int]] = []


class CommandLine(_Line, frozen=True, kw_only=True, tag="command"):
    """`GivenCommand`."""

    at_ns: int
    message: int
    writer: str
    position: int
    command: cmd.QueueCommand | cmd.PlacerCommand


class EventsLine(_Line, frozen=True, kw_only=True, tag="events"):
    """`GivenEvents`."""

    at_ns: int
    message: int
    writer: str
    events: list[ev.Event]
    cursors: dict[str, int] = {}
    started_ns: int = 0


class FactLine(_Line, frozen=True, kw_only=True, tag="fact"):
    """`GivenFact`."""

    at_ns: int
    node: str
    what: str
    inventory: Inventory | None = None
    incarnation: str = ""
    boot_id: str = ""
    silent_ns: int = 0
    gpu: str = ""
    code: str = ""
    evidence: str = ""
    job: str = ""
    outcome: ev.RunOutcome = "stopped"
    exit_code: int | None = None


class CallPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`RunCall`."""

    attempt: int
    offset_ns: int
    given: CommandLine | EventsLine


class AttemptPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`RealAttempt`."""

    number: int
    placed_ns: int
    nodes: tuple[str, ...]
    units: int
    started_ns: int = 0
    ended_ns: int = 0
    stop_ns: int = 0
    end: ev.RunEnded | None = None
    image: str = ""
    is_end_late: bool = False
    ranks: dict[int, int] = {}
    rank_ends: dict[int, ev.RankEnded] = {}
    rank_ended_ns: dict[int, int] = {}
    gone_ns: dict[str, int] = {}
    saves: list[tuple[int, str, bool]] = []


class JobLine(_Line, frozen=True, kw_only=True, tag="job"):
    """`RealJob`. An element of an array that names no submit has that of its array."""

    id: str
    submitted_ns: int
    queue: str
    submitted: ev.JobSubmitted | None = None
    attempts: list[AttemptPart] = []
    end: str = ""
    ended_ns: int = 0
    reason: str = ""
    calls: list[CallPart] = []


type Line = StartLine | CommandLine | EventsLine | FactLine | JobLine

_encode = msgspec.json.Encoder().encode
_lines = msgspec.json.Decoder(StartLine | CommandLine | EventsLine | FactLine | JobLine)
_heads = msgspec.json.Decoder(LoadHead)


def is_load_file(path: Path) -> bool:
    """Return True for a file with the name of a load file."""
    return path.name.endswith(SUFFIX)


# ---------------------------------------------------------------------------- to a file


def write_load(path: Path, recording: LogRecording, *, log: str, commit: str, anonymous: bool = False) -> LoadHead:
    """Write a recording. `log`, `commit`: identity of its log, and hash of the last commit. Raises LoadFileError where the
    file is there already."""
    body = _body(recording)
    head = LoadHead(
        load=FORMAT,
        sha256=hashlib.sha256(body).hexdigest(),
        log=log,
        commit=commit,
        sequences=(recording.first, recording.last),
        from_ns=recording.start.at_ns,
        to_ns=recording.end_ns,
        jobs=len(recording.real.jobs),
        anonymous=anonymous,
    )
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with beside.open("wb") as file, gzip.GzipFile("", "wb", LEVEL, file, mtime=0) as packed:
            packed.write(_encode(head) + b"\n" + body)
        path.hardlink_to(beside)  # unlike a rename, this never replaces a file
    except FileExistsError as error:
        raise LoadFileError(
            f"{path}: expected a new file, found one of this name; a load file is never written over"
        ) from error
    except OSError as error:
        raise LoadFileError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        beside.unlink(missing_ok=True)
    return head


def digest_of(recording: LogRecording) -> str:
    """Return the SHA-256 that a load file of this recording has."""
    return hashlib.sha256(_body(recording)).hexdigest()


def _body(recording: LogRecording) -> bytes:
    return b"".join(_encode(line) + b"\n" for line in _lines_of(recording))


def _lines_of(recording: LogRecording) -> Iterator[Line]:
    start = recording.start
    yield StartLine(
        sequence=start.sequence,
        at_ns=start.at_ns,
        end_ns=recording.end_ns,
        begin_ns=recording.begin_ns,
        first=recording.first,
        last=recording.last,
        heads=start.heads,
        snapshots=start.snapshots,
        positions=start.positions,
        cuts_ns=recording.cuts_ns,
        unknown=dict(recording.unknown),
        absences=[(each.writer, each.from_ns, each.to_ns) for each in recording.absences],
    )
    for given in recording.given:
        yield _given_line(given)
    for job in list(recording.real.jobs.values()):
        yield _job_line(job, recording.real)


def _given_line(given: Given) -> CommandLine | EventsLine | FactLine:
    match given:
        case GivenCommand():
            return CommandLine(**given._asdict())
        case GivenEvents():
            return EventsLine(
                at_ns=given.at_ns,
                message=given.message,
                writer=given.writer,
                events=given.decision.events,
                cursors=given.decision.cursors,
                started_ns=given.started_ns,
            )
        case GivenFact():
            return FactLine(**given._asdict())


def _job_line(job: RealJob, real: RealCluster) -> JobLine:
    array = real.jobs.get(job.id.partition("_")[0]) if "_" in job.id else None
    is_of_array = array is not None and array.submitted is job.submitted
    return JobLine(
        id=job.id,
        submitted_ns=job.submitted_ns,
        queue=job.queue,
        submitted=None if is_of_array else job.submitted,
        attempts=[
            AttemptPart(**{name: getattr(each, name) for name in AttemptPart.__struct_fields__})
            for each in job.attempts
        ],
        end=job.end,
        ended_ns=job.ended_ns,
        reason=job.reason,
        calls=[_call_part(each) for each in job.calls],
    )


def _call_part(call: RunCall) -> CallPart:
    line = _given_line(call.given)
    assert not isinstance(line, FactLine)
    return CallPart(attempt=call.attempt, offset_ns=call.offset_ns, given=line)


# ---------------------------------------------------------------------------- from a file


def read_head(path: Path) -> LoadHead:
    """Return the head of a load file, without its lines. Raises LoadFileError."""
    with _opened(path) as file:
        return _head(path, file)


def read_load(path: Path) -> tuple[LoadHead, LogRecording]:
    """Return what a load file holds. Raises LoadFileError."""
    digest, size = hashlib.sha256(), 0
    start: StartLine | None = None
    given: list[Given] = []
    real = RealCluster()
    with _opened(path) as file:
        head = _head(path, file)
        for number, raw in enumerate(_raw_lines(path, file), start=2):
            size += len(raw)
            if size > LINES_BYTES_MAX:
                raise LoadFileError(f"{path}: expected at most {LINES_BYTES_MAX // 1024**3} GiB of lines, found more")
            digest.update(raw)
            try:
                line = _lines.decode(raw)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise LoadFileError(f"{path}: line {number} cannot be read: {error}") from error
            match line:
                case StartLine():
                    start = line
                case JobLine():
                    _add_job(path, number, line, real)
                case _:
                    given.append(_given(line))
    if digest.hexdigest() != head.sha256:
        raise LoadFileError(
            f"{path}: expected lines with the digest {head.sha256[:16]}…, found {digest.hexdigest()[:16]}…: the file was changed or cut"
        )
    if start is None:
        raise LoadFileError(f"{path}: expected a line with the start, found none")
    return head, _recording(start, given, real)


def _opened(path: Path) -> Any:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise LoadFileError(f"{path}: {error.strerror}") from error
    if size > FILE_BYTES_MAX:
        raise LoadFileError(
            f"{path}: expected a load file of at most {FILE_BYTES_MAX // 1024**2} MiB, found {size / 1024**2:,.0f} MiB; "
            "export a shorter window"
        )
    return gzip.open(path, "rb")


def _head(path: Path, file: BinaryIO) -> LoadHead:
    raw = next(_raw_lines(path, file), b"")
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]) if raw else {}
        version = msgspec.json.decode(fields["load"], type=int) if "load" in fields else 0
        if version > FORMAT:
            raise LoadFileError(
                f"{path}: expected a load file of format {FORMAT}, found {version}: a later version wrote it"
            )
        return _heads.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LoadFileError(
            f"{path}: expected a load file (`fairlead audit export --load` writes them): {error}"
        ) from error


def _raw_lines(path: Path, file: BinaryIO) -> Iterator[bytes]:
    try:
        while raw := file.readline(LINE_BYTES_MAX + 1):
            if len(raw) > LINE_BYTES_MAX:
                raise LoadFileError(
                    f"{path}: expected lines of at most {LINE_BYTES_MAX // 1024**2} MiB, found a longer one"
                )
            yield raw
    except (EOFError, gzip.BadGzipFile, zlib.error, OSError) as error:
        raise LoadFileError(f"{path}: it is cut, or no load file: {error}") from error


def _given(line: CommandLine | EventsLine | FactLine) -> Given:
    match line:
        case CommandLine():
            return GivenCommand(**{name: getattr(line, name) for name in GivenCommand._fields})
        case EventsLine():
            return GivenEvents(
                line.at_ns, line.message, line.writer, Decision(line.events, line.cursors), line.started_ns
            )
        case FactLine():
            return GivenFact(**{name: getattr(line, name) for name in GivenFact._fields})


def _add_job(path: Path, number: int, line: JobLine, real: RealCluster) -> None:
    array = real.jobs.get(line.id.partition("_")[0])
    submitted = line.submitted or (array.submitted if array is not None else None)
    if submitted is None:
        raise LoadFileError(f"{path}: line {number}: expected the submit of job {line.id}, found none")
    job = real.jobs[line.id] = RealJob(line.id, submitted, line.submitted_ns)
    job.queue, job.end, job.ended_ns, job.reason = line.queue, line.end, line.ended_ns, line.reason
    job.attempts = [_attempt(each) for each in line.attempts]
    job.calls = [RunCall(each.attempt, each.offset_ns, _call_given(each)) for each in line.calls]


def _call_given(part: CallPart) -> GivenCommand | GivenEvents:
    given = _given(part.given)
    assert not isinstance(given, GivenFact)
    return given


def _attempt(part: AttemptPart) -> RealAttempt:
    attempt = RealAttempt(part.number, part.placed_ns, part.nodes, part.units)
    for name in AttemptPart.__struct_fields__[4:]:
        setattr(attempt, name, getattr(part, name))
    return attempt


def _recording(start: StartLine, given: list[Given], real: RealCluster) -> LogRecording:
    return LogRecording(
        Start(start.sequence, start.at_ns, start.heads, start.snapshots, start.positions),
        start.end_ns,
        given,
        real,
        start.first,
        start.last,
        start.cuts_ns,
        Counter(start.unknown),
        tuple([Absence(*each) for each in start.absences]),
        start.begin_ns,
    )
