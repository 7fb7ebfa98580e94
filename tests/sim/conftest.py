"""Keeps services that a simulation crashes and restarts from logging it: the events are the record."""

from collections.abc import Iterator

import pytest
import structlog

from fairlead_replay.sim.seeds import quiet


@pytest.fixture(autouse=True)
def quiet_services() -> Iterator[None]:
    """No log lines while a test simulates."""
    before = structlog.get_config()
    quiet()
    yield
    structlog.configure(**before)
