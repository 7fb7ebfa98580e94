"""docs/how-to/policy-test.md, typed as written: every command prints the output on the page. After an intended change:
`make test ARGS="tests/docs/test_policy_page.py --update-golden"`, and read the difference."""

import re
from pathlib import Path

import pytest
import yaml

from fairlead_replay.export import write_export
from tests.replay.whatif.scenes import shared_hour
from tests.system.pages import plain, typed

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "policy-test.md"
_FILE = re.compile(r"```(?:yaml|python)\n# (\S+)\n(.*?)```", re.DOTALL)
_BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)


@pytest.mark.slow
def test_the_page_shows_the_output_of_its_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """From the first command to the last, with the page's own files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fairlead_queue.sequencers.registry._offered", {})  # other tests know none of the page's
    text = PAGE.read_text()
    for name, content in _FILE.findall(text):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(content)
    write_export(tmp_path / "export", shared_hour())

    def play(block: re.Match[str]) -> str:
        lines = [line[2:] for line in block[1].splitlines() if line.startswith("$ ")]
        return "```console\n" + "".join(f"$ {line}\n{typed(line)}" for line in lines) + "```"

    found = _BLOCK.sub(play, text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(found)
    assert plain(found) == plain(text)


def test_the_workflow_runs_the_pages_commands() -> None:
    """The GitHub Actions example is YAML with a checkout, an installation and the test, and reports what it found."""
    (workflow,) = [content for name, content in _FILE.findall(PAGE.read_text()) if name.startswith(".github/")]
    steps = yaml.safe_load(workflow)["jobs"]["policy"]["steps"]
    assert next(each.get("uses", "").partition("@")[0] for each in steps if "uses" in each) == "actions/checkout"
    commands = "\n".join(each.get("run", "") for each in steps)
    assert "fairlead policy test policy-test.yaml --junit" in commands
