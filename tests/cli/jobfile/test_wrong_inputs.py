"""Mistakes in files and HTTP bodies: all of them at once, each with its place, what was expected and found, and what to do."""

from pathlib import Path

import pytest

from fairlead_schemas.jobfile.job_spec import CheckpointWords, JobSpec, TimeWords, TolerationWords
from fairlead_schemas.policies.idle_file import IdlePolicyWords
from fairlead_schemas.queuefile.settings_format import BudgetWords, PoolWords, PreemptionWords, QueueWords
from fairlead_schemas.units.suggestions import closest
from tests.cli.jobfile.wrong_inputs import WrongInput, mistakes, read

TABLE = list(read((Path(__file__).parents[2] / "data" / "wrong_inputs.txt").read_text()))


def test_the_table_has_a_hundred_inputs() -> None:
    """Each once, and each with a mistake."""
    assert len({(row.kind, row.text) for row in TABLE}) == len(TABLE) >= 100
    assert all(row.mistakes for row in TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.kind}: {row.text[:40]!r}")
def test_all_mistakes_of_an_input_are_named(row: WrongInput) -> None:
    """Exactly the lines of the table: place, expected and found value, remedy."""
    assert mistakes(row.kind, row.text) == row.mistakes


def test_every_mistake_has_its_place_and_says_what_to_write() -> None:
    """A file's mistakes have lines; a message names what is expected or what was meant, in no decoder's words."""
    for row in TABLE:
        for mistake in row.mistakes:
            place, _, message = mistake.partition(": ")
            assert place.startswith("file line ") or row.kind not in ("job", "queues", "policies"), mistake
            assert any(word in message for word in ("expected", "did you mean", "here it is", "add it")), mistake
            assert not any(word in mistake for word in ("Traceback", "Expected `", "object", "`str`", "Object")), (
                mistake
            )


def _fields(kind: type) -> list[str]:
    return list(kind.__struct_fields__)


#: (known names, typing error, what was meant)
TYPING_ERRORS = [
    *(
        (_fields(JobSpec), wrong, right)
        for wrong, right in [
            ("comand", "command"),
            ("commnd", "command"),
            ("arg", "args"),
            ("quue", "queue"),
            ("Queue", "queue"),
            ("porject", "project"),
            ("imgae", "image"),
            ("work_dir", "workdir"),
            ("volume", "volumes"),
            ("secret", "secrets"),
            ("node", "nodes"),
            ("task", "tasks"),
            ("gpus_per_task", "gpusPerTask"),
            ("resource", "resources"),
            ("node_selector", "nodeSelector"),
            ("nodeAfinity", "nodeAffinity"),
            ("tolerance", "tolerations"),
            ("depends_on", "dependsOn"),
            ("priorty", "priority"),
            ("retrys", "retries"),
            ("onfailure", "onFailure"),
        ]
    ),
    (_fields(TimeWords), "totl", "total"),
    (_fields(CheckpointWords), "comand", "command"),
    (_fields(TolerationWords), "efect", "effect"),
    (_fields(QueueWords), "guarantee", "guaranteed"),
    (_fields(QueueWords), "wieght", "weight"),
    (_fields(PoolWords), "half_life", "halfLife"),
    (_fields(BudgetWords), "gpu_hours", "gpuHours"),
    (_fields(PreemptionWords), "lowerPrio", "lowerPriority"),
    (_fields(IdlePolicyWords), "aftermax", "afterMax"),
    (["default", "research/vision", "research/speech"], "reserch/vision", "research/vision"),
    (["default", "research/vision", "research/speech"], "speech", "research/speech"),
    (["default", "research/vision", "research/speech"], "visoin", "research/vision"),
    (["default", "a100", "h100"], "defualt", "default"),
    (["default", "a100-old", "h100"], "H100", "h100"),
]


@pytest.mark.parametrize(("known", "wrong", "right"), TYPING_ERRORS, ids=lambda value: str(value)[-20:])
def test_a_typing_error_is_recognised(known: list[str], wrong: str, right: str) -> None:
    """Letters left out, doubled or swapped, another case, snake_case, singular, and the last part of a path."""
    assert closest(wrong, known) == right


@pytest.mark.parametrize("name", ["xyzzy", "", "q" * 500])
def test_a_name_that_is_like_none_has_no_suggestion(name: str) -> None:
    """A wrong suggestion is worse than none."""
    assert closest(name, _fields(JobSpec)) == ""
