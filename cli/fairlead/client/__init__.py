"""Python client of the gateway's HTTP API: `Client`, and `AsyncClient` with the same requests as coroutines.

    from fairlead.client import Client

    with Client() as client:
        submitted = client.submit({"command": ["python", "train.py"], "resources": {"nvidia.com/gpu": 1}})
        [job] = client.wait([submitted.id])

Answers are the types of `fairlead_schemas.http`; fields that a newer gateway adds are ignored. Errors are those of `fairlead.errors`.
docs/reference/python-client.md describes it. The requests are in `asynchronous/`, and `synchronous/` is made from them. Connections:
`plain_link.py`, `sync_link.py` and `async_link.py`. Gateway and credential: `settings.py` and `contexts.py`.
"""

from typing import TYPE_CHECKING, Any

from fairlead.errors import (
    Conflict,
    Denied,
    FairleadError,
    InputRefused,
    NotFound,
    Unreachable,
    WaitTimedOut,
)

if TYPE_CHECKING:
    from fairlead.client.asynchronous.access import AsyncClient
    from fairlead.client.synchronous.access import Client
    from fairlead.client.synchronous.jobs import JobFile

__all__ = [
    "AsyncClient",
    "Client",
    "Conflict",
    "Denied",
    "FairleadError",
    "InputRefused",
    "JobFile",
    "NotFound",
    "Unreachable",
    "WaitTimedOut",
]
_DEFINED_IN = {"AsyncClient": "asynchronous.access", "Client": "synchronous.access", "JobFile": "synchronous.jobs"}


def __getattr__(name: str) -> Any:
    """Import a class when it is used: the asynchronous client imports httpx, which takes longer than a request."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"fairlead.client.{_DEFINED_IN[name]}"), name)
