"""`doctor` on machines where something is wrong: a finding each time, never a traceback."""

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import fairlead_queue.apply.handlers
from fairlead.commands import doctor
from fairlead.stack import state
from fairlead_schemas.wire.conditions import Condition, Readiness
from tests.cli.conftest import Run


def findings(run: Run, data: Path, *words: str) -> dict[str, dict[str, str]]:
    return {
        one["what"]: one for one in msgspec.json.decode(run("doctor", "--data", str(data), "-o", "json", *words).out)
    }


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that stand before all others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("readiness", "verdict", "word"),
    [
        (Readiness(ready=True), "note", "ready"),
        (Readiness(ready=False), "bad", "not ready"),
        (None, "bad", "does not answer"),
    ],
)
def test_a_part_that_does_not_run_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, readiness: Readiness | None, verdict: str, word: str
) -> None:
    """The gateway may be ready without it: what is missing is what does not work."""
    running_stack(tmp_path)
    monkeypatch.setattr("fairlead.client.Client.readiness", lambda _: readiness)
    every = findings(run, tmp_path)
    found = every["stack"]
    assert ("cluster" in every) == (readiness is not None), "a silent gateway does not mean that no condition holds"
    assert found["verdict"] == verdict
    assert found["found"] == f"http://127.0.0.1:1 {word}; not running: explainer"
    assert found["fix"] == f"see {tmp_path / 'logs'}"


def running_stack(data: Path) -> None:
    """A stack whose supervisor and queue live, and whose explainer does not."""
    here = state.identify("supervisor", os.getpid())
    processes = [msgspec.structs.replace(here, name="queue"), state.Running(name="explainer", pid=1, started="never")]
    state.save(
        data,
        state.StackState(
            url="http://127.0.0.1:1",
            nats_url="",
            supervisor=here,
            processes=processes,
            ready=True,
            runtime="process",
            nodes=[],
        ),
    )


def test_each_condition_of_the_gateway_is_a_finding(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line each with the message and the commands, `fairlead doctor` itself left out; bad where it blocks jobs, a note
    otherwise."""
    running_stack(tmp_path)
    held = [
        Condition(code="queue_silent", message="queue has not answered for 31 s"),
        Condition(code="explainer_silent", message="explainer has not answered for 31 s"),
    ]
    monkeypatch.setattr("fairlead.client.Client.readiness", lambda _: Readiness(ready=False, conditions=held))
    found = findings(run, tmp_path)
    assert found["queue_silent"] == {
        "what": "queue_silent",
        "verdict": "bad",
        "found": "queue has not answered for 31 s",
        "fix": held[0].hint(str(tmp_path), asked="fairlead doctor"),
    }
    assert found["queue_silent"]["fix"].startswith("`journalctl") and "doctor" not in found["queue_silent"]["fix"]
    assert found["explainer_silent"]["verdict"] == "note"
    assert "cluster" not in found


@pytest.fixture
def greeting(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that says this to the first who comes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.sendall(request.param)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"nats://secret@127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_port_that_is_none_is_a_usage_error(run: Run) -> None:
    """Exit code 2 with the range."""
    ran = run("doctor", "--port", "99999")
    assert (ran.code, "65535" in ran.err, "Traceback" in ran.err) == (2, True, False)


def test_a_driver_that_fails_without_a_message_is_a_note(run: Run, programs: Path) -> None:
    """The note has its exit code."""
    program(programs, "nvidia-smi", "exit 9")
    found = findings(run, programs)["nvidia driver"]
    assert (found["verdict"], found["found"]) == ("note", "nvidia-smi printed nothing (exit code 9)")


def test_a_clock_without_an_answer_is_a_note(run: Run, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timedatectl that hangs is given up."""
    monkeypatch.setattr(doctor, "CLOCK_S", 0.1)
    program(programs, "timedatectl", "exec sleep 60")
    found = findings(run, programs)["clock"]
    assert found["verdict"] == "note"
    assert found["found"].startswith("timedatectl does not answer")


def test_an_unavailable_external_server_is_bad(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NATS_URL names a server that does not run: nothing works until it does, and the fix has both remedies."""
    monkeypatch.setenv("NATS_URL", "nats://secret@127.0.0.1:1")
    found = findings(run, tmp_path)["nats-server"]
    assert found["verdict"] == "bad"
    assert "127.0.0.1:1, and it cannot be reached" in found["found"]
    assert "secret" not in found["found"]
    assert "unset NATS_URL" in found["fix"]


@pytest.mark.parametrize(
    ("greeting", "verdict", "told"),
    [
        (b'INFO {"jetstream":true}\r\n', "ok", "using 127.0.0.1"),
        (b'INFO {"headers":true}\r\n', "bad", "JetStream is off"),
        (b"SSH-2.0-x\r\n", "bad", "no nats-server"),
    ],
    indirect=["greeting"],
)
def test_an_external_server_is_known_by_its_greeting(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, greeting: str, verdict: str, told: str
) -> None:
    """Something that listens is not yet a server that the log can live on."""
    monkeypatch.setenv("NATS_URL", greeting)
    found = findings(run, tmp_path)["nats-server"]
    assert (found["verdict"], told in found["found"]) == (verdict, True)


def test_the_build_of_the_cores_is_named(run: Run, tmp_path: Path) -> None:
    """As the modules that this process has imported were loaded: from a source or from an extension module."""
    source = Path(str(fairlead_queue.apply.handlers.__file__)).suffix == ".py"
    assert findings(run, tmp_path)["cores"]["found"] == ("plain Python" if source else "compiled")


def test_a_store_that_its_server_would_delete_is_bad(run: Run, tmp_path: Path) -> None:
    """The installation's bus: a `cluster` block above a single server's store. Without the block the store is fine."""
    store, config = tmp_path / "store", tmp_path / "etc" / "fairlead" / "nats.conf"
    (store / "jetstream" / "$G" / "streams" / "LOG").mkdir(parents=True)
    config.parent.mkdir(parents=True)
    alone = f'jetstream {{\n  # store_dir: "/elsewhere"\n  store_dir: "{store}"\n}}\n'
    config.write_text(alone)
    look = ("--root", str(tmp_path))
    assert findings(run, tmp_path, *look)["store"]["verdict"] == "ok"
    config.write_text(alone + "cluster { name: c }\n")
    found = findings(run, tmp_path, *look)["store"]
    assert found["verdict"] == "bad"
    assert "(LOG)" in found["found"] and "fairlead audit restore" in found["fix"]
