"""Every route with every role in every kind of scope, over HTTP: it lets through whom the table of roles says, and no person else.

The routes come from the gateway's own table, the expectation from `AccessState.may` and the route's declared right.
"""

import json
import re
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from fairlead_gateway.access.caller import CLUSTER, Caller
from fairlead_gateway.access.route_rights import Right
from fairlead_gateway.access.targets import job_target, node_target, queue_target, service_target, volume_target
from fairlead_gateway.server.fast_path import FastPath
from fairlead_rights.access_list import Target
from fairlead_rights.roles import OWNER_VERBS, verbs_of
from fairlead_schemas.policies.rights import ROLES, SCOPE_KINDS, Verb, parse_scope
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire.trees import digest_of
from tests.gateway.access.open_streams import open_stream
from tests.gateway.access.signed_world import SignedWorld
from tests.gateway.access.socket_world import SocketWorld

#: Scope of each kind that has the things of the routes in it, and one that has not.
SCOPES = {
    "cluster": ("cluster",),
    "pool": ("pool:default", "pool:other"),
    "queue": ("queue:research", "queue:res"),
    "project": ("project:llm", "project:lln"),
    "job": ("job:{job}", "job:99"),
    "volume": ("volume:data",),
}
#: Statuses of a request that the guard let through: whatever the handler then says about its body, and about things that are not there.
PASSED = frozenset({200, 201, 202, 404, 409, 415, 422, 503})
#: The same about a thing that is there.
FOUND = PASSED - {404}
#: Bodies of routes whose handler checks each thing that the body names.
BODIES: dict[str, Any] = {
    "/v1/jobs": {"command": ["true"], "queue": "research/vision"},
    "/v1/jobs:dryrun": {"command": ["true"], "queue": "research/vision"},
    "/v1/queues:apply": {"queues": {"research/vision": {}}},
    "/v1/idle:apply": {"scopes": {"project:llm": []}},
    "/v1/idle/{scope}": {"policies": []},
    "/v1/rollouts": {"name": "r2", "budgetGpus": 1, "nodes": ["n1"]},
    "/v1/maintenance": {"name": "m2", "starts": "2099-01-01T00:00:00Z", "duration": "1h", "nodes": ["n1"]},
    "/v1/jobs/{job}:move": {"queue": "research/vision"},
    "/v1/volumes": {"name": "more", "owner": "queue:research/vision", "quota": "1Gi"},
    "/v1/volumes/{volume}": {"quota": "2Gi"},
    "/v1/services": {
        "kind": "service",
        "name": "more",
        "queue": "research/vision",
        "command": ["true"],
        "app": "http",
        "service": {"replicas": 0},
    },
    "/v1/services/{service}:scale": {"replicas": 0},
    "/v1/datasets": {"dataset": "new@1", "owner": "queue:research/vision", "digest": f"sha256:{64 * '1'}"},
}
#: Answers to every caller with a token, of routes that look at more than roles: at a browser's session, a form, or a provider. With
#: these, tests/gateway/routes/test_sign_in.py and tests/gateway/signon try them.
ANSWERS = {
    ("GET", "/favicon.ico"): 204,
    ("GET", "/device"): 303,  # to the sign-in
    ("POST", "/device"): 403,
    ("POST", "/device/answer"): 403,
    ("GET", "/sign-in-command"): 403,  # no command listens
    ("POST", "/sign-in-command"): 403,
    ("POST", "/sign-out"): 403,
    ("POST", "/v1/sign-in/links"): 403,  # only of a session younger than 15 minutes
    ("POST", "/v1/device/code"): 415,
    ("POST", "/v1/device/token"): 415,
    ("POST", "/v1/token"): 415,
}
PIECE = digest_of(b"piece")
SEES: dict[str, Verb] = {
    "job": "job:read",
    "queue": "queue:read",
    "node": "node:read",
    "pool": "node:read",
    "volume": "volume:read",
    "service": "job:read",
}


def routes_of(world: SignedWorld) -> list[tuple[str, str, Right]]:
    """(method, path, right) of every route of the application, those of the fast path included."""
    return [(method, path, right) for (method, path), right in sorted(world.gateway.rights.items())]


async def _prepared(world: SignedWorld) -> dict[str, str]:
    """A job, a node, queues, a rollout and a window; the values of paths' parameters."""
    await world.configure(research={}, research__vision={})
    await world.node("n1")
    await world.gateway.pieces.put(b"piece")
    await world.volume("data", "queue:research/vision")
    await world.storage(
        cmd.AddDataset,
        dataset="set@1",
        owner="queue:research/vision",
        digest=f"sha256:{64 * '0'}",
        size_bytes=1,
        files=1,
    )
    job = await world.submit(queue="research/vision", project="llm", priority=1, startAt="2099-01-01T00:00:00Z")
    await world.service("chat", queue="research/vision", project="llm")
    return {
        "job": job, "provider": "corp", "node": "n1", "path": "research/vision", "pool": "default", "name": "r1", "command": "none",
        "scope": "project:llm", "who": "nemo", "token": "tnone",
        "user": "nemo", "group": "none", "notification": "none", "digest": PIECE.hex(), "asset": "none",
        "volume": "data", "dataset": "set@1", "service": "chat", "key": "none", "upload": "none",
    }  # fmt: skip


def _path(template: str, names: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: names[found[1]], template)


def _expected(
    world: SignedWorld, caller: Caller, method: str, template: str, right: Right, names: dict[str, str]
) -> frozenset[int]:
    """Statuses that may come: those of a request that passes, 403, or 404 for a thing that the caller may not see."""
    if answer := ANSWERS.get((method, template)):
        return frozenset({answer})
    views, verb = world.gateway.views, right.verbs[0] if right.verbs else None
    if right.kind in ("public", "signed-in"):
        return PASSED
    if right.kind == "listed":
        return PASSED if all(map(caller.may_anywhere, right.verbs)) else frozenset({403})
    if right.kind == "cluster":
        # 400: a directory's messages name their own schemas, which the bodies here do not (tests/gateway/directories).
        passed = PASSED | {400} if template.startswith("/scim/") else PASSED
        return passed if all(caller.may(each, CLUSTER) for each in right.verbs) else frozenset({403})
    if right.kind == "either":
        return PASSED if any(caller.may(each, CLUSTER) for each in right.verbs) else frozenset({403})
    assert verb is not None
    targets = {
        "job": lambda: job_target(views, views.jobs.rows[names["job"]]),
        "queue": lambda: queue_target(views, names["path"]),
        "node": lambda: node_target(views.nodes.rows["n1"]),
        "pool": lambda: Target(pool="default"),
        "volume": lambda: volume_target(views, names[right.parameter].partition("@")[0]),
        "service": lambda: service_target(views, "chat"),
        "body": lambda: _body_target(world, template, names),
    }
    target = targets[right.kind]()
    if target is None:
        return PASSED
    if caller.may(verb, target):
        return FOUND
    if right.kind == "body":
        return frozenset({403, 404, 422})  # 422: an unknown queue
    return frozenset({403}) if caller.may(SEES[right.kind], target) else frozenset({404})


def _body_target(world: SignedWorld, template: str, names: dict[str, str]) -> Target | None:
    views = world.gateway.views
    if template in ("/v1/jobs", "/v1/jobs:dryrun"):
        return queue_target(views, "research/vision")
    if template == "/v1/queues:apply":
        return queue_target(views, "research/vision")
    if template in ("/v1/volumes", "/v1/datasets", "/v1/services"):
        return queue_target(views, "research/vision")
    if template.startswith("/v1/idle"):
        return Target(project="llm")
    if template in ("/v1/rollouts", "/v1/maintenance"):
        return node_target(views.nodes.rows["n1"])
    return None  # CloudEvents (an empty body), and plans that do not exist


def _cases() -> list[tuple[str, str]]:
    return [(role, kind) for kind in SCOPE_KINDS for role in ROLES if verbs_of(role, kind)]


async def _request(world: SignedWorld, who: str, method: str, template: str, names: dict[str, str]) -> httpx.Response:
    path, body = _path(template, names), BODIES.get(template, {})
    headers: dict[str, str] = {}
    if template == "/v1/events" and method == "POST":
        headers["content-type"] = "application/cloudevents+json"
    if "/uploads" in template:
        headers["tus-resumable"] = "1.0.0"
    if method == "GET":
        return await world.ask(who, method, path, headers=headers)
    return await world.ask(who, method, path, json=body, headers=headers)


#: Requests that would take away what the other cases need.
DESTRUCTIVE = re.compile(r":(cancel|remove|declare-dead|drain|quarantine|move|hold|release|extend|retire)$")


def _is_destructive(method: str, template: str) -> bool:
    return method == "DELETE" or DESTRUCTIVE.search(template) is not None


#: Limits of tokens of an admin of the cluster: scopes, and verbs.
NARROW: list[tuple[tuple[str, ...], tuple[Verb, ...]]] = [
    *[((scope,), ()) for scopes in SCOPES.values() for scope in scopes if scope != "cluster"],
    ((), ("job:read", "sql:read")),
    ((), ("queue:set", "node:operate")),
    (("queue:research",), ("job:submit", "queue:read")),
]


async def test_the_routes_are_all_of_the_application() -> None:
    """Nothing is answered next to the table: every router of the application is in it, with handlers of requests alone, and fast routes have
    the right of their plain form.
    """
    async with SignedWorld() as world:
        routers = world.gateway.routers
        routes = [route for router in routers for route in router.routes]
        assert {type(route) for route in routes} == {APIRoute}
        found = {
            (method, route.path) for route in routes if isinstance(route, APIRoute) for method in route.methods or ()
        }
        assert found == world.gateway.rights.keys()
        fast = {key: route.right for router in routers for key, route in router.fast_routes.items()}
        assert fast and fast == {key: world.gateway.rights[key] for key in fast}
        app = cast(FastAPI, world.gateway.app._app)
        assert len(app.routes) == len(routers), "the application has routes of the routers alone"


def _streams(world: SignedWorld) -> list[tuple[str, Right]]:
    """(path, right) of every route that can be followed."""
    return [
        (route.path, world.gateway.rights["GET", route.path])
        for router in world.gateway.routers
        for route in router.routes
        if isinstance(route, APIRoute) and any(each.name == "follow" for each in route.dependant.query_params)
    ]


async def test_every_stream_with_every_role() -> None:
    """Its status is that of the table, also for a token with limits."""
    async with SignedWorld() as world:
        names = await _prepared(world)
        streams = _streams(world)
        assert {path for path, _ in streams} == {"/v1/events", "/v1/ticks", "/v1/jobs/{job}/logs"}
        wrong: list[str] = []
        for who, caller in await _callers(world, names):
            for template, right in streams:
                expected = _expected(world, caller, "GET", template, right, names)
                async with open_stream(world, f"{_path(template, names)}?follow=1", who) as stream:
                    if stream.status not in expected:
                        wrong.append(f"{who}: {template}: {stream.status} {stream.text[:200]!r}")
        assert not wrong, "\n".join(wrong)


async def _callers(world: SignedWorld, names: dict[str, str]) -> list[tuple[str, Caller]]:
    """One for each role, in the scope of each kind that has the things of the routes and in the one that has not; and narrow tokens."""
    found: list[tuple[str, Caller]] = []
    for role, kind in _cases():
        if role not in ("viewer", "operator", "admin"):
            continue  # what a stream needs, the others have alike
        for number, text in enumerate(SCOPES[kind]):
            who, scope = f"{kind}-{role}-{number}", text.format(**names)
            await world.person(who)
            await world.grant(who, role, scope, **_known(world, scope))  # type: ignore[arg-type]
            found.append((who, _caller(world, who, who)))
    return found + await _narrow(world, names)


async def _narrow(world: SignedWorld, names: dict[str, str]) -> list[tuple[str, Caller]]:
    for number, (scopes, verbs) in enumerate(NARROW):
        await world.token(
            f"narrow-{number}", "owner", scopes=tuple(each.format(**names) for each in scopes), verbs=verbs
        )
    return [(f"narrow-{number}", _caller(world, "owner", f"narrow-{number}")) for number in range(len(NARROW))]


def _caller(world: SignedWorld, principal: str, token: str) -> Caller:
    return Caller(world.gateway.views, principal=principal, credential=token, is_token=True, expires_ns=1 << 62)


async def test_every_route_with_a_token_narrower_than_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """An admin's token with limits is let through where they are, and nowhere else."""
    async with SignedWorld() as world:
        names = await _prepared(world)
        monkeypatch.setattr(world.gateway.waiter, "_wait_s", 0.05)
        wrong, refused = list[str](), 0
        for who, caller in await _narrow(world, names):
            for method, template, right in routes_of(world):
                expected = _expected(world, caller, method, template, right, names)
                if right.kind in ("public", "signed-in") or (_is_destructive(method, template) and expected & {200}):
                    continue  # what these show is of the person, not of the token
                answer = await _request(world, who, method, template, names)
                refused += answer.status_code in (403, 404)
                if answer.status_code not in expected:
                    wrong.append(
                        f"{who} {NARROW[int(who[7:])]}: {method} {template}: {answer.status_code} {answer.text[:200]}"
                    )
        assert not wrong, "\n".join(wrong)
        assert refused > 200, "the owner itself is refused nothing"


async def test_every_fast_route_past_the_application() -> None:
    """A small request on a socket skips ASGI; each role in each scope has the answer of the table there, the second time from memory."""
    async with SocketWorld() as world, world.line() as line:
        names = await _prepared(world)
        direct = 0
        respond = FastPath.respond

        async def counted(fast: FastPath, *args: Any) -> Any:
            nonlocal direct
            direct += 1
            return await respond(fast, *args)

        callers, wrong, sent = await _callers(world, names), list[str](), 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FastPath, "respond", counted)
            for (method, template), right in sorted(world.gateway.rights.items()):
                if not any((method, template) in router.fast_routes for router in world.gateway.routers):
                    continue
                for who, caller in callers:
                    expected = _expected(world, caller, method, template, right, names)
                    for _ in range(2):
                        status, head, _ = await line.send(_raw(method, template, who))
                        sent += 1
                        if status not in expected:
                            wrong.append(f"{who}: {template}: {status} {head!r}")
        assert not wrong, "\n".join(wrong)
        assert direct >= sent // 2, f"{direct} of {sent} requests skipped the application"


def _raw(method: str, template: str, who: str) -> bytes:
    body = json.dumps(BODIES.get(template, {})).encode()
    kind = "application/cloudevents+json" if template == "/v1/events" else "application/json"
    head = (
        f"{method} {template} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {who}-token\r\n"
        f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@pytest.mark.parametrize("kind", SCOPE_KINDS)
async def test_every_route_with_every_role(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A role lets through what the table says; nothing passes with a role in a scope that does not cover the target."""
    async with SignedWorld() as world:
        names = await _prepared(world)
        # Commands to telemetry, which is not played here, are answered 202 after a wait.
        monkeypatch.setattr(world.gateway.waiter, "_wait_s", 0.2)
        wrong: list[str] = []
        tried = 0
        for role in (role for role, each in _cases() if each == kind):
            for number, text in enumerate(SCOPES[kind]):
                who, scope = f"{kind}-{role}-{number}", text.format(**names)
                await world.person(who)
                await world.grant(who, role, scope, **_known(world, scope))  # type: ignore[arg-type]
                caller = _caller(world, who, who)
                for method, template, right in routes_of(world):
                    expected = _expected(world, caller, method, template, right, names)
                    if _is_destructive(method, template) and expected & {200}:
                        continue
                    answer = await _request(world, who, method, template, names)
                    tried += 1
                    if answer.status_code not in expected:
                        wrong.append(
                            f"{role} in {scope}: {method} {template}: {answer.status_code} {answer.text[:200]}"
                        )
        assert not wrong, "\n".join(wrong)
        assert tried > 50


def _known(world: SignedWorld, scope: str) -> dict[str, str]:
    kind = parse_scope(scope).kind
    return {"queue": "research/vision", "pool": "default", "project": "llm", "owner": "owner"} if kind == "job" else {}


async def test_every_route_without_a_credential() -> None:
    """401 for every route but the public ones, streams and the first page included."""
    async with SignedWorld() as world:
        names = await _prepared(world)
        for method, template, right in routes_of(world):
            answer = await _request(world, "", method, template, names)
            assert (answer.status_code == 401) is (right.kind != "public"), (method, template, answer.text)
        for path in ("/v1/events?follow=1", "/v1/ticks?follow=1", f"/v1/jobs/{names['job']}/logs?follow=1", "/"):
            assert (await world.ask("", "GET", path)).status_code == 401, path


async def test_every_route_of_a_person_without_roles() -> None:
    """An unknown person has no role: nothing of others is shown or changed."""
    async with SignedWorld() as world:
        names = await _prepared(world)
        await world.person("new")
        for method, template, right in routes_of(world):
            answer = await _request(world, "new", method, template, names)
            allowed = right.kind in ("public", "signed-in") or (
                right.kind == "listed" and set(right.verbs) <= OWNER_VERBS
            )
            if known := ANSWERS.get((method, template)):
                assert answer.status_code == known, (method, template, answer.text)
            elif allowed:
                assert answer.status_code in PASSED, (method, template, answer.text)
            elif template != "/v1/events":  # an empty CloudEvent names no job
                assert answer.status_code in (403, 404, 422), (method, template, answer.text)
            for name in ("research", "n1", "llm") if answer.status_code == 200 else ():
                assert f'"{name}' not in answer.text or right.kind == "public", (method, template, answer.text)


async def test_with_the_guard_taken_out_the_matrix_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests notice it: with `Caller.may` always True a person without roles gets everything."""
    monkeypatch.setattr(Caller, "may", lambda *_: True)
    monkeypatch.setattr(Caller, "may_anywhere", lambda *_: True)
    async with SignedWorld() as world:
        names = await _prepared(world)
        await world.person("new")
        assert (await world.ask("new", "GET", f"/v1/jobs/{names['job']}")).status_code == 200
        assert (await world.ask("new", "POST", "/v1/nodes/n1:cordon", json={})).status_code == 200
        assert (await world.get("new", "/v1/nodes"))["items"]
