"""Worlds in which jobs change while they wait and run: every invariant holds, and limits are those of the newest change."""

import pytest

from fairlead_replay.sim.people import JobUpdaters
from fairlead_replay.sim.run_books import LimitBooks
from fairlead_replay.sim.world import Parts, run_seed
from fairlead_schemas.wire import events as ev

PARTS = Parts(people=JobUpdaters)


def test_every_promise_holds_while_jobs_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are not stopped before the newest limit, nothing is lost, and every replay is equal."""
    updates: list[ev.JobUpdated] = []
    take = LimitBooks.take

    def noted(books, commit):
        updates.extend(event for event in commit.events if isinstance(event, ev.JobUpdated))
        return take(books, commit)

    monkeypatch.setattr(LimitBooks, "take", noted)
    assert run_seed(6, parts=PARTS, commands=40).violation is None
    assert updates
