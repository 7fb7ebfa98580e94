"""docs/how-to/what-if.md, typed as written: every command prints the output on the page. After an intended change:
`make test ARGS="tests/docs/test_whatif_page.py --update-golden"`, and read the difference."""

import os
import re
from pathlib import Path

import pytest

from fairlead_replay.export import write_export
from tests.replay.whatif.scenes import shared_hour
from tests.system.pages import plain, typed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "what-if.md"
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


@pytest.mark.slow
def test_the_page_shows_the_output_of_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first command to the last, with the page's own change."""
    for name in [name for name in os.environ if name.startswith("FAIRLEAD_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    (change,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    Path("change.yaml").write_text(change)
    Path("impossible.yaml").write_text("queues: {research: {maximum: {nvidia.com/gpu: 6}}}\n")
    Path("unknown.yaml").write_text("queues: {reserch: {weight: 2}}\n")
    write_export(tmp_path / "export", shared_hour())

    def play(block: re.Match[str]) -> str:
        lines = [line[2:] for line in block[1].splitlines() if line.startswith("$ ")]
        return "```console\n" + "".join(f"$ {line}\n{typed(line)}" for line in lines) + "```"

    found = _BLOCK.sub(play, text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(found)
    assert plain(found) == plain(text)
