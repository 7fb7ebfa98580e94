"""Volumes and secrets of a job file: what they mean, and that nothing leads out of them."""

from typing import Any

import pytest

from fairlead_schemas.jobfile.agent_fields import Secret, Volume, mount_faults, path_fault, secret_of, volume_of
from fairlead_schemas.jobfile.job_spec import SecretWords, VolumeWords, job_from
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.units.validation import InvalidJob
from tests.schemas import hostile_names

FUZZED = 100_000


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("datasets:/data", Volume("datasets", "/data", False, False)),
        ("datasets:/data:ro", Volume("datasets", "/data", True, False)),
        ("datasets:/data:rw", Volume("datasets", "/data", False, False)),
        (VolumeWords(name="a", mountPath="/b", readOnly=True, create=True), Volume("a", "/b", True, True)),
    ],
)
def test_a_volume_is_read(words: str | VolumeWords, expected: Volume) -> None:
    """Compose's short form, and Kubernetes' words."""
    assert volume_of(words) == expected
    assert list(mount_faults([words], [], "")) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hf-token", Secret("hf-token", "/run/secrets/hf-token")),
        (SecretWords(name="hf-token"), Secret("hf-token", "/run/secrets/hf-token")),
        (SecretWords(name="netrc", mountPath="/home/app/.netrc"), Secret("netrc", "/home/app/.netrc")),
    ],
)
def test_a_secret_has_the_default_path_of_compose(words: str | SecretWords, expected: Secret) -> None:
    """Unless the job sets another one."""
    assert secret_of(words) == expected
    assert list(mount_faults([], [words], "vision")) == []


@pytest.mark.parametrize(
    ("job", "field", "words"),
    [
        ({"volumes": ["datasets"]}, "volumes[0].mountPath", "absolute path"),
        ({"volumes": ["Data:/data"]}, "volumes[0].name", "a-z 0-9"),
        ({"volumes": ["a:/data:x"]}, "volumes[0].mountPath", "absolute path"),
        ({"volumes": ["a:/proc"]}, "volumes[0].mountPath", "outside of /proc"),
        ({"volumes": ["a:/run/nvidia-container-devices/all"]}, "volumes[0].mountPath", "outside of /run/nvidia"),
        ({"volumes": ["a:/tmp"]}, "volumes[0].mountPath", "below /tmp"),
        ({"volumes": ["a:/data", "b:/data/b"]}, "volumes[1].mountPath", "apart"),
        ({"volumes": ["a:/run/secrets/x"], "secrets": ["x"]}, "secrets[0].mountPath", "apart"),
        ({"secrets": ["../etc/shadow"]}, "secrets[0].name", "a-z 0-9"),
        ({"secrets": ["x"], "project": "My Project"}, "project", "with volumes or secrets"),
        ({"secrets": [f"x{at}" for at in range(33)]}, "secrets", "at most 32"),
        ({"volumes": [{"name": "a", "mountPath": "/x", "hostPath": "/"}]}, "volumes[0].hostPath", "unknown field"),
    ],
)
def test_an_impossible_mount_is_refused_at_submit(job: dict[str, Any], field: str, words: str) -> None:
    """By the field, with the expected value."""
    with pytest.raises(InvalidJob) as caught:
        resolve(job_from({"command": ["x"], **job}), command_id="c", user="ann")
    assert [words in error.message for error in caught.value.errors if error.field == field] == [True]


@pytest.mark.slow
def test_no_hostile_name_is_taken() -> None:
    """A hundred thousand of them, as volumes and as secrets."""
    taken = [
        name
        for name in hostile_names.names(5, FUZZED)
        if not list(mount_faults([VolumeWords(name=name, mountPath="/data")], [], "vision"))
        or not list(mount_faults([], [SecretWords(name=name, mountPath="/data")], "vision"))
    ]
    assert taken == []


def test_nothing_is_mounted_at_a_hostile_path() -> None:
    """A hundred thousand bent, relative and closed ones; a plain one is taken."""
    assert [path for path in hostile_names.paths(5, FUZZED) if not path_fault(path)] == []
    assert path_fault("/data/a.b_c-d@1+2") == ""


def test_no_hostile_project_has_volumes() -> None:
    """Its name would be a directory's."""
    assert [name for name in hostile_names.names(6, 10_000) if not list(mount_faults(["a:/data"], [], name))] == []
