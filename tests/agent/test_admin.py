"""An admin's settings of a node, from environment and command line."""

import argparse

import pytest

from fairlead_agent import settings
from fairlead_agent.settings import from_environment
from fairlead_bus.environment_settings import BadSetting


def said(*words: str, **env: str) -> settings.Admin:
    """By these words after this environment."""
    parser = argparse.ArgumentParser()
    settings.add_arguments(parser)
    return settings.admin_from_environment(settings.with_arguments(env, parser.parse_args(words)))


def test_without_a_file_nothing_is_set() -> None:
    """There are no labels and no taints."""
    assert said() == settings.Admin({}, ())
    assert from_environment({"FAIRLEAD_NODE": "n1"}).admin == settings.Admin({}, ())


def test_the_command_line_comes_after_the_environment() -> None:
    """Of labels the last counts, taints add up, each once and in one order."""
    found = said(
        "--label",
        "fairlead/rack=r2",
        "--taint",
        "team=vision:NoSchedule",
        "--label",
        "fast=",
        FAIRLEAD_NODE_LABELS="fairlead/rack=r1, fairlead/block=b1",
        FAIRLEAD_NODE_TAINTS="x:NoExecute,team=vision:NoSchedule,",
    )
    assert found.labels == {"fairlead/rack": "r2", "fairlead/block": "b1", "fast": ""}
    assert found.taints == ("team=vision:NoSchedule", "x:NoExecute")


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"FAIRLEAD_NODE_LABELS": "rack"}, 'FAIRLEAD_NODE_LABELS: expected a label such as .*, found "rack"'),
        ({"FAIRLEAD_NODE_TAINTS": "a=b"}, 'FAIRLEAD_NODE_TAINTS: expected a taint such as .*, found "a=b"'),
        ({"FAIRLEAD_NODE_LABELS": "fairlead/pool=big"}, '"fairlead/pool" is the agent.s own; set FAIRLEAD_POOL'),
        ({"FAIRLEAD_NODE_LABELS": ",".join(f"k{n}=v" for n in range(65))}, "at most 64 labels, found 65"),
        ({"FAIRLEAD_NODE_TAINTS": ",".join(f"k{n}:NoSchedule" for n in range(33))}, "at most 32 taints, found 33"),
    ],
)
def test_invalid_settings_are_refused_by_name(env: dict[str, str], message: str) -> None:
    """Before the node joins."""
    with pytest.raises(BadSetting, match=message):
        from_environment({"FAIRLEAD_NODE": "n1", **env})
