"""The adapters of the runtime that the contract suites go over."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.runtimes.runtime_world import RuntimeWorld


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RuntimeWorld]:
    """One world per adapter that the machine can run."""
    world = RuntimeWorld(tmp_path, request.param)
    yield world
    await world.close()
