"""Ends of containers and facts of engines: tables of engines' answers."""

from typing import Any

import pytest

from fairlead_agent.core.runs import Exit
from fairlead_agent.runtimes.docker.ends import OVER_MEMORY, EndKnowledge, how
from fairlead_agent.runtimes.docker.fitness import EngineFacts, engine_facts

#: (exit code, OOMKilled, what was heard besides, the end; None: nobody can know it)
ENDS: list[tuple[int, bool, EndKnowledge, Exit | None]] = [
    (0, False, EndKnowledge(), Exit(code=0)),
    (7, False, EndKnowledge(), Exit(code=7)),
    (255, False, EndKnowledge(), Exit(code=255)),
    (139, False, EndKnowledge(), Exit(code=139, message="as a program ends by signal 11 (SIGSEGV)")),
    (137, False, EndKnowledge(), Exit(code=137, message="as a program ends by signal 9 (SIGKILL)")),
    (137, True, EndKnowledge(), Exit(signal=9, message=OVER_MEMORY, over_memory=True)),
    (137, False, EndKnowledge(over_memory=True), Exit(signal=9, message=OVER_MEMORY, over_memory=True)),
    (
        1,
        True,
        EndKnowledge(),
        Exit(code=1, message="a process of it was killed: over its memory limit", over_memory=True),
    ),
    (0, True, EndKnowledge(), Exit(code=0, message="a process of it was killed: over its memory limit")),
    (137, False, EndKnowledge(sent=9), Exit(signal=9)),
    (143, False, EndKnowledge(sent=15), Exit(signal=15)),
    (9, False, EndKnowledge(sent=15), Exit(code=9)),
    (143, False, EndKnowledge(foreign=15), None),
    (0, False, EndKnowledge(foreign=15), None),
    (137, False, EndKnowledge(sent=9, foreign=9), Exit(signal=9)),
    (137, False, EndKnowledge(engine_away=True), None),
    (0, False, EndKnowledge(engine_away=True), None),
    (137, False, EndKnowledge(engine_away=True, engine_spares=True), None),
    (5, False, EndKnowledge(engine_away=True, engine_spares=True), Exit(code=5)),
    (0, False, EndKnowledge(engine_away=True, engine_spares=True), Exit(code=0)),
    (137, True, EndKnowledge(engine_away=True), Exit(signal=9, message=OVER_MEMORY, over_memory=True)),
]


@pytest.mark.parametrize(("code", "oom", "heard", "end"), ENDS)
def test_an_end_is_reported_as_precisely_as_it_is_known(
    code: int, oom: bool, heard: EndKnowledge, end: Exit | None
) -> None:
    """A code if it was the program's own, a signal if its sender is known, otherwise neither, with the reason."""
    told = how({"ExitCode": code, "OOMKilled": oom, "Error": ""}, heard)
    if end is None:
        assert not told.known and str(code) in told.message
    else:
        assert told == end


def test_the_engines_own_message_is_kept() -> None:
    """For example if a program cannot be executed."""
    assert how({"ExitCode": 127, "Error": "exec: no such file"}, EndKnowledge()) == Exit(
        code=127, message="exec: no such file"
    )


#: What Engine 20.10.24 of Debian 12 says, shortened.
INFO: dict[str, Any] = {
    "CgroupVersion": "1",
    "CgroupDriver": "cgroupfs",
    "LiveRestoreEnabled": False,
    "InitBinary": "docker-init",
    "SecurityOptions": ["name=seccomp,profile=default"],
    "DefaultRuntime": "runc",
    "DockerRootDir": "/var/lib/docker",
    "Runtimes": {"runc": {"path": "runc"}, "io.containerd.runc.v2": {"path": "runc"}},
    "ServerVersion": "20.10.24+dfsg1",
}
VERSION: dict[str, Any] = {
    "Version": "20.10.24+dfsg1",
    "ApiVersion": "1.41",
    "Components": [
        {"Name": "Engine", "Version": "20.10.24+dfsg1"},
        {"Name": "containerd", "Version": "1.6.20~ds1"},
        {"Name": "runc", "Version": "1.1.5+ds1"},
        {"Name": "docker-init", "Version": "0.19.0"},
    ],
}


def test_an_engines_facts_are_read() -> None:
    """Versions as numbers alone: a comparison needs no packager's suffix."""
    assert engine_facts(INFO, VERSION) == EngineFacts(
        engine="20.10.24",
        api="1.41",
        containerd="1.6.20",
        runc="1.1.5",
        cgroup=1,
        seccomp=True,
        has_init=True,
        runtimes=("io.containerd.runc.v2", "runc"),
        default_runtime="runc",
        root="/var/lib/docker",
    )
    hardened = {
        **INFO,
        "CgroupVersion": "2",
        "LiveRestoreEnabled": True,
        "SecurityOptions": ["name=seccomp,profile=builtin", "name=cgroupns", "name=userns", "name=rootless"],
    }
    facts = engine_facts(hardened, VERSION, "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b")
    assert (facts.cgroup, facts.live_restore, facts.userns_remap, facts.rootless) == (2, True, True, True)
    assert facts.toolkit == "1.17.8"


def test_missing_facts_of_an_engine_are_not_guessed() -> None:
    """Old engines, and others."""
    assert engine_facts({}, {}) == EngineFacts()
