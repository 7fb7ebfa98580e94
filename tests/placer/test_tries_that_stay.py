"""A decision's speculative changes stay if its commit comes next, and are undone before anything else."""

from collections.abc import Callable

import msgspec
import pytest

from fairlead_bus.core import Decision, Input
from fairlead_placer import core as placer_core
from fairlead_placer.core import PlacerCore
from fairlead_placer.scheduling import allocate
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.reports import ExitSeen, StartSeen
from tests.kit.commits import commit_of
from tests.kit.placer_world import SECOND, PlacerWorld, request, taken_marks

NOW = 1_000 * SECOND


class Pair:
    """Two cores on one log: one decides, and the other one only folds."""

    def __init__(self) -> None:
        self.decides, self.folds, self.last = PlacerCore(), PlacerCore(), 0
        world = PlacerWorld()  # for its builders only
        world.join("n1", 8)
        for commit in world.log:
            self.fold(commit.writer, commit.events, cursors=commit.cursors)
        self.world = world

    def fold(
        self, writer: str, events: list[ev.Event], *, at_ns: int = NOW, cursors: dict[str, int] | None = None
    ) -> None:
        self.last += 1
        commit = commit_of(events, writer=writer, n=self.last, at_ns=at_ns, cursors=cursors)
        self.decides.evolve(self.last, commit)
        self.folds.evolve(self.last, msgspec.structs.replace(commit, events=list(events)))
        assert not self.decides.has_pending
        assert self.decides.snapshot() == self.folds.snapshot()
        assert taken_marks(self.decides) == taken_marks(self.folds)

    def decided(self, *inputs: Input) -> Decision:
        decision = self.decides.decide(inputs, NOW)
        assert decision.events and self.decides.has_pending
        return decision


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.fold("queue", [*made.world.submitted(request(2)), *made.world.submitted(request(4))])
    return made


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the events folded one by one, from now on."""
    found: list[int] = []
    fold = placer_core.fold
    monkeypatch.setattr(
        placer_core, "fold", lambda state, seq, commit: (found.append(seq), fold(state, seq, commit))[1]
    )
    return found


def test_the_commit_that_comes_next_is_not_folded_again(pair: Pair, folds: list[int]) -> None:
    """Only the other core folds it; both states are equal afterwards, including the nodes to publish."""
    decision = pair.decided()
    pair.fold("placer", decision.events)
    assert folds == [pair.last]
    assert list(pair.decides.state.runs) == ["1.1", "2.1"]


def test_reports_that_it_consumes_are_confirmed(pair: Pair, folds: list[int]) -> None:
    """Ends, what is learned of them, and the numbers of the reports."""
    pair.fold("placer", pair.decided().events)
    pair.world.numbers["n1"] = 1
    decision = pair.decided(
        pair.world.batch("n1", StartSeen(n=0, job="1", attempt=1, rank=0)),
        pair.world.batch("n1", ExitSeen(n=0, job="1", attempt=1, rank=0, outcome="exited", exit_code=0, clean=True)),
    )
    assert decision.cursors == {"report.n1": 3}
    pair.fold("placer", decision.events, cursors=decision.cursors)
    assert len(folds) == 2
    assert pair.decides.state.nodes["n1"].reported == 3
    assert pair.decides.state.spans


@pytest.mark.parametrize(
    "between",
    [
        lambda pair: pair.fold("queue", list(pair.world.submitted(request(1)))),
        lambda pair: pair.decides.snapshot(),
        lambda pair: pair.decides.rollback().nodes["n1"],
        lambda pair: pair.decides.wake_at(),
        lambda pair: pair.decides.decide([], NOW),
    ],
    ids=["another writer's commit", "a snapshot", "a look", "a question", "another decision"],
)
def test_a_commit_in_between_is_folded_on_an_unspeculated_state(
    pair: Pair, folds: list[int], between: Callable[[Pair], object]
) -> None:
    """The speculative changes are undone, and folded when they arrive."""
    decision = pair.decided()
    between(pair)
    pair.fold("placer", decision.events)
    assert folds[-2:] == [pair.last, pair.last]


def test_a_commit_of_another_time_is_folded(pair: Pair, folds: list[int]) -> None:
    """The effect of an event may depend on its time."""
    pair.fold("placer", pair.decided().events, at_ns=NOW + 1)
    assert folds == [pair.last, pair.last]


def test_equal_events_are_not_identical(pair: Pair, folds: list[int]) -> None:
    """Events are not compared: another process's commit is folded."""
    pair.fold("placer", list(pair.decided().events))
    assert folds == [pair.last, pair.last]


def test_nothing_is_left_tried_where_deciding_fails(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is as it was, down to the last byte."""

    def fails(*_: object) -> None:
        raise RuntimeError("half-way")

    monkeypatch.setattr(allocate, "_report_unplaceable", fails)
    pair.fold("queue", list(pair.world.submitted(request(99))))
    before = pair.decides.snapshot()
    with pytest.raises(RuntimeError, match="half-way"):
        pair.decides.decide([], NOW)
    assert not pair.decides.has_pending
    assert pair.decides.snapshot() == before
