"""Undo log: what a block of speculation has changed is restored, however the block is left."""

import pytest

from fairlead_bus.undo_log import UndoLog


class Thing:
    """Two fields of some state."""

    def __init__(self) -> None:
        self.a = self.b = 0


def test_nested_blocks_are_rolled_back_one_by_one() -> None:
    """The inner block's end restores its own changes only."""
    log, thing = UndoLog(), Thing()
    with log.speculating():
        log.set(thing, "a", 1)
        with log.speculating():
            log.set(thing, "a", 2)
            log.set(thing, "b", 2)
        assert (thing.a, thing.b) == (1, 0)
        log.set(thing, "b", 3)
    assert (thing.a, thing.b, log.journal) == (0, 0, None)


def test_a_block_whose_end_was_skipped_is_rolled_back_by_the_one_around_it() -> None:
    """An exception may strike after the last statement of a block and before its end: that end never runs."""
    log, thing = UndoLog(), Thing()

    def interrupted() -> None:
        with log.speculating():
            log.set(thing, "a", 1)
            log.speculating().__enter__()
            log.set(thing, "a", 2)
            log.set(thing, "b", 2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (thing.a, thing.b, log.journal) == (0, 0, None)


def test_an_outermost_block_whose_end_was_skipped_is_rolled_back_by_abort() -> None:
    """As the core does after an exception."""
    log, thing = UndoLog(), Thing()
    log.speculating().__enter__()
    log.set(thing, "a", 1)
    log.abort()
    assert (thing.a, log.journal) == (0, None)
