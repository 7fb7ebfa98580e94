"""docs/how-to/set-up-a-node.md: every `fairlead` command on it is one that the command line takes."""

import re
import shlex
from pathlib import Path

import pytest

from fairlead.main import main
from fairlead_agent.setup import layout

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "set-up-a-node.md").read_text()
#: In code blocks and in backticks; what stands behind # is a remark.
COMMANDS = sorted(
    {
        found.partition("#")[0].strip()
        for found in [
            *re.findall(r"^\s*(?:[A-Z_]+=\S+ )*(fairlead .*)$", PAGE, re.MULTILINE),
            *re.findall(r"`(fairlead [^`]+)`", PAGE),
        ]
    }
)


def taken(words: list[str]) -> bool:
    """Return True if the command line parses these words: they are read before --help answers, and nothing is run."""
    return main([*words, "--help"]) == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_can_be_typed(command: str) -> None:
    """Verbs, options and arguments exist; "…" marks the reader's own values."""
    words = shlex.split(command.replace("init|add|retire|revoke|list", "init"))[1:]
    assert taken([word.replace("…", "x") for word in words])


def test_the_page_names_what_is_installed() -> None:
    """Paths and units as `agent install` makes them."""
    for name in (
        layout.ENV_FILE,
        layout.KEY_FILE,
        layout.DATA,
        layout.AGENT.removesuffix(".service"),
        layout.GUARD.removesuffix(".service"),
    ):
        assert f"`{name}`" in PAGE, name


def test_there_are_commands() -> None:
    """The page is read, and a wrong one would be noticed."""
    assert len(COMMANDS) >= 12
    assert not taken(["agent", "install", "--nonsense"])
    assert not taken(["agents", "install"])
