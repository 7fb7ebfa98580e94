"""The command line run in this process against a stub gateway."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from fairlead.client import sign_in
from fairlead.client.sync_link import GatewayLink
from fairlead.client.synchronous import transport
from fairlead.main import main
from tests.cli.gateway_stub import GatewayStub


class Ran(NamedTuple):
    """What one command line did."""

    code: int
    out: str
    err: str


type Run = Callable[..., Ran]


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> GatewayStub:
    """A stub in the place of the network."""
    stub = GatewayStub()
    stub.on("GET", "/v1/breaker", {"tripped": [], "sequence": 40})
    monkeypatch.setattr(transport, "GatewayLink", lambda urls, _: GatewayLink(urls, httpx.MockTransport(stub)))
    monkeypatch.setattr(sign_in, "PlainLink", lambda: GatewayLink([], httpx.MockTransport(stub)))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setenv("FAIRLEAD_URL", "http://gateway.test")
    monkeypatch.setenv("FAIRLEAD_USER", "ada")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("FAIRLEAD_TOKEN", "FAIRLEAD_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    return stub


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run one command line; gives its exit code and what it printed."""

    def run(*words: str) -> Ran:
        capfd.readouterr()
        code = main(list(words))
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return run
