"""Access at every past sequence: equal to what a fold from the start up to that sequence answers."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from fairlead_rights.access_list import Grant, Target
from fairlead_rights.effects import EFFECTS
from fairlead_rights.history import AccessHistory, Intervals
from fairlead_rights.rows import rows_of, state_of
from fairlead_rights.state import AccessState
from fairlead_schemas.policies.rights import ROLES, VERBS, Scope, parse_scope
from fairlead_schemas.wire import events as ev
from tests.rights import naive
from tests.rights.random_log import CAUSE, IDS, PEOPLE, SCOPES, SOURCES, log_of, target_of


def folded(log: list[tuple[int, ev.Event]]) -> AccessHistory:
    """History of a log."""
    history = AccessHistory()
    for sequence, event in log:
        history.fold(sequence, event)
    return history


def test_it_answers_as_a_fold_up_to_the_sequence_would() -> None:
    """Random questions at a thousand random sequences, with and without a credential: may somebody, and by which grants. Both answers are
    frequent.
    """
    found, reasons = {True: 0, False: 0}, 0
    for seed in range(20):
        rng = Random(seed)
        log = log_of(rng, 120)
        history, last = folded(log), log[-1][0]
        for _ in range(50):
            sequence, person, target = rng.randint(0, last + 2), rng.choice(PEOPLE), target_of(rng)
            via = rng.choice(("", f"token:{rng.choice(IDS)}", f"session:{rng.choice(IDS)}"))
            state = naive.state_at(log, sequence)
            for verb in VERBS:
                expected = state.may(person, verb, target, via)
                assert history.may_at(sequence, person, verb, target, via) == expected, (seed, sequence, verb, target)
                found[expected] += 1
                why = state.why(person, verb, target)
                assert list(history.why_at(sequence, person, verb, target)) == why, (seed, sequence, verb, target)
                reasons += bool(why)
    assert min(found.values()) > 1_000 and reasons > 1_000


def test_at_the_newest_sequence_it_agrees_with_the_state_of_access() -> None:
    """Same events, two folds; also for what a principal may grant, and why."""
    for seed in range(30):
        rng = Random(seed)
        log = log_of(rng, 80)
        state = AccessState()
        history = AccessHistory()
        for sequence, event in log:
            history.fold(sequence, event)
            EFFECTS.get(type(event), lambda *_: None)(state, event, None)
            person, verb, target = rng.choice(PEOPLE), rng.choice(VERBS), target_of(rng)
            assert history.may_at(sequence, person, verb, target) == state.may(person, verb, target)
            assert history.why_at(sequence, person, verb, target) == state.access.why(person, verb, target)
            role, scope = rng.choice(ROLES), parse_scope(rng.choice(SCOPES))
            expected = state.access.may_grant(person, role, scope, target)
            assert history.may_grant_at(sequence, person, role, scope, target) == expected


def test_a_commit_counts_as_a_whole() -> None:
    """What one commit gives and takes again was never there."""
    history = AccessHistory()
    history.fold(1, ev.PrincipalAdmitted(**CAUSE, principal="ann", kind="person"))
    granted: dict[str, Any] = {**CAUSE, "subject": "ann", "role": "admin", "scope": "cluster", "source": "person"}
    history.fold(4, ev.RoleGranted(**granted))
    history.fold(4, ev.RoleRevoked(**granted))
    history.fold(6, ev.RoleGranted(**granted))
    assert [history.may_at(at, "ann", "job:submit", Target()) for at in range(8)] == [False] * 6 + [True] * 2
    assert history.why_at(6, "ann", "job:submit", Target()) == (Grant("ann", "admin", Scope("cluster")),)


def test_grants_end_with_their_queue() -> None:
    """Whoever stated them; a new queue of the name has none of them, and neither has one whose grant was on its way when it was removed.
    Grants above and below the queue stay.
    """
    history, state = AccessHistory(), AccessState()
    first = [
        ev.PrincipalAdmitted(**CAUSE, principal="ann", kind="person"),
        *(ev.QueueConfigured(**CAUSE, path=path) for path in ("research", "research/vision", "research/vision/llm")),
    ]
    granted = [
        ev.RoleGranted(**CAUSE, subject="ann", role="member", scope="queue:research/vision", source=source)
        for source in SOURCES
    ]
    below = ev.RoleGranted(**CAUSE, subject="ann", role="viewer", scope="queue:research/vision/llm", source="person")
    gone, made = ev.QueueRemoved(**CAUSE, path="research/vision"), ev.QueueConfigured(**CAUSE, path="research/vision")
    log = [first, [*granted, below], [gone], [made], granted, [gone], granted[:1], [made], [made], granted, [made]]
    target = Target(queue="research/vision")
    may: list[bool] = []
    for sequence, events in enumerate(log):
        for event in events:
            history.fold(sequence, event)
            EFFECTS[type(event)](state, event, None)
        may.append(state.may("ann", "job:submit", target))
    assert may == [False, True, False, False, True, False, True, False, False, True, True]
    assert [history.may_at(at, "ann", "job:submit", target) for at in range(len(log))] == may
    assert state.may("ann", "job:read", Target(queue="research/vision/llm"))
    assert state.grant_count == 2
    assert rows_of(state_of(rows_of(state))) == rows_of(state)


def test_the_id_of_an_ended_token_does_not_revive_it() -> None:
    """Whoever gets the id later answers for its own time only."""
    history = AccessHistory()
    for at, person in ((1, "ann"), (2, "bob")):
        history.fold(at, ev.PrincipalAdmitted(**CAUSE, principal=person, kind="person"))
    own = {person: Target(job="7", owner=person) for person in ("ann", "bob")}
    history.fold(3, ev.TokenIssued(**CAUSE, token="t", principal="ann", kind="person", expires_ns=1))
    history.fold(5, ev.PrincipalSuspended(**CAUSE, principal="ann"))
    history.fold(6, ev.PrincipalAdmitted(**CAUSE, principal="ann", kind="person"))
    history.fold(8, ev.TokenIssued(**CAUSE, token="t", principal="bob", kind="person", expires_ns=1))
    found = {
        person: [at for at in range(10) if history.may_at(at, person, "job:cancel", own[person], "token:t")]
        for person in own
    }
    assert found == {"ann": [3, 4], "bob": [8, 9]}


def test_memory_grows_with_changes_only() -> None:
    """Grants that are stated again, and events of others, add nothing."""
    history = AccessHistory()
    history.fold(1, ev.PrincipalAdmitted(**CAUSE, principal="ann", kind="person"))
    granted = ev.RoleGranted(**CAUSE, subject="ann", role="viewer", scope="cluster", source="file")
    for at in range(2, 1_000):
        history.fold(at, granted)
        history.fold(at, ev.GroupSynced(**CAUSE, group="group:g", source="file", added=("ann",)))
        history.fold(at, ev.JobQueued(**CAUSE, job="1"))
    assert history.statistics() == {"facts": 3, "turns": 3}


@pytest.mark.parametrize("seed", range(5))
def test_intervals_keep_what_was_set(seed: int) -> None:
    """Against a value for each sequence."""
    rng, intervals, values = Random(seed), Intervals(), [False] * 60
    for sequence in sorted(rng.randint(1, 50) for _ in range(40)):
        holds = rng.random() < 0.5
        intervals.set(sequence, holds)
        values[sequence:] = [holds] * (60 - sequence)
    assert [intervals.at(sequence) for sequence in range(60)] == values
    assert all(before < after for before, after in pairwise(intervals.turns))
