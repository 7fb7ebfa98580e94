"""Output of jobs on its way to a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.render.terminal import TableColumn, TerminalFilter, fields, table


def filtered(*pieces: bytes) -> bytes:
    """Return the text of a stream that reaches a terminal."""
    found = TerminalFilter()
    return b"".join([*map(found.feed, pieces), found.end()])


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (b"plain\ttext\r\n", b"plain\ttext\r\n"),
        ("Größe 3 µs\n".encode(), "Größe 3 µs\n".encode()),
        (b"\x1b[1;31mred\x1b[0m\n", b"\x1b[1;31mred\x1b[0m\n"),
        (b"\x1b]0;title\x07after", b"after"),
        (b"\x1b]52;c;aGk=\x1b\\after", b"after"),
        (b"\x1b[2J\x1b[1;1Hover", b"over"),
        (b"\x1b[6n\x1b[>c", b""),
        (b"\x1bPquery\x1b\\x", b"x"),
        (b"a\x00b\x07c\x08d\x7f", b"abcd"),
        ("a\u009b2Jb\u0085".encode(), b"a2Jb"),
        (b"\x1b", b""),
        (b"\x1bc\x1b7x", b"x"),
    ],
)
def test_colours_alone_reach_a_terminal(sent: bytes, shown: bytes) -> None:
    """Titles, clipboard, cursor movements and questions to the terminal are left out."""
    assert filtered(sent) == shown


@given(
    st.lists(
        st.sampled_from([b"a", b"\x1b", b"[", b"]", b"0", b";", b"m", b"H", b"\x07", b"\\", b"\n", b"\xc2", b"\x9b"]),
        max_size=30,
    )
)
def test_pieces_change_nothing(tokens: list[bytes]) -> None:
    """A sequence is recognised wherever the stream is cut."""
    assert filtered(*tokens) == filtered(b"".join(tokens))


@given(st.binary(max_size=600), st.integers(0, 600))
def test_no_escape_but_colours_passes(data: bytes, cut: int) -> None:
    """For any text, every escape that is left opens a colour."""
    shown = filtered(data[:cut], data[cut:])
    assert all(part.startswith(b"[") for part in shown.split(b"\x1b")[1:])


@pytest.mark.parametrize("name", ["\x1b]52;c;aGk=\x07", "\x1b]0;title\x07", "\x1b[2J", "a\rb", "\x9b31m", "\u202ecod"])
def test_names_control_no_terminal(name: str) -> None:
    """Names of jobs, labels and messages are text in tables and in lists of facts: no title, no clipboard, no cursor, no reversed line."""
    columns = (TableColumn("NAME", str), TableColumn("WHY", str))
    for printed in (table([(name, f"waits for {name}")], columns), fields([("name", name)])):
        assert all(char.isprintable() or char == "\n" for char in printed), repr(printed)
