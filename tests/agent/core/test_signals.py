"""Signals of people, in the agent's core: each number is sent at most once, after it is journalled."""

from typing import Any

import msgspec

from fairlead_agent.core.ledger import Ledger, Signalled
from fairlead_agent.core.runs import Exit, Found
from fairlead_agent.core.steps import SignalRun, TerminateRun
from fairlead_schemas.wire.desired import RunOrder
from tests.agent.placer_script import order
from tests.kit.agent_core import KEY, CoreNode

ONE, TWO = (1, "SIGUSR1"), (2, "SIGHUP")


def sent(*signals: tuple[int, str], **more: Any) -> RunOrder:
    """Return the order of job 7 with these signals."""
    return order("7", "train", signals=signals, **more)


def running() -> CoreNode:
    """Job 7 runs."""
    node = CoreNode()
    node.desire(5, sent())
    node.do(node.core.started(KEY, 0, 1))
    return node


def test_a_signal_is_journalled_and_sent_once() -> None:
    """However often the placer writes it again; the next one alone is new."""
    node = running()
    step = node.desire(6, sent(ONE))
    assert step.instructions == [SignalRun(KEY, "SIGUSR1")]
    assert Signalled(job="7", attempt=1, rank=0, number=1) in step.records
    assert node.desire(7, sent(ONE)).instructions == []
    assert node.desire(8, sent(ONE, TWO)).instructions == [SignalRun(KEY, "SIGHUP")]


def test_a_restarted_agent_sends_what_came_meanwhile_and_nothing_twice() -> None:
    """From its journal, also a compacted one. A crash between journal and program loses the signal: never two."""
    node = running()
    node.desire(6, sent(ONE))
    for compacted in (False, True):
        if compacted:
            node.lines = list(node.core.ledger.records())
        node.boot("boot-1", {KEY: Found("running")})
        assert node.desire(6, sent(ONE)).instructions == []
    assert node.desire(7, sent(ONE, TWO)).instructions == [SignalRun(KEY, "SIGHUP")]
    ledger = Ledger()
    for record in node.core.ledger.records():
        ledger.apply(record)
    assert ledger.runs[KEY].signalled == 2


def test_a_signal_waits_for_the_start_of_its_rank() -> None:
    """Another rank of the gang ran already when it was sent."""
    node = CoreNode()
    assert not any(isinstance(each, SignalRun) for each in node.desire(5, sent(ONE)).instructions)
    assert node.do(node.core.started(KEY, 0, 1)).instructions == [SignalRun(KEY, "SIGUSR1")]


def test_a_run_that_ends_or_has_ended_gets_none() -> None:
    """Not while it is being stopped, and not afterwards."""
    node = running()
    assert node.desire(6, sent(stop="cancelled")).instructions == [TerminateRun(KEY)]
    assert node.desire(7, msgspec.structs.replace(sent(ONE), stop="cancelled")).instructions == []
    node.do(node.core.exited(KEY, Exit(signal=15), True, 2))
    assert node.desire(8, sent(ONE)).instructions == []
