"""Attacks by people who are signed in: wider rights by tokens, names of others' things in answers, streams and the past (A14 to A17)."""

import asyncio

import pytest

from fairlead_gateway.access.accounts import SignInAt
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.server.http_server import HttpSettings
from fairlead_schemas.wire import commands as cmd
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.access.signed_world import SignedWorld, body_of


async def test_nobody_makes_credentials_for_whom_they_act() -> None:
    """An admin who acts for somebody gets no token of theirs: it would act in their name without saying so (A14)."""
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
            if path == "secretqueue":
                hidden = texts
        assert hidden == texts


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
    """By the principal, whom the head does not state (A21). Another person at the same address goes on."""
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
        await world.ask("owner", "POST", "/v1/queues:apply", json={"queues": {"old": {}}})
        await world.grant("mia", "viewer", "queue:old")
        removed = await world.ask("owner", "DELETE", "/v1/queues/old?moveTo=secretqueue")
        assert removed.status_code < 500, removed.text
        text = (await world.ask("mia", "GET", "/v1/events?from=1&limit=1000")).text
        assert "QueueRemoved" in text and "secretqueue" not in text, text


@pytest.mark.parametrize("name", ["secret-", "secret_", "s"])
async def test_names_that_end_in_marks_are_hidden_too(name: str) -> None:
    """A reason is cleaned of every name that a queue can have."""
    from fairlead_gateway.access.redaction import scrub
    from fairlead_gateway.access.targets import Sight

    async with SignedWorld() as world:
        await world.configure(**{name: {}, "mine": {}})
        await world.person("mia", member="queue:mine")
        sight = Sight(
            world.gateway.views, Caller(world.gateway.views, principal="mia", credential="mia", is_token=True)
        )
        for text in (f"queue {name} is full", f'"{name}", then', f"({name})", f"of {name}.", f"{name}/"):
            assert name not in scrub(sight, text).split("(hidden)")[0].replace(" is full", "").split(), text
            assert "(hidden)" in scrub(sight, text), text
