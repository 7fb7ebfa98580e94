"""`fairlead replay --keyframes`: keyframes of an exported log, and what it is refused for."""

from pathlib import Path

import pytest

from fairlead.main import main
from fairlead_bus.port import Stored
from fairlead_replay.export import write_export
from fairlead_replay.past import keyframe_writer
from fairlead_replay.past.keyframes import KeyframeStore
from fairlead_schemas.wire.commit import commit_hash
from tests.gateway.standing import fold
from tests.replay.worlds import log_of


@pytest.fixture
def messages() -> list[Stored]:
    """A recorded log."""
    return log_of(3)


def test_keyframes_of_an_export(
    messages: list[Stored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are those that the process would make, and it takes them up."""
    monkeypatch.setattr(keyframe_writer, "WEIGHT_MAX", 250)
    write_export(tmp_path / "export", messages, created="test")
    assert main(["replay", "--data", str(tmp_path / "export"), "--keyframes", str(tmp_path / "kept")]) == 0
    store = KeyframeStore(tmp_path / "kept", commit_hash(messages[0].payload))
    store.open()
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'kept'}: {len(store.places)} keyframes of ")
    newest = store.nearest(len(messages))
    assert newest is not None
    assert newest.views.snapshot() == fold(messages[: newest.sequence]).snapshot()


def test_keyframes_stand_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fold to a moment makes none."""
    assert main(["replay", "--keyframes", str(tmp_path), "--to", "40"]) == 2
    assert "expected --keyframes alone" in capsys.readouterr().err
