"""`status`, `upgrade plan` and `upgrade raise`, against a stub gateway."""

from typing import Any

import msgspec

from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub


def process(service: str, name: str, role: str, level: int = 2) -> dict[str, Any]:
    """A process as the gateway lists it."""
    version = "0.9" if level == 1 else "1.0"
    return {"service": service, "name": name, "role": role, "version": version, "level": level, "heard_s": 1.2}


OLD = "placer node-7 (version 0.9) knows levels up to 1"
STATUS: dict[str, Any] = {
    "sequence": 40,
    "level": 1,
    "raisable": 2,
    "hindrances": [],
    "processes": [process("queue", "q-1", "leads"), process("queue", "q-0", "stands_by")],
    "servers": [
        {"name": "bus-1", "state": "current", "leads": ["LOG"], "lag": 0},
        {"name": "bus-2", "state": "offline", "leads": [], "lag": 7},
    ],
    "streams": [
        {"name": "LOG", "copies": 3, "current": 2, "leader": "bus-1"},
        {"name": "CMD", "copies": 0, "current": 0, "leader": ""},
    ],
}


def test_the_status_names_leaders_servers_copies_and_what_to_type(gateway: GatewayStub, run: Run) -> None:
    """Three tables and a line about the level; as JSON the whole document; names of processes for scripts."""
    gateway.on("GET", "/v1/status", STATUS)
    lines = [line.split() for line in run("status").out.splitlines()]
    assert ["queue", "q-1", "leads", "1.0", "2", "1s"] in lines and [
        "queue",
        "q-0",
        "stands",
        "by",
        "1.0",
        "2",
        "1s",
    ] in lines
    assert ["bus-2", "offline", "7", "-"] in lines and ["LOG", "2/3", "bus-1"] in lines
    assert ["CMD", "no", "answer", "-"] in lines
    assert " ".join(lines[-1]) == "level 1; every process knows 2: `fairlead upgrade raise 2`"
    assert msgspec.json.decode(run("status", "-o", "json").out) == STATUS
    assert run("status", "-o", "name").out.splitlines() == ["process/queue/q-1", "process/queue/q-0"]


def test_a_plan_names_what_is_left_and_fails_meanwhile(gateway: GatewayStub, run: Run) -> None:
    """Exit code 1 while a process is of an older version, 0 when nothing is left."""
    gateway.on("GET", "/v1/status", {**STATUS, "raisable": 1, "hindrances": [OLD]})
    done = run("upgrade", "plan")
    assert done.code == 1 and f"left      {OLD}" in done.out
    gateway.on("GET", "/v1/status", STATUS)
    done = run("upgrade", "plan")
    assert done.code == 0 and "`fairlead upgrade raise 2`" in done.out
    gateway.on("GET", "/v1/status", {**STATUS, "level": 2})
    assert "2, the highest that these versions know" in run("upgrade", "plan").out


def test_a_raise_is_sent_and_its_refusal_shown(gateway: GatewayStub, run: Run) -> None:
    """The refusal has the names of the older processes; a level that is none is not sent."""
    problem = {
        "type": "urn:fairlead:problem:older_process",
        "title": "Conflict",
        "status": 409,
        "detail": OLD,
        "hint": "x",
    }
    gateway.on("POST", "/v1/status:raise", problem, 409)
    refused = run("upgrade", "raise", "2")
    assert refused.code != 0 and OLD in refused.err
    gateway.on("POST", "/v1/status:raise", {**STATUS, "level": 2})
    assert "the log has level 2" in run("upgrade", "raise", "2").out
    assert run("upgrade", "raise", "0").code == 2
