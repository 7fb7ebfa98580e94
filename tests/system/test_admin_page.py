"""Replay of docs/how-to/for-admins.md: 22 tasks of an admin on a real stack, each typed as the page has it.

After a wanted change: `make test ARGS="tests/system/test_admin_page.py --update-golden"`, and read the difference.
"""

import re
from pathlib import Path

import pytest

from tests.system.pages import Varies, answers, play, started

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "for-admins.md"
#: Numbers of a machine and of its load.
VARIES: Varies = (
    (r"(?m)^(python|cores|nats-server|docker|nvidia driver|port|disk|fsync|clock|stack|warehouse|store) .*\n", ""),
    (r"(?m)^WHAT .*\n", ""),
    (r"GPU-[0-9a-f-]{36}", "GPU-UUID"),
    (r"\bU[A-Z0-9]{55}\b", "KEY"),
    (r"/\S*/(root|keys|export|data)\b", r"./\1"),
    (r"\d+ (commits|events)", r"N \1"),
    (r"(upto|up to sequence|equal at|--at) \d+", r"\1 N"),
    (r"\b[0-9a-f]{64}\b", "SHA-256"),
    (r"embedded nats \S+|nats-server \S+", "nats"),
    (r"this machine: .*", "this machine"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r"(?m)^sim-\d .*1 GPU faulted \(xid79\).*$", "FAULTED"),
    (r"ready +\d+\.\d+s", "ready"),
    (r"fragmentation: .*", "fragmentation"),
    (r"(?m)^more .*\n", ""),
    (r"(?m)^\d+\n\Z", "N\n"),
    (r"(fairlead_gpus{[^}]*}) [\d.]+", r"\1 N"),
)


def test_the_page_has_the_tasks() -> None:
    """Each is a heading with commands below it."""
    tasks = re.split(r"^## \d+\. ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    assert len(tasks) == 22
    assert all("$ " in task for task in tasks)
    assert len(answers(PAGE)) > 40


@pytest.mark.nats
@pytest.mark.slow
def test_the_page_says_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first task to the last, on one cluster; its nodes read the page's file of faults."""
    update = bool(request.config.getoption("--update-golden"))
    faults = tmp_path / "faults.json"
    faults.write_text("{}")
    with started(PAGE, tmp_path, monkeypatch, update=update, simulation=faults) as terminal:
        terminal.varies = VARIES
        terminal.pause_s = 0.5
        play(terminal, PAGE)
