"""Verbs of other systems: refused with what to type here, which exists."""

import re

import pytest

from fairlead.foreign_verbs import OURS, PROGRAMS
from fairlead.verbs import ALIASES, GROUPS, VERBS
from tests.cli.conftest import Run

OWN = {verb.name for verb in (*VERBS, *ALIASES, *GROUPS)}


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("get", "pods"), "fairlead jobs | fairlead nodes | fairlead queues"),
        (("kubectl", "get", "nodes"), "fairlead jobs | fairlead nodes | fairlead queues"),
        (("sky", "launch", "task.yaml"), "fairlead run -- CMD"),
        (("dstack", "apply"), "fairlead run -- CMD | fairlead submit train.sh | fairlead submit -f job.yaml"),
        (("bsub", "-q", "gpu", "a.sh"), "fairlead run -- CMD | fairlead submit"),
        (("qdel", "7"), "fairlead cancel JOB"),
        (("shell", "7"), "fairlead exec -it JOB -- bash"),
        (("kubectl", "frobnicate"), "fairlead jobs"),
    ],
)
def test_a_verb_of_another_system_is_refused_with_ours(run: Run, words: tuple[str, ...], hint: str) -> None:
    """A usage error, without a request."""
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f'error: there is no "fairlead {words[0]}"\nhint: {hint}')


def test_a_misspelt_verb_is_compared_with_ours(run: Run) -> None:
    """It is no verb of another system."""
    ran = run("sumbit")
    assert ran.code == 2 and "Did you mean 'submit'" in ran.err


def test_the_table_names_verbs_that_exist() -> None:
    """And hides none of ours."""
    assert not OWN & (OURS.keys() | PROGRAMS)
    named = {verb for text in OURS.values() for verb in re.findall(r"fairlead ([a-z-]+)", text)}
    assert named and named <= OWN, named - OWN
