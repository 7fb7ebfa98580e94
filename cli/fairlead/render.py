"""Printing of answers: table, wide, json, yaml or name. JSON is exactly the API's shape.

Tables are plain aligned text, as `kubectl` prints them, so that `awk` works on them. Colour is used only on a terminal
that supports it, and never carries meaning alone. On a terminal, tables are cut at its width; no other output is cut.
Control sequences in users' words never reach the terminal. Start at `page` and `write`; columns are in `columns.py`.
"""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, TextIO

import msgspec
import yaml
from rich.text import Text

from fairlead_schemas.http.api import Page


class Format(StrEnum):
    """Output formats of `-o`."""

    table = "table"
    wide = "wide"
    json = "json"
    yaml = "yaml"
    names = "name"


class Column(NamedTuple):
    """Column of a table: its head, the function for its text, and a flag for columns that only `-o wide` shows."""

    head: str
    text: Callable[[Any], str]
    wide: bool = False
    right: bool = False


STATE_COLOURS = {
    "running": "green", "succeeded": "green", "ready": "green", "failed": "red", "lost": "red", "cancelled": "yellow",
    "held": "yellow", "cordoned": "yellow", "draining": "yellow", "drained": "yellow", "suspect": "yellow", "quarantined": "red", "stopping": "yellow",
}  # fmt: skip


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
    answer: Page[Any], columns: Sequence[Column], name: Callable[[Any], str], form: Format, *, empty: str = ""
) -> str:
    """A list answer as text."""
    if form in (Format.json, Format.yaml):
        return document(answer, form)
    if form is Format.names:
        return "".join(f"{name(item)}\n" for item in answer.items)
    if not answer.items:
        return empty and f"{empty}\n"
    return table([[c.text(item) for c in shown(columns, form)] for item in answer.items], shown(columns, form))


def shown(columns: Sequence[Column], form: Format) -> list[Column]:
    """The columns that a format shows."""
    return [column for column in columns if form is Format.wide or not column.wide]


def document(value: Any, form: Format) -> str:
    """Any answer as JSON (default) or YAML."""
    if form is Format.yaml:
        return yaml.safe_dump(plain(value), sort_keys=False, allow_unicode=True, width=120)
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def table(rows: Sequence[Sequence[str]], columns: Sequence[Column]) -> str:
    """Rows under heads, aligned by two blanks; cut at a terminal's width, while a pipe sees everything."""
    heads = [column.head for column in columns]
    clean = [[_one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [heads, *clean]) for i in range(len(columns))]
    lines = [_line(cells, widths, columns) for cells in [heads, *clean]]
    return "".join(f"{line}\n" for line in (_cut(lines) if has_colour() else lines))


def _cut(lines: Sequence[str]) -> list[str]:
    width = shutil.get_terminal_size().columns
    texts = [Text(line) for line in lines]
    for text in texts:
        text.truncate(width, overflow="ellipsis")
    return [text.plain for text in texts]


def _line(cells: Sequence[str], widths: Sequence[int], columns: Sequence[Column]) -> str:
    padded = (c.rjust(w) if column.right else c.ljust(w) for c, w, column in zip(cells, widths, columns, strict=True))
    return "  ".join(padded).rstrip()


def _one_line(text: str) -> str:
    return _harmless(text) or "-"


def _harmless(text: str) -> str:
    """Control characters of job names and messages must not steer the reader's terminal."""
    return "".join(c if c.isprintable() else " " for c in text)


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    """Return one object as `label  value` lines; empty values are left out, and each value takes one line at most."""
    kept = [(label, _harmless(value)) for label, value in pairs if value]
    width = max((len(label) for label, _ in kept), default=0)
    return "".join(f"{label.ljust(width)}  {value}\n" for label, value in kept)


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

        drawn = Text("\n").join(Text.assemble(*line) for line in lines)
        Console(file=sys.stdout, highlight=False).print(drawn, soft_wrap=True)
    sys.stdout.flush()


def _coloured(prepared: str) -> Text:
    text = Text(prepared)
    for state, colour in STATE_COLOURS.items():
        text.highlight_words([f" {state} ", f" {state}\n"], colour)
    return text


def note(text: str) -> None:
    """A remark for people, of any number of lines, on stderr, so that pipes stay clean."""
    sys.stderr.write("".join(f"{_harmless(line)}\n" for line in text.split("\n")))
    sys.stderr.flush()
