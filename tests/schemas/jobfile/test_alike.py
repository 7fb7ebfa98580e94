"""Job files that are alike are resolved as each of them alone, and keys that are given twice are found however a file is written."""

import json
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_schemas.jobfile import alike
from fairlead_schemas.jobfile.alike import JobResolver
from fairlead_schemas.jobfile.job_spec import JobSpec, decode_job
from fairlead_schemas.jobfile.resolve import resolve
from fairlead_schemas.units.validation import InvalidJob, repeated_keys
from fairlead_schemas.wire.commands import SubmitJob

#: Fields of a job file that make it another kind, good ones and bad ones.
KINDS = st.fixed_dictionaries(
    {},
    optional={
        "resources": st.sampled_from([{"cpu": 2}, {"nvidia.com/gpu": 4, "memory": "8Gi"}, {"cpu": "many"}]),
        "array": st.sampled_from([4, "1-3%2", "x"]),
        "launcher": st.sampled_from(["", "mpi", "env"]),
        "onFailure": st.sampled_from(["stop", "continue"]),
        "time": st.sampled_from([{"total": "1h"}, {"grace": "never"}]),
        "priority": st.sampled_from([50, 60, -1]),
        "retries": st.just({"max": 2}),
    },
)
#: Fields in which jobs of one kind differ.
OWN = st.fixed_dictionaries(
    {"command": st.sampled_from([["true"], ["sleep", "1"], ["sleep", "2"], ["mpirun", "a"], ["a\0"], [], [""]])},
    optional={
        "args": st.sampled_from([["a"], ["\0"]]),
        "name": st.sampled_from(["n", "n" * 200, "a\nb"]),
        "queue": st.sampled_from(["q", "a/b", "A"]),
        "env": st.sampled_from([{"A": "1"}, {"FAIRLEAD_A": "1"}, {"1": "a"}, {"A": "\0"}]),
        "labels": st.sampled_from([{"a": "b"}, {"": "b"}]),
    },
)


def outcome(call: Callable[[], SubmitJob]) -> SubmitJob | list[str]:
    """Return the command, or the mistakes of a refused job file."""
    try:
        return call()
    except InvalidJob as error:
        return [f"{each.field}: {each.message}" for each in error.errors]


@given(st.lists(st.tuples(KINDS, OWN, st.sampled_from(["ada", "bob"])), max_size=12))
def test_what_is_remembered_changes_no_command_and_no_mistake(
    files: list[tuple[dict[str, object], dict[str, object], str]],
) -> None:
    """A resolver that has seen others answers as `resolve` does, for good and bad job files in any order."""
    resolver = JobResolver()
    for kind, own, user in files:
        spec = msgspec.convert({**kind, **own}, JobSpec)
        slow = outcome(partial(resolve, spec, command_id="", user=user))
        assert outcome(partial(resolver.resolve, spec, user)) == slow


def test_a_job_file_that_is_too_large_is_refused_though_others_of_its_kind_were_not() -> None:
    """The bound of the whole file holds for the fields that are checked again."""
    resolver = JobResolver()
    resolver.resolve(JobSpec(command=["true"]), "ada")
    with pytest.raises(InvalidJob, match="expected at most 65536 bytes"):
        resolver.resolve(JobSpec(command=["true", "x" * 70_000]), "ada")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many kinds at most, and none of a large file."""
    monkeypatch.setattr(alike, "KINDS_MAX", 10)
    resolver = JobResolver()
    for number in range(35):
        resolver.resolve(JobSpec(command=["true"], priority=number), "ada")
    assert 0 < len(resolver._kinds) <= 10
    before = dict(resolver._kinds)
    resolver.resolve(JobSpec(command=["true"], nodeSelector={f"label-{n}": "a" * 40 for n in range(100)}), "ada")
    assert resolver._kinds == before


@pytest.mark.parametrize("spaces", [None, (", ", ": ")])
@given(
    document=st.recursive(
        st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    )
)
def test_a_key_given_twice_is_found_however_the_file_is_written(
    spaces: tuple[str, str] | None, document: object
) -> None:
    """Encoded tightly or with spaces, by other escapes or numbers: a document has no key twice until one is added."""
    text = json.dumps(document, separators=spaces or (",", ":"))
    tight = spaces is None
    once = f'{{"a":{text},"b":1}}' if tight else f'{{"a": {text}, "b": 1}}'
    assert repeated_keys(once.encode()) == []
    twice = f'{{"c":{{"a":{text},"a":1}}}}' if tight else f'{{"c": {{"a": {text}, "a": 1}}}}'
    assert repeated_keys(twice.encode()) == ["c.a"]


def test_a_job_file_with_a_key_twice_is_refused() -> None:
    """Decoders take the last one silently."""
    with pytest.raises(InvalidJob, match="queue: this key is given twice"):
        decode_job(b'{"command":["true"],"queue":"a","queue":"a"}')
