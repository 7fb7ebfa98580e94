"""Secrets and people in what is kept and written: planted texts are in the two erasable buckets and nowhere else (A21)."""

import re

import pytest

from fairlead_gateway.access.accounts import NewPerson, SignInAt
from tests.gateway.access.accounts_world import AccountsWorld
from tests.kit.eventually import eventually_async

MAIL = "canary.mail@corp.example"
NAME = "Canary Q. Person"
PASSWORD = "canary-password-1"
SUBJECT = "canary-subject-at-provider"
AGENT = "canary-agent/1.0"
ADDRESS = "203.0.113.77"
PLANTED = (MAIL, NAME, PASSWORD, SUBJECT, AGENT, ADDRESS)
#: Streams and buckets in which people may be: each of their texts can be erased there.
ERASABLE = ("PEOPLE", "CREDENTIAL", "AUDIT")


def stored(world: AccountsWorld) -> dict[str, bytes]:
    """{stream or bucket: all bytes that the server keeps of it}."""
    hub = world.hub
    found = {name: b"\n".join(each.payload for each in held.messages) for name, held in hub.streams.items()}
    for name, rows in hub.buckets.items():
        found[name] = b"\n".join(part for key, entry in rows.items() for part in (key.encode(), entry.value))
    return found


async def _use_everything(world: AccountsWorld) -> list[str]:
    """Sign in, make and refresh credentials in every way. Return the texts that are secret."""
    accounts, secrets = world.gateway.accounts, [world.owner]
    await world.ask(
        "POST", "/v1/people", {"login": "ann", "name": NAME, "email": MAIL, "password": PASSWORD}, status=201
    )
    person = await accounts.admit_person(("https://corp", SUBJECT), NewPerson("bea", NAME, MAIL, "corp"))
    _, cookie = await accounts.open_session(
        person, SignInAt("corp", sid="canary-sid", refresh="canary-sealed", address=ADDRESS, agent=AGENT)
    )
    program = {"accept": "application/json", "user-agent": AGENT}
    answer = (
        await world.http.post("/v1/sign-in/local", json={"login": "ann", "password": PASSWORD}, headers=program)
    ).json()
    secrets += [cookie, answer["access_token"], answer["refresh_token"]]
    token = await world.token(answer["access_token"])
    secrets.append(token["token"])
    link = await world.ask("POST", "/v1/sign-in/links", {}, token=answer["access_token"])
    secrets.append(link["path"].partition("code=")[2])
    renewed = await accounts.refresh(answer["refresh_token"])
    secrets += [renewed.access, renewed.refresh]
    device, typed = await world.gateway.sign_on.grants.begin(AGENT, ADDRESS)
    secrets += [device, typed]
    await world.ask("POST", f"/v1/people/{person}:suspend", {})
    for bad in ({"login": "ann", "password": PASSWORD + "x"}, {"login": MAIL, "password": PASSWORD}):
        await world.http.post("/v1/sign-in/local", json=bad, headers={"user-agent": AGENT})
    await world.send("GET", f"/v1/people/{MAIL}")
    await world.send("GET", "/v1/jobs", token=token["token"] + "x")
    await world.send("POST", "/v1/tokens", {"name": NAME, "secret": PASSWORD})
    return secrets


async def test_planted_texts_are_in_the_erasable_buckets_alone(capfd: pytest.CaptureFixture[str]) -> None:
    """Neither the log, the commands, snapshots, any other bucket nor what the services write has a name, an address, a password, a token,
    or a digest of one. Credentials are not even in the buckets."""
    async with AccountsWorld() as world:
        secrets = await _use_everything(world)
        digests = [each.group() for each in re.finditer(rb"digest\.[0-9a-f]{64}", stored(world)["CREDENTIAL"])]
        assert len(digests) >= 5
        await eventually_async(lambda: world.gateway.folding.caught_up)
        written = "".join(capfd.readouterr())
        kept = stored(world) | {"snapshot": world.gateway.views.snapshot()}
        principal = (await world.gateway.accounts.people.resolve("ann")).encode()
        assert principal in kept["LOG"] and principal in kept["snapshot"] and MAIL.encode() in kept["PEOPLE"], (
            "the test sees what is stored"
        )
        for text in (*PLANTED, *secrets, *(each.decode().partition(".")[2] for each in digests)):
            assert text not in written, text
            for stream, content in kept.items():
                if stream not in ERASABLE:
                    assert text.encode() not in content, (text, stream)
        for text in (PASSWORD, *secrets):
            assert not [stream for stream in ERASABLE if text.encode() in kept.get(stream, b"")], text
