"""Conditions of a local stack: services that end upon damage are not restarted in vain, and the reason is kept."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fairlead.stack import processes, state
from fairlead.stack.processes import Spec, Supervisor
from fairlead_schemas.wire.conditions import EXIT_COMMANDS_LOST, EXIT_DAMAGED, EXIT_UNFIT, Condition
from tests.cli.conftest import Run
from tests.kit.eventually import eventually

DAMAGED = Condition(code="log_damaged", message="log sequence 2114: log went backwards: a snapshot is at 2178")


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    kept = Supervisor(tmp_path)
    yield kept
    kept.stop(1.0)


def ends_with(code: int) -> Spec:
    """A process that ends at once, with this code."""
    return Spec(f"ends-{code}", [sys.executable, "-c", f"print('up'); raise SystemExit({code})"], dict(os.environ), 0)


def test_a_service_with_a_damaged_log_is_not_started_again(
    supervisor: Supervisor, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It would find the same; one that ended for another reason comes back, also where commands are lost."""
    for code in (EXIT_DAMAGED, EXIT_COMMANDS_LOST, 1):
        supervisor.add(ends_with(code))
    supervisor.watch()
    eventually(lambda: min(supervisor.crashed().get(f"ends-{code}", 0) for code in (EXIT_COMMANDS_LOST, 1)) >= 2)
    assert (tmp_path / f"ends-{EXIT_DAMAGED}.log").read_text() == "up\n"
    assert supervisor.damaged() == [f"ends-{EXIT_DAMAGED}", f"ends-{EXIT_COMMANDS_LOST}"]
    assert capfd.readouterr().err.count("is not started again: fairlead doctor") == 1


def test_the_newest_condition_of_a_log_is_read(tmp_path: Path) -> None:
    """Other lines are passed over, an older condition too; the same reason of two services is one condition."""
    older = {"event": "stopped", "condition": "log_damaged", "reason": "older"}
    newest = {"event": "log damaged, stopped", "condition": DAMAGED.code, "reason": DAMAGED.message, "service": "queue"}
    for name in ("queue", "placer"):
        lines = [b"not json", msgspec.json.encode(older), msgspec.json.encode(newest), b'{"event": "goodbye"}', b"\xff"]
        (tmp_path / f"{name}.log").write_bytes(b"\n".join(lines))
    assert state.logged(tmp_path, ["queue", "placer", "absent"]) == [DAMAGED]


def test_doctor_names_what_the_last_up_found(run: Run, tmp_path: Path) -> None:
    """After the stack has gone down the reason and the commands to type are still there; without one nothing is known."""
    state.save_conditions(tmp_path, [DAMAGED])
    ran = run("doctor", "--data", str(tmp_path), "-o", "json")
    found = {one["what"]: one for one in msgspec.json.decode(ran.out)}["log_damaged"]
    assert ran.code == 1
    assert (found["verdict"], found["found"]) == ("bad", DAMAGED.message)
    assert f"`fairlead audit verify --data {tmp_path}`" in found["fix"]
    assert "`fairlead audit restore" in found["fix"]
    state.save_conditions(tmp_path, [])
    found = {one["what"]: one for one in msgspec.json.decode(run("doctor", "--data", str(tmp_path), "-o", "json").out)}
    assert (found["cluster"]["verdict"], found["cluster"]["found"]) == (
        "note",
        "conditions are not known: no stack runs here",
    )


def test_a_file_that_cannot_be_read_holds_no_condition(tmp_path: Path) -> None:
    """It is only a note for people; the services judge by themselves."""
    (tmp_path / state.CONDITIONS_FILE).write_bytes(b"[{")
    assert state.load_conditions(tmp_path) == []


def test_an_agent_that_refuses_its_node_is_named_until_it_is_well(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is started again, because a person may mend the node meanwhile; once it stays up it is no longer named."""
    monkeypatch.setattr(processes, "HEALTHY_S", 0.3)
    mended = tmp_path / "mended"
    code = f"import os, sys, time; time.sleep(600) if os.path.exists({str(mended)!r}) else sys.exit({EXIT_UNFIT})"
    supervisor.add(Spec("agent-sim-1", [sys.executable, "-c", code], dict(os.environ), 0))
    supervisor.watch()
    eventually(lambda: supervisor.crashed().get("agent-sim-1", 0) >= 2)
    assert (supervisor.unfit(), supervisor.damaged()) == (["agent-sim-1"], [])
    mended.touch()
    eventually(lambda: supervisor.unfit() == [])


def test_a_secret_is_not_written_through_a_link(tmp_path: Path) -> None:
    """Who can put a file in the place of the draft, such as in a folder of several people, neither gets it nor destroys another one."""
    other, path = tmp_path / "other", tmp_path / "secret"
    other.write_text("kept")
    (tmp_path / f".secret.{os.getpid()}").symlink_to(other)
    state.write_private(path, b"flp_x")
    assert other.read_text() == "kept" and path.read_bytes() == b"flp_x"
    assert not path.is_symlink() and path.stat().st_mode & 0o777 == 0o600
