"""Outputs of a job file: their patterns, and what is refused. Pure."""

from typing import Any

import pytest

from fairlead_schemas.jobfile.outputs import is_output, output_faults
from fairlead_schemas.jobfile.resolve import convert_and_check, resolve
from fairlead_schemas.units.validation import InvalidJob


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("model.pt", "model.pt", True),
        ("model.pt", "a/model.pt", False),
        ("*.pt", "model.pt", True),
        ("*.pt", "a/model.pt", False),
        ("a/*.pt", "a/model.pt", True),
        ("a", "a/b/c", True),
        ("a/", "a/b/c", True),
        ("a", "ab", False),
        ("**", "a/b", True),
        ("**/*.pt", "model.pt", True),
        ("**/*.pt", "a/b/model.pt", True),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/c/z", True),
        ("a/**/z", "b/z", False),
        ("a/**", "a/b/c", True),
        ("**/b/**/d", "a/b/c/c/d", True),
        ("step-[0-9]?", "step-12", True),
        ("step-[0-9]?", "step-1", False),
        ("a*/b", "a/x/b", False),
        ("*", ".hidden", True),
        ("*", "a\nb", True),
    ],
)
def test_a_pattern_fits_paths_and_directories_above_them(pattern: str, path: str, fits: bool) -> None:
    """A star stays within a name; two stars are any number of directories, also none."""
    assert is_output(path, [pattern]) is fits


def test_a_pattern_of_many_stars_comes_to_an_end() -> None:
    """Whoever writes job files does not keep nodes busy: tried one way after the other, this would take indefinitely."""
    assert not is_output("/".join(["a" * 50] * 20), ["/".join(["**", "*a*a*a*a*a*a*b"] * 30)])


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"Model": "x"}, "outputs"),
        ({"": "x"}, "outputs"),
        ({"model": "/etc/passwd"}, "outputs.model"),
        ({"model": "../x"}, "outputs.model"),
        ({"model": "a/../../x"}, "outputs.model"),
        ({"model": ""}, "outputs.model"),
        ({"model": []}, "outputs.model"),
        ({"model": ["x"] * 33}, "outputs.model"),
        ({f"m{number}": "x" for number in range(33)}, "outputs"),
    ],
)
def test_an_output_is_a_name_and_paths_within_the_directory(words: dict[str, Any], field: str) -> None:
    """Nothing of the node's own can be kept, and each mistake names its field."""
    assert [fault.field for fault in output_faults(words)] == [field]


def test_a_job_file_has_outputs_of_both_forms() -> None:
    """One path, or several."""
    spec = convert_and_check({"command": ["x"], "outputs": {"model": "*.pt", "logs": ["a.log", "b/"]}})
    assert b'"outputs":{"logs":["a.log","b/"],"model":"*.pt"}' in bytes(resolve(spec, command_id="", user="ada").spec)


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ({"sync": "src"}, "sync"),
        ({"outputs": {"m": "x"}, "workdir": "/data"}, "workdir"),
        ({"outputs": {"m": "x"}, "workdir": "/proc", "image": "ubuntu"}, "workdir"),
        ({"outputs": {"m": "x"}, "workdir": "/tmp", "image": "ubuntu"}, "workdir"),
        ({"outputs": {"m": "../x"}}, "outputs.m"),
    ],
)
def test_a_directory_of_its_own_has_one_place(job: dict[str, Any], field: str) -> None:
    """A job without an image runs in it; a container has it where it may be mounted."""
    with pytest.raises(InvalidJob) as found:
        resolve(convert_and_check({"command": ["x"], **job}), command_id="", user="ada")
    assert [error.field for error in found.value.errors] == [field]
