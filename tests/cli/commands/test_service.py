"""`service`: what is sent and printed, against a stub gateway."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub, page

REPLICA = {"job": "812", "revision": 2, "state": "serving", "node": "n1", "retired": ""}
SERVICE: dict[str, Any] = {
    "name": "chat",
    "queue": "research",
    "user": "ann",
    "project": "",
    "revision": 2,
    "replicas_min": 0,
    "replicas_max": 4,
    "wanted": 1,
    "serving": 1,
    "requests": 8,
    "label": "svc-chat-abcdefgh",
    "url": "",
    "address": "http://127.0.0.1:8443",
    "created_at": "2026-01-01T00:00:00.000Z",
    "applied_at": "2026-01-01T00:00:00.000Z",
    "stopping": False,
    "blocked": "",
    "replicas": [REPLICA],
    "may": ["job:read"],
    "sequence": 40,
}
KEY: dict[str, Any] = {
    "key": "4f1c8a20bd",
    "name": "shop",
    "per_minute": 600,
    "in_flight": 0,
    "created_at": "2026-01-01T00:00:00.000Z",
    "created_by": "ann",
    "expires_at": None,
    "sequence": 40,
}


def test_services_are_listed_with_how_many_serve(gateway: GatewayStub, run: Run) -> None:
    """And the range in which their number follows the requests."""
    gateway.on("GET", "/v1/services", page(SERVICE))
    row = run("service", "list").out.splitlines()[1].split()
    assert row == ["chat", "1/1", "0-4,", "8", "requests", "each", "research", "ann", "ready"]


def test_a_service_is_shown_with_its_address_and_replicas(gateway: GatewayStub, run: Run) -> None:
    """A replica that leaves says why; without an app proxy the page says what to do."""
    leaving = {**REPLICA, "job": "811", "revision": 1, "state": "leaving", "retired": "revision"}
    gateway.on("GET", "/v1/services/chat", {**SERVICE, "replicas": [leaving, REPLICA]})
    shown = run("service", "show", "chat").out
    assert "chat (changing): 1 of 1 replicas serve, revision 2" in shown
    assert "address http://127.0.0.1:8443, by a key: fairlead service keys chat" in shown
    assert "job 811: leaving on n1, revision 1, revision" in shown
    gateway.on("GET", "/v1/services/chat", {**SERVICE, "address": "", "blocked": "queue research is drained"})
    shown = run("service", "show", "chat").out
    assert "(blocked)" in shown and "no replica can be submitted: queue research is drained" in shown
    assert "docs/how-to/reach-a-job.md" in shown


def test_a_job_file_is_applied_as_it_is(gateway: GatewayStub, run: Run, tmp_path: Path) -> None:
    """One service in a file; with --wait until as many serve as are wanted, and an error where none can be submitted."""
    file = tmp_path / "chat.yaml"
    file.write_text("kind: service\nname: chat\ncommand: [serve]\napp: {port: 8000}\nservice: {replicas: 2}\n")
    gateway.on("POST", "/v1/services", {**SERVICE, "serving": 0, "replicas": []})
    gateway.on("GET", "/v1/services/chat", SERVICE)
    assert run("service", "apply", str(file), "--wait").out == "chat: revision 2, 1 of 1 serve\n"
    assert gateway.bodies()[0]["service"] == {"replicas": 2}
    gateway.on("POST", "/v1/services", {**SERVICE, "replicas": [], "blocked": "the budget is spent"})
    ran = run("service", "apply", str(file), "--wait")
    assert ran.code != 0 and "the budget is spent" in ran.err
    file.write_text(file.read_text() + "---\n" + file.read_text())
    assert "expected one service, found 2 jobs" in run("service", "apply", str(file)).err


def test_a_key_is_printed_alone_and_its_bounds_are_sent(gateway: GatewayStub, run: Run) -> None:
    """So that a script can take it; what is said about it goes to the other stream."""
    gateway.on("POST", "/v1/services/chat/keys", {**KEY, "token": "fla_x"})
    ran = run("service", "keys", "chat", "--new", "shop", "--per-minute", "600", "--expires", "30d")
    assert ran.out == "fla_x\n" and "shown once" in ran.err
    assert gateway.bodies() == [{"name": "shop", "per_minute": 600, "expires": "30d"}]
    gateway.on("GET", "/v1/services/chat/keys", page(KEY))
    assert run("service", "keys", "chat").out.splitlines()[1].split() == ["4f1c8a20bd", "shop", "600", "-", "-"]
    gateway.on("DELETE", "/v1/services/chat/keys/4f1c8a20bd", {"name": "4f1c8a20bd", "sequence": 41})
    assert run("service", "keys", "chat", "--revoke", "4f1c8a20bd").out == "4f1c8a20bd: revoked\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("keys", "chat", "--per-minute", "5"), "a key never changes"),
        (("keys", "chat", "--new", "a", "--revoke", "b"), "expected --new or --revoke"),
    ],
)
def test_what_makes_no_sense_sends_nothing(gateway: GatewayStub, run: Run, words: tuple[str, ...], said: str) -> None:
    """The refusal says what is expected."""
    ran = run("service", *words)
    assert ran.code != 0 and said in ran.err + ran.out and gateway.bodies() == []
