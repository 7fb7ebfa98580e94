"""Roles over HTTP: who am I, grants, groups, and why a person may or may not; now and at a past moment."""

import pytest

from fairlead_schemas.wire.commands import SyncGroup
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.gatehouse import Gatehouse
from tests.kit.eventually import eventually_async


async def test_a_new_person_has_no_right_at_all() -> None:
    """Admitted, they know who they are, and see and do nothing else (A23); also with a group that has no role."""
    async with AccountsWorld() as world:
        ann = await world.person("ann")
        await world.gateway.accounts.send(SyncGroup(id="g1", group="group:empty", source="corp", added=(ann,)))
        _, text = await world.session(ann)
        who = await world.ask("GET", "/v1/whoami", token=text)
        assert (who["login"], who["kind"], who["groups"], who["roles"]) == ("ann", "person", ["empty"], [])
        assert (await world.ask("GET", "/v1/jobs", token=text))["items"] == []
        for path in ("/v1/nodes", "/v1/queues", "/v1/people", "/v1/service-accounts"):
            await world.ask("GET", path, token=text, status=403)
        assert (await world.ask("GET", "/v1/access", token=text))["items"] == []
        assert [each["name"] for each in (await world.ask("GET", "/v1/groups", token=text))["items"]] == ["empty"]


async def test_a_role_counts_as_soon_as_it_is_answered_and_until_it_is_taken_back() -> None:
    """Granted by login name, listed with its source, and gone again; taken back twice is 404."""
    async with AccountsWorld() as world:
        ann = await world.person("ann")
        _, text = await world.session(ann)
        grant = {"subject": "ann", "role": "viewer", "scope": "cluster"}
        shown = await world.ask("POST", "/v1/access:grant", grant)
        assert shown == {
            "subject": ann,
            "subject_name": "ann",
            "role": "viewer",
            "scope": "cluster",
            "sources": ["person"],
        }
        await world.ask("GET", "/v1/nodes", token=text)
        assert (await world.ask("GET", "/v1/access", token=text))["items"] == [shown]
        assert (await world.ask("POST", "/v1/access:revoke", grant))["sources"] == []
        await world.ask("GET", "/v1/nodes", token=text, status=403)
        await world.ask("POST", "/v1/access:revoke", grant, status=404)


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"subject": "nemo", "role": "viewer", "scope": "cluster"}, 404, "unknown_principal"),
        ({"subject": "ann", "role": "boss", "scope": "cluster"}, 422, "role"),
        ({"subject": "ann", "role": "viewer", "scope": "queue:Nope!"}, 422, "scope"),
        ({"subject": "ann", "role": "viewer", "scope": "queue:no-such"}, 404, "unknown_queue"),
        ({"subject": "ann", "role": "admin", "scope": "pool:a100"}, 422, "role"),
        ({"subject": "group:Bad Name", "role": "viewer", "scope": "cluster"}, 422, "group"),
        ({"subject": "ann", "role": "viewer", "scope": "job:99"}, 404, "unknown_job"),
    ],
)
async def test_a_grant_that_cannot_be_is_refused(body: dict[str, str], status: int, word: str) -> None:
    """Unknown subjects, roles and things; the log grows by a refusal of the core at most."""
    async with AccountsWorld() as world:
        await world.person("ann")
        answer = await world.ask("POST", "/v1/access:grant", body, status=status)
        assert word in str(answer)
        assert len(list(world.gateway.views.access.access.grants)) == 1


async def test_nobody_grants_more_than_they_hold() -> None:
    """An admin of queues makes nobody an admin or an auditor, and the answer names the verb that is missing (A14). A token that is limited to the
    right to grant gives nothing else away."""
    async with AccountsWorld() as world:
        lead = await world.person("lead", queue_admin="cluster")
        await world.person("ann")
        _, text = await world.session(lead)
        grant = {"subject": "ann", "scope": "cluster"}
        for role, missing in (("admin", "audit:read"), ("auditor", "audit:read"), ("operator", "node:operate")):
            refused = await world.ask("POST", "/v1/access:grant", {**grant, "role": role}, token=text, status=403)
            assert refused["why"]["verb"] == missing and missing in refused["detail"]
        await world.ask("POST", "/v1/access:grant", {**grant, "role": "member"}, token=text)
        _, admin = await world.session(await world.gateway.accounts.people.resolve("owner"))
        narrow = await world.token(admin, verbs=["rights:grant"])
        body = {**grant, "role": "admin"}
        refused = await world.ask("POST", "/v1/access:grant", body, token=narrow["token"], status=403)
        assert refused["why"]["token"]


async def test_the_last_admin_can_be_neither_removed_nor_suspended() -> None:
    """409 with the reason; with a second admin both work."""
    async with AccountsWorld() as world:
        grant = {"subject": "owner", "role": "admin", "scope": "cluster"}
        assert (await world.ask("POST", "/v1/access:revoke", grant, status=409))["type"].endswith("last_admin")
        assert (await world.ask("POST", "/v1/people/owner:suspend", status=409))["type"].endswith("last_admin")
        assert (await world.ask("POST", "/v1/people/owner:forget", status=409))["type"].endswith("last_admin")
        await world.person("ann", admin="cluster")
        await world.ask("POST", "/v1/access:revoke", grant)


async def test_why_answers_now_and_at_any_past_sequence() -> None:
    """After a grant was taken back, the answer at its sequence names it; a third person may not ask."""
    async with AccountsWorld() as world:
        ann = await world.person("ann")
        eve = await world.person("eve")
        grant = {"subject": "ann", "role": "operator", "scope": "cluster"}
        await world.ask("POST", "/v1/access:grant", grant)
        then = world.gateway.views.sequence
        await world.ask("POST", "/v1/access:revoke", grant)
        path = "/v1/access/why?subject=ann&verb=node:operate&on=cluster"
        now = await world.ask("GET", path)
        assert (now["allowed"], now["missing"]) == (False, "node:operate")
        assert now["givers"] == ["owner"]
        past = await world.ask("GET", f"{path}&at={then}")
        assert (past["allowed"], past["sequence"]) == (True, then)
        assert past["grants"] == [{"subject": ann, "role": "operator", "scope": "cluster"}]
        assert past["sentence"] == "ann may node:operate on the cluster: ann is operator in cluster"
        before = await world.ask("GET", f"{path}&at=1")
        assert "unknown" in before["sentence"]
        _, text = await world.session(eve)
        await world.ask("GET", path, token=text, status=403)
        own = await world.ask("GET", "/v1/access/why?verb=job:read", token=text)
        assert not own["allowed"]
        _, text = await world.session(ann)
        await world.ask("GET", path, token=text)


async def test_grants_of_others_are_seen_where_one_may_grant() -> None:
    """A member sees their own, an auditor and an admin all."""
    async with AccountsWorld() as world:
        ann = await world.person("ann", member="pool:a100")
        aud = await world.person("aud", auditor="cluster")
        seen = {}
        for login, principal in (("ann", ann), ("aud", aud)):
            _, text = await world.session(principal)
            items = (await world.ask("GET", "/v1/access", token=text))["items"]
            seen[login] = {each["subject_name"] for each in items}
        assert seen == {"ann": {"ann"}, "aud": {"ann", "aud", "owner"}}
        assert len((await world.ask("GET", "/v1/access?subject=ann"))["items"]) == 1


async def test_without_sign_on_accounts_are_not_changed() -> None:
    """The gateway says who it takes the caller for, and refuses changes with what to set."""
    async with Gatehouse() as house:
        await eventually_async(lambda: house.gateway.folding.caught_up)
        assert (await house.http.get("/v1/whoami")).json()["principal"] == "anonymous"
        body = {"subject": "ann", "role": "viewer", "scope": "cluster"}
        answer = await house.http.post("/v1/access:grant", json=body)
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:fairlead:problem:sign_on_off")


async def test_why_names_no_roles_that_the_asker_may_not_see() -> None:
    """A lead may ask about a person in their own project, and learns nothing about projects of others."""
    async with AccountsWorld() as world:
        lead = await world.person("lead", "", queue_admin="project:mine")
        ann = await world.person("ann", "", viewer="project:mine", member="project:secret")
        _, text = await world.session(lead)
        path = "/v1/access/why?verb=queue:set&subject=ann&on=project:mine"
        shown = (await world.ask("GET", path, token=text))["sentence"]
        assert "ann is viewer in project:mine" in shown and "secret" not in shown and "roles elsewhere" in shown
        _, own = await world.session(ann)
        assert (
            "project:secret"
            in (await world.ask("GET", "/v1/access/why?verb=queue:set&on=cluster", token=own))["sentence"]
        )


async def test_a_refusal_of_the_access_service_names_people_by_login_name() -> None:
    """The service knows ids alone; an answer with one would mean nothing to the person who reads it."""
    async with AccountsWorld() as world:
        refused = await world.ask("POST", "/v1/people/owner:suspend", {}, status=409)
        assert refused["detail"] == "owner is the last admin; make another one first"
