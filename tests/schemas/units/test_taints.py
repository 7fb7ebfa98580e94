"""Taints and tolerations: their text, by whom they are set, and what they keep away."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_schemas.units.taints import EFFECTS, TaintError, evicts, is_last_choice, parse_full_taint, tolerates
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commands import TaintNode, UntaintNode
from fairlead_schemas.wire.reports import InventorySeen
from tests.kit.placer_world import PlacerWorld, cluster, inventory, names, placed, request

words = st.from_regex(r"[a-z0-9]([a-z0-9./-]{0,8}[a-z0-9])?", fullmatch=True)


@given(key=words, value=words.map(lambda text: text.replace("/", "-")), effect=st.sampled_from(EFFECTS))
def test_a_taint_is_tolerated_by_its_own_text_and_by_every_part_of_it(key: str, value: str, effect: str) -> None:
    """Left out, a part matches anything; another key, value or effect does not match."""
    text = f"{key}={value}:{effect}"
    assert str(parse_full_taint(text)) == text
    for toleration in (text, f"{key}:{effect}", key, f"{key}={value}", f":{effect}", ""):
        assert tolerates((text,), (toleration,))
        assert not evicts((text,), (toleration,))
        assert not is_last_choice((text,), (toleration,))
    for other in (f"{key}x", f"{key}={value}x:{effect}", f"{key}={value}:No"):
        assert tolerates((text,), (other,)) == (effect == "PreferNoSchedule")
        assert evicts((text,), (other,)) == (effect == "NoExecute")


def test_one_toleration_too_few_is_too_few() -> None:
    """Every taint must be tolerated; without taints nothing need be."""
    assert tolerates((), ())
    assert tolerates(("a:NoSchedule", "b=1:NoExecute"), ("b", "a"))
    assert not tolerates(("a:NoSchedule", "b=1:NoExecute"), ("a",))


@pytest.mark.parametrize(
    "text", ["", "a", "a=b", ":NoSchedule", "a=b:Never", "a b:NoSchedule", "-a:NoSchedule", "a:b:NoExecute"]
)
def test_text_that_is_no_taint_is_refused(text: str) -> None:
    """With a sentence that has the expected form."""
    with pytest.raises(TaintError, match="expected key=value:Effect"):
        parse_full_taint(text)


def taint(world: PlacerWorld, node: str, text: str) -> list[ev.Event]:
    return world.command(TaintNode(id="t", user="ops", node=node, taint=text))


def test_a_tainted_node_takes_nothing_until_the_taint_is_removed() -> None:
    """Running jobs continue; waiting jobs are placed with the commit that removes it."""
    world = cluster(1)
    world.offer(request(1))
    assert names(taint(world, "n1", "team=a:NoSchedule")) == ["NodeTainted"]
    assert world.stops("n1") == {"1.1": ""}
    [refused] = world.offer(request(1))
    assert isinstance(refused, ev.JobUnplaceable)
    assert refused.reasons == {"taint": 1}
    assert (refused.fitting, refused.gpu_milli_free) == (0, 0)
    events = world.command(UntaintNode(id="u", user="ops", node="n1", taint="team"))
    assert names(events) == ["NodeUntainted", "JobPlaced"]


def test_no_execute_sends_away_what_is_there() -> None:
    """The runs are stopped as by a drain, so that their jobs wait again."""
    world = cluster(1)
    world.offer(request(1))
    taint(world, "n1", "gone:NoExecute")
    assert world.stops("n1") == {"1.1": "drained"}


def test_the_last_choice_is_used_when_nothing_else_has_room() -> None:
    """PreferNoSchedule: first the untainted node, though it fits less well."""
    world = cluster(2)
    world.offer(request(4))
    taint(world, "n1", "old:PreferNoSchedule")
    assert placed(world.offer(request(4))) == {"2": ["n2"]}
    assert placed(world.offer(request(4))) == {"3": ["n2"]}
    assert placed(world.offer(request(4))) == {"4": ["n1"]}
    world.exit("n1", "4")
    assert placed(world.offer(request(4))) == {"5": ["n1"]}


def test_capacity_freed_on_the_last_choice_retries_waiting_jobs() -> None:
    """A parked class is tried again, although the node is ranked last."""
    world = cluster(1)
    world.offer(request(8))
    taint(world, "n1", "old:PreferNoSchedule")
    world.offer(request(8))
    assert placed(world.exit("n1", "1")) == {"2": ["n1"]}


def test_a_taint_takes_the_place_of_its_own_key_and_effect() -> None:
    """As in Kubernetes; other effects of the key stay."""
    world = cluster(1)
    for text in ("team=a:NoSchedule", "team=b:NoSchedule", "team=a:PreferNoSchedule"):
        taint(world, "n1", text)
    assert world.core.state.nodes["n1"].taints == ("team=a:PreferNoSchedule", "team=b:NoSchedule")
    events = world.command(UntaintNode(id="u", node="n1", taint="team:NoSchedule"))
    assert [e.taint for e in events if isinstance(e, ev.NodeUntainted)] == ["team=b:NoSchedule"]


def test_commands_that_make_no_sense_are_refused() -> None:
    """Text that is no taint; a taint that is not there."""
    world = cluster(1)
    found = [*taint(world, "n1", "team"), *world.command(UntaintNode(id="u", node="n1", taint="team"))]
    found += world.command(UntaintNode(id="u", node="n1", taint=""))
    assert [e.code for e in found if isinstance(e, ev.NodeCommandRejected)] == ["bad_taint", "not_found", "not_found"]


def test_an_inventory_brings_its_own_taints() -> None:
    """They come and go with what the agent says; no command removes them."""
    world = cluster(1)
    own = msgspec.structs.replace(inventory("n1"), taints=("fresh:NoExecute",))
    world.offer(request(1))
    world.report("n1", InventorySeen(n=0, boot_id="boot-1", inventory=own))
    assert world.stops("n1") == {"1.1": "drained"}
    [rejected] = world.command(UntaintNode(id="u", node="n1", taint="fresh"))
    assert isinstance(rejected, ev.NodeCommandRejected)
    assert rejected.code == "not_yours"
    world.report("n1", InventorySeen(n=0, boot_id="boot-1", inventory=inventory("n1")))
    assert world.core.state.nodes["n1"].taints == ()
