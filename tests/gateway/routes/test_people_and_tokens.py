"""People, service accounts and tokens over HTTP."""

import pytest

from fairlead_gateway.access.accounts import SignInAt
from fairlead_gateway.access.caller import Caller
from fairlead_gateway.errors import HttpError
from fairlead_gateway.routes.tokens import FRESH_NS
from fairlead_gateway.signon.command_grants import GrantError
from fairlead_schemas.units.timestamps import HOUR_NS, rfc3339
from fairlead_schemas.units.token_text import check
from fairlead_schemas.wire import subjects
from tests.gateway.access.accounts_world import PASSWORD, AccountsWorld


async def test_a_login_name_belongs_to_one() -> None:
    """A second person or service account of the name is 409, and leaves no row."""
    async with AccountsWorld() as world:
        ann = await world.person("ann")
        rows = len(world.hub.buckets[subjects.PEOPLE])
        await world.ask("POST", "/v1/people", {"login": "ann"}, status=409)
        await world.ask("POST", "/v1/service-accounts", {"login": "ann"}, status=409)
        assert len(world.hub.buckets[subjects.PEOPLE]) == rows
        shown = await world.ask("GET", "/v1/people/ann")
        assert (shown["id"], shown["state"], shown["kind"]) == (ann, "active", "person")
        listed = (await world.ask("GET", "/v1/people"))["items"]
        assert {each["login"]: each["id"] for each in listed} == {"ann": ann, "owner": world_owner(world)}


def world_owner(world: AccountsWorld) -> str:
    """The owner's id."""
    return world.gateway.views.access.tokens[next(iter(_owner_tokens(world)))].principal


def _owner_tokens(world: AccountsWorld) -> list[str]:
    return [each.id for each in world.gateway.views.access.tokens.values() if each.kind == "owner"]


@pytest.mark.parametrize(
    "body",
    [
        {"login": "x" * 64},
        {"login": "a\nb"},
        {"login": "A"},
        {"login": "ok", "name": "a\nb"},
        {"login": "ok", "email": "x" * 201},
        {"login": "ok", "password": "short"},
        {"login": "ok", "admin": True},
        {},
    ],
)
async def test_text_of_people_has_bounds(body: dict[str, object]) -> None:
    """Long, broken and unknown fields are refused with the field (A21), and nothing is stored."""
    async with AccountsWorld() as world:
        rows = dict(world.hub.buckets[subjects.PEOPLE])
        answer = await world.ask("POST", "/v1/people", body, status=422)
        assert answer["errors"]
        assert world.hub.buckets[subjects.PEOPLE] == rows


async def test_people_are_known_to_who_may_grant_in_the_cluster() -> None:
    """Others see themselves; everybody else does not exist for them."""
    async with AccountsWorld() as world:
        ann = await world.person("ann", member="cluster")
        await world.person("eve")
        _, text = await world.session(ann)
        assert (await world.ask("GET", f"/v1/people/{ann}", token=text))["login"] == "ann"
        hidden = [await world.ask("GET", f"/v1/people/{who}", token=text, status=404) for who in ("eve", "nemo")]
        assert [each["type"] for each in hidden] == ["urn:fairlead:problem:unknown_principal"] * 2
        for verb in ("suspend", "admit", "forget"):
            await world.ask("POST", f"/v1/people/eve:{verb}", token=text, status=403)


async def test_an_auditor_lists_people_and_changes_none() -> None:
    """The record of access names people: its reader may know who they are. A token without the verb may not, and neither may a viewer."""
    async with AccountsWorld() as world:
        audrey, vic = await world.person("audrey", auditor="cluster"), await world.person("vic", viewer="cluster")
        (_, text), (_, others) = await world.session(audrey), await world.session(vic)
        narrow = (await world.token(text, verbs=["job:read"]))["token"]
        found = (await world.ask("GET", "/v1/people", token=text))["items"]
        assert {each["login"] for each in found} == {"owner", "audrey", "vic"}
        assert (await world.ask("GET", "/v1/people/vic", token=text))["id"] == vic
        await world.ask("GET", "/v1/service-accounts", token=text)
        for credential in (others, narrow):
            await world.ask("GET", "/v1/people", token=credential, status=403)
            await world.ask("GET", "/v1/service-accounts", token=credential, status=403)
        for verb in ("suspend", "admit", "forget"):
            await world.ask("POST", f"/v1/people/vic:{verb}", token=text, status=403)


async def test_a_suspended_principal_keeps_its_roles_for_its_return() -> None:
    """Its session and token are refused at once; admitted again it has the roles of before, and needs a new sign-in."""
    async with AccountsWorld() as world:
        ann = await world.person("ann", viewer="cluster")
        _, text = await world.session(ann)
        token = (await world.token(text))["token"]
        assert (await world.ask("POST", "/v1/people/ann:suspend"))["state"] == "suspended"
        for credential in (text, token):
            assert (await world.ask("GET", "/v1/nodes", token=credential, status=401))["why"]["reason"] == "suspended"
        assert (await world.ask("POST", "/v1/people/ann:admit"))["state"] == "active"
        await world.ask("GET", "/v1/nodes", token=text, status=401)
        _, text = await world.session(ann)
        await world.ask("GET", "/v1/nodes", token=text)


async def test_a_token_is_shown_once_and_never_makes_a_token() -> None:
    """It acts for its owner until it is revoked; it makes no tokens and no sign-in links (A14). Its list has no text and no digest."""
    async with AccountsWorld() as world:
        ann = await world.person("ann", viewer="cluster")
        _, text = await world.session(ann)
        answer = await world.send("POST", "/v1/tokens", {"name": "ci", "expires_in": "2h"}, token=text)
        made = answer.json()
        assert (answer.status_code, answer.headers["cache-control"], check(made["token"])) == (201, "no-store", "p")
        for path, body in (("/v1/tokens", {"name": "more"}), ("/v1/sign-in/links", {})):
            refused = await world.ask("POST", path, body, token=made["token"], status=403)
            assert refused["type"].endswith("token_makes_no_token")
        await world.ask("GET", "/v1/nodes", token=made["token"])
        (shown,) = (await world.ask("GET", "/v1/tokens", token=made["token"]))["items"]
        assert (shown["id"], shown["name"], shown["used_at"]) == (made["id"], "ci", None)
        assert made["token"] not in str(shown) and "digest" not in shown
        await world.ask("DELETE", f"/v1/tokens/{made['id']}", token=text)
        refused = await world.ask("GET", "/v1/nodes", token=made["token"], status=401)
        assert refused["why"]["reason"] in ("token_revoked", "unknown")


async def test_tokens_of_the_past_are_what_the_log_has() -> None:
    """One that is revoked was in force then; its name and use are not in the log. Others' are for who may grant roles now."""
    async with AccountsWorld() as world:
        ann = await world.person("ann", viewer="cluster")
        _, text = await world.session(ann)
        made = (await world.send("POST", "/v1/tokens", {"name": "ci", "expires_in": "2h"}, token=text)).json()
        then = made["sequence"]
        await world.ask("DELETE", f"/v1/tokens/{made['id']}", token=text)
        assert (await world.ask("GET", "/v1/tokens", token=text))["items"] == []
        page = await world.ask("GET", f"/v1/tokens?at={then}", token=text)
        (shown,) = page["items"]
        assert (page["sequence"], shown["id"], shown["expires_at"]) == (then, made["id"], made["expires_at"])
        assert (shown["name"], shown["made_at"], shown["used_at"]) == ("", None, None)
        assert (await world.ask("GET", f"/v1/tokens?at={then - 1}", token=text))["items"] == []
        bob = await world.person("bob")
        _, other = await world.session(bob)
        await world.ask("GET", f"/v1/tokens?of=ann&at={then}", token=other, status=403)


async def test_a_token_never_does_what_its_owner_may_not() -> None:
    """Its rights are those of its owner within its limits, at every moment: a limit gives nothing, a lost role counts at once."""
    async with AccountsWorld() as world:
        ann = await world.person("ann", viewer="cluster")
        _, text = await world.session(ann)
        wide = (await world.token(text, verbs=["node:read", "node:operate"]))["token"]
        await world.ask("GET", "/v1/nodes", token=wide)
        await world.ask("GET", "/v1/queues", token=wide, status=403)
        await world.ask("POST", "/v1/breaker:reset", {}, token=wide, status=403)
        await world.ask("POST", "/v1/access:revoke", {"subject": "ann", "role": "viewer", "scope": "cluster"})
        await world.ask("GET", "/v1/nodes", token=wide, status=403)


async def test_a_token_needs_a_young_sign_in_or_the_owners_file() -> None:
    """A session of yesterday's sign-in makes none; the token of the owner's file does."""
    async with AccountsWorld() as world:
        ann = await world.person("ann")
        accounts = world.gateway.accounts
        _, old = await accounts.open_session(
            ann, SignInAt("local"), signed_in_ns=accounts._clock() - FRESH_NS - HOUR_NS
        )
        refused = await world.ask("POST", "/v1/tokens", {"name": "x"}, token=old, status=403)
        assert refused["type"].endswith("sign_in_again")
        await world.ask("POST", "/v1/tokens", {"name": "x"}, status=201)


async def test_service_accounts_get_tokens_from_who_holds_as_much() -> None:
    """The kind is in the token's text; an admin of queues makes none for a service account that is an admin, and no user makes one for
    another person."""
    async with AccountsWorld() as world:
        lead = await world.person("lead", queue_admin="cluster")
        for name, role in (("ci", "member"), ("robot", "admin")):
            await world.ask("POST", "/v1/service-accounts", {"login": name}, status=201)
            await world.ask("POST", "/v1/access:grant", {"subject": name, "role": role, "scope": "cluster"})
        _, text = await world.session(lead)
        made = await world.token(text, **{"for": "ci"})
        assert check(made["token"]) == "s"
        assert (await world.ask("GET", "/v1/whoami", token=made["token"]))["login"] == "ci"
        await world.ask("POST", "/v1/tokens", {"name": "x", "for": "robot"}, token=text, status=403)
        await world.ask("POST", "/v1/tokens", {"name": "x", "for": "owner"}, token=text, status=404)
        assert len((await world.ask("GET", "/v1/tokens?of=ci", token=text))["items"]) == 1
        await world.ask("DELETE", f"/v1/tokens/{made['id']}", token=text)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "a\nb"},
        {"name": "x", "verbs": ["all"]},
        {"name": "x", "scopes": ["queue:"]},
        {"name": "x", "expires_in": "never"},
        {"name": "x", "expires_in": "2y"},
        {"name": "x", "expires_in": "400d"},
        {"name": "x", "kind": "refresh"},
        {"name": "x", "kind": "owner"},
    ],
)
async def test_a_token_that_cannot_be_is_refused(body: dict[str, object]) -> None:
    """Bounds of its fields; the kinds of sign-in and set-up are made by these alone. No row is left."""
    async with AccountsWorld() as world:
        rows = dict(world.hub.buckets[subjects.CREDENTIAL])
        await world.ask("POST", "/v1/tokens", body, status=422)
        assert world.hub.buckets[subjects.CREDENTIAL] == rows


async def test_the_last_use_of_a_token_is_stored_by_the_hour() -> None:
    """Any number of uses within an hour is one write, and the time says no more than the hour."""
    async with AccountsWorld() as world:
        upkeep, gateway = world.gateway.upkeep, world.gateway
        now = gateway.accounts._clock() // HOUR_NS * HOUR_NS + 5
        gateway.callers._clock = lambda: now
        for _ in range(3):
            await world.ask("GET", "/v1/whoami")
            await upkeep.store_uses()
        (shown,) = (await world.ask("GET", "/v1/tokens"))["items"]
        assert shown["used_at"] == rfc3339(now - 5)
        revision = world.hub.revision
        await world.ask("GET", "/v1/whoami")
        await upkeep.store_uses()
        assert world.hub.revision == revision


async def test_a_password_is_changed_by_its_owner_or_a_signed_in_admin() -> None:
    """One's own needs the current one; an admin of queues sets no person's, because that would be all of their rights."""
    async with AccountsWorld() as world:
        lead = await world.person("lead", queue_admin="cluster")
        await world.person("root", admin="cluster")
        _, text = await world.session(lead)
        other = {"password": "another password"}
        await world.ask("POST", "/v1/people/root:password", other, token=text, status=403)
        await world.ask("POST", "/v1/people/root:password", other, status=403)  # the owner's file is a token
        await world.ask("POST", "/v1/people/lead:password", {**other, "current": "wrong"}, token=text, status=403)
        await world.ask("POST", "/v1/people/lead:password", {**other, "current": PASSWORD}, token=text)
        _, admin = await world.session(world_owner(world))
        await world.ask("POST", "/v1/people/root:password", other, token=admin)


async def test_a_new_password_ends_the_other_sign_ins() -> None:
    """Sessions of browsers and of commands, their refresh tokens, links and codes that they made: all end but the session that sets the
    password. One that an admin sets ends them all; tokens of programs continue."""
    async with AccountsWorld() as world:
        ann = await world.person("ann")
        accounts, sessions = world.gateway.accounts, world.gateway.views.access.sessions_of
        own = await accounts.open_cli(ann, SignInAt("local"))
        thief, (stolen, text) = await accounts.open_cli(ann, SignInAt("local")), await world.session(ann)
        token = (await world.token(text))["token"]
        link = await accounts.make_link(ann, stolen)
        grants = world.gateway.sign_on.grants
        device_code, user_code = await grants.begin("laptop", "127.0.0.1")
        await grants.answer(user_code, Caller(world.gateway.views, principal=ann, credential=stolen), allow=True)

        change = {"password": "another password", "current": PASSWORD}
        answer = await world.ask("POST", "/v1/people/ann:password", change, token=own.access)
        assert answer["sessions_ended"] == 2 and list(sessions[ann]) == [own.session]
        for ended in (thief.access, text):
            await world.ask("GET", "/v1/whoami", token=ended, status=401)
        with pytest.raises(HttpError):
            await accounts.refresh(thief.refresh)
        with pytest.raises(HttpError):
            await accounts.take_link(link)
        with pytest.raises(GrantError):
            await grants.poll(device_code)
        await world.ask("GET", "/v1/whoami", token=token)
        kept = await accounts.refresh(own.refresh)

        await world.person("root", admin="cluster")
        _, admin = await world.session(world_owner(world))
        await world.ask("POST", "/v1/people/ann:password", {"password": "a third password"}, token=admin)
        assert ann not in sessions
        with pytest.raises(HttpError):
            await accounts.refresh(kept.refresh)
