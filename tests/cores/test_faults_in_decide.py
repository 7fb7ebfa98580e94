"""An exception in mid-decision leaves nothing behind: the same core, asked again, decides as if it had not happened.

`FAULTS=all` interrupts every decision at each of its calls instead of a few that are drawn: minutes for each core.
"""

import os
from typing import Any

import pytest

from fairlead_access.core import AccessCore
from fairlead_placer.core import PlacerCore
from fairlead_queue.core import QueueCore
from fairlead_replay.sim import accounts, idleness
from fairlead_replay.sim.people import QueueClosers, Restless
from fairlead_replay.sim.seeds import quiet
from fairlead_replay.sim.world import WORK_S
from fairlead_telemetry.idle.core import IdleCore
from tests.cores.injection import Injector, Replay, record

#: Decisions that each core makes again.
DECISIONS = 1000
ALL_CALLS = os.environ.get("FAULTS") == "all"


@pytest.fixture(autouse=True)
def quiet_services() -> None:
    """No log lines while a world is simulated."""
    quiet()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "core", "people"),
    [
        ("queue", QueueCore, Restless),
        ("queue", QueueCore, QueueClosers),
        ("placer", PlacerCore, Restless),
        ("telemetry", IdleCore, Restless),
        ("access", AccessCore, Restless),
    ],
)
def test_a_fault_at_any_call_leaves_no_trace(name: str, core: type[Any], people: type[Restless]) -> None:
    """The snapshot is equal after each fault, and the next decision of the core is that of a core without faults, byte
    for byte: so no memo, cache or derived index is left half updated either."""
    injector = Injector()
    replay, seed = Replay(core, injector, 1, all_calls=ALL_CALLS), 0
    while replay.decisions < DECISIONS:
        seed += 1
        if name == "telemetry" and idleness.plan(seed, WORK_S) is None:
            continue  # a world without idle policies
        if name == "access" and accounts.plan(seed, WORK_S) is None:
            continue  # a world without accounts
        for recording in record(name, core, injector, seed, people=people):
            with injector:
                try:
                    replay.run(recording, DECISIONS)
                except AssertionError as error:
                    raise AssertionError(f"{name}, seed {seed}: {error}") from error
    assert replay.faults >= DECISIONS // 2
