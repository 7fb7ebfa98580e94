"""The demo's scene with two people finds a gateway that lets everything pass, and one that hides the reason."""

from typing import Any

import pytest

from fairlead import demo_people
from fairlead.client import Denied
from fairlead_schemas.http.api import MissingRight, Problem


class PlayedClient:
    """Answers of a gateway to ann and bob."""

    url = "http://127.0.0.1:1"

    def __init__(self, refusal: Denied | None, owner: str = "ann") -> None:
        self.refusal, self.owner = refusal, owner
        self.granted: list[tuple[str, str, str]] = []

    def add_person(self, login: str, **more: Any) -> None:
        assert more["password"]

    def grant(self, *what: str) -> None:
        self.granted.append((what[0], what[1], what[2]))

    def submit(self, job: dict[str, Any]) -> Any:
        return type("Submitted", (), {"id": "7"})

    def cancel(self, job: str) -> None: ...

    def wait(self, jobs: list[str], **more: Any) -> list[Any]:
        return [type("Job", (), {"state": "cancelled", "user": self.owner})]

    def close(self) -> None: ...


class Bob(PlayedClient):
    """Refused, if the gateway refuses."""

    def submit(self, job: dict[str, Any]) -> Any:
        self._refused("job:submit")

    def cancel(self, job: str) -> None:
        self._refused("job:cancel")

    def _refused(self, verb: str) -> None:
        if self.refusal is not None:
            raise self.refusal


def refusal(verb: str) -> Denied:
    """A refusal that names a verb as missing."""
    problem = Problem(type="x", title="", status=403, detail="no", why=MissingRight(verb=verb, on="job:7"))
    return Denied("no", problem=problem)


def played(monkeypatch: pytest.MonkeyPatch, bob_refusal: Denied | None, owner: str = "ann") -> list[str]:
    """Play the scene against such a gateway."""
    clients = {"ann": PlayedClient(None, owner), "bob": Bob(bob_refusal)}
    monkeypatch.setattr(demo_people, "_signed_in", lambda _owner, login: clients[login])
    return demo_people.play(PlayedClient(None), lambda what, text: None)  # type: ignore[arg-type]


def test_a_gateway_that_lets_everything_pass_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of bob's requests are named."""
    assert played(monkeypatch, None) == [
        "bob's job:cancel: expected to be refused",
        "bob's job:submit: expected to be refused",
    ]


def test_a_refusal_without_its_why_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or with another verb."""
    assert len(played(monkeypatch, Denied("no"))) == 2
    assert len(played(monkeypatch, refusal("job:read"))) == 2
    assert len(played(monkeypatch, refusal("job:cancel"))) == 1


def test_a_job_that_is_not_its_owners_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ann's job has to be shown as hers."""
    assert "ann's job: expected cancelled, of ann; found cancelled, of p1" in played(monkeypatch, None, owner="p1")
