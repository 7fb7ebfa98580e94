"""docs/how-to/archive.md, typed as written: every command prints the output on the page, and its program needs nothing
of ours. After an intended change: `make test ARGS="tests/docs/test_archive_page.py --update-golden"`, and read the
difference."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.main import main
from tests.kit.stopped_cluster import make_cluster
from tests.replay.archive.scenes import LOG, chained, later
from tests.system.pages import plain, typed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "archive.md"
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
#: Where the set-back cluster's history parts from the true one.
PARTS_AT = 120
ARCHIVE = "fairlead audit archive ./archive --key-file archive.key"


def answered(line: str) -> str:
    """A line of the page. Once there is a key, the archive is begun, and set aside as it was then."""
    found = typed(line)
    if " audit key " in line:
        assert "sequences 1 to 120" in typed(f"{ARCHIVE} --data ./old-cluster")
        shutil.copytree("archive", "old-archive")
    return found


@pytest.mark.nats
@pytest.mark.slow
def test_the_page_says_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first command to the last."""
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    # Set by the command for the server that it starts; undone after the test.
    monkeypatch.setenv("FAIRLEAD_NATS_MONITOR", "")
    make_cluster(tmp_path / "cluster", LOG)
    make_cluster(tmp_path / "old-cluster", LOG[:PARTS_AT])
    make_cluster(tmp_path / "set-back", chained([*LOG[:PARTS_AT], *map(later, LOG[PARTS_AT:])]))
    text = PAGE.read_text()

    def play(block: re.Match[str]) -> str:
        lines = [line[2:] for line in block[1].splitlines() if line.startswith("$ ")]
        return "```console\n" + "".join(f"$ {line}\n{answered(line)}" for line in lines) + "```"

    found = _BLOCK.sub(play, text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(found)
    assert plain(found) == plain(text)
    run_the_program(text)


def run_the_program(text: str) -> None:
    """Run the page's program, in the folder of the walk, with plain Python; without zstd ours replaces it."""
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    env = dict(os.environ)
    if shutil.which("zstd") is None:
        stand_in = Path("bin/zstd")
        stand_in.parent.mkdir()
        stand_in.write_text(
            f"#!{sys.executable}\nimport sys\nfrom fairlead_replay.archive.segments import zstd\n"
            "sys.stdout.buffer.write(zstd.open(sys.argv[2], 'rb').read())\n"
        )
        stand_in.chmod(0o755)
        env["PATH"] = f"{stand_in.parent.absolute()}:{env['PATH']}"
    ran = subprocess.run([sys.executable, "-I", "-c", program], env=env, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr


def test_the_other_commands_of_the_page_can_be_typed() -> None:
    """Those that a reader adapts: verbs and options are there."""
    blocks = re.findall(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line.partition("#")[0] for block in blocks for line in block.splitlines() if line.startswith("fairlead ")]
    assert len(lines) >= 2
    for line in lines:
        assert main([*shlex.split(line)[1:], "--help"]) == 0
