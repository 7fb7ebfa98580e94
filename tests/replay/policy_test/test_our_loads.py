"""Our own policy tests, in tests/data/loads: what they expect holds. After an intended change of decisions, run
`fairlead policy test tests/data/loads/NAME.yaml --update` and read what moved."""

from pathlib import Path

import pytest

from fairlead.main import main
from fairlead_replay.whatif.load_file import SUFFIX, read_head

LOADS = Path(__file__).parents[2] / "data" / "loads"
TESTS = sorted(LOADS.glob("*.yaml"))


@pytest.mark.parametrize("file", TESTS, ids=lambda path: path.stem)
def test_our_own_policy_tests_hold(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, and the goldens are those of this log."""
    assert main(["policy", "test", str(file)]) == 0, capsys.readouterr().out


def test_every_load_has_a_test_and_a_source() -> None:
    """No file without a use, none without a licence."""
    names = {path.name.removesuffix(SUFFIX) for path in LOADS.glob(f"*{SUFFIX}")}
    assert names == {path.stem for path in TESTS}
    readme = (LOADS.parent / "README.md").read_text()
    for name in names:
        assert f"`loads/{name}{SUFFIX}`" in readme
        assert read_head(LOADS / f"{name}{SUFFIX}").jobs > 100
