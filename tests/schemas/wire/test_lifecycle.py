"""The table of a job's life is whole: nothing unreachable, no way out of an end, every event accounted for."""

import pytest

from fairlead_schemas.wire.events import EVENTS_OF
from fairlead_schemas.wire.lifecycle import CHARGED_STATES, END_STATES, MOVES, NEXT, NOT_MOVING, STATES, next_state

WRITER_OF = {kind.__name__: writer for writer, kinds in EVENTS_OF.items() for kind in kinds}
MOVING = {move.event for move in MOVES}


def test_every_event_moves_a_job_or_is_listed_as_not_moving_one() -> None:
    """A new event is entered into MOVES or, with its reason, into NOT_MOVING."""
    assert MOVING | NOT_MOVING.keys() == WRITER_OF.keys()
    assert MOVING & NOT_MOVING.keys() == set()


@pytest.mark.parametrize("move", MOVES, ids=lambda m: f"{m.source or 'birth'}-{m.event}-{m.target}")
def test_a_move_is_between_known_states_by_its_events_writer(move: tuple[str, ...]) -> None:
    """States are of the table, and "emitted by" is the one writer of the event."""
    source, event, target, _, emitted_by, _ = move
    assert source in {"", *STATES}
    assert target in STATES
    assert emitted_by == WRITER_OF[event]


def test_every_state_can_be_reached() -> None:
    """From birth, by the table alone."""
    reached = {""}
    while more := {move.target for move in MOVES if move.source in reached} - reached:
        reached |= more
    assert reached - {""} == STATES.keys()


def test_an_end_is_an_end_and_can_be_reached_from_everywhere() -> None:
    """No move leaves an end state; every other state leads to one, in the end."""
    assert [move for move in MOVES if move.source in END_STATES] == []
    ending = set(END_STATES)
    while more := {move.source for move in MOVES if move.target in ending} - ending:
        ending |= more
    assert STATES.keys() - ending == set()


def test_a_move_is_decided_by_state_and_event_alone() -> None:
    """Only birth has two targets for one event (now, or at a start time); NEXT takes the first."""
    double = {(m.source, m.event) for m in MOVES if m.target != NEXT[(m.source, m.event)]}
    assert double == {("", "JobSubmitted")}
    assert NEXT[("", "JobSubmitted")] == "queued"


def test_states_that_hold_resources_are_charged() -> None:
    """Quota counts a job from its offer to its end; a waiting job is free."""
    assert set() == CHARGED_STATES & END_STATES
    assert STATES.keys() - CHARGED_STATES - END_STATES == {"scheduled", "queued", "held"}


def test_an_illegal_move_names_state_and_event() -> None:
    """The story in the error is enough to find the cause."""
    with pytest.raises(KeyError, match=r"'succeeded'.*'JobOffered'"):
        next_state("succeeded", "JobOffered")
