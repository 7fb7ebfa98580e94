"""A gateway that is a dictionary: what the command line sees without any service running."""

from collections.abc import Callable
from typing import Any

import httpx
import msgspec

from tests.cli.api_document import check_answer, check_request

type Answer = tuple[int, Any]


def job_document(job_id: str = "812", **changes: Any) -> dict[str, Any]:
    """One job as the API gives it."""
    document: dict[str, Any] = {
        "id": job_id, "name": "train", "kind": "batch", "queue": "research", "user": "ada", "project": "", "state": "running",
        "attempt": 1, "priority": 50, "reason": {"code": "running", "message": "runs on n1 since t"}, "nodes": ["n1"],
        "gpus": {"n1": ["GPU-a", "GPU-b"]}, "exit_code": None, "submitted_at": "2026-01-01T00:00:00.000Z",
        "started_at": "2026-01-01T00:00:01.000Z", "ended_at": None, "sequence": 40, "spec": {"command": ["true"]},
        "signal": None, "message": "", "array": None, "deadline": None, "deadline_missed": False, "slice_seconds": None,
        "used_seconds": 0, "left_seconds": None, "after": [], "preempted": 0, "preempted_for": None,
        "saved_at": None, "saved_note": "", "lost_seconds": 0, "idle": None, "extended_until": None, "attempts": [], "ready_at": None,
    }  # fmt: skip
    return {**document, **changes}


def ended(state: str, **changes: Any) -> dict[str, Any]:
    """A job that ran for a minute and a half."""
    return job_document(state=state, ended_at="2026-01-01T00:01:31.000Z", **changes)


def node_document(**changes: Any) -> dict[str, Any]:
    """Return a node with 6 of 8 GPUs free, on which job 812 runs."""
    return {
        "id": "n1",
        "state": "ready",
        "reason": "",
        "runtime": "process",
        "simulated": False,
        "address": "",
        "hostname": "h",
        "gpu_model": "A100",
        "gpus": 8,
        "gpus_free": 6,
        "cpu_milli": 1000,
        "cpu_milli_free": 0,
        "memory_mib": 1,
        "memory_mib_free": 0,
        "labels": {},
        "jobs": ["812"],
        "sequence": 40,
        **changes,
    }


def queue_document(path: str, **changes: Any) -> dict[str, Any]:
    """One queue as the API gives it: nothing limited, nothing used."""
    document: dict[str, Any] = {
        "path": path,
        "gpu_quota_milli": None,
        "gpu_milli_charged": 0,
        "waiting": 0,
        "running": 0,
        "sequence": 40,
        "pool": "default",
        "settings": {},
        "guaranteed": {},
        "maximum": {},
        "charged": {},
        "used": {},
        "borrowed": {},
        "users": {},
        "preempted": 0,
        "budget": None,
        "held": None,
        "drained": None,
    }
    return {**document, **changes}


def trial_document(**changes: Any) -> dict[str, Any]:
    """What would become of a job of 4 GPUs: it would be offered at once."""
    command: dict[str, Any] = {
        "type": "SubmitJob",
        "id": "",
        "user": "ada",
        "name": "train",
        "queue": "research/vision",
        "spec": {"command": ["x"]},
        "request": {"nodes": 1, "gpu_milli": 4000, "cpu_milli": 1000, "memory_mib": 1024},
    }
    document: dict[str, Any] = {
        "valid": True,
        "checked": "queue",
        "message": "would be accepted, and offered at once",
        "command": command,
        "code": "",
        "errors": [],
        "pool": "default",
        "quota": [],
        "borrows": {},
        "borrows_words": {},
        "reason": None,
        "changes": [],
        "ahead": 0,
        "first_ahead": [],
        "displaces": [],
        "displaces_hidden": 0,
        "estimate": None,
        "forecast": None,
        "sequence": 40,
    }
    return {**document, **changes}


def applied(*items: Any) -> dict[str, Any]:
    """The answer to a queue file."""
    return {"configured": len(items), "removed": 0, "unchanged": 1, "items": list(items), "sequence": 40}


def page(*items: Any, following: str | None = None) -> dict[str, Any]:
    """A list answer."""
    return {"items": list(items), "next": following, "sequence": 40}


def problem(status: int, detail: str, **more: Any) -> Answer:
    """An error as the API gives it."""
    return status, {"type": "urn:fairlead:problem:x", "title": "T", "status": status, "detail": detail, **more}


class GatewayStub:
    """Answers by (method, path), and remembers what it was asked. Paths without an answer are a 404 in words.

    It is held to the OpenAPI document: a request that the document does not have, and an answer that is not of its schema,
    fail the test. `foreign` lifts that for what answers instead of a gateway, or as a gateway of another version would.
    """

    def __init__(self, *, foreign: bool = False) -> None:
        self.answers: dict[tuple[str, str], Answer | Callable[[httpx.Request], Answer]] = {}
        self.requests: list[httpx.Request] = []
        self.foreign = foreign

    def on(self, method: str, path: str, document: Any, status: int = 200) -> None:
        """Answer this path with a document."""
        self.answers[(method, path)] = (status, document)

    def bodies(self) -> list[Any]:
        """Decoded bodies of all POSTs and PUTs, in order."""
        return [msgspec.json.decode(r.content) for r in self.requests if r.method in ("POST", "PUT")]

    def patches(self) -> list[Any]:
        """Decoded bodies of all PATCHes, in order."""
        return [msgspec.json.decode(r.content) for r in self.requests if r.method == "PATCH"]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        operation = None if self.foreign else check_request(request)
        found = self.answers.get((request.method, request.url.path), problem(404, f"there is no {request.url.path}"))
        status, document = found(request) if callable(found) else found
        if isinstance(document, httpx.Response):  # one that is no JSON
            return document
        if operation is not None:
            check_answer(operation, status, document)
        return httpx.Response(status, content=msgspec.json.encode(document))
