"""The record of access over HTTP: who looked into whose job, who was refused, who signed in."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fairlead_gateway.access.accounts import SignInAt
from fairlead_gateway.signon.oidc import OidcProvider
from fairlead_gateway.signon.sealing import Sealing
from fairlead_gateway.signon.settings import Provider
from fairlead_schemas.units.timestamps import MINUTE_NS
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire.access_records import AccessEntry
from tests.gateway.access.accounts_world import PASSWORD, AccountsWorld
from tests.gateway.signon.exchange_rule import with_rule
from tests.kit.eventually import eventually_async
from tests.kit.token_issuer import CLIENT, ISSUER, NOW_S, claims, part, private_key, public_jwk, sign

CORP = Provider(name="corp", issuer=ISSUER, client_id=CLIENT, client_secret="s", admit="everyone")
OTHER = private_key("ES256")

JOB = {"name": "a", "queue": "default", "command": ["true"]}


async def of(world: AccountsWorld, token: str, about: str = "me") -> list[dict[str, Any]]:
    """What is noted of a principal by now, the newest first."""
    await world.gateway.trail.flush()
    return (await world.ask("GET", f"/v1/audit/access?about={about}", token=token))["items"]


async def test_the_owner_of_a_job_sees_who_looked_into_it() -> None:
    """By name and verb, without the address; one's own looks are no entry. An admin's look counts."""
    async with AccountsWorld(queue=True) as world:
        ann = await world.person("ann", member="cluster")
        _, mine = await world.session(ann)
        job = (await world.ask("POST", "/v1/jobs", JOB, token=mine, status=201))["id"]
        for path in (f"/v1/jobs/{job}", f"/v1/jobs/{job}/why", f"/v1/jobs/{job}"):
            await world.ask("GET", path, token=mine)
            await world.ask("GET", path)
        (read,) = [each for each in await of(world, mine) if each["kind"] == "read"]
        assert (read["login"], read["verb"], read["target"], read["owner"]) == ("owner", "job:read", f"job:{job}", ann)
        assert read["address"] == "" and read["count"] == 3
        (own,) = [each for each in await of(world, world.owner) if each["kind"] == "read"]
        assert own["address"] and own["target"] == f"job:{job}"


async def test_refusals_are_noted_on_both_paths() -> None:
    """Of a route of its own, and of a submit, which is answered past the framework; by the verb that was missing."""
    async with AccountsWorld(queue=True) as world:
        bob = await world.person("bob", viewer="queue:default")
        _, token = await world.session(bob)
        job = (await world.ask("POST", "/v1/jobs", JOB, status=201))["id"]
        await world.ask("POST", f"/v1/jobs/{job}:cancel", {}, token=token, status=403)
        await world.ask("POST", "/v1/jobs", JOB, token=token, status=403)
        denied = [each for each in await of(world, token) if each["kind"] == "denied"]
        assert {(each["verb"], each["target"]) for each in denied} == {
            ("job:cancel", f"job:{job}"),
            ("job:submit", "queue:default"),
        }


async def test_sign_ins_are_noted_and_those_of_unknown_names_stand_apart() -> None:
    """Nothing of what was typed is kept."""
    async with AccountsWorld() as world:
        await world.person("ann")
        answer = await world.ask(
            "POST", "/v1/sign-in/local", {"login": "ann", "password": PASSWORD}, token="", accept="application/json"
        )
        wrong = {"login": "ann", "password": "a wrong password"}
        await world.ask("POST", "/v1/sign-in/local", wrong, token="", status=401)
        nobody = {"login": "hunter2", "password": "a wrong password"}
        await world.ask("POST", "/v1/sign-in/local", nobody, token="", status=401)
        mine = await of(world, answer["access_token"])
        assert [each["kind"] for each in mine] == ["sign_in_failed", "signed_in"]
        unknown = await of(world, world.owner, "unknown")
        assert [each["kind"] for each in unknown] == ["sign_in_failed"]
        stored = b"".join(each.payload for each in world.hub.streams["AUDIT"].messages)
        assert b"hunter2" not in stored and b"wrong password" not in stored and PASSWORD.encode() not in stored


async def _attacks(world: AccountsWorld) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """Send tokens of attacks (A9, A10, A13) at every place that takes one; yield the expected line of each."""
    played, exchanged = await with_rule(world)
    sealing = Sealing([b"k" * 32])
    provider = OidcProvider(CORP, "http://localhost", played.client(), sealing, lambda: NOW_S)
    world.gateway.sign_on.providers["corp"] = provider
    forged = {
        "none": part({"alg": "none", "kid": "k1"}) + "." + part(claims()) + ".",
        "HS256": part({"alg": "HS256", "kid": "k1"}) + "." + part(claims()) + ".AA",
        "key in the header": sign(OTHER, "ES256", claims(), jwk=public_jwk(OTHER, "ES256", "k1")),
        "another key": sign(OTHER, "ES256", claims()),
        "expired": sign(played.key, "ES256", claims(exp=NOW_S - 900, iat=NOW_S - 990)),
        "audience": sign(played.key, "ES256", claims(aud="other")),
        "over 16 KiB": "A" * 17_000,
    }
    for name, token in forged.items():
        await exchanged(token)
        yield f"exchange: {name}", {"kind": "token_refused", "via": "token-exchange"}
        answer = await world.http.post("/sign-in/corp/back-channel-logout", data={"logout_token": token})
        assert answer.status_code == 400
        yield f"logout: {name}", {"kind": "token_refused", "via": "corp"}
        asked, cookie = await _begun(provider)
        played.token_answer = {"id_token": token, "access_token": "x"}
        answer = await world.http.get(
            "/sign-in/corp/callback",
            params={"code": "c", "state": asked, "iss": ISSUER},
            headers={"cookie": f"fairlead-sign-in={cookie}"},
        )
        assert answer.status_code == 403, answer.text
        yield f"callback: {name}", {"kind": "sign_in_failed", "via": "corp"}
    await world.http.get("/sign-in/corp/callback?code=c&state=of-another-browser")
    yield "state", {"kind": "sign_in_failed", "via": "corp"}
    for grant in (
        {"grant_type": "refresh_token", "refresh_token": "x"},
        {"grant_type": "authorization_code", "code": "x"},
    ):
        await world.http.post("/v1/token", data=grant)
        yield str(grant), {"kind": "token_refused", "via": grant["grant_type"]}
    await world.send("GET", "/v1/jobs", token="flp_" + "x" * 36)
    yield "unknown token", {"kind": "token_refused", "via": ""}


async def _begun(provider: OidcProvider) -> tuple[str, str]:
    address, cookie = await provider.begin("/")
    return parse_qs(urlsplit(address).query)["state"][0], cookie


async def test_each_attack_with_a_token_leaves_one_line() -> None:
    """In the chain of those without a name, by the provider or grant and the address; nothing of the token."""
    async with AccountsWorld() as world:
        trail, now_ns, seen = world.gateway.trail, 10**18, 0
        trail._clock = lambda: now_ns
        async for attack, expected in _attacks(world):
            items = await of(world, world.owner, "unknown")
            assert len(items) == seen + 1, attack
            assert {name: items[0][name] for name in expected} == expected, attack
            assert items[0]["address"] and items[0]["count"] == 1, attack
            seen, now_ns = seen + 1, now_ns + 2 * MINUTE_NS
        assert seen > 20


async def test_a_flood_of_refused_tokens_is_one_line() -> None:
    """And one more for those that come after it within a minute, with their number; an ended token is noted with the person whose it was."""
    async with AccountsWorld() as world:
        trail, now_ns = world.gateway.trail, 10**18
        trail._clock = lambda: now_ns
        _, exchanged = await with_rule(world)
        for number in range(40):
            await exchanged(f"a.b{number}.c")
            await world.send("GET", "/v1/jobs", token=f"flp_{number}")
        await trail.flush()
        now_ns += MINUTE_NS
        items = await of(world, world.owner, "unknown")
        for via in ("", "token-exchange"):
            counts = [each["count"] for each in items if each["via"] == via]
            assert sum(counts) == 40 and len(counts) <= 2, counts
        ann = await world.person("ann")
        _, text = await world.session(ann)
        made = await world.token(text)
        await world.gateway.accounts.send(
            cmd.RevokeToken(id="by-itself", token=made["id"])
        )  # as one that expires: its row stays
        for _ in range(3):
            await world.ask("GET", "/v1/jobs", token=made["token"], status=401)
        (line,) = [each for each in await of(world, text) if each["kind"] == "token_refused"]
        assert (line["via"], line["count"]) == (f"token:{made['id']}", 3)
        tokens = await world.gateway.accounts.open_cli(ann, SignInAt("local"))
        await world.gateway.accounts.refresh(tokens.refresh)
        await world.http.post("/v1/token", data={"grant_type": "refresh_token", "refresh_token": tokens.refresh})
        assert "refresh_token" in [each["via"] for each in await of(world, text) if each["kind"] == "token_refused"]


async def test_the_record_of_others_needs_a_right() -> None:
    """An admin or auditor of the cluster; everybody has their own."""
    async with AccountsWorld() as world:
        ann, _ = await world.person("ann"), await world.person("eve", auditor="cluster")
        _, mine = await world.session(ann)
        refused = await world.ask("GET", "/v1/audit/access?about=owner", token=mine, status=403)
        assert refused["why"]["verb"] == "audit:read"
        assert await of(world, world.owner, "ann") != []
        bad = await world.ask("GET", "/v1/audit/access?from=noon", token=mine, status=422)
        assert bad["errors"][0]["field"] == "from"


async def test_a_record_is_read_in_pages() -> None:
    """By the token of the page before; another token is refused by its field."""
    async with AccountsWorld() as world:
        for _ in range(5):
            await world.session(await world.gateway.accounts.people.resolve("owner"))
            await world.gateway.trail.flush()
        path, found = "/v1/audit/access?limit=2", list[str]()
        page = await world.ask("GET", path)
        while page["next"]:
            assert len(page["items"]) == 2
            found += [each["at"] for each in page["items"]]
            page = await world.ask("GET", f"{path}&continue={page['next']}")
        found += [each["at"] for each in page["items"]]
        assert found == [each["at"] for each in (await world.ask("GET", "/v1/audit/access"))["items"]]
        bad = await world.ask("GET", f"{path}&continue=x", status=422)
        assert bad["errors"][0]["field"] == "continue"


async def test_the_last_entries_survive_a_stop() -> None:
    """They are written at once; a bus that is away does not hold the stop."""
    async with AccountsWorld() as world:
        trail = world.gateway.trail
        trail.note(AccessEntry(kind="signed_in", at_ns=0, principal="p1", via="local"))
        await world.gateway.save()
        assert b"p1" in b"".join(each.payload for each in world.hub.streams["AUDIT"].messages)
        world.hub.stop()
        trail.note(AccessEntry(kind="signed_in", at_ns=0, principal="p2", via="local"))
        async with asyncio.timeout(60):
            await world.gateway.save()
        world.hub.start()


async def test_the_gateway_writes_by_itself() -> None:
    """Once a second, without a reader."""
    async with AccountsWorld() as world:
        await world.person("ann")
        await world.session(await world.gateway.accounts.people.resolve("ann"))
        await eventually_async(lambda: bool(world.hub.streams["AUDIT"].messages))
