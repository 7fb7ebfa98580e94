"""The guard over HTTP: credentials, refusals with their facts, hidden things, forged headers, pages of others, floods."""

import re

import msgspec
import pytest

from fairlead_gateway.access.caller import OPEN_CALLER, SUBMITS_KEPT, Caller
from fairlead_gateway.access.callers import UNKNOWN_PER_MINUTE
from fairlead_schemas.wire import commands as cmd
from tests.gateway.access.signed_world import SignedWorld, body_of

QUEUES = {"research": {}, "research__vision": {}, "research__vis": {}, "other": {}}


async def test_a_request_needs_a_credential_that_counts() -> None:
    """None, an unknown one and a revoked one are 401 with the reason; a public route needs none."""
    async with SignedWorld() as world:
        assert (await world.ask("", "GET", "/healthz")).status_code == 200
        ready = (await world.ask("", "GET", "/readyz")).json()
        assert {each["message"] for each in ready["conditions"]} <= {""} and not ready["remedies"]
        bare = await world.ask("", "GET", "/v1/jobs")
        assert (bare.status_code, bare.headers["www-authenticate"]) == (401, "Bearer")
        assert bare.headers["content-type"] == "application/problem+json"
        assert bare.json()["why"]["reason"] == "no_credential"
        unknown = await world.ask("nosuch", "GET", "/v1/jobs")
        assert (unknown.status_code, unknown.json()["why"]["reason"]) == (401, "unknown")
        assert unknown.headers["www-authenticate"] == 'Bearer error="invalid_token"'
        assert (await world.ask("", "POST", "/v1/jobs", json={"command": ["true"]})).status_code == 401
        assert (await world.ask("owner", "GET", "/v1/jobs")).status_code == 200


async def test_a_refusal_names_what_is_missing_and_who_could_give_it() -> None:
    """403 for something that the caller sees: the verb, the target, the roles held and the givers. The command is not sent."""
    async with SignedWorld() as world:
        await world.configure(**QUEUES)
        await world.person("vera", viewer="queue:research")
        job = await world.submit(queue="research/vision", name="a")
        stored = world.commands_stored()
        answer = await world.ask("vera", "POST", f"/v1/jobs/{job}:cancel")
        assert answer.status_code == 403
        assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]
        assert answer.json()["why"] == {
            "verb": "job:cancel",
            "on": f"job:{job}",
            "roles": ["vera is viewer in queue:research"],
            "givers": ["owner"],
        }
        for method, path, body in (
            ("POST", "/v1/jobs", {"command": ["true"], "queue": "research/vision"}),
            ("PUT", "/v1/queues/research/vision", {}),
            ("POST", "/v1/queues:apply", {"queues": {"research/vision": {}}}),
            ("POST", "/v1/breaker:reset", {}),
        ):
            answer = await world.ask("vera", method, path, json=body)
            assert (answer.status_code, answer.json()["type"]) == (403, "urn:fairlead:problem:insufficient_scope"), path
        assert world.commands_stored() == stored


async def test_a_hidden_thing_and_one_that_is_not_there_are_answered_alike() -> None:
    """By the same bytes, for every way to ask for a job, node or queue."""
    async with SignedWorld() as world:
        await world.configure(**QUEUES)
        await world.node("n1")
        await world.person("mia", member="queue:research/vision")
        job = await world.submit(queue="other")
        await world.play_telemetry("job", lambda _: b"null")
        for method, path in (
            ("GET", "/v1/jobs/{}"),
            ("GET", "/v1/jobs/{}/why"),
            ("GET", "/v1/jobs/{}/logs"),
            ("GET", "/v1/jobs/{}/logs?follow=1"),
            ("GET", "/v1/jobs/{}/metrics"),
            ("POST", "/v1/jobs/{}:cancel"),
            ("POST", "/v1/jobs/{}:extend"),
        ):
            hidden = await world.ask("mia", method, path.format(job))
            absent = await world.ask("mia", method, path.format("999"))
            assert hidden.status_code == 404, path
            bare = [
                answer.text.replace(answer.json()["request_id"], "").replace(name, "X")
                for answer, name in ((hidden, job), (absent, "999"))
            ]
            assert bare[0] == bare[1]
        for method, path, body, names in (
            ("GET", "/v1/nodes/{}", None, ("n1", "n9")),
            ("POST", "/v1/nodes/{}:cordon", {}, ("n1", "n9")),
            ("GET", "/v1/queues/{}", None, ("other", "nosuch")),
            ("GET", "/v1/queues/{}", None, ("research/vis", "research/vip")),
            ("PUT", "/v1/queues/{}", {}, ("other", "nosuch")),
            ("DELETE", "/v1/queues/{}", None, ("other", "nosuch")),
            ("GET", "/v1/pools/{}/packing", None, ("default", "nosuch")),
        ):
            answers = [await world.ask("mia", method, path.format(name), json=body) for name in names]
            hidden, absent = (body_of(answer)[1] for answer in answers)
            assert [answer.status_code for answer in answers] == [404, 404], path
            assert {**hidden, "detail": hidden["detail"].replace(names[0], "X")} == {
                **absent,
                "detail": absent["detail"].replace(names[1], "X"),
            }
        submits = [
            body_of(await world.ask("mia", "POST", "/v1/jobs", json={"command": ["true"], "queue": queue}))
            for queue in ("other", "nosuch", "research/vis")
        ]
        assert {status for status, _ in submits} == {422}
        assert (
            len(
                {
                    re.sub("; did you mean [^?]*[?]", "", str(body)).replace(f'"{queue}"', "X")
                    for queue, (_, body) in zip(("other", "nosuch", "research/vis"), submits, strict=True)
                }
            )
            == 1
        )
        hidden_job = await world.ask(
            "mia",
            "POST",
            "/v1/jobs",
            json={"command": ["true"], "queue": "research/vision", "dependsOn": [{"job": job}]},
        )
        assert hidden_job.status_code == 422 and f"there is no job {job}" in hidden_job.text


async def test_scopes_are_compared_by_path_segments() -> None:
    """A right in research/vis says nothing about research/vision (A15)."""
    async with SignedWorld() as world:
        await world.configure(**QUEUES)
        await world.person("vis", queue_admin="queue:research/vis")
        await world.submit(queue="research/vision")
        assert (await world.get("vis", "/v1/jobs"))["items"] == []
        assert [each["path"] for each in (await world.get("vis", "/v1/queues"))["items"]] == ["research/vis"]
        for path in (
            "research/vision",
            "research/vis/../vision",
            "RESEARCH/VIS",
            "research//vis",
            "research/vis%CC%81",
        ):
            answer = await world.ask("vis", "PUT", f"/v1/queues/{path}", json={})
            assert answer.status_code in (403, 404), (path, answer.text)


async def test_headers_that_state_somebody_else_are_refused() -> None:
    """X-Fairlead-User is a 400; X-Fairlead-Act-As is for admins only, and names the user of the command (A16)."""
    async with SignedWorld() as world:
        await world.person("lea", queue_admin="cluster")
        await world.person("bob", member="queue:default")
        for who in ("owner", "lea", ""):
            answer = await world.ask(who, "GET", "/v1/jobs", headers={"X-Fairlead-User": "owner"})
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "X-Fairlead-User")
        acting = {"X-Fairlead-Act-As": "bob"}
        refused = await world.ask("lea", "POST", "/v1/jobs", json={"command": ["true"]}, headers=acting)
        assert refused.status_code == 403
        missing = await world.ask(
            "owner", "POST", "/v1/jobs", json={"command": ["true"]}, headers={"X-Fairlead-Act-As": "nosuch"}
        )
        assert missing.status_code == 403
        job = (await world.ask("owner", "POST", "/v1/jobs", json={"command": ["true"]}, headers=acting)).json()["id"]
        assert (await world.job(job))["user"] == "bob"
        assert (await world.ask("bob", "POST", f"/v1/jobs/{job}:cancel")).status_code == 200


async def test_a_change_with_a_cookie_comes_from_our_own_page() -> None:
    """Origin of ours, or Sec-Fetch-Site same-origin without one; a token needs neither (A2)."""
    async with SignedWorld() as world:
        await world.session("i1", "owner")
        cookie = {"cookie": "fairlead=i1-cookie"}
        good = ({"origin": "http://localhost"}, {"sec-fetch-site": "same-origin"})
        bad = (
            {},
            {"origin": "null"},
            {"origin": "http://evil.example"},
            {"origin": "http://sub.localhost"},
            {"origin": "http://localhost:81"},
            {"sec-fetch-site": "none"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
            {"origin": "http://localhost", "sec-fetch-site": "cross-site"},
            {"sec-fetch-mode": "no-cors"},
        )
        for method, path in (("POST", "/v1/jobs"), ("PUT", "/v1/queues/x"), ("DELETE", "/v1/queues/x")):
            for headers in bad:
                answer = await world.ask("", method, path, headers={**cookie, **headers}, json={"command": ["true"]})
                assert answer.status_code == 403, (method, headers, answer.text)
        for headers in good:
            answer = await world.ask("", "POST", "/v1/jobs", headers={**cookie, **headers}, json={"command": ["true"]})
            assert answer.status_code == 201, answer.text
        assert (await world.ask("", "GET", "/v1/jobs", headers=cookie)).status_code == 200
        twice = {"cookie": "fairlead=i1-cookie; fairlead=tossed"}
        assert (await world.ask("", "GET", "/v1/jobs", headers=twice)).status_code == 401
        as_token = {"cookie": "fairlead=owner-token"}
        assert (await world.ask("", "GET", "/v1/jobs", headers=as_token)).status_code == 401


async def test_the_cookie_of_an_ended_session_does_not_keep_a_browser_from_signing_in() -> None:
    """The browser continues sending it: public routes are answered as without it, and all others name the reason."""
    async with SignedWorld() as world:
        await world.session("i1", "owner")
        cookie = {"cookie": "fairlead=i1-cookie", "origin": "http://localhost"}
        await world.command(cmd.EndSession, session="i1", reason="signed_out")
        for stale in (cookie, {**cookie, "cookie": "fairlead=of-a-former-cluster"}):
            for path in ("/sign-in", "/sign-out", "/favicon.ico", "/healthz"):
                assert (await world.ask("", "GET", path, headers=stale)).status_code in (200, 204), path
            wrong = {"login": "owner", "password": "wrong"}
            again = await world.ask("", "POST", "/v1/sign-in/local", headers=stale, json=wrong)
            assert again.json()["detail"] == "the name or the password is wrong"
            assert (
                await world.ask("", "POST", "/v1/jobs", headers=stale, json={"command": ["true"]})
            ).status_code == 401
        ended = await world.ask("", "GET", "/v1/jobs", headers=cookie)
        assert (ended.status_code, ended.json()["why"]["reason"]) == (401, "session_ended")
        foreign = {**cookie, "origin": "http://evil.example"}
        assert (await world.ask("", "POST", "/sign-out", headers=foreign)).status_code == 403


async def test_a_revoked_token_is_refused_on_the_fast_path_too() -> None:
    """Although its row, its caller and the head of its connection are remembered (A12)."""
    async with SignedWorld() as world:
        await world.person("bob", member="queue:default")
        body = {"command": ["true"]}
        assert (await world.ask("bob", "POST", "/v1/jobs", json=body)).status_code == 201
        await world.revoke("bob", "member", "queue:default")
        assert (await world.ask("bob", "POST", "/v1/jobs", json=body)).status_code == 422, "no queue that it sees"
        await world.command(cmd.RevokeToken, token="bob")
        refused = await world.ask("bob", "POST", "/v1/jobs", json=body)
        assert (refused.status_code, refused.json()["why"]["reason"]) == (401, "token_revoked")
        await world.person("eve", member="queue:default")
        assert (await world.ask("eve", "POST", "/v1/jobs", json=body)).status_code == 201
        await world.command(cmd.SuspendPrincipal, principal="eve")
        assert (await world.ask("eve", "POST", "/v1/jobs", json=body)).json()["why"]["reason"] == "suspended"


async def test_a_token_only_takes_rights_away() -> None:
    """Its verbs and scopes bound what its owner may do, and the refusal says that it is the token."""
    async with SignedWorld() as world:
        await world.configure(**QUEUES)
        await world.token("reader", "owner", verbs=("job:read", "queue:read"), scopes=("queue:research",))
        assert [each["path"] for each in (await world.get("reader", "/v1/queues"))["items"]] == [
            "research",
            "research/vis",
            "research/vision",
        ]
        answer = await world.ask("reader", "PUT", "/v1/queues/research/vision", json={})
        assert (answer.status_code, answer.json()["why"].get("token")) == (403, True)
        assert (await world.ask("reader", "POST", "/v1/sql", json={"query": "x"})).status_code == 403


async def test_a_flood_of_unknown_tokens_is_bounded_before_the_bus_is_asked() -> None:
    """429 for the address beyond the bound; known tokens are served, and what is remembered of unknown ones is bounded."""
    async with SignedWorld() as world:
        callers, lookups = world.gateway.callers, 0
        assert (await world.ask("owner", "GET", "/v1/jobs")).status_code == 200
        lookup = callers._lookup
        assert lookup is not None
        find = lookup.find

        async def counted(digest: str) -> object:
            nonlocal lookups
            lookups += 1
            return await find(digest)

        lookup.find = counted  # type: ignore[method-assign]
        answers = [await world.ask(f"x{n}", "GET", "/v1/jobs") for n in range(3 * UNKNOWN_PER_MINUTE)]
        codes = [answer.status_code for answer in answers]
        assert codes[0] == 401 and codes[-1] == 429 and set(codes) == {401, 429}
        assert int(answers[-1].headers["retry-after"]) > 0
        assert lookups <= UNKNOWN_PER_MINUTE + 10
        assert (await world.ask("owner", "GET", "/v1/jobs")).status_code == 200
        again = [await world.ask("x0", "GET", "/v1/jobs") for _ in range(3)]
        assert {answer.status_code for answer in again} == {429}


async def test_a_blind_gateway_answers_nothing_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not notice a revocation: 503 with the reason, except on public routes."""
    async with SignedWorld() as world:
        monkeypatch.setattr(world.gateway.callers, "blind_s", lambda: 11.0)
        for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("GET", "/v1/events?follow=1")):
            answer = await world.ask("owner", method, path, json={"command": ["true"]})
            assert (answer.status_code, answer.json()["why"]["reason"]) == (503, "behind_log")
        assert (await world.ask("", "GET", "/healthz")).status_code == 200


async def test_the_outcome_of_a_command_is_shown_to_its_sender() -> None:
    """And to those who see everything; to others it is as if it did not exist."""
    async with SignedWorld() as world:
        await world.person("bob", member="queue:default")
        await world.person("eve", member="queue:default")
        job = (await world.ask("bob", "POST", "/v1/jobs", json={"command": ["true"]})).json()["id"]
        key = {"Idempotency-Key": "k1"}
        assert (await world.ask("bob", "POST", f"/v1/jobs/{job}:hold", headers=key)).status_code == 200
        held = world.gateway.views.outcomes._keyed
        command = next(iter(held.values()))
        assert (await world.get("bob", f"/v1/commands/{command}"))["outcome"] == "done"
        assert (await world.get("owner", f"/v1/commands/{command}"))["outcome"] == "done"
        assert (await world.ask("eve", "GET", f"/v1/commands/{command}")).status_code == 404


async def test_the_authority_of_a_submit_is_the_encoded_one() -> None:
    """Made of kept text and the sequence of now, also for an admin who acts for another person; without sign-on there is none."""
    encode = msgspec.json.Encoder(order="deterministic").encode
    async with SignedWorld() as world:
        views = world.gateway.views
        for act_as, is_token in (("", False), ("p2", False), ("", True)):
            caller = Caller(views, principal="p1", credential="t1", act_as=act_as, is_token=is_token)
            for _ in range(2):
                assert caller.authority_field() == b',"authority":' + encode(caller.authority())
                await world.person(f"p{views.sequence}")
        assert OPEN_CALLER.authority_field() == b""


async def test_a_judged_submit_is_judged_again_after_every_change() -> None:
    """The gateway remembers where a caller may submit; a role, a token, a queue that changes ends that at once."""
    async with SignedWorld() as world:
        await world.configure(mine={})
        await world.person("mia", member="queue:mine")
        job = {"command": ["true"], "queue": "mine"}

        async def submit() -> int:
            return (await world.ask("mia", "POST", "/v1/jobs", json=job)).status_code

        assert [await submit(), await submit()] == [201, 201]
        await world.revoke("mia", "member", "queue:mine")
        assert await submit() == 422
        await world.grant("mia", "viewer", "queue:mine")
        assert await submit() == 403
        await world.grant("mia", "member", "queue:mine")
        assert [await submit(), await submit()] == [201, 201]
        await world.command(cmd.SuspendPrincipal, principal="mia")
        assert await submit() == 401


async def test_remembered_submits_of_a_caller_are_bounded() -> None:
    """A caller who names many projects does not fill the memory; each is judged again when it was forgotten."""
    async with SignedWorld() as world:
        caller = Caller(world.gateway.views, principal="p1", credential="t1", is_token=True)
        for number in range(SUBMITS_KEPT * 3):
            caller.note_submit("q", f"p{number}")
            assert len(caller._submits) <= SUBMITS_KEPT and caller.has_submitted("q", f"p{number}")
