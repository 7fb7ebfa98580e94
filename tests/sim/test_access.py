"""Worlds with an access service: bugs of its kind, planted one at a time, which the simulator must find."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
import pytest

import fairlead_access.core
import fairlead_access.decide.decision
from fairlead_access.core import AccessCore
from fairlead_access.decide.draft import AccessDraft
from fairlead_gateway.views.fold import Views
from fairlead_replay.fold import CORES
from fairlead_replay.sim import accounts
from fairlead_replay.sim import world as sim_world
from fairlead_replay.sim.access_books import AccessBooks
from fairlead_replay.sim.faults import Disaster, Faults
from fairlead_replay.sim.world import WORK_S, World, run_seed
from fairlead_rights.rows import rows_of
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit

#: Seeds within which every planted bug must be found.
SEEDS = 40


def seeds_with_access() -> Iterator[int]:
    return (seed for seed in range(1, SEEDS + 1) if accounts.plan(seed, WORK_S) is not None)


def first_violation() -> str:
    for seed in seeds_with_access():
        violation = run_seed(seed).violation
        if violation is not None:
            return violation
    return ""


def test_a_world_with_accounts_comes_to_rest_and_repeats() -> None:
    """Every kind of event occurs within a few seeds, no invariant breaks, and a seed gives the same log twice."""
    seen: set[str] = set()
    outcomes = {seed: run_seed(seed) for seed in list(seeds_with_access())[:12]}
    for outcome in outcomes.values():
        assert outcome.violation is None, outcome
        seen |= outcome.access.keys()
    elsewhere = {
        ev.AccessClockStepped.__name__,
        ev.LevelRaised.__name__,
    }  # the shell's, and a person's after an upgrade
    assert {kind.__name__ for kind in get_args(ev.AccessEvent)} - seen - elsewhere == set()
    seed = next(iter(outcomes))
    assert run_seed(seed).digest == outcomes[seed].digest


def test_a_world_without_accounts_has_no_access_service() -> None:
    """Its log is what it was before there was one."""
    seed = next(seed for seed in range(1, SEEDS) if accounts.plan(seed, WORK_S) is None)
    outcome = run_seed(seed, commands=4)
    assert (outcome.violation, outcome.access) == (None, {})


def test_an_end_before_the_expiry_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token counts until its time."""
    decide = fairlead_access.core.decide

    def early(state: Any, expiries: Any, inputs: Any, now_ns: int) -> Any:
        return decide(state, expiries, inputs, now_ns + 2 * SECOND_NS)

    monkeypatch.setattr(fairlead_access.core, "decide", early)
    assert "ns early" in first_violation()


def test_a_token_that_outlives_its_time_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends in the first commit after its expiry."""
    monkeypatch.setattr(fairlead_access.decide.decision, "_expire", lambda draft: False)
    assert "still in force" in first_violation()


def test_suspending_the_last_admin_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """No person could grant anything from then on."""
    monkeypatch.setattr(AccessDraft, "admins", property(lambda draft: set[str]()))
    assert "the last admin is gone" in first_violation()


def test_a_snapshot_without_sessions_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that starts from it differs from the log's fold."""
    restore = AccessCore.restore

    def forgetful(data: bytes) -> AccessCore:
        core = restore(data)
        core.state.sessions.clear()
        core.state.sessions_of.clear()
        return core

    monkeypatch.setattr(AccessCore, "restore", forgetful)
    _crash_often(monkeypatch)
    assert first_violation().startswith(("I7", "sequence"))


def test_snapshots_of_a_chaotic_world_are_folds_of_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that every service has stored, at their sequences; and the gateway's state of access after a restart from its own."""
    worlds: list[World] = []
    outcome = sim_world._outcome

    def kept(world: World, *args: Any) -> Any:
        worlds.append(world)
        return outcome(world, *args)

    monkeypatch.setattr(sim_world, "_outcome", kept)
    _crash_often(monkeypatch)
    compared: Counter[str] = Counter()
    for seed in list(seeds_with_access())[:2]:
        assert run_seed(seed).violation is None
        world = worlds.pop()
        stored: dict[tuple[str, int], bytes] = {}
        for name, data in world.context.hub.objects[subjects.SNAPSHOT].items():
            head, _, state = data.partition(b"\n")
            stored[name.rpartition("-")[0], msgspec.json.decode(head)["sequence"]] = state
        views, cores = Views(), {writer: core() for writer, core in CORES.items()}
        for place, commit in enumerate(world.observer.commits, start=1):
            views.fold(place, commit)
            for writer, core in cores.items():
                core.evolve(place, commit)
                if (state := stored.get((writer, place))) is not None:
                    assert core.snapshot() == state, (seed, writer, place)
                    compared[writer] += 1
        restored = Views.restore(views.snapshot())
        assert restored is not None
        assert rows_of(restored.access) == rows_of(world.observer.cluster.access.state)
    assert compared["access"] >= 2, compared


def test_a_snapshot_without_queues_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that starts from it would end the grants at a queue whose settings change."""
    restore = AccessCore.restore

    def forgetful(data: bytes) -> AccessCore:
        core = restore(data)
        core.state.queues.clear()
        return core

    monkeypatch.setattr(AccessCore, "restore", forgetful)
    _crash_often(monkeypatch)
    assert first_violation().startswith(("I7", "sequence"))


def test_a_command_that_is_answered_twice_is_caught() -> None:
    """By the books alone, in the next commit as in a later one; by an inactive principal, too."""
    books = AccessBooks()
    admitted = ev.PrincipalAdmitted(cause="cmd:a1", principal="p1", kind="person")
    assert books.take(1, _commit(admitted)) == ""
    assert books.take(2, _commit(admitted)) == "PrincipalAdmitted: I3: cmd:a1 was answered at sequence 1 already"
    by = ev.PrincipalSuspended(cause="cmd:a2", principal="p1", by="p2")
    assert books.take(3, _commit(by)) == "PrincipalSuspended: by p2, who was not active before the commit"


def test_a_record_of_a_clock_step_ends_nothing() -> None:
    """The shell commits it before the core decides at the same time; the core's next commit ends what has expired."""
    books = AccessBooks()
    admitted = ev.PrincipalAdmitted(cause="cmd:a1", principal="p1", kind="person")
    opened = ev.SessionOpened(cause="cmd:a2", session="s1", principal="p1", provider="local", expires_ns=5)
    assert books.take(1, _commit(admitted)) == ""
    assert "still in force" in books.take(2, _commit(opened))
    assert books.take(3, _commit(ev.AccessClockStepped(cause="clock", step_ns=9, lag_ns=9))) == ""
    assert books.take(4, _commit(ev.SessionEnded(cause="clock", session="s1", reason="expired"))) == ""


def _commit(*events: ev.Event) -> Commit:
    return Commit(v=VERSION, writer="access", n=1, basis=0, at_ns=5, cursors={}, prev=GENESIS, events=list(events))


def _crash_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restart an access service every 4 s, from snapshots that are stored every 20 events."""
    plan = Faults.plan

    def often(faults: Faults, until_s: float) -> list[Disaster]:
        faults.snapshot_events = 20
        # The first access service is at 2 in worlds with one replica of each, at 4 in those with two.
        crashes = [Disaster(at_s, "crash_service", at, 2.0) for at_s in range(4, int(until_s), 4) for at in (2, 4)]
        return sorted([*plan(faults, until_s), *crashes])

    monkeypatch.setattr(Faults, "plan", often)
