"""Replay of docs/how-to/backup-and-upgrade.md on a real stack: back up, restore, stop and start again.

After a wanted change: `make test ARGS="tests/system/test_backup_page.py --update-golden"`, and read the difference.
"""

from pathlib import Path

import pytest

from tests.system.pages import Varies, play, started

pytestmark = [pytest.mark.nats, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "backup-and-upgrade.md"
#: How many commits the start of a cluster takes, its addresses and its processes.
VARIES: Varies = (
    (r"\d+ (commits|events|of them)", r"N \1"),
    (r"sequences 1 to \d+", "sequences 1 to N"),
    (r"berlin\+[0-9a-f]{8}\+\S+", "berlin+KEY"),
    (r"\d+\.\d+s\b", "LONG"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"\b[0-9a-f]{64}\b", "SHA-256"),
    (r"(?m)^\w+ snapshot: equal at \d+\n?", ""),
    (r"(equal at|--at) \d+", r"\1 N"),
    (r"embedded nats \S+|nats-server \S+", "nats"),
    (r"this machine: .*", "this machine"),
    (r"/\S+/(cluster|restored)\b", r"./\1"),
)


def test_the_page_says_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first command to the last; no stack is left behind."""
    update = bool(request.config.getoption("--update-golden"))
    # Set by `audit restore` for the server that it starts; undone after the test.
    monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", "")
    with started(PAGE, tmp_path, monkeypatch, update=update, user="ada") as terminal:
        terminal.varies = VARIES
        try:
            play(terminal, PAGE)
        finally:
            for data in ("cluster", "restored"):
                terminal.run(f"fairlead down --jobs --data ./{data}")
