"""The watch over silence."""

import pytest

from fairlead_agent import settings
from fairlead_agent.core import lease, run_stop
from fairlead_bus.environment_settings import BadSetting
from fairlead_placer.decide.fencing import DEFAULT_LEASE_NS, LeaseWatch
from fairlead_placer.shell.node_link import FENCE_GRACE_S, FENCE_MARGIN_S, FENCE_S, lease_from
from fairlead_schemas.policies import partitions
from fairlead_schemas.policies.partitions import least_replace_ns
from fairlead_schemas.units.timestamps import SECOND_NS

LEASE = 120 * SECOND_NS


def watch(*nodes: str) -> LeaseWatch:
    """Nodes with a heartbeat at 1000 s; the watch has been checked once."""
    made = LeaseWatch(LEASE)
    for node in nodes:
        made.heard(node, 1000 * SECOND_NS)
    assert made.silent(1000 * SECOND_NS) == []
    return made


def test_a_quiet_node_is_named_once_until_it_speaks_again() -> None:
    """Long before its lease is over; a beat each few seconds keeps it from that."""
    made = LeaseWatch(LEASE, 15 * SECOND_NS)
    for second in range(1000, 1040, 5):
        made.heard("n1", second * SECOND_NS)
        if second == 1000:
            made.heard("n2", second * SECOND_NS)
        assert made.quiet(second * SECOND_NS) == (["n2"] if second == 1015 else [])
    made.heard("n2", 1040 * SECOND_NS)
    named = [made.quiet(second * SECOND_NS) for second in (1040, 1045, 1050, 1055)]
    assert named == [[], [], ["n1"], ["n2"]]


def test_a_watch_that_was_suspended_reports_no_node_silent() -> None:
    """It received nothing itself, so every node gets the full lease again; so does a watch without a known time."""
    made = LeaseWatch(LEASE, 16 * SECOND_NS)
    made.heard("n1", 1000 * SECOND_NS)
    assert made.quiet(1000 * SECOND_NS) == []
    assert made.quiet(1030 * SECOND_NS) == []
    assert [made.quiet(second * SECOND_NS) for second in (1038, 1045, 1046)] == [[], [], ["n1"]]


def pass_time(made: LeaseWatch, until_s: int) -> list[tuple[str, int]]:
    """Ask every 10 s until then; everything that was named."""
    found: list[tuple[str, int]] = []
    for second in range(1010, until_s + 1, 10):
        found += made.silent(second * SECOND_NS)
    return found


def test_a_node_is_silent_when_its_lease_is_over() -> None:
    """Not a moment earlier, and with the length of its silence."""
    made = watch("n1")
    assert pass_time(made, 1110) == []
    assert made.silent(1120 * SECOND_NS - 1) == []
    assert made.silent(1120 * SECOND_NS) == [("n1", LEASE)]


def test_a_heartbeat_renews_the_lease() -> None:
    """Only silent nodes are reported."""
    made = watch("n1", "n2")
    pass_time(made, 1060)
    made.heard("n2", 1060 * SECOND_NS)
    assert [name for name, _ in pass_time(made, 1120)] == ["n1"]


def test_time_does_not_run_backwards() -> None:
    """By setting a clock back, a lease is not shortened or lengthened."""
    made = watch("n1")
    pass_time(made, 1060)
    made.heard("n1", 10 * SECOND_NS)
    assert made.silent(1170 * SECOND_NS - 50 * SECOND_NS) == []
    assert pass_time(made, 1180) == [("n1", LEASE)]


def test_a_jump_ahead_counts_against_us() -> None:
    """After our own sleep every node has its whole lease again."""
    made = watch("n1")
    assert made.silent(9000 * SECOND_NS) == []
    assert made.silent(9050 * SECOND_NS) == []


def test_a_reported_node_is_watched_again() -> None:
    """If its loss was not recorded, it is reported again a lease later, not at once."""
    made = watch("n1")
    pass_time(made, 1120)
    assert made.silent(1121 * SECOND_NS) == []


def test_next_at_is_soon_enough() -> None:
    """Never later than the first lease's end, and often enough to notice a suspension; None without a node."""
    made = watch("n1")
    assert made.next_at() == 1030 * SECOND_NS
    pass_time(made, 1110)
    assert made.next_at() == 1120 * SECOND_NS
    assert LeaseWatch().next_at() is None


def test_many_losses_come_in_portions() -> None:
    """At most `limit` at a time; the rest follows."""
    made = watch(*(f"n{i}" for i in range(100)))
    pass_time(made, 1110)
    assert len(made.silent(1120 * SECOND_NS)) == 64
    assert len(made.silent(1120 * SECOND_NS)) == 36


@pytest.mark.parametrize("found", ["5", "-1", "0", "soon", "60", "119.9"])
def test_a_lease_that_ends_before_the_agents_fence_is_refused(found: str) -> None:
    """Its node would still run what another is given."""
    with pytest.raises(BadSetting, match=f'^FAIRLEAD_NODE_LEASE_S: expected .*seconds .*, found "{found}"$'):
        lease_from({"FAIRLEAD_NODE_LEASE_S": found})


def test_the_least_lease_follows_the_fence() -> None:
    """Shorter together, or longer; the message says of what the bound is made."""
    assert lease_from({}) == DEFAULT_LEASE_NS
    assert lease_from({"FAIRLEAD_NODE_LEASE_S": "120"}) == 120 * SECOND_NS
    assert lease_from({"FAIRLEAD_NODE_LEASE_S": "65", "FAIRLEAD_SELF_FENCE_S": "5"}) == 65 * SECOND_NS
    short = {"FAIRLEAD_SELF_FENCE_S": "3", "FAIRLEAD_FENCE_GRACE_S": "1", "FAIRLEAD_FENCE_MARGIN_S": "2"}
    assert lease_from({**short, "FAIRLEAD_NODE_LEASE_S": "6"}) == 6 * SECOND_NS
    with pytest.raises(BadSetting, match=r"at least 360 seconds \(.* fence after 300, grace of 30, margin of 30"):
        lease_from({"FAIRLEAD_SELF_FENCE_S": "300"})
    with pytest.raises(BadSetting, match="FAIRLEAD_SELF_FENCE_S: expected seconds"):
        lease_from({"FAIRLEAD_SELF_FENCE_S": "never"})


def test_the_fence_equals_the_agents() -> None:
    """The placer cannot import the agent, so both define the numbers."""
    told = settings.from_environment({"FAIRLEAD_NODE": "n1"})
    assert (told.fence_ns, told.fence_grace_ns) == (FENCE_S * SECOND_NS, FENCE_GRACE_S * SECOND_NS)
    assert told.fence_margin_ns == FENCE_MARGIN_S * SECOND_NS
    assert run_stop.FENCE_GRACE_NS == FENCE_GRACE_S * SECOND_NS == partitions.GRACE_NS
    assert (told.fence_ns, told.fence_margin_ns) == (partitions.STOP_AFTER_NS, partitions.MARGIN_NS)
    assert least_replace_ns(0) == DEFAULT_LEASE_NS
    assert (partitions.NEVER_NS, partitions.STOP_AFTER_LEAST_NS) == (lease.NEVER_NS, lease.STOP_AFTER_LEAST_NS)
