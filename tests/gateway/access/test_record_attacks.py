"""Attacks on the record of access by people who are signed in: a flood that hides others, and what a forgotten person leaves behind."""

import pytest

from fairlead_gateway.access.audit_reader import read_history
from fairlead_gateway.access.audit_trail import DENIED_MAX, WAITING_MAX
from fairlead_schemas.units.timestamps import MINUTE_NS
from fairlead_schemas.wire.access_records import UNKNOWN, AccessEntry
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.access.audit_world import DENIED, READ, World


def denied(number: int) -> AccessEntry:
    """A refusal that differs from all others: anybody can name any number of projects."""
    return AccessEntry(kind="denied", at_ns=0, principal="mia", verb="rights:grant", target=f"project:p{number}")


async def test_a_flood_of_refusals_hides_no_access_of_others() -> None:
    """It is bounded by the caller: beyond that many different ones a minute they are one entry with their number."""
    world = World()
    trail = world.trail()
    for number in range(WAITING_MAX + 10):
        trail.note(denied(number))
    trail.note(READ)
    assert trail.lost == 0
    await trail.flush()
    assert [each.kind for each in await world.of("p2")] == ["read"]
    flood = await world.of("mia")
    assert len(flood) == DENIED_MAX + 1 and sum(each.count for each in flood) == WAITING_MAX + 10
    assert [each.count for each in flood if not each.target] == [WAITING_MAX + 10 - DENIED_MAX]


async def test_the_bound_of_refusals_is_of_one_caller_and_one_minute() -> None:
    """Those of others and of later keep their targets; unknown names count together."""
    world = World()
    trail = world.trail()
    for number in range(DENIED_MAX + 5):
        trail.note(denied(number))
        trail.note(AccessEntry(kind="sign_in_failed", at_ns=0, via="local", address=f"10.0.0.{number}"))
    trail.note(DENIED)
    world.now_ns += MINUTE_NS
    trail.note(denied(1_000_000))
    await trail.flush()
    assert "job:812" in [each.target for each in await world.of("p1")]
    assert "project:p1000000" in [each.target for each in await world.of("mia")]
    assert len(await world.of(UNKNOWN)) == DENIED_MAX + 1


async def test_a_member_floods_nothing_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way over HTTP: any member may ask why about any project, and each answer is a refusal of its own."""
    async with AccountsWorld() as world:
        mia = await world.person("mia", "", member="project:llm")
        _, text = await world.session(mia)
        monkeypatch.setattr("fairlead_gateway.access.audit_trail.DENIED_MAX", 3)
        for number in range(5):
            path = f"/v1/access/why?verb=job:read&subject=owner&on=project:p{number}"
            await world.ask("GET", path, token=text, status=403)
        targets = [each.target for each in world.gateway.trail._waiting.values() if each.kind == "denied"]
        assert targets == ["project:p0", "project:p1", "project:p2", ""]


async def test_nothing_of_a_forgotten_person_is_written_afterwards() -> None:
    """Entries that wait in memory have an address; so have those of other gateways, which the upkeep finds."""
    async with AccountsWorld() as world:
        ann = await world.person("ann", "")
        await world.session(ann)
        entry = AccessEntry(kind="denied", at_ns=0, principal=ann, verb="job:read", target="job:1", address="10.0.0.9")
        trail = world.gateway.trail
        trail.note(entry)
        await world.ask("POST", f"/v1/people/{ann}:forget", {})
        await trail.flush()
        assert (await read_history(world.bus, ann)).entries == []
        trail.note(entry)
        await trail.flush()
        await world.gateway.upkeep.erase_leftovers()
        assert (await read_history(world.bus, ann)).entries == []
        assert await world.gateway.accounts.people.find(ann) is None
