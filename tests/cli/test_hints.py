"""Hints of the gateway name paths of the API; the command line prints what a person types instead."""

import re
from pathlib import Path

import pytest

from fairlead.errors import LISTS, as_typed

GATEWAY = Path(__file__).parents[2] / "services" / "gateway" / "fairlead_gateway"
#: Paths for which there is no verb.
WITHOUT_VERB = {"commands", "groups"}


def test_every_list_that_a_hint_names_has_its_verb() -> None:
    """None is passed on as a path."""
    named = {
        path
        for file in GATEWAY.rglob("*.py")
        for path in re.findall(r'(?:hint=f?|HINT\w* = f?|or )"[^"]*GET /v1/([a-z/-]+)', file.read_text())
    }
    assert {path.rstrip("/") for path in named} - WITHOUT_VERB <= set(LISTS)
    assert len(named) > 10


@pytest.mark.parametrize(
    ("hint", "typed"),
    [
        ("GET /v1/rollouts lists them", "`fairlead rollout` lists them"),
        (
            "GET /v1/queues lists them; PUT creates one",
            "`fairlead queues` lists them; `fairlead queues apply -f queues.yaml` creates one",
        ),
        (
            "GET /v1/jobs lists them; one that ended long ago cannot be changed",
            "`fairlead jobs` lists them; one that ended long ago cannot be changed",
        ),
        ("see GET /v1/commands/c1", "see GET /v1/commands/c1"),
        ("GET /v1/schemas/job shows the fields of a job file", "docs/reference/jobs.md shows the fields of a job file"),
        ("fairlead audit verify", "fairlead audit verify"),
    ],
)
def test_a_hint_is_what_one_types(hint: str, typed: str) -> None:
    """What is no path stays as it is."""
    assert as_typed(hint) == typed
