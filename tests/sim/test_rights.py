"""Worlds in which people are signed in: a gateway or a service that breaks I13 is found."""

from collections.abc import Iterator
from typing import Any

import pytest

from fairlead_bus.core import CommitDraft
from fairlead_replay.sim import accounts, guard
from fairlead_replay.sim.guard import SimulatedGuard
from fairlead_replay.sim.world import WORK_S, Parts, SeedOutcome, run_seed
from fairlead_schemas.wire.authority import Authority

#: Seeds within which every planted bug must be found.
SEEDS = 100


def seeds_with_access() -> Iterator[int]:
    return (seed for seed in range(1, SEEDS + 1) if accounts.plan(seed, WORK_S) is not None)


def first_violation(parts: Parts | None = None) -> str:
    """Return the first violation of I13 in these seeds."""
    for seed in seeds_with_access():
        violation = run_seed(seed, parts=parts).violation
        if violation is not None and "I13" in violation:
            return violation
    return ""


def outcomes(count: int) -> list[SeedOutcome]:
    return [run_seed(seed) for seed in list(seeds_with_access())[:count]]


def test_people_send_commands_by_their_rights_and_others_are_withheld() -> None:
    """With a correct guard nothing breaks I13, although its view lags and revocations are in flight; and it is not idle."""
    found = outcomes(12)
    assert [outcome.violation for outcome in found if outcome.violation and "I13" in outcome.violation] == []
    assert sum(outcome.rights.judged for outcome in found) > 20
    assert sum(outcome.denied for outcome in found) > 20


def test_rights_read_at_another_sequence_than_the_one_named_are_caught() -> None:
    """Judged before a revocation, stamped after it: the log would prove a right that was gone."""

    class Hasty(SimulatedGuard):
        def _rights(self) -> int:
            return self.newest

    assert first_violation(Parts(guard=Hasty)).startswith("I13")


def test_a_guard_that_does_not_look_where_things_are_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member of one queue would submit to all."""

    class Blind(SimulatedGuard):
        def _allows(self, sender: Authority, command: Any) -> bool:
            return self.access.access.may_anywhere(sender.principal, "job:submit") or super()._allows(sender, command)

    assert "had no" in first_violation(Parts(guard=Blind))


def test_a_guard_that_forgets_what_a_token_ends_with_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A credential that has ended is remembered next to the log."""
    effects = {
        kind: effect
        for kind, effect in guard.EFFECTS.items()
        if "Revoked" not in kind.__name__ and "Ended" not in kind.__name__
    }
    monkeypatch.setattr(guard, "EFFECTS", effects)
    assert "did not count at" in first_violation()


def test_a_service_that_repeats_the_authority_of_an_earlier_command_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it decides by itself is no answer."""
    repeat = CommitDraft.repeat

    def sticky(self: Any, authority: Authority | None) -> None:
        if authority is not None:
            repeat(self, authority)

    monkeypatch.setattr(CommitDraft, "repeat", sticky)
    assert first_violation().startswith("I13")
