"""`whatif`: a part of the log played again under another policy, next to the recorded policy.

The work is `fairlead_replay.whatif`'s; here is only where the log is found, and how the answer is printed.
"""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.commands.audit_options import Data, Nats, bus_url, translated
from fairlead.commands.options import connect, time_of
from fairlead.errors import FairleadError, InputRefused, Unreachable
from fairlead.jobfile.yaml_text import read_yaml
from fairlead.render import terminal
from fairlead.render.progress import progress
from fairlead.render.terminal import Format
from fairlead.render.whatif_report import report
from fairlead.stack import state
from fairlead_schemas.units.quantities import QuantityError, parse_duration
from fairlead_schemas.units.timestamps import parse_rfc3339

if TYPE_CHECKING:  # the cores are loaded by the verbs that fold, not by every command line
    from fairlead_bus.port import Stored
    from fairlead_replay.whatif.record import LogRecording, LogWindow
    from fairlead_replay.whatif.study import Study

#: Exit code of a study that says nothing about the change: its control is too far from the record.
CANNOT_BE_JUDGED = 7


class StudyFormat(StrEnum):
    """Output formats of a study."""

    table = "table"
    json = "json"
    html = "html"


class Users(StrEnum):
    """When people submit in a play."""

    open = "open"
    closed = "closed"


def whatif(
    file: Annotated[
        Path,
        typer.Option("--file", "-f", help="The change (YAML): sequencer, pools, queues, nodes.", show_default=False),
    ],
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="TIME", help="Begin of the window.  [default: the log's start]", show_default=False
        ),
    ] = "",
    to: Annotated[
        str,
        typer.Option("--to", metavar="TIME", help="End of the window.  [default: the log's end]", show_default=False),
    ] = "",
    seeds: Annotated[
        int, typer.Option("--seeds", min=0, max=64, help="Pairs of shaken plays; fewer than 3 show no effects.")
    ] = 5,
    users: Annotated[
        Users,
        typer.Option("--users", help="open: submits at their times; closed: as long after own ends as they were."),
    ] = Users.open,
    grid: Annotated[
        str,
        typer.Option(
            "--grid", metavar="DURATION", help='Look at moments this far apart only ("1s"): faster, later starts.'
        ),
    ] = "",
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="DIR", help="Write the logs of both plays as exports into DIR.", show_default=False
        ),
    ] = None,
    even_so: Annotated[
        bool, typer.Option("--even-so", help="Show effects also where the control does not match the record.")
    ] = False,
    data: Data = None,
    nats: Nats = "",
    output: Annotated[StudyFormat, typer.Option("--output", "-o", help="Output format.")] = StudyFormat.table,
) -> None:
    """Say what a part of the log would have been under another policy, and how far that can be believed. Exit code 7
    means that it cannot.

    fairlead whatif -f change.yaml --from yesterday --to 2h

    fairlead whatif -f change.yaml --data ./export --seeds 8 -o html > report.html

    fairlead whatif -f change.yaml --keep ./whatif && fairlead audit verify --data ./whatif/variant

    The recorded policy is played, too (the control); effects are the difference of the two plays. Without --data, --nats
    and --keep the cluster plays, and shows what you may see; with one of them this machine does.
    """
    from fairlead_replay.whatif.documents import document
    from fairlead_replay.whatif.report_page import page

    grid_ns = _grid(grid)
    values, change = _change(file)
    if data is None and not nats and keep is None:
        words = _played_there(values, from_, to, seeds, users, grid, even_so, output)
    else:
        window = _window(from_, to)
        folder = (data or state.default_data()).absolute()
        study = _study(folder, nats, window, change, seeds, users is Users.closed, grid_ns, keep)
        words = document(study, even_so=even_so)
    if output is StudyFormat.html:
        terminal.write(page(words))
    elif output is StudyFormat.json:
        terminal.write(terminal.document(words, terminal.Format.json))
    else:
        terminal.write(report(words))
    if words["withheld"]:
        raise typer.Exit(CANNOT_BE_JUDGED)


def _window(from_: str, to: str) -> "LogWindow":
    from fairlead_replay.whatif.record import LogWindow

    return LogWindow(parse_rfc3339(time_of(from_)) if from_ else 0, parse_rfc3339(time_of(to)) if to else 0)


def _grid(text: str) -> int:
    try:
        found = parse_duration(text) if text else 0
    except QuantityError as error:
        raise InputRefused(f"--grid: {error}") from error
    if text and found <= 0:
        raise InputRefused(
            f'--grid: expected more than 0, such as "1s", found "{text}"; without it every moment is looked at'
        )
    return found


def _played_there(
    change: dict[str, Any],
    from_: str,
    to: str,
    seeds: int,
    users: Users,
    grid: str,
    even_so: bool,
    output: StudyFormat,
) -> dict[str, Any]:
    """Let the cluster play, and return the study's document. Ctrl-C ends it there, too."""
    begin, end = time_of(from_) if from_ else "", time_of(to) if to else ""
    with connect() as client:
        try:
            study = client.start_whatif(change, begin=begin, to=end, seeds=seeds, users=users.value, grid=grid)
        except Unreachable as error:
            raise Unreachable(
                str(error), hint="fairlead whatif --data DIR plays the log of an export or a stack here"
            ) from error
        try:
            with progress("what if", "plays", Format.json if output is StudyFormat.json else Format.table) as seen:
                for found in client.whatif_progress(study.id):
                    study = found
                    if found.plays:
                        seen(found.plays_done, found.plays)
        except KeyboardInterrupt:
            client.cancel_whatif(study.id)
            raise
        study = client.whatif(study.id, even_so=even_so)
    if study.study is None:
        message = study.message or f"the study is {study.state}"
        if study.message.partition(":")[0].partition(".")[0] in ("queues", "pools", "nodes", "from", "to", "sequencer"):
            raise InputRefused(message)
        raise FairleadError(message)
    return study.study


def _change(file: Path) -> tuple[dict[str, Any], Any]:
    """Return the values of a file, and the overlay that they are. Raises InputRefused with every mistake in it."""
    from fairlead_replay.whatif.overlay import InvalidOverlay, read_overlay

    try:
        documents = read_yaml(file.read_text(), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InputRefused(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    if len(documents) > 1:
        raise InputRefused(f"{file}: expected one document, found {len(documents)}")
    try:
        values = documents[0] if documents else None
        overlay = read_overlay(values)
    except InvalidOverlay as error:
        raise InputRefused(f"{file}: {error}") from error
    return dict(values or {}), overlay


def _study(
    folder: Path, nats: str, window: "LogWindow", change: Any, seeds: int, closed: bool, grid_ns: int, keep: Path | None
) -> "Study":
    from fairlead_replay.whatif import sources
    from fairlead_replay.whatif.overlay import InvalidOverlay
    from fairlead_replay.whatif.player import PlayStalled
    from fairlead_replay.whatif.record import WindowError

    try:
        with translated_windows():
            if not nats and sources.is_directory_log(folder):
                recording = sources.record_directory(folder, window)
                return _play(recording, change, seeds, closed, grid_ns, keep, folder)
            if keep is not None and window.from_ns:
                raise InputRefused(
                    "--keep: expected an export or an archive with --data where --from is given",
                    hint="fairlead audit export ./export, then --data ./export",
                )
            with bus_url(folder, nats) as url:
                recording = sources.record_url(url, window)
            return _play(recording, change, seeds, closed, grid_ns, keep, None)
    except InvalidOverlay as error:
        raise InputRefused(str(error)) from error
    except WindowError as error:
        raise InputRefused(f"--{error}" if not str(error).startswith("log") else str(error)) from error
    except PlayStalled as error:
        raise FairleadError(f"cannot be played: {error}") from error


def translated_windows() -> Any:
    """The failures of reading as errors of the command line; those of the window and the change keep their own words."""
    from contextlib import contextmanager

    from fairlead_replay.whatif.overlay import InvalidOverlay
    from fairlead_replay.whatif.record import WindowError

    @contextmanager
    def guard() -> Any:
        kept: list[Exception] = []
        with translated():
            try:
                yield
            except (WindowError, InvalidOverlay) as error:
                kept.append(error)
        if kept:
            raise kept[0]

    return guard()


def _play(
    recording: "LogRecording",
    change: Any,
    seeds: int,
    closed: bool,
    grid_ns: int,
    keep: Path | None,
    folder: Path | None,
) -> "Study":
    from fairlead_replay.whatif import sources
    from fairlead_replay.whatif.study import StudyKeeper, run_study

    if keep is None:
        return run_study(recording, change, seeds=seeds, closed=closed, grid_ns=grid_ns)
    exports = [sources.PlayedExport(keep / name) for name in ("control", "variant")]
    try:
        for each in exports:
            if folder is not None:
                each.before(sources.stored_in(folder), recording.start.sequence)
        adders: list[Callable[[Stored], None]] = [each.add for each in exports]
        study = run_study(
            recording, change, seeds=seeds, closed=closed, grid_ns=grid_ns, keeper=StudyKeeper(adders[0], adders[1])
        )
    except BaseException:
        for each in exports:
            each.abandon()
        raise
    for each in exports:
        each.finish()
    return study
