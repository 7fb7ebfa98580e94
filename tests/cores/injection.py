"""Faults in mid-decision: recorded decisions of a core, made again with an exception at each call inside `decide`.

`record` runs simulated worlds and keeps what their cores folded and decided. `Replay` makes every decision again on one
core, which is interrupted at chosen calls before it is let through: a fault that leaves anything behind, a memo too,
shows in the snapshot or in one of the decisions that follow.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import msgspec

import fairlead_bus.undo_log
from fairlead_bus.core import NOTHING, Decision, Input
from fairlead_bus.undo_log import UndoLog
from fairlead_placer.cluster.state import ClusterState
from fairlead_placer.core import PlacerCore
from fairlead_replay.sim.world import Parts, run_seed
from fairlead_schemas.wire.commit import Commit

TOOL = sys.monitoring.DEBUGGER_ID
#: Faults that are tried at one decision, unless all are.
SAMPLES = 1
#: A decision of so few calls is interrupted at each of them.
FEW_CALLS = 6


class Injected(Exception):
    """The fault."""


def _shields() -> set[CodeType]:
    """Return the functions in which nothing is injected, nor in what they call. A compiled one is no Python code and is left out."""
    functions = (UndoLog.rollback, UndoLog.abort, ClusterState.abort, PlacerCore.rollback, PlacerCore._recover)
    return {each.__code__ for each in functions if isinstance(each, FunctionType)}


class Injector:
    """Raises at the n-th call made by our code while it is armed: of a function of ours or of a library, and at each
    resumption of a generator. To be entered first."""

    def __init__(self) -> None:
        self._on = False
        self._left = 0
        self._fault: type[BaseException] = Injected
        self._shielded = 0
        self._shields = _shields()
        self.calls = 0

    def __enter__(self) -> "Injector":
        monitoring, events = sys.monitoring, sys.monitoring.events
        monitoring.use_tool_id(TOOL, "faults")
        for event in (events.CALL, events.PY_START, events.PY_RESUME):
            monitoring.register_callback(TOOL, event, self._called)
        for event in (events.PY_RETURN, events.PY_UNWIND):
            monitoring.register_callback(TOOL, event, self._returned)
        monitoring.set_events(
            TOOL, events.CALL | events.PY_START | events.PY_RESUME | events.PY_RETURN | events.PY_UNWIND
        )
        return self

    def __exit__(self, *_raised: object) -> None:
        sys.monitoring.set_events(TOOL, 0)
        sys.monitoring.free_tool_id(TOOL)

    @contextmanager
    def armed(self, at: int, fault: type[BaseException] = Injected) -> Iterator[None]:
        """Raise at call number `at` of the block, counted from 1; 0 counts calls only."""
        self._left, self._fault, self.calls, self._shielded = at, fault, 0, 0
        self._on = True
        try:
            yield
        finally:
            self._on = False

    def _called(self, code: CodeType, _offset: int, *call: Any) -> Any:
        if "/fairlead_" not in code.co_filename:
            return sys.monitoring.DISABLE
        if not self._on:
            return None
        if not call and code in self._shields:
            self._shielded += 1
        # A fault in the rollback itself ends the process: see UndoFailed.
        if self._shielded or code.co_filename == fairlead_bus.undo_log.__file__:
            return None
        self.calls += 1
        if self.calls == self._left:
            raise self._fault(f"at call {self.calls}, in {code.co_qualname}")
        return None

    def _returned(self, code: CodeType, _offset: int, _value: object) -> None:
        if code in self._shields:
            self._shielded -= 1


class Decided(NamedTuple):
    """One decision of a recorded core."""

    inputs: list[Input]
    now_ns: int
    #: Calls that it took.
    calls: int


type Step = Commit | Decided


def encoded(decision: Decision) -> bytes:
    """A decision as bytes."""
    return msgspec.json.encode(decision, order="deterministic")


class Recording:
    """The commits and decisions of one core, in order."""

    def __init__(self) -> None:
        #: The snapshot that the core began with, if any.
        self.start = b""
        self.steps: list[tuple[int, Step]] = []


def recorded(core: type[Any], into: list[Recording], injector: Injector) -> type[Any]:
    """A core type whose instances record what they fold and decide."""

    class Recorded(core):
        def __init__(self) -> None:
            super().__init__()
            self.recording, self.folded = Recording(), 0
            into.append(self.recording)

        def evolve(self, seq: int, commit: Commit) -> None:
            self.recording.steps.append((seq, commit))
            self.folded = seq
            super().evolve(seq, commit)

        def decide(self, inputs: Sequence[Input], now_ns: int) -> Decision:
            with injector.armed(0):
                decision = super().decide(inputs, now_ns)
            self.recording.steps.append((self.folded, Decided(list(inputs), now_ns, injector.calls)))
            return decision

        @classmethod
        def restore(cls, data: bytes) -> Any:
            found = super().restore(data)
            found.recording.start = data
            return found

    return Recorded


def record(name: str, core: type[Any], injector: Injector, seed: int, **parts: Any) -> list[Recording]:
    """The recordings of all cores of a kind ("queue", "placer", "telemetry", "access") in the world of a seed."""
    into: list[Recording] = []
    with injector:
        outcome = run_seed(seed, parts=Parts(**{name: recorded(core, into, injector)}, **parts))
    assert outcome.violation is None, outcome
    return [recording for recording in into if recording.steps]


def folded(core: Any) -> object:
    """Return the core's state as folded from the log; the placer may have a pending decision on it."""
    return core.rollback() if isinstance(core, PlacerCore) else core.state


class Replay:
    """Decisions made again, each interrupted first, next to a twin that is not; with counts of them and of the faults.

    A core that has another state object after a fault continues as one that was restored from a snapshot; so does its twin
    then, for what is remembered of earlier searches is no part of the state.
    """

    def __init__(self, core_type: type[Any], injector: Injector, seed: int, *, all_calls: bool = False) -> None:
        self._core_type, self._injector, self._all_calls = core_type, injector, all_calls
        self._rng = Random(seed)
        self.decisions = self.faults = 0

    def run(self, recording: Recording, decisions_max: int) -> None:
        """Go through a recording, up to so many decisions in all. Raises AssertionError where a fault leaves a trace."""
        core = self._core_type.restore(recording.start) if recording.start else self._core_type()
        twin = self._core_type.restore(recording.start) if recording.start else self._core_type()
        own = others = NOTHING
        for seq, step in recording.steps:
            if isinstance(step, Commit):
                core.evolve(seq, _as_own(step, own))
                twin.evolve(seq, _as_own(step, others))
                own = others = NOTHING
                continue
            if self.decisions >= decisions_max:
                return
            self.decisions += 1
            before, state = core.snapshot(), folded(core)
            own = self._interrupted(core, step, before, seq)
            if folded(core) is not state:
                twin = self._core_type.restore(before)
            others = twin.decide(step.inputs, step.now_ns)
            assert encoded(own) == encoded(others), (
                f"after sequence {seq}: found {encoded(own).decode()}, expected {encoded(others).decode()}"
            )
            assert core.wake_at() == twin.wake_at(), f"after sequence {seq}: another time to wake after faults"

    def _interrupted(self, core: Any, step: Decided, before: bytes, seq: int) -> Decision:
        """The decision of a core that was interrupted at some of its calls before."""
        for at in self._places(step.calls):
            fault = self._rng.choice((Injected, Injected, KeyboardInterrupt))
            where = ""
            try:
                with self._injector.armed(at, fault):
                    return core.decide(step.inputs, step.now_ns)  # of fewer calls than when it was recorded
            except fault as error:
                where = str(error)
            self.faults += 1
            assert core.snapshot() == before, f"after sequence {seq}: the state was changed by a fault {where}"
        return core.decide(step.inputs, step.now_ns)

    def _places(self, calls: int) -> Sequence[int]:
        """The calls at which a decision is interrupted."""
        if self._all_calls or calls <= FEW_CALLS:
            return range(1, calls + 1)
        return [self._rng.randint(1, calls) for _ in range(SAMPLES)]


def _as_own(commit: Commit, own: Decision) -> Commit:
    """A commit with the very events that the core has decided: it knows them by identity."""
    same = encoded(Decision(own.events, {})) == encoded(Decision(commit.events, {}))
    return msgspec.structs.replace(commit, events=own.events) if same else commit
