"""How a Python was built, and which one of a machine is taken."""

import os
import sys
from pathlib import Path

import pytest

from fairlead import interpreter
from fairlead.interpreter import OPTIMISED, PLAIN, UNKNOWN, Interpreter, best, build, candidates


@pytest.mark.parametrize(
    ("flags", "prefix", "distribution", "expected"),
    [
        ("'--enable-optimizations' '--with-lto'", "/usr/local", "debian ", OPTIMISED),
        ("'--enable-optimizations'", "/opt/python", "fedora ", "with PGO, without LTO"),
        ("'--enable-shared'", "/root/.pyenv/versions/3.13.0", "debian ", PLAIN),
        ("'--with-lto'", "/opt/python", "arch ", PLAIN),
        # Debian's own, whose flags do not say it, and a system that is like it.
        ("'--enable-shared'", "/usr", "debian ", OPTIMISED),
        ("'--enable-shared'", "/usr", "mint ubuntu debian", OPTIMISED),
        ("'--enable-shared'", "/usr", "arch ", PLAIN),
        (None, "C:\\Python", "", UNKNOWN),
    ],
)
def test_a_build_is_known_by_its_flags_or_its_source(
    flags: str | None, prefix: str, distribution: str, expected: str
) -> None:
    """Distributions remove the flags, so a plain look at them would call their builds slow."""
    assert build(flags, prefix, distribution) == expected


def one(path: str, loop_ms: float) -> Interpreter:
    return Interpreter(path, "3.13.5", UNKNOWN, loop_ms)


def test_the_faster_build_is_taken_and_the_earlier_name_among_equals() -> None:
    """A tenth is within what a loaded machine measures next to the truth; a fifth is another build."""
    assert best([one("a", 6.0), one("b", 4.8)]) == one("b", 4.8)
    assert best([one("a", 5.0), one("b", 4.8)]) == one("a", 5.0)
    assert best([]) is None


def test_all_programs_on_path_are_candidates(tmp_path: Path) -> None:
    """A shim may hide the distribution's Python of the same name; names decide before folders."""
    for folder, name in (("shims", "python3.13"), ("usr", "python3.13"), ("usr", "python3"), ("usr", "perl")):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).write_text("#!/bin/sh\n")
        (tmp_path / folder / name).chmod(0o755)
    path = os.pathsep.join([str(tmp_path / "shims"), "", str(tmp_path / "usr"), str(tmp_path / "gone")])
    found = [str(Path(each).relative_to(tmp_path)) for each in candidates(path)]
    assert found == ["shims/python3.13", "usr/python3.13", "usr/python3"]


@pytest.mark.connected
def test_another_python_measures_itself(tmp_path: Path) -> None:
    """It reports its own path; a program that is no Python, or one that is too old, does not count."""
    found = interpreter.probe(sys.executable)
    assert found is not None
    assert (found.path, found.loop_ms > 0) == (sys.executable, True)
    for name, script in (("broken", "#!/bin/sh\nexit 1\n"), ("chatty", "#!/bin/sh\necho 3.13\n")):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
        assert interpreter.probe(str(tmp_path / name)) is None
