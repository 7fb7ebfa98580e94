"""Policy files: read strictly, every mistake at its path, and written back; thresholds and evidence in people's words."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_schemas.policies.idle import (
    IdleEvidence,
    IdlePolicy,
    IdleSignal,
    evidence_words,
    parse_threshold,
    threshold_word,
)
from fairlead_schemas.policies.idle_file import InvalidPolicies, is_scope, policy_words, read_policies, read_policy_file
from fairlead_schemas.units.quantities import QuantityError
from fairlead_schemas.units.timestamps import MINUTE_NS, SECOND_NS

FULL: dict[str, Any] = {
    "rule": "utilization",
    "action": "shrink",
    "mode": "on_demand",
    "below": {"gpu": "5%", "network": "10KiB/s"},
    "after": "20m",
    "notice": "1m",
    "extend": "2h",
    "afterMax": "1h",
    "shrink": "30m",
    "extensions": 2,
    "kinds": ["session"],
    "maySoften": True,
}
POLICY = IdlePolicy(
    rule="utilization",
    action="shrink",
    mode="on_demand",
    below={"gpu": 50, "network": 10_240},
    after_ns=20 * MINUTE_NS,
    notice_ns=MINUTE_NS,
    extend_ns=120 * MINUTE_NS,
    extensions_max=2,
    shrink_ns=30 * MINUTE_NS,
    kinds=("session",),
    after_max_ns=60 * MINUTE_NS,
    may_soften=True,
)


def test_a_whole_policy_reads_as_it_is_meant_and_is_written_back() -> None:
    """Durations, percents and rates become the log's integers, and come back as they stood."""
    assert read_policies({"policies": [FULL]}) == (POLICY,)
    assert policy_words(POLICY) == FULL


def test_a_policy_without_mode_is_on_trial_with_five_minutes_of_notice() -> None:
    """So nothing is reclaimed before an admin has seen the report."""
    (policy,) = read_policies({"policies": [{"rule": "interaction", "after": "1h", "action": "stop"}]})
    assert (policy.mode, policy.notice_ns, policy.extensions_max) == ("dry_run", 5 * MINUTE_NS, 0)


def test_a_file_names_scopes_and_an_empty_one_has_no_say() -> None:
    """Each with all its policies."""
    lifetime = {"rule": "lifetime", "after": "7d", "action": "warn"}
    found = read_policy_file({"scopes": {"global": [lifetime], "project:llm": [], "user:ada": None}})
    assert [(scope, len(policies)) for scope, policies in found.items()] == [
        ("global", 1),
        ("project:llm", 0),
        ("user:ada", 0),
    ]


@pytest.mark.parametrize(
    ("policy", "field", "told"),
    [
        ({"rule": "idle"}, "rule", "expected one of utilization, interaction, lifetime"),
        ({"action": "kill"}, "action", "expected one of note, warn, stop, requeue, shrink"),
        ({"below": {"gpus": "5%"}}, "below.gpus", "unknown signal; expected one of gpu, memory_traffic"),
        ({"below": {"gpu": 5}}, "below.gpu", 'such as "5%"'),
        ({"below": {"gpu": "101%"}}, "below.gpu", "100%"),
        ({"below": {"gpu": "0%"}}, "below.gpu", "more than 0"),
        ({"below": {"network": "10"}}, "below.network", '"10KiB/s"'),
        ({"below": {"power": "20"}}, "below.power", '"20W"'),
        ({"below": {}}, "below", "{gpu: 5%, network: 10KiB/s}"),
        ({"rule": "lifetime"}, "below", "leave it out"),
        ({"after": "0"}, "after", "more than 0"),
        ({"after": "soon"}, "after", "expected a duration"),
        ({"action": "shrink"}, "shrink", "what is left of the lease"),
        ({"shrink": "1h"}, "shrink", "write action: shrink"),
        ({"extensions": 2}, "extensions", "give both, or neither"),
        ({"extend": "2h"}, "extensions", "give both, or neither"),
        ({"afterMax": "1m"}, "afterMax", "no less than after"),
        ({"kinds": ["notebook"]}, "kinds[0]", "expected one of batch, session, service"),
        ({"afer": "20m"}, "afer", "did you mean after?"),
    ],
)
def test_a_mistake_is_named_at_its_path_with_its_cure(policy: dict[str, Any], field: str, told: str) -> None:
    """The path, the expected value and the remedy."""
    fine = {"rule": "utilization", "action": "stop", "after": "20m", "below": {"gpu": "5%"}}
    with pytest.raises(InvalidPolicies) as refused:
        read_policies({"policies": [fine | policy]})
    errors = {error.field: error.message for error in refused.value.errors}
    assert told in errors[f"policies[0].{field}"]


def test_all_mistakes_of_a_file_are_reported_at_once() -> None:
    """A duplicated rule, an invalid scope, a missing field."""
    twice = [{"rule": "lifetime", "after": "1d", "action": "warn"}] * 2
    with pytest.raises(InvalidPolicies) as refused:
        read_policy_file({"scopes": {"global": twice, "queue:x": [{"rule": "lifetime", "action": "stop"}]}})
    assert [error.field for error in refused.value.errors] == [
        "scopes.global[1].rule",
        "scopes.queue:x",
        "scopes.queue:x[0].after",
    ]
    for nothing in ({}, {"scopes": {}}, {"scopes": []}, [], None):
        with pytest.raises(InvalidPolicies):
            read_policy_file(nothing)


def test_scopes() -> None:
    """Everybody, a project, a user."""
    assert all(map(is_scope, ("global", "project:llm", "project:A b", "user:ada")))
    assert not any(map(is_scope, ("", "all", "project:", "user:", "user:Ada L", "global:x", "queue:a")))


SIGNALS: dict[IdleSignal, Any] = {
    "gpu": st.integers(0, 1000),
    "power": st.integers(0, 10**8),
    "network": st.integers(0, 10**12),
    "cpu": st.integers(0, 10**6),
    "terminal": st.integers(0, 10**6).map(lambda s: s * SECOND_NS),
}


@given(st.sampled_from(sorted(SIGNALS)).flatmap(lambda signal: st.tuples(st.just(signal), SIGNALS[signal])))
def test_every_threshold_is_written_so_that_it_reads_back(pair: tuple[Any, int]) -> None:
    """Exactly, whatever the unit."""
    signal, value = pair
    assert parse_threshold(signal, threshold_word(signal, value)) == value


def test_a_threshold_that_cannot_be_read_says_what_was_expected() -> None:
    """And what was found."""
    with pytest.raises(QuantityError, match='bytes per second such as "10KiB/s" or "2MB/s", found "5%"'):
        parse_threshold("disk", "5%")


def test_evidence_is_one_line_that_says_what_decided() -> None:
    """The highest of each signal against its threshold, over which window, and of how many samples."""
    seen = (
        IdleEvidence(signal="gpu", highest=12, mean=3, threshold=50, samples=1200),
        IdleEvidence(signal="network", highest=811, mean=90, threshold=10_240, samples=1198),
        IdleEvidence(signal="terminal", highest=25 * MINUTE_NS, mean=0, threshold=20 * MINUTE_NS, samples=1),
    )
    assert evidence_words(seen, 20 * MINUTE_NS) == (
        "GPU at most 1.2 % of 5 % for 20m, 1,200 samples; network at most 811 B/s of 10.0 KiB/s, 1,198 samples; "
        "no activity at the terminal for 25m, 20m allowed"
    )
    assert evidence_words(()) == ""
