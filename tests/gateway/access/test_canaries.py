"""Secrets and people in what is kept and written: planted texts are in the erasable buckets and nowhere else (A21)."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fairlead_bus.port import Stored
from fairlead_gateway.access.accounts import NewPerson, SignInAt
from fairlead_replay.archive.archiver import Archiver
from fairlead_replay.archive.checkpoints import Signer
from fairlead_replay.archive.store import Store
from fairlead_replay.export import write_export
from fairlead_schemas.units.timestamps import HOUR_NS
from fairlead_schemas.wire import subjects
from tests.gateway.access.accounts_world import AccountsWorld
from tests.kit.eventually import eventually_async

if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd
else:
    from compression import zstd

MAIL = "canary.mail@corp.example"
NAME = "Canary Q. Person"
PASSWORD = "canary-password-1"
SUBJECT = "canary-subject-at-provider"
AGENT = "canary-agent/1.0"
ADDRESS = "203.0.113.77"
HOOK = "canary-hook.corp.example"
PLANTED = (MAIL, NAME, PASSWORD, SUBJECT, AGENT, ADDRESS, HOOK)
#: Place of the API token in the list of secret texts.
API_TOKEN = 4
#: Streams and buckets in which people may be: each of their texts can be erased there.
ERASABLE = ("PEOPLE", "CREDENTIAL", "AUDIT", "NOTIFY")


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
    rule = {"on": ["end"], "webhook": f"https://{HOOK}/{HOOK}"}
    await world.ask("POST", "/v1/notifications", rule, token=answer["access_token"], status=201)
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


async def _work_for_a_day(world: AccountsWorld, token: str) -> None:
    """Submit, read, refuse, grant and name people in queue files, and let the gateway look after its rows as it does for a day."""
    job = {"command": ["true"], "queue": "default", "startAt": "2099-01-01T00:00:00Z"}
    await world.send("POST", "/v1/jobs", job, token=token)
    await world.ask("POST", "/v1/access:grant", {"subject": "ann", "role": "member", "scope": "queue:default"})
    made = await world.ask("POST", "/v1/jobs", job, token=token, status=201)
    await world.send("GET", f"/v1/jobs/{made['id']}/why")
    file = {"queues": {"lab": {"users": {"ann": {"nvidia.com/gpu": 1}}, "roles": {"ann": "viewer"}}}}
    await world.ask("POST", "/v1/queues:apply", file)
    await world.send("POST", "/v1/queues:apply", {"queues": {"lab": {"users": {MAIL: {}}, "roles": {NAME: "viewer"}}}})
    await world.send("GET", f"/v1/access/why?verb=job:read&subject={MAIL}")
    await world.send("POST", f"/v1/jobs/{made['id']}:cancel", {}, token=token)
    gateway = world.gateway
    trail_ns, upkeep_ns = gateway.trail._clock, gateway.upkeep._clock
    for hour in range(24):
        gateway.trail._clock = lambda ahead_ns=hour * HOUR_NS: trail_ns() + ahead_ns
        gateway.upkeep._clock = lambda ahead_ns=hour * HOUR_NS: upkeep_ns() + ahead_ns
        await world.send("GET", "/v1/jobs", token=token + "x")
        await world.send("GET", f"/v1/jobs/{made['id']}")
        await gateway.upkeep.store_uses()
        await gateway.upkeep.erase_leftovers()
        await gateway.trail.flush()
    gateway.trail._clock, gateway.upkeep._clock = trail_ns, upkeep_ns
    await gateway.save()


def _files(directory: Path) -> dict[str, bytes]:
    """Return {path: content} of all files, without their compression."""
    return {
        str(path.relative_to(directory)): zstd.decompress(path.read_bytes())
        if path.suffix == ".zst"
        else path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


async def _kept_elsewhere(world: AccountsWorld, directory: Path) -> dict[str, bytes]:
    """{place: bytes} of an archive of the log, an export of it, stored snapshots, and metrics."""
    bus, signer = world.hub.connect(), Signer("fairlead.log/test", bytes(range(32)))
    store = Store(directory / "archive", signer, segment_events=10)
    try:
        await Archiver(bus, store, checkpoint_events=5).catch_up()
    finally:
        store.close()
    log = [Stored(each.sequence, each.subject, each.payload) for each in world.hub.streams[subjects.LOG].messages]
    write_export(directory / "export", log)
    found = _files(directory)
    found |= {name: b"".join(objects.values()) for name, objects in world.hub.objects.items()}
    return found | {"metrics": (await world.send("GET", "/metrics")).content}


async def test_planted_texts_are_in_the_erasable_buckets_alone(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Neither the log, the commands, snapshots, exports, the archive, metrics, any other bucket nor what the services write has a name, an
    address, a password, a token, or a digest of one, after a day of use. Credentials are not even in the buckets."""
    async with AccountsWorld(queue=True) as world:
        secrets = await _use_everything(world)
        await _work_for_a_day(world, secrets[API_TOKEN])
        digests = [each.group() for each in re.finditer(rb"digest\.[0-9a-f]{64}", stored(world)["CREDENTIAL"])]
        assert len(digests) >= 5
        await eventually_async(lambda: world.gateway.folding.caught_up)
        written = "".join(capfd.readouterr())
        kept = stored(world) | {"snapshot": world.gateway.views.snapshot()} | await _kept_elsewhere(world, tmp_path)
        principal = (await world.gateway.accounts.people.resolve("ann")).encode()
        assert principal in kept["LOG"] and principal in kept["snapshot"] and MAIL.encode() in kept["PEOPLE"], (
            "the test sees what is stored"
        )
        for place in ("archive/segments/", "export/log.jsonl", "SNAPSHOT"):
            assert any(principal in content for name, content in kept.items() if name.startswith(place)), place
        assert b"fairlead_jobs" in kept["metrics"]
        keys = [rule.secret for rule in world.gateway.rules.rules.values()]
        assert keys and HOOK.encode() in kept["NOTIFY"]
        for text in (*PLANTED, *keys, *secrets, *(each.decode().partition(".")[2] for each in digests)):
            assert text not in written, text
            for stream, content in kept.items():
                if stream not in ERASABLE:
                    assert text.encode() not in content, (text, stream)
        for text in (PASSWORD, *secrets):
            assert not [stream for stream in ERASABLE if text.encode() in kept.get(stream, b"")], text
