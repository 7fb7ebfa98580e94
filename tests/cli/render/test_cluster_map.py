"""`fairlead nodes --map`: what it asks, what it prints where."""

import msgspec
import pytest
import yaml

from fairlead.render.terminal import plain
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, page
from tests.cli.mapped import facts, node

FACTS = facts([node("n1", "aa..", {"a": ("812",)}, rack="r1"), node("n2", "....", rack="r1")])


@pytest.fixture
def mapped(gateway: GatewayStub) -> GatewayStub:
    """A gateway with two nodes."""
    gateway.on("GET", "/v1/map", plain(FACTS))
    return gateway


def test_a_pipe_gets_plain_letters(mapped: GatewayStub, run: Run) -> None:
    """No escape sequence; the filters are the gateway's."""
    ran = run("nodes", "--map", "--rack", "r1", "--pool", "default", "--at", "40")
    assert (ran.code, ran.err) == (0, "")
    assert "rack r1\n  n1  AA..\n  n2  ....\n" in ran.out
    assert "\x1b" not in ran.out
    assert dict(mapped.requests[0].url.params) == {"rack": "r1", "pool": "default", "at": "40"}


def test_a_terminal_gets_colours_unless_it_wants_none(
    mapped: GatewayStub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same text, with the letters in colour."""
    monkeypatch.setattr("fairlead.render.terminal.is_terminal", lambda stream=None: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    bare = run("nodes", "--map").out
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = run("nodes", "--map").out
    assert "\x1b" not in bare
    assert "\x1b[36mAA\x1b[0m.." in coloured
    assert coloured.replace("\x1b[36m", "").replace("\x1b[0m", "") == bare


def test_json_and_yaml_are_the_apis_document(mapped: GatewayStub, run: Run) -> None:
    """The facts that the picture is drawn from."""
    assert msgspec.json.decode(run("nodes", "--map", "-o", "json").out) == plain(FACTS)
    assert yaml.safe_load(run("nodes", "--map", "-o", "yaml").out) == plain(FACTS)
    assert run("nodes", "--map", "-o", "name").out == "node/n1\nnode/n2\n"


def test_an_empty_list_of_nodes_has_a_message(gateway: GatewayStub, run: Run) -> None:
    """With the filter that left none."""
    gateway.on("GET", "/v1/map", plain(facts([])))
    assert run("nodes", "--map", "--rack", "r9").out == "there are no nodes in rack r9\n"


@pytest.mark.parametrize("option", ["--rack=r1", "--pool=x", "--at=3", "--by=user"])
def test_options_of_the_map_need_it(gateway: GatewayStub, run: Run, option: str) -> None:
    """A list that ignored a filter would be read as filtered."""
    gateway.on("GET", "/v1/nodes", page())
    ran = run("nodes", option)
    assert (ran.code, gateway.requests) == (2, [])
    assert "--map" in ran.err


def test_help_says_what_fragmented_means(run: Run) -> None:
    """The words of the picture are explained where one looks first."""
    told = " ".join(run("nodes", "--help").out.split())
    assert "A free GPU is fragmented when others of its node are not free" in told
