"""An explainer under test is not hurried: its time for an answer is for people, and a busy machine would exceed it."""

import pytest

from fairlead_replay.explainer import service
from tests.replay.explainer.asking import WAIT_S


@pytest.fixture(autouse=True)
def patient_explainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every question take as long as the tests wait; a test about this bound sets its own."""
    monkeypatch.setattr(service, "ANSWER_S", WAIT_S)
