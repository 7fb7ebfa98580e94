"""A line of a picture: pieces of text, each in a colour or in none; and how text is cut to fit. Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size


class Piece(NamedTuple):
    """Some text and its colour as rich names it; "": the terminal's own."""

    text: str
    colour: str = ""


type Line = tuple[Piece, ...]


def plain(line: Line) -> str:
    """The text alone: as good as the picture, for colours never carry meaning."""
    return "".join(piece.text for piece in line)


def line(*pieces: Piece | str) -> Line:
    """Pieces one after the other, without what is blank at the end."""
    found = [Piece(piece) if isinstance(piece, str) else piece for piece in pieces]
    while found and not found[-1].text.rstrip():
        found.pop()
    if found:
        found[-1] = found[-1]._replace(text=found[-1].text.rstrip())
    return tuple(_joined(found))


def _joined(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Neighbours of one colour are one piece."""
    last = Piece("")
    for piece in pieces:
        if piece.colour == last.colour:
            last = Piece(last.text + piece.text, last.colour)
        else:
            if last.text:
                yield last
            last = piece
    if last.text:
        yield last


def harmless(text: str) -> str:
    """Words of users that do not steer the terminal."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def cut(text: str, cells: int) -> str:
    """At most so many cells of a terminal, the beginning kept; ".." says that there was more."""
    text = harmless(text)
    if cell_len(text) <= cells:
        return text
    return set_cell_size(text, max(0, cells - 2)) + ".."[: max(0, cells)]


def cut_left(text: str, cells: int) -> str:
    """Shorten a text like `cut`, keeping its end: machine names differ there."""
    text = harmless(text)
    while cell_len(text) > cells:
        text = f"..{text.removeprefix('..')[1:]}" if len(text) > 2 else text[1:]
    return text


def padded(text: str, cells: int) -> str:
    """Exactly so many cells."""
    return set_cell_size(cut(text, cells), cells)


def wrapped(phrases: Iterable[str], width: int, indent: str = "") -> Iterator[Line]:
    """Phrases on as few lines as hold them, two blanks between; further lines are indented. None is broken, but cut
    where it alone is too long."""
    row = ""
    for phrase in phrases:
        candidate = f"{row}  {phrase}" if row.strip() else f"{row}{phrase}"
        if row.strip() and cell_len(candidate) > width:
            yield line(row)
            candidate = f"{indent}{phrase}"
        row = cut(candidate, width)
    if row.strip():
        yield line(row)
