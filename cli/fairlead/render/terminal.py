"""Printing of answers: table, wide, json, yaml or name. JSON is exactly the API's shape.

Further parts:
- filter for other people's text on its way to a terminal;
- a line of a picture: pieces of text, each in a colour or in none; and how text is cut to fit.

Tables are plain aligned text, as `kubectl` prints them, so that `awk` works on them. Colour is used only on a terminal
that supports it, and never carries meaning alone. On a terminal, tables are cut at its width; no other output is cut.
Control sequences in users' words never reach the terminal. Start at `page` and `write`; columns are in `columns.py`.

A job's output may hold sequences that rename the window, move the cursor over existing text, or make the terminal
answer as if a person had typed; colours alone pass.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import msgspec

if TYPE_CHECKING:
    from rich.text import Text

    from fairlead_schemas.http.api import Page


class Format(StrEnum):
    """Output formats of `-o`."""

    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"
    names = "name"


class TableColumn(NamedTuple):
    """Column of a table: its head, the function for its text, and a flag for columns that only `-o wide` shows."""

    head: str
    text: Callable[[Any], str]
    wide: bool = False
    right: bool = False


STATE_COLOURS = {
    "running": "green",
    "succeeded": "green",
    "ready": "green",
    "failed": "red",
    "lost": "red",
    "cancelled": "yellow",
    "held": "yellow",
    "cordoned": "yellow",
    "draining": "yellow",
    "drained": "yellow",
    "suspect": "yellow",
    "quarantined": "red",
    "stopping": "yellow",
}


def is_terminal(stream: TextIO | None = None) -> bool:
    """True when a person reads along."""
    return (stream or sys.stdout).isatty()


def has_colour(stream: TextIO | None = None) -> bool:
    """True on a terminal unless NO_COLOR is set (no-color.org) or TERM is dumb."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def plain(value: Any) -> Any:
    """API structs as plain values, byte for byte what the API's JSON decodes to."""
    return msgspec.json.decode(msgspec.json.encode(value))


def page(
    answer: "Page[Any]", columns: Sequence[TableColumn], name: Callable[[Any], str], form: Format, *, empty: str = ""
) -> str:
    """A list answer as text."""
    if form in (Format.json, Format.yaml):
        return document(answer, form)
    if form is Format.names:
        return "".join(f"{name(item)}\n" for item in answer.items)
    if not answer.items:
        return empty and f"{empty}\n"
    return table([[c.text(item) for c in shown(columns, form)] for item in answer.items], shown(columns, form))


def comma_separated(items: Sequence[Any], columns: Sequence[TableColumn]) -> str:
    """Return all columns as comma-separated values (RFC 4180) under their heads."""
    import csv
    import io

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([column.head for column in columns])
    writer.writerows([column.text(item) for column in columns] for item in items)
    return text.getvalue()


def shown(columns: Sequence[TableColumn], form: Format) -> list[TableColumn]:
    """The columns that a format shows."""
    return [column for column in columns if form is Format.wide or not column.wide]


def document(value: Any, form: Format) -> str:
    """Any answer as JSON (default) or YAML."""
    if form is Format.yaml:
        import yaml

        return yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=True, width=120)
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def table(rows: Sequence[Sequence[str]], columns: Sequence[TableColumn]) -> str:
    """Rows under heads, aligned by two blanks; cut at a terminal's width, while a pipe sees everything."""
    heads = [column.head for column in columns]
    clean = [[_one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [heads, *clean]) for i in range(len(columns))]
    lines = [_line(cells, widths, columns) for cells in [heads, *clean]]
    return "".join(f"{line}\n" for line in (_cut(lines) if has_colour() else lines))


def _cut(lines: Sequence[str]) -> list[str]:
    from rich.text import Text

    width = shutil.get_terminal_size().columns
    texts = [Text(line) for line in lines]
    for text in texts:
        text.truncate(width, overflow="ellipsis")
    return [text.plain for text in texts]


def _line(cells: Sequence[str], widths: Sequence[int], columns: Sequence[TableColumn]) -> str:
    padded = (c.rjust(w) if column.right else c.ljust(w) for c, w, column in zip(cells, widths, columns, strict=True))
    return "  ".join(padded).rstrip()


def _one_line(text: str) -> str:
    return harmless(text) or "-"


def harmless(text: str) -> str:
    """Replace unprintable characters with spaces: job names and messages must not control the reader's terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    """Return one object as `label  value` lines; empty values are left out, and each value takes one line at most."""
    shown = [(label, harmless(value)) for label, value in pairs if value]
    width = max((len(label) for label, _ in shown), default=0)
    return "".join(f"{label.ljust(width)}  {value}\n" for label, value in shown)


def write(text: str, stream: TextIO | None = None) -> None:
    """Print prepared text whole; on a colour terminal, states are coloured."""
    out = stream or sys.stdout
    if has_colour(out) and text:
        from rich.console import Console

        Console(file=out, highlight=False).print(_coloured(text), soft_wrap=True, end="")
    else:
        out.write(text)
    out.flush()


def write_picture(lines: Sequence[Sequence[tuple[str, str]]]) -> None:
    """Print lines of (text, colour) whole; colours on a colour terminal only."""
    if not has_colour():
        sys.stdout.write("".join(f"{''.join(text for text, _ in line)}\n" for line in lines))
    else:
        from rich.console import Console
        from rich.text import Text

        drawn = Text("\n").join(Text.assemble(*line) for line in lines)
        Console(file=sys.stdout, highlight=False).print(drawn, soft_wrap=True)
    sys.stdout.flush()


def _coloured(prepared: str) -> "Text":
    from rich.text import Text

    text = Text(prepared)
    for state, colour in STATE_COLOURS.items():
        text.highlight_words([f" {state} ", f" {state}\n"], colour)
    return text


def note(text: str) -> None:
    """A remark for people, of any number of lines, on stderr, so that pipes stay clean."""
    sys.stderr.write("".join(f"{harmless(line)}\n" for line in text.split("\n")))
    sys.stderr.flush()


#: An escape sequence that is longer than this is no sequence that terminals know.
_SEQUENCE_BYTES_MAX = 256
#: Colours and other renditions (SGR); every other control sequence; texts for the terminal (titles, clipboard, …); two-byte
#: escapes; single control characters, NEL and CSI as one byte among them as UTF-8 encodes them.
_CONTROL = re.compile(
    rb"(?P<colour>\x1b\[[0-9;:]*m)"
    rb"|\x1b\[[0-?]*[ -/]*[@-~]"
    rb"|\x1b[\]PX^_].*?(?:\x07|\x1b\\)"
    rb"|\x1b[ -/]*[0-~]"
    rb"|\xc2[\x80-\x9f]"
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]",
    re.DOTALL,
)
#: What may be the beginning of one of them at the end of a piece.
_BEGUN = re.compile(rb"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07]*|[ -/]*)?|\xc2)\Z", re.DOTALL)


class TerminalFilter:
    """Removes control sequences from a stream of bytes whose pieces may end anywhere."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return what may be shown so far; the beginning of a sequence is held until its end has come."""
        data = self._held + piece
        begun = _BEGUN.search(data, max(0, len(data) - _SEQUENCE_BYTES_MAX))
        self._held = data[begun.start() :] if begun else b""
        return _shown(data[: len(data) - len(self._held)])

    def end(self) -> bytes:
        """Return what was held at the end of the stream."""
        held, self._held = self._held, b""
        return _shown(held)


class OutputWriter:
    """Writes a job's output to stdout as it comes; to a terminal without control sequences, unless `raw`."""

    def __init__(self, *, raw: bool = False) -> None:
        self._filter = None if raw or not is_terminal() else TerminalFilter()

    def write(self, piece: bytes) -> None:
        """Write a piece."""
        sys.stdout.buffer.write(self._filter.feed(piece) if self._filter else piece)
        sys.stdout.buffer.flush()

    def end(self) -> None:
        """Write what was held back as the beginning of a control sequence."""
        if self._filter:
            sys.stdout.buffer.write(self._filter.end())
            sys.stdout.buffer.flush()


def _shown(data: bytes) -> bytes:
    return _CONTROL.sub(lambda found: found["colour"] or b"", data)


class TextPiece(NamedTuple):
    """Some text and its colour as rich names it; "": the terminal's own."""

    text: str
    colour: str = ""


type Line = tuple[TextPiece, ...]


def line_text(line: Line) -> str:
    """The text alone: as good as the picture, for colours never carry meaning."""
    return "".join(piece.text for piece in line)


def line(*pieces: TextPiece | str) -> Line:
    """Pieces one after the other, without what is blank at the end."""
    found = [TextPiece(piece) if isinstance(piece, str) else piece for piece in pieces]
    while found and not found[-1].text.rstrip():
        found.pop()
    if found:
        found[-1] = found[-1]._replace(text=found[-1].text.rstrip())
    return tuple(_joined(found))


def _joined(pieces: Iterable[TextPiece]) -> Iterator[TextPiece]:
    """Neighbours of one colour are one piece."""
    last = TextPiece("")
    for piece in pieces:
        if piece.colour == last.colour:
            last = TextPiece(last.text + piece.text, last.colour)
        else:
            if last.text:
                yield last
            last = piece
    if last.text:
        yield last


def cut(text: str, cells: int) -> str:
    """At most so many cells of a terminal, the beginning kept; ".." says that there was more."""
    from rich.cells import cell_len, set_cell_size

    text = harmless(text)
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, max(0, cells - 2)) + ".."[: max(0, cells)]


def cut_left(text: str, cells: int) -> str:
    """Shorten a text like `cut`, keeping its end: machine names differ there."""
    from rich.cells import cell_len

    text = harmless(text)
    while cell_len(text) > cells:
        text = f"..{text.removeprefix('..')[1:]}" if len(text) > 2 else text[1:]
    return text


def padded(text: str, cells: int) -> str:
    """Exactly so many cells."""
    from rich.cells import set_cell_size

    return set_cell_size(cut(text, cells), cells)


def wrapped(phrases: Iterable[str], width: int, indent: str = "") -> Iterator[Line]:
    """Phrases on as few lines as hold them, two blanks between; further lines are indented. None is broken, but cut
    where it alone is too long."""
    from rich.cells import cell_len

    row = ""
    for phrase in phrases:
        candidate = f"{row}  {phrase}" if row.strip() else f"{row}{phrase}"
        if row.strip() and cell_len(candidate) > width:
            yield line(row)
            candidate = f"{indent}{phrase}"
        row = cut(candidate, width)
    if row.strip():
        yield line(row)


def hidden_jobs(count: int) -> list[str]:
    """Return a line about jobs that the caller may not see; none where there are none."""
    return [f"{count} {'job' if count == 1 else 'jobs'} that you may not see"] if count else []
