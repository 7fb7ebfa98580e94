"""Attacks by people who are signed in: wider rights by tokens, names of others' things in answers, streams and the past (A14 to A17)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fairlead_gateway.access.accounts import SignInAt
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.access.redaction import scrub
from fairlead_gateway.access.targets import Sight
from fairlead_gateway.server.http_server import HttpSettings
from fairlead_rights.access_list import Reach, Target
from fairlead_schemas.policies.rights import Verb
from fairlead_schemas.wire import commands as cmd
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.access.signed_world import SignedWorld, body_of


async def test_nobody_makes_credentials_for_whom_they_act() -> None:
    """An admin who acts for a person gets no token of theirs: it would act in their name without saying so (A14)."""
    async with AccountsWorld() as world:
        ann = await world.person("ann", member="project:llm")
        admin = await world.person("adam", admin="cluster")
        _, text = await world.session(admin)
        acting = {"X_Fairlead_Act_As": ann}
        refused = await world.ask("POST", "/v1/tokens", {"name": "ci"}, token=text, status=403, **acting)
        assert refused["type"].endswith(":acting")
        assert not world.gateway.views.access.tokens_of.get(ann)
        await world.ask("POST", "/v1/sign-in/links", {}, token=text, status=403, **acting)


async def test_an_old_session_makes_no_fresh_one() -> None:
    """A command that an old browser session allows is as old as that session, so it makes no tokens (A13, A14)."""
    async with AccountsWorld() as world:
        ann = await world.person("ann")
        hours_ago = world.gateway.accounts._clock() - 3_600_000_000_000
        session, _ = await world.gateway.accounts.open_session(ann, SignInAt("local"), signed_in_ns=hours_ago)
        caller = Caller(world.gateway.views, principal=ann, credential=session)
        grants = world.gateway.sign_on.grants
        device_code, user_code = await grants.begin("laptop", "127.0.0.1")
        await grants.answer(user_code, caller, allow=True)
        opened = await grants.poll(device_code)
        refused = await world.ask("POST", "/v1/tokens", {"name": "ci"}, token=opened.access, status=403)
        assert refused["type"].endswith(":sign_in_again")
        renewed = await world.gateway.accounts.refresh(opened.refresh)
        await world.ask("POST", "/v1/tokens", {"name": "ci"}, token=renewed.access, status=403)


async def test_a_hidden_queue_is_one_that_is_not_there() -> None:
    """`why`, a grant and its removal answer by the same bytes about either (A17)."""
    async with SignedWorld() as world:
        await world.configure(mine={}, secretqueue={})
        await world.person("mia", member="queue:mine")
        answers: list[list[str]] = []
        for path in ("secretqueue", "nosuchqueue1"):
            found = [
                await world.ask("mia", "GET", f"/v1/access/why?verb=job:read&on=queue:{path}"),
                await world.ask("mia", "GET", f"/v1/access/why?verb=job:read&on=queue:{path}&subject=owner"),
                *[
                    await world.ask(
                        "mia",
                        "POST",
                        f"/v1/access:{verb}",
                        json={"subject": "mia", "role": "viewer", "scope": f"queue:{path}"},
                    )
                    for verb in ("grant", "revoke")
                ],
            ]
            texts = [str(body_of(each)).replace(path, "X") for each in found]
            assert {each.status_code for each in found} == {404}, [each.text for each in found]
            answers.append(texts)
        assert answers[0] == answers[1]


async def test_tokens_of_others_are_ids_that_do_not_exist() -> None:
    """Revoking either has one answer."""
    async with SignedWorld() as world:
        await world.person("mia")
        found = [await world.ask("mia", "DELETE", f"/v1/tokens/{name}") for name in ("owner", "nosuch")]
        assert [each.status_code for each in found] == [404, 404]
        one, two = (
            str(body_of(each)).replace(name, "X") for each, name in zip(found, ("owner", "nosuch"), strict=True)
        )
        assert one == two
        assert "owner" in world.gateway.views.access.tokens


async def test_a_token_with_limits_revokes_itself_alone() -> None:
    """A stolen token of few rights ends none of its owner's others (A14)."""
    async with SignedWorld() as world:
        await world.person("mia", member="project:llm")
        await world.token("weak", "mia", verbs=("job:read",))
        assert (await world.ask("weak", "DELETE", "/v1/tokens/mia")).status_code == 403
        assert "mia" in world.gateway.views.access.tokens
        assert (await world.ask("weak", "DELETE", "/v1/tokens/weak")).status_code == 200
        assert (await world.ask("mia", "DELETE", "/v1/tokens/mia")).status_code == 200


async def test_a_request_that_outlives_its_session_does_nothing() -> None:
    """Its head was let through while the session lived; its body comes after the session's end (A12)."""
    async with SignedWorld() as world:
        await world.person("bob", member="queue:default")
        await world.session("i1", "bob")
        world.http.headers.pop("authorization")
        ended = asyncio.Event()

        async def body():  # type: ignore[no-untyped-def]
            yield b'{"command":'
            await world.command(cmd.EndSession, session="i1")
            ended.set()
            yield b'["true"]}'

        answer = await world.http.post(
            "/v1/jobs",
            content=body(),
            headers={"authorization": "Bearer i1-cookie", "content-type": "application/json"},
        )
        assert ended.is_set() and answer.status_code >= 400, answer.text
        assert not world.gateway.views.jobs.rows


async def test_refused_changes_of_a_person_are_bounded() -> None:
    """By the principal, whom the head does not state (A21). Another person at the same address continues."""
    async with SignedWorld(http=HttpSettings(refusals_per_minute=5)) as world:
        await world.person("bob", member="queue:default")
        await world.person("eve", member="queue:default")
        codes = [(await world.ask("bob", "POST", "/v1/jobs", json={"command": []})).status_code for _ in range(12)]
        assert codes[0] == 422 and codes[-1] == 429, codes
        assert (await world.ask("eve", "POST", "/v1/jobs", json={"command": ["true"]})).status_code == 201


async def test_an_ended_token_asks_the_bus_a_bounded_number_of_times() -> None:
    """Its row may be there for an hour; each look-up of it counts like that of an unknown one (A21)."""
    async with SignedWorld() as world:
        await world.person("bob")
        await world.command(cmd.RevokeToken, token="bob")
        codes = [(await world.ask("bob", "GET", "/v1/jobs")).status_code for _ in range(80)]
        assert codes[0] == 401 and codes[-1] == 429


async def test_events_of_nodes_and_queues_name_no_other_jobs() -> None:
    """Lists of jobs and names of queues in them are those that the caller may see (A17)."""
    async with SignedWorld() as world:
        await world.configure(mine={}, secretqueue={})
        await world.person("mia", member="queue:mine", viewer="pool:nosuch")
        await world.person("noa", operator="pool:default")
        await world.node("n1")
        hidden = await world.submit(queue="secretqueue")
        assert (await world.ask("owner", "POST", f"/v1/jobs/{hidden}:cancel")).status_code == 200
        await world.ask("owner", "POST", "/v1/queues:apply", json={"queues": {"mine/old": {}, "mine/new": {}}})
        removed = await world.ask("owner", "DELETE", "/v1/queues/mine/old?moveTo=secretqueue")
        assert removed.status_code < 500, removed.text
        text = (await world.ask("mia", "GET", "/v1/events?from=1&limit=1000")).text
        assert "QueueRemoved" in text and "secretqueue" not in text, text


@pytest.mark.parametrize("name", ["secret-", "secret_", "s"])
async def test_names_that_end_in_marks_are_hidden_too(name: str) -> None:
    """A reason is cleaned of every name that a queue can have."""
    async with SignedWorld() as world:
        await world.configure(**{name: {}, "mine": {}})
        await world.person("mia", member="queue:mine")
        sight = Sight(
            world.gateway.views, Caller(world.gateway.views, principal="mia", credential="mia", is_token=True)
        )
        for text in (f"queue {name} is full", f'"{name}", then', f"({name})", f"of {name}.", f"{name}/"):
            assert name not in scrub(sight, text).split("(hidden)")[0].replace(" is full", "").split(), text
            assert "(hidden)" in scrub(sight, text), text


async def test_rights_of_a_job_follow_its_queue() -> None:
    """Moved, it is its new queue's at once: for reading, its past, its logs and its events, and for those who may cancel (A15, A17)."""
    async with SignedWorld() as world:
        await world.configure(research__vision={}, research__vis={}, secret={})
        await world.person("vic", queue_admin="queue:research/vision")
        await world.person("sue", queue_admin="queue:secret")
        job = await world.submit(queue="research/vision", name="moved-name", startAt="2099-01-01T00:00:00Z")
        then = world.gateway.views.sequence
        assert (await world.ask("vic", "GET", f"/v1/jobs/{job}")).status_code == 200
        assert (await world.ask("sue", "GET", f"/v1/jobs/{job}")).status_code == 404
        assert (await world.ask("owner", "POST", f"/v1/jobs/{job}:move", json={"queue": "secret"})).status_code == 200
        missing = body_of(await world.ask("vic", "GET", "/v1/jobs/9999"))
        for path in (f"/v1/jobs/{job}", f"/v1/jobs/{job}/why", f"/v1/jobs/{job}/why?at={then}", f"/v1/jobs/{job}/logs"):
            answer = body_of(await world.ask("vic", "GET", path))
            assert answer[0] == 404 and str(answer).replace(job, "9999") == str(missing), (path, answer)
            if "logs" not in path:
                assert (await world.ask("sue", "GET", path)).status_code == 200
        for path in ("/v1/jobs", "/v1/events?from=1&limit=1000", f"/v1/cluster?at={then}", "/v1/map", "/"):
            assert "moved-name" not in (await world.ask("vic", "GET", path)).text, path
        assert (await world.ask("vic", "POST", f"/v1/jobs/{job}:cancel")).status_code == 404
        assert (
            await world.ask("vic", "POST", f"/v1/jobs/{job}:move", json={"queue": "research/vision"})
        ).status_code == 404
        assert (await world.ask("sue", "POST", f"/v1/jobs/{job}:cancel")).status_code == 200


async def test_nobody_moves_a_job_where_they_may_not_submit() -> None:
    """Also into no queue that they see; one that they do not see is answered as one that does not exist."""
    async with SignedWorld() as world:
        await world.configure(mine={}, seen={}, secret={})
        await world.person("mia", queue_admin="queue:mine", viewer="queue:seen")
        job = await world.submit(queue="mine", startAt="2099-01-01T00:00:00Z")
        codes = {}
        for queue in ("seen", "secret", "secrex"):  # both are as like to a queue that she sees, which is suggested
            answer = await world.ask("mia", "POST", f"/v1/jobs/{job}:move", json={"queue": queue})
            codes[queue] = answer.status_code, answer.text.replace(queue, "X").partition('"request_id"')[0]
        assert codes["seen"][0] == 403 and codes["secret"][0] == 422
        assert codes["secret"] == codes["secrex"]


async def test_a_project_is_for_those_who_may_submit_in_it() -> None:
    """Who may submit to a queue may not name any project there: its secrets and budgets are its own. Dry runs and CloudEvents are judged alike;
    a token reaches a project by naming it, or by no limits; the default project is free.
    """
    async with SignedWorld() as world:
        await world.configure(mine={}, other={})
        await world.person("mia", member="queue:mine")
        await world.person("pat", member="queue:mine")
        await world.grant("pat", "member", "project:llm")
        await world.token("narrow", "pat", scopes=("queue:mine",))
        await world.token("both", "pat", scopes=("queue:mine", "project:llm"))

        async def code(who: str, project: str, path: str = "/v1/jobs") -> int:
            job = {"command": ["true"], "queue": "mine", "project": project}
            answer = await world.ask(who, "POST", path, json=job)
            if answer.status_code == 403:
                why = answer.json()["why"]
                assert (why["verb"], why["on"]) == ("job:submit", f"project:{project}")
            return answer.status_code

        assert [await code("mia", project) for project in ("", "default", "llm", "other")] == [201, 201, 403, 403]
        assert [await code("pat", project) for project in ("", "llm", "other")] == [201, 201, 403]
        assert [await code(who, "llm") for who in ("narrow", "both", "owner")] == [403, 201, 201]
        assert [await code(who, "llm", "/v1/jobs:dryrun") for who in ("mia", "pat")] == [403, 200]
        event = {
            "specversion": "1.0",
            "id": "e1",
            "source": "/ci",
            "type": "fairlead.job.submit.v1",
            "data": {"command": ["true"], "queue": "mine", "project": "llm"},
        }
        headers = {"content-type": "application/cloudevents+json"}
        sent = await world.ask("mia", "POST", "/v1/events", json=event, headers=headers)
        assert sent.status_code == 403, sent.text


async def test_a_job_is_moved_by_those_of_its_project_and_its_source() -> None:
    """The right at the source is `job:cancel` on the job; at the target a role in the job's project counts, one in another does not."""
    async with SignedWorld() as world:
        await world.configure(source={}, target={})
        roles = {
            "lead": ("queue-admin", "queue:source"),
            "own": ("queue-admin", "project:llm"),
            "far": ("member", "queue:target"),
        }
        for who, (role, scope) in roles.items():
            await world.person(who)
            await world.grant(who, role, scope)  # type: ignore[arg-type]
            await world.grant(who, "viewer", "queue:target")
        for project, expected in (
            ("llm", {"lead": 403, "far": 404, "own": 200}),
            ("vlm", {"lead": 403, "far": 404, "own": 404}),
        ):
            job = await world.submit(queue="source", project=project, startAt="2099-01-01T00:00:00Z")
            found = {
                who: (await world.ask(who, "POST", f"/v1/jobs/{job}:move", json={"queue": "target"})).status_code
                for who in expected
            }
            assert found == expected


@pytest.mark.parametrize(
    "path",
    [
        "research/vis",
        "Research/vision",
        "research//vision",
        "research/./vision",
        "research/../research/vision",
        "research/vision/",
        "/research/vision",
        "research%2fvision",
        "research/vi\u0455ion",
        "RESEARCH/VISION",
        "research/vision\0",
        "research/*",
        "research/>",
    ],
)
async def test_a_path_like_another_is_another(path: str) -> None:
    """A right in it and a request for it do not reach research/vision (A15)."""
    async with SignedWorld() as world:
        await world.configure(research__vision={}, research__vis={})
        await world.person("vic", queue_admin="queue:research/vision")
        await world.person("eve", member="queue:research/vis")
        grant = {"subject": "eve", "role": "viewer", "scope": f"queue:{path}"}
        if path != "research/vis":
            assert (await world.ask("owner", "POST", "/v1/access:grant", json=grant)).status_code in (404, 422)
        assert (await world.ask("eve", "GET", "/v1/queues/research/vision")).status_code == 404
        for who in ("vic", "eve"):
            answer = await world.ask(who, "POST", "/v1/jobs", json={"command": ["true"], "queue": path})
            assert answer.status_code == (201 if (who, path) == ("eve", "research/vis") else 422), answer.text


async def test_a_person_has_a_hundred_tokens_and_can_still_sign_in() -> None:
    """The next token is refused and leaves no row. A command's sign-in ends the oldest one instead, because it must work; tokens that
    a person made are never ended for it."""
    async with AccountsWorld() as world:
        ann = await world.person("ann")
        _, text = await world.session(ann)
        accounts, state = world.gateway.accounts, world.gateway.views.access
        first = await accounts.open_cli(ann, SignInAt("local"))
        family = next(iter(state.tokens_of[ann]))
        for _ in range(99):
            await world.token(text)
        refused = await world.ask("POST", "/v1/tokens", {"name": "ci"}, token=text, status=422)
        assert "at most 100 tokens" in refused["detail"]
        assert len(await world.bus.keys("CREDENTIAL", "token")) == 101, "with the owner's"
        second = await accounts.open_cli(ann, SignInAt("local"))
        assert family not in state.tokens and len(state.tokens_of[ann]) == 100
        assert (await world.send("GET", "/v1/whoami", token=second.access)).status_code == 200
        await world.ask("POST", "/v1/tokens", {"name": "ci"}, token=text, status=422)
        assert first.access != second.access


async def test_a_token_of_one_person_says_nothing_for_another() -> None:
    """Sent with another's cookie the token counts alone; the other's session and links stay."""
    async with SignedWorld() as world:
        await world.person("bob", member="queue:default")
        await world.session("i1", "owner")
        both = {"cookie": "fairlead=i1-cookie", "origin": "http://localhost"}
        assert (await world.ask("bob", "GET", "/v1/whoami", headers=both)).json()["principal"] == "bob"
        assert (await world.ask("bob", "POST", "/v1/sign-out", headers=both, json={})).status_code == 409
        assert "i1" in world.gateway.views.access.sessions
        for cookie in (
            "fairlead=bob-token",
            "fairlead=i1-cookie; fairlead=i1-cookie",
            "__Host-fairlead=i1-cookie; __Host-fairlead=x",
        ):
            assert (await world.ask("", "GET", "/v1/whoami", headers={"cookie": cookie})).status_code == 401
        unreadable = {"authorization": "Basic Ym9iOng=", "cookie": "fairlead=i1-cookie"}
        assert (await world.http.get("/v1/whoami", headers=unreadable)).status_code == 401


async def test_who_acts_for_somebody_has_the_admins_rights_and_both_names() -> None:
    """Only an admin by role; the audit names both, and rights that were taken meanwhile count at once."""
    async with SignedWorld() as world:
        await world.person("bob", member="queue:default")
        await world.person("adam", admin="cluster")
        await world.token("weak", "adam", verbs=("job:read",))
        acting = {"X-Fairlead-Act-As": "bob"}
        body = {"command": ["true"]}
        assert (await world.ask("weak", "POST", "/v1/jobs", json=body, headers=acting)).status_code == 403
        assert (
            await world.ask("bob", "POST", "/v1/jobs", json=body, headers={"X-Fairlead-Act-As": "adam"})
        ).status_code == 403
        assert (await world.ask("adam", "POST", "/v1/jobs", json=body, headers=acting)).status_code == 201
        events = (await world.get("owner", "/v1/events?from=1&limit=1000"))["items"]
        (submitted,) = [each["data"] for each in events if each["data"].get("type") == "JobSubmitted"]
        assert submitted["user"] == "bob"
        assert (submitted["authority"]["principal"], submitted["authority"]["act_as"]) == ("adam", "bob")
        await world.revoke("adam", "admin", "cluster")
        assert (await world.ask("adam", "POST", "/v1/jobs", json=body, headers=acting)).status_code == 403


def _without_session(caller: Caller, verb: Verb, target: Target) -> bool:
    """The right alone, also of a session that has ended."""
    return caller._views.access.access.may(caller.principal, verb, target)  # type: ignore[union-attr]


def _by_prefix(reach: Reach, target: Target) -> bool:
    """Queues compared as text (K22)."""
    return reach.cluster or any(target.queue.startswith(name) for name in reach.queues)


async def _nothing(*_: object) -> None:
    return None


async def _age_unknown(*_: object) -> tuple[str, str, int, str]:
    return "local", "", 0, ""


#: (attack, where a guard is, what takes it out)
GUARDS: list[tuple[Callable[[], Awaitable[None]], str, object]] = [
    (test_nobody_makes_credentials_for_whom_they_act, "fairlead_gateway.routes.tokens.require_fresh", _nothing),
    (
        test_an_old_session_makes_no_fresh_one,
        "fairlead_gateway.signon.command_grants.CommandGrants._origin",
        _age_unknown,
    ),
    (test_a_hidden_queue_is_one_that_is_not_there, "fairlead_gateway.routes.access._may_know", lambda *_: True),
    (test_a_token_with_limits_revokes_itself_alone, "fairlead_rights.state.AccessState.may_revoke", lambda *_: True),
    (
        test_a_request_that_outlives_its_session_does_nothing,
        "fairlead_gateway.access.caller.Caller.may",
        _without_session,
    ),
    (
        test_refused_changes_of_a_person_are_bounded,
        "fairlead_gateway.server.request_guard.RefusalLimit.check",
        lambda *_: None,
    ),
    (
        test_an_ended_token_asks_the_bus_a_bounded_number_of_times,
        "fairlead_gateway.access.callers.Callers._count",
        lambda *_: None,
    ),
    (
        test_events_of_nodes_and_queues_name_no_other_jobs,
        "fairlead_gateway.access.event_sight._cleaned",
        lambda _, event: event,
    ),
    (test_rights_of_a_job_follow_its_queue, "fairlead_gateway.access.guard.RouteGuard.admit", _nothing),
    (test_nobody_moves_a_job_where_they_may_not_submit, "fairlead_gateway.routes.jobs.require_move", lambda *_: None),
    (
        test_a_project_is_for_those_who_may_submit_in_it,
        "fairlead_gateway.access.submits.FREE_PROJECTS",
        frozenset(("llm",)),
    ),
    (
        test_who_acts_for_somebody_has_the_admins_rights_and_both_names,
        "fairlead_gateway.access.caller.Caller.require",
        lambda *_, **__: None,
    ),
    (
        test_a_token_of_one_person_says_nothing_for_another,
        "fairlead_gateway.access.callers.session_cookie",
        lambda text: text.split(b";")[0].partition(b"=")[2],
    ),
    (lambda: test_a_path_like_another_is_another("research/vis"), "fairlead_rights.access_list.covers", _by_prefix),
]


@pytest.mark.parametrize(("attack", "guard", "out"), GUARDS, ids=lambda each: each if isinstance(each, str) else "")
async def test_each_attack_succeeds_without_its_guard(
    attack: Callable[[], Awaitable[None]], guard: str, out: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So its test can fail."""
    monkeypatch.setattr(guard, out)
    with pytest.raises(AssertionError):
        await attack()
