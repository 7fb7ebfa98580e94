"""The two clients have the same requests, and the files of the synchronous one are those that the other one makes."""

import inspect

import pytest

from docs import synchronous
from fairlead.client import AsyncClient, Client

pytestmark = pytest.mark.connected


def test_the_synchronous_client_is_up_to_date() -> None:
    """Run `make docs` after changing the asynchronous one."""
    assert synchronous.out_of_date() == []


def _requests(client: type) -> dict[str, list[str]]:
    """{method: its parameters} of the public methods."""
    return {
        name: [*inspect.signature(method).parameters]
        for name, method in inspect.getmembers(client, callable)
        if not name.startswith("_") and name not in ("close", "aclose")
    }


def test_both_clients_have_the_same_requests() -> None:
    """Neither lags: same methods, with the same parameters."""
    assert _requests(Client) == _requests(AsyncClient)
    assert {"submit", "events", "grant", "record_of_access"} <= _requests(Client).keys()


def test_every_request_of_the_asynchronous_client_is_a_coroutine_or_a_stream() -> None:
    """A plain method would block the loop."""
    plain = [
        name
        for name in _requests(AsyncClient)
        if not (inspect.iscoroutinefunction(method := getattr(AsyncClient, name)) or inspect.isasyncgenfunction(method))
    ]
    assert plain == []
