"""The sweep of `python -m bench past --sweep`: a slice of it, and a planted fault that it must see."""

from pathlib import Path

import pytest

from bench.past_sweep import sweep
from fairlead_bus.port import Stored
from fairlead_gateway.views import fold
from tests.gateway.standing import furnished
from tests.replay.worlds import log_of


@pytest.fixture(params=[3, 8])
def recorded(request: pytest.FixtureRequest) -> list[Stored]:
    """A recorded log."""
    return log_of(request.param)


@pytest.fixture
def messages(recorded: list[Stored]) -> list[Stored]:
    """The same, with volumes, datasets and prices at its end."""
    return furnished(recorded, 3)


async def test_a_slice_of_the_sweep(messages: list[Stored], tmp_path: Path) -> None:
    """Every route at some moments: the gateway that folds and the process with keyframes answer as a gateway did then."""
    swept = await sweep(messages, 1, 3, tmp_path)
    assert swept.different == []
    assert swept.asked > 60
    at_end = await sweep(messages, 2, 3, tmp_path, first=len(messages) - 30)
    assert at_end.different == []
    assert at_end.asked > 150, "volumes and datasets are among what was asked"


async def test_the_sweep_sees_a_state_that_lost_its_order(
    recorded: list[Stored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots with sorted keys hold the same state and give other bytes: this was a fault of the gateway's own snapshots."""
    encoder = fold._CODEC
    monkeypatch.setattr(encoder, "_encoder", type(encoder._encoder)(order="deterministic"))
    swept = await sweep(recorded, 1, 6, tmp_path)
    assert any(each.endswith("by the past") for each in swept.different)
    assert not any(each.endswith("by the gateway") for each in swept.different)
