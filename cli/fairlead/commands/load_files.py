"""`audit export --load`: a load file of a window of the log. The work is `fairlead_replay.whatif`'s."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fairlead.commands.audit_options import bus_url
from fairlead.commands.options import time_of
from fairlead.commands.whatif import translated_windows
from fairlead.errors import InputRefused
from fairlead.render import terminal
from fairlead.render.terminal import Format
from fairlead_schemas.units.timestamps import parse_rfc3339, rfc3339

if TYPE_CHECKING:  # the cores are loaded by the verbs that fold, not by every command line
    from fairlead_replay.whatif.sources import SavedLoad


def refuse_without_load(options: Mapping[str, object]) -> None:
    """Refuse options that only a load file has. Raises InputRefused."""
    for option, given in options.items():
        if given:
            raise InputRefused(f"{option}: expected it with --load, found it without: an export is the log as it is")


def export_load(
    file: Path, folder: Path, nats: str, from_: str, to: str, *, anonymous: bool, names: Path | None, output: Format
) -> None:
    """Write the load file, and what is in it to the terminal."""
    from fairlead_replay.whatif.load_file import SUFFIX

    if not file.name.endswith(SUFFIX):
        raise InputRefused(f"{file}: expected a file name that ends in {SUFFIX}")
    if file.exists():
        raise InputRefused(f"{file}: expected a new file, found one of this name; a load file is never written over")
    if names is not None and not anonymous:
        raise InputRefused("--names: expected it with --anonymous: nothing is replaced otherwise")
    saved = _saved(file, folder, nats, from_, to, anonymous=anonymous)
    head = saved.head
    if names is not None:
        try:
            with names.open("w", newline="") as table:
                csv.writer(table).writerows([("name", "replacement"), *sorted(saved.names.items())])
        except OSError as error:
            raise InputRefused(f"--names: {names}: {error.strerror}") from error
    if output in (Format.json, Format.yaml):
        terminal.write(terminal.document(head, output))
        return
    begin = rfc3339(head.from_ns) if head.from_ns else "the log's start"
    kind = f", {len(saved.names)} names replaced" if anonymous else ""
    terminal.write(f"{file}: {head.jobs} jobs, {begin} to {rfc3339(head.to_ns)}{kind}\nsha256 {head.sha256}\n")


def _saved(file: Path, folder: Path, nats: str, from_: str, to: str, *, anonymous: bool) -> "SavedLoad":
    from fairlead_replay.whatif import sources
    from fairlead_replay.whatif.record import LogWindow, WindowError

    window = LogWindow(parse_rfc3339(time_of(from_)) if from_ else 0, parse_rfc3339(time_of(to)) if to else 0)
    export = sources.LoadExport(window, anonymous=anonymous)
    try:
        with translated_windows():
            if not nats and sources.is_directory_log(folder):
                return sources.save_load_of_directory(folder, export, file)
            with bus_url(folder, nats) as url:
                return sources.save_load_of_url(url, export, file)
    except WindowError as error:
        raise InputRefused(f"--{error}" if not str(error).startswith("log") else str(error)) from error
