"""Nothing here may lead to an install of the package `fairlead` from an index: that name is another project's.

Our distribution is `fairlead-cluster`. It is installed from a clone, or from a wheel built in one.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOP_LEVEL = (
    ".ci",
    "README.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "Makefile",
    "compose.yaml",
    "requirements.lock",
    "bench",
    "bus",
    "cli",
    "deploy",
    "docs",
    "replay",
    "schemas",
    "services",
    "tests",
)
BINARY = {".pyc", ".gz", ".zst", ".parquet", ".duckdb", ".png", ".so"}
#: Both spellings, because an index may be asked for either: a name that nobody has taken yet can be taken tomorrow.
NAMES = r"""fairlead(?:[-_.]cluster)?(?=[\s"'`\[=<>~!;,)]|$)"""
FORBIDDEN = re.compile(
    rf"""\b(?:pip3?|uv)\b[^\n]*?\binstall\b[^\n]*?[\s"'`]{NAMES}|\binstall {NAMES}|{NAMES}\[[a-z]|\b(?:pipx|uvx|uv tool) [^\n]*\b{NAMES}"""
)


def found(text: str) -> list[str]:
    """Return the lines that would install a package by our name from an index."""
    return [line.strip() for line in text.splitlines() if FORBIDDEN.search(line)]


def texts() -> Iterator[tuple[str, str]]:
    """Yield (path, content) of every text file of the clone, except this one."""
    for top in (ROOT / name for name in TOP_LEVEL):
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and path.suffix not in BINARY and path != Path(__file__):
                yield str(path.relative_to(ROOT)), path.read_text(errors="replace")


def test_nothing_installs_the_package_by_name() -> None:
    """Write `make setup`, `pip install -e .` or the path of a wheel from `make wheel`; for an extra, its packages."""
    assert [(path, line) for path, text in texts() if "fairlead" in text for line in found(text)] == []


@pytest.mark.parametrize(
    "line",
    [
        'pip install "fairlead[agent]"',
        "pip install fairlead",
        "/opt/fairlead/bin/pip install -U 'fairlead==0.2'",
        "uv pip install fairlead-cluster",
        "uvx fairlead up",
        "the package is not installed; install fairlead[agent]",
        "fairlead-cluster[embedded] brings one",
    ],
)
def test_an_install_by_name_is_found(line: str) -> None:
    """Each of these has been, or could be, in a document or a hint."""
    assert found(line) == [line]


@pytest.mark.parametrize(
    "line",
    [
        'pip install "./fairlead_cluster-0.1.0-py3-none-any.whl[agent]"',
        "pip install -e .",
        "python3 -m venv /opt/fairlead && /opt/fairlead/bin/pip install wheel.whl",
        "fairlead agent install --nats nats://bus:4222",
    ],
)
def test_an_install_by_path_and_our_own_commands_are_left_alone(line: str) -> None:
    """The forms that docs use."""
    assert found(line) == []


def test_the_distribution_has_a_name_of_its_own() -> None:
    """Extras refer to it by the same name; the command that it installs is still `fairlead`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "fairlead-cluster"
    assert set(project["scripts"]) == {"fairlead"}
    own = [line for lines in project["optional-dependencies"].values() for line in lines if line.startswith("fairlead")]
    assert own
    assert [line for line in own if not line.startswith("fairlead-cluster[")] == []
