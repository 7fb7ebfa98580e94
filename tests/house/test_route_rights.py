"""Every route of the gateway declares its right, and no GET sends a command."""

import ast
import inspect
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from fairlead_bus.memory import MemoryHub
from fairlead_gateway.routes.router import PUBLIC, Router
from fairlead_gateway.server.app import route_rights
from fairlead_gateway.service import Gateway, GatewaySettings
from fairlead_gateway.sources.live_views import LiveViews

GATEWAY = Path(inspect.getfile(Gateway)).parent
#: Functions by which a handler sends a command.
SENDS = frozenset({"carry_out", "send", "plan", "verb", "command_id", "encode_command"})
#: Routes that say nothing about jobs, queues, nodes or people. Each further one has to be defended in a review of this list.
PUBLIC_ROUTES = {
    ("GET", "/healthz"),
    ("GET", "/version"),
    ("GET", "/readyz"),
    ("GET", "/openapi.json"),
    ("GET", "/asyncapi.json"),
    ("GET", "/web/{asset:path}"),
    ("GET", "/favicon.ico"),
    ("GET", "/v1/schemas/job"),
    ("GET", "/v1/schemas/queues"),
    # Sign-in: whoever sends these is not known yet. Each takes a secret, or shows a form.
    ("POST", "/v1/sign-in/local"),
    ("GET", "/sign-in/link"),
    ("POST", "/v1/sign-in/link"),
    ("POST", "/v1/token"),
    ("GET", "/sign-in"),
    ("GET", "/sign-in/{provider}"),
    ("GET", "/sign-in/{provider}/callback"),
    ("POST", "/sign-in/{provider}/back-channel-logout"),
    ("POST", "/v1/device/code"),
    ("POST", "/v1/device/token"),
    # Pages that send who has no session to the sign-in.
    ("GET", "/device"),
    ("GET", "/sign-in-command"),
    ("GET", "/sign-out"),
}


def _gateway() -> Gateway:
    bus = MemoryHub().connect()
    return Gateway(bus, GatewaySettings(), LiveViews(bus))


def test_every_route_declares_its_right() -> None:
    """The application has no route that is not in the table of rights: add it by `Router.read`, `command` or `fast`."""
    gateway = _gateway()
    declared = set(gateway.rights)
    paths = {(method.upper(), path) for path, methods in gateway.api.openapi()["paths"].items() for method in methods}
    assert {(method, path.replace(":path}", "}")) for method, path in declared} >= paths
    assert {key for key, right in gateway.rights.items() if right == PUBLIC} == PUBLIC_ROUTES


def test_a_route_without_a_right_is_found() -> None:
    """FastAPI's own decorators make one."""
    router = Router()

    @router.get("/v1/unguarded")
    async def unguarded() -> None: ...

    with pytest.raises(KeyError):
        route_rights([router])


def test_routes_are_made_by_the_router_only() -> None:
    """No module of the gateway uses FastAPI's decorators, or adds a route to the application: use `Router.read` and `command`."""
    found: list[str] = []
    for path in sorted(GATEWAY.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
                continue
            for decorator in node.decorator_list:
                call = decorator.func if isinstance(decorator, ast.Call) else decorator
                if isinstance(call, ast.Attribute) and call.attr in (
                    "get",
                    "post",
                    "put",
                    "delete",
                    "patch",
                    "api_route",
                ):
                    found.append(f"{path.relative_to(GATEWAY)}: {node.name}")
    assert not found, found


def test_no_get_sends_a_command() -> None:
    """By the names that its handler calls: a link must never change anything."""
    gateway, wrong, seen = _gateway(), list[str](), 0
    handlers = [
        (route.path, route.endpoint)
        for router in gateway.routers
        for route in router.routes
        if isinstance(route, APIRoute) and route.methods == {"GET"}
    ]
    for path, handler in handlers:
        called = _called(handler.__code__)
        seen += bool(called)
        if called & SENDS:
            wrong.append(f"GET {path}: {sorted(called & SENDS)}")
    assert not wrong, wrong
    assert seen > 20


def _called(code: object) -> set[str]:
    names = set[str](getattr(code, "co_names", ()))
    for constant in getattr(code, "co_consts", ()):
        if inspect.iscode(constant):
            names |= _called(constant)
    return names
