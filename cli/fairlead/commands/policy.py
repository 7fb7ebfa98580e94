"""`policy test`: a recorded load under a policy, held against expectations; for people and for CI.

The work is `fairlead_replay.policy_test`'s; here files are found and read, and the report is written.
"""

import importlib.util
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.commands.options import time_of
from fairlead.commands.whatif import translated_windows
from fairlead.errors import FairleadError, InputRefused, NotFound
from fairlead.jobfile.yaml_text import read_yaml
from fairlead.render import terminal
from fairlead.render.terminal import Format
from fairlead_schemas.units.timestamps import parse_rfc3339

if TYPE_CHECKING:  # the cores are loaded by the verbs that fold, not by every command line
    from fairlead_replay.policy_test.plays import MakeChanges
    from fairlead_replay.policy_test.policy_file import LogSource, PolicySource, PolicyTest
    from fairlead_replay.policy_test.reports import PolicyReport
    from fairlead_replay.whatif.record import LogRecording

#: Exit codes: an expectation is broken; nothing can be said.
BROKEN, UNCLEAR = 1, 7
#: A test file, a change or a queue file is no larger than this.
FILE_BYTES_MAX = 4 * 1024**2

app = typer.Typer(help="Test a policy against recorded loads.", no_args_is_help=True)


class ReportFormat(StrEnum):
    """Output formats of a report."""

    text = "text"
    json = "json"
    junit = "junit"


@app.callback()
def policy() -> None:
    """Test a policy against recorded loads."""


@app.command("test")
def run_test(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy test (YAML).", show_default=False)],
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds", min=0, max=64, help="Shaken pairs of plays, instead of the file's.", show_default=False
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Also write JUnit XML to this file.", show_default=False)
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="Write the goldens that the file names, instead of comparing with them.")
    ] = False,
    output: Annotated[ReportFormat, typer.Option("--output", "-o", help="Output format.")] = ReportFormat.text,
) -> None:
    """Play a recorded load under a policy and check what is expected of it. Exit codes: 0 met, 1 broken, 2 the file
    is wrong, 3 there is no such log, 7 the log cannot say.

    fairlead policy test policy-test.yaml

    fairlead policy test policy-test.yaml --junit report.xml

    fairlead policy test policy-test.yaml --update
    """
    from fairlead_replay.policy_test import reports

    report = report_of(file, seeds, update=update)
    if junit is not None:
        _write(junit, reports.junit(report).encode(), "--junit")
    if output is ReportFormat.json:
        terminal.write(terminal.document(reports.document(report), Format.json))
    elif output is ReportFormat.junit:
        terminal.write(reports.junit(report))
    else:
        terminal.write(reports.text(report))
    status = report.verdicts.status
    if status != "met":
        raise typer.Exit(BROKEN if status == "broken" else UNCLEAR)


def report_of(file: Path, seeds: int | None = None, *, update: bool = False) -> "PolicyReport":
    """Play a policy test. `seeds`: instead of the file's. Raises InputRefused, NotFound."""
    from fairlead_replay.policy_test import goldens, plays, verdicts
    from fairlead_replay.policy_test.plays import UnknownQueues
    from fairlead_replay.policy_test.reports import PolicyReport
    from fairlead_replay.whatif.load_file import digest_of
    from fairlead_replay.whatif.overlay import InvalidOverlay
    from fairlead_replay.whatif.player import PlayStalled

    test = _read(file)
    if seeds is not None:
        test = test._replace(seeds=seeds)
    if update and not test.goldens:
        raise InputRefused(f"{file}: goldens: expected the file that --update writes, found none")
    folder = file.parent
    recording = _recording(test.log, folder, file)
    digest = digest_of(recording)
    if test.log.sha256 and test.log.sha256 != digest:
        raise InputRefused(f"{file}: log.sha256: expected {test.log.sha256[:16]}…, found {digest[:16]}…: another log")
    try:
        policy, against = (
            _changes(each, recording, folder, f"{file}: {at}")
            for at, each in (("policy", test.policy), ("against", test.against))
        )
        played = plays.run(test, recording, policy, against)
    except (InvalidOverlay, UnknownQueues, plays.MissingJobs) as error:
        raise InputRefused(f"{file}: {error}") from error
    except PlayStalled as error:
        raise InputRefused(f"{file}: cannot be played: {error}") from error
    differences: list[goldens.GoldenDifference] = []
    if update:
        _write(folder / test.goldens, goldens.goldens_of(digest, played), f"{file}: goldens")
    elif test.goldens:
        try:
            differences = goldens.compare_goldens(_bytes(folder / test.goldens, f"{file}: goldens"), digest, played)
        except goldens.GoldensRefused as error:
            raise InputRefused(f"{file}: goldens: {error}") from error
    found = verdicts.judge(test, recording, played, differences)
    return PolicyReport(file.name, test, recording, played, found, digest)


def _read(file: Path) -> "PolicyTest":
    from fairlead_replay.policy_test.policy_file import InvalidPolicyTest, read_policy_test

    try:
        return read_policy_test(_document(file, str(file)))
    except InvalidPolicyTest as error:
        raise InputRefused(f"{file}: {error}") from error


def _recording(source: "LogSource", folder: Path, file: Path) -> "LogRecording":
    """Return the recorded log. Raises InputRefused, and NotFound where there is none."""
    from fairlead_replay.whatif import sources
    from fairlead_replay.whatif.load_file import LoadFileError, is_load_file
    from fairlead_replay.whatif.record import LogWindow, WindowError

    path = folder / source.path
    if not path.exists():
        raise NotFound(f"{file}: log.{source.kind}: there is no {path}")
    if (source.kind == "load") != is_load_file(path) or not sources.is_directory_log(path):
        raise InputRefused(f"{file}: log.{source.kind}: expected a path of one, found {path}")
    begin, end = (parse_rfc3339(time_of(text)) if text else 0 for text in (source.from_, source.to))
    try:
        with translated_windows():
            return sources.record_directory(path, LogWindow(begin, end))
    except WindowError as error:
        raise InputRefused(f"{file}: log.{error}") from error
    except FairleadError as error:
        if isinstance(error.__cause__, LoadFileError):
            raise InputRefused(f"{file}: log.load: {error}") from error
        raise NotFound(f"{file}: log.{source.kind}: {error}") from error


def _changes(policy: "PolicySource", recording: "LogRecording", folder: Path, at: str) -> "MakeChanges":
    """Return the maker of a policy's changes. Files are read once."""
    from fairlead_replay.policy_test.plays import QueueFileChange
    from fairlead_replay.whatif.overlay import InvalidOverlay, PlannedChange, read_overlay
    from fairlead_schemas.queuefile.parse import InvalidQueues, read_queue_file

    if policy.is_recorded:
        return lambda: None
    sequencer = _sequencer(policy.sequencer, folder, f"{at}.sequencer") if policy.sequencer else ""
    if policy.queues:
        try:
            queues = read_queue_file(_document(folder / policy.queues, f"{at}.queues"))
        except InvalidQueues as error:
            raise InputRefused(f"{at}.queues: {policy.queues}: {error}") from error
        return lambda: QueueFileChange(queues, recording, sequencer)
    words: Any = {"sequencer": sequencer}
    if policy.change:
        words = _document(folder / policy.change, f"{at}.change") if isinstance(policy.change, str) else policy.change
    try:
        overlay = read_overlay(words)
    except InvalidOverlay as error:
        raise InputRefused(f"{at}.change: {error}") from error
    return lambda: PlannedChange(overlay, recording)


def _sequencer(words: str, folder: Path, at: str) -> str:
    """Return the name of a sequencer: `words` itself, or that of a class in a file ("mine.py:Smallest"), which this process offers."""
    from fairlead_queue.sequencers import registry
    from fairlead_queue.sequencers.custom import QueueOrder

    name, colon, class_name = words.partition(":")
    if not name.endswith(".py"):
        if (
            problem := ""
            if words in registry.known_sequencers()
            else f'expected one of {", ".join(registry.known_sequencers())}, or FILE.py:Class, found "{words[:80]}"'
        ):
            raise InputRefused(f"{at}: {problem}")
        return words
    path = folder / name
    found = getattr(_module(path, at), class_name, None) if colon else None
    if not (isinstance(found, type) and issubclass(found, QueueOrder)):
        raise InputRefused(f'{at}: expected FILE.py:Class with a class derived from QueueOrder, found "{words[:200]}"')
    offered = f"{path.stem}.{class_name}".lower().replace(".", "-").replace("_", "-")
    registry.offer(offered, found)
    return offered


def _module(path: Path, at: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"policy_test_{path.stem}", path)
    if spec is None or spec.loader is None or not path.exists():
        raise InputRefused(f"{at}: there is no {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a person's file raises is the answer
        raise InputRefused(f"{at}: {path} cannot be loaded: {error!r}") from error
    return module


def _document(file: Path, at: str) -> Any:
    documents = read_yaml(_bytes(file, at).decode("utf-8", "replace"), at)
    if len(documents) > 1:
        raise InputRefused(f"{at}: expected one document, found {len(documents)}")
    return documents[0] if documents else None


def _bytes(file: Path, at: str) -> bytes:
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise InputRefused(
                f"{at}: expected at most {FILE_BYTES_MAX // 1024**2} MiB, found {file.stat().st_size} bytes"
            )
        return file.read_bytes()
    except OSError as error:
        raise InputRefused(f"{at}: {file}: {error.strerror}") from error


def _write(file: Path, data: bytes, at: str) -> None:
    try:
        file.write_bytes(data)
    except OSError as error:
        raise InputRefused(f"{at}: {file}: {error.strerror}") from error
