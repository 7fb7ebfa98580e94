"""Accounts over both buckets and the log: one principal for one identity, nothing usable after a crash, erased when forgotten."""

import asyncio
import time
from typing import Any

import pytest

from fairlead_bus.memory import MemoryBus
from fairlead_bus.port import Unavailable
from fairlead_gateway.access.accounts import Accounts, NewPerson, SignInAt
from fairlead_gateway.access.credentials import SETTLED_NS, Credentials
from fairlead_gateway.access.people import PeopleStore
from fairlead_gateway.access.upkeep import AccountUpkeep
from fairlead_gateway.errors import HttpError
from fairlead_gateway.service import Gateway
from fairlead_gateway.sources.live_views import LiveViews
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commands import EndSession, SyncGroup
from tests.gateway.access.accounts_world import AccountsWorld
from tests.kit.eventually import eventually_async

ANN = ("https://corp.example", "sub-1")
NEW = NewPerson("ann", "Ann Example", "ann@corp.example", "corp")


async def second_gateway(world: AccountsWorld) -> Gateway:
    """Another gateway on the same bus, folding."""
    bus = world.hub.connect()
    folding = LiveViews(bus)
    await folding.restore()
    gateway = Gateway(bus, world.settings, folding)
    world._tasks.append(asyncio.create_task(gateway.background()))
    await eventually_async(lambda: gateway.folding.caught_up)
    return gateway


def rows(world: AccountsWorld) -> dict[str, bytes]:
    """All rows of both buckets."""
    buckets = world.hub.buckets
    return {key: entry.value for name in (subjects.PEOPLE, subjects.CREDENTIAL) for key, entry in buckets[name].items()}


async def test_two_gateways_that_admit_an_identity_at_once_find_one_principal() -> None:
    """Whatever the order, one principal is left in the bucket and in the log, and both return it."""
    async with AccountsWorld() as world:
        other = await second_gateway(world)
        found = await asyncio.gather(
            *(each.accounts.admit_person(ANN, NEW) for each in (world.gateway, other) for _ in range(3))
        )
        assert len(set(found)) == 1
        people = [each for each in world.gateway.views.access.kinds if each != await owner(world)]
        assert people == [found[0]]
        assert sorted(key for key in rows(world) if key.startswith("principal.")) == sorted(
            f"principal.{each}" for each in (found[0], await owner(world))
        )


async def owner(world: AccountsWorld) -> str:
    """The owner's id."""
    return await world.gateway.accounts.people.resolve("owner")


async def test_a_person_is_known_by_issuer_and_subject_never_by_mail() -> None:
    """The same address at another provider is another person, who gets another login name; a changed address is the same person.
    Neither has any right."""
    async with AccountsWorld() as world:
        accounts = world.gateway.accounts
        first = await accounts.admit_person(ANN, NEW)
        impostor = await accounts.admit_person(("https://other.example", "sub-1"), NEW)
        assert impostor != first
        assert [await accounts.people.name_of(each) for each in (first, impostor)] == ["ann", "ann-2"]
        assert await accounts.admit_person(ANN, NEW._replace(email="ann@new.example")) == first
        row = await accounts.people.find(first)
        assert row is not None and row.email == "ann@new.example"
        held = world.gateway.views.access.access.held
        assert [*held(first), *held(impostor)] == []


async def test_a_sign_in_ends_no_suspension() -> None:
    """A suspended person is refused at the provider's sign-in, too."""
    async with AccountsWorld() as world:
        principal = await world.gateway.accounts.admit_person(ANN, NEW)
        await world.ask("POST", f"/v1/people/{principal}:suspend")
        with pytest.raises(HttpError) as refused:
            await world.gateway.accounts.admit_person(ANN, NEW)
        assert (refused.value.status, refused.value.code) == (403, "suspended")


async def test_a_changed_person_is_read_again_by_other_gateways() -> None:
    """What one gateway has in memory is dropped when another one writes, and after a lost connection."""
    async with AccountsWorld() as world:
        other = await second_gateway(world)
        await asyncio.sleep(0.01)
        principal = await world.gateway.accounts.admit_person(ANN, NEW)
        assert await other.accounts.people.name_of(principal) == "ann"
        await world.gateway.accounts.people.erase(principal)

        async def gone() -> bool:
            return await other.accounts.people.find(principal) is None

        for _ in range(100):
            if await gone():
                break
            await asyncio.sleep(0.01)
        assert await gone()


class Crash(BaseException):
    """The gateway is killed here."""


class CrashingBus:
    """A bus whose client dies in its nth change: before it, or right after it."""

    def __init__(self, bus: MemoryBus, at: int, *, after: bool) -> None:
        self._bus = bus
        self._left = at
        self._after = after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._bus, name)
        if name not in ("put", "delete", "shred", "append"):
            return found

        async def change(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Crash
            result = await found(*arguments, **named)
            if self._left == 0:
                raise Crash
            return result

        return change


async def crashing(world: AccountsWorld, at: int, *, after: bool) -> tuple[Accounts, Any]:
    """Accounts of a gateway that dies at its nth change of a bucket."""
    bus: Any = CrashingBus(world.hub.connect(), at, after=after)
    gateway = world.gateway
    accounts = Accounts(
        bus,
        gateway.views,
        PeopleStore(bus),
        Credentials(bus, gateway.accounts._clock),
        gateway.access,  # type: ignore[arg-type]
        gateway.accounts._waiter,
    )
    return accounts, bus


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("what", ["admit", "session", "token", "cli"])
async def test_a_crash_at_any_step_leaves_nothing_usable_and_no_row(what: str, after: bool) -> None:
    """Killed at every change of a bucket in turn, before and after it. What was made is not known to anybody, gives nothing before its
    command, and its rows are erased later; the next try succeeds."""
    async with AccountsWorld() as world:
        gateway = world.gateway
        person = await world.person("bob")
        before = set(rows(world))
        for step in range(1, 20):
            accounts, bus = await crashing(world, step, after=after)
            try:
                match what:
                    case "admit":
                        await accounts.admit_person(ANN, NEW)
                    case "session":
                        await accounts.open_session(person, SignInAt("local", sid="s"))
                    case "token":
                        await accounts.issue_token(person, "person", "x", accounts._clock() + SETTLED_NS)
                    case _:
                        await accounts.open_cli(person, SignInAt("local"))
            except Crash:
                pass
            else:
                assert step > 1, "a crash never happened"
                break
            assert bus._left == 0
            later = AccountUpkeep(gateway.views, gateway.callers, gateway.accounts, lambda: True)
            clock = gateway.accounts._clock
            later._clock = gateway.accounts.credentials._clock = lambda: time.time_ns() + 2 * SETTLED_NS
            await later.erase_leftovers()
            gateway.accounts.credentials._clock = clock
            in_force = {*gateway.views.access.tokens, *gateway.views.access.sessions, *gateway.views.access.kinds}
            left = {key for key in set(rows(world)) - before if key.split(".")[0] in ("token", "session", "principal")}
            assert {key.partition(".")[2] for key in left} <= in_force
            if not left:
                assert not {
                    key for key in set(rows(world)) - before if key.startswith(("digest.", "identity.", "login."))
                }
        else:
            raise AssertionError("it never came to its end")
        assert await gateway.accounts.admit_person(ANN, NEW)


async def test_a_refused_command_leaves_no_row() -> None:
    """A token whose expiry is too far away is refused by the access service, and its rows are gone at once."""
    async with AccountsWorld() as world:
        person = await world.person("bob")
        before = rows(world)
        with pytest.raises(HttpError):
            await world.gateway.accounts.issue_token(person, "person", "x", 2**62)
        assert rows(world) == before


async def test_the_bus_away_in_the_middle_is_an_error_and_no_session() -> None:
    """Rows without an event open nothing: the text of a session that was never opened is refused."""
    async with AccountsWorld() as world:
        person = await world.person("bob")
        world.hub.stop()
        with pytest.raises(Unavailable):
            await world.session(person)
        world.hub.start()


async def test_every_gateway_learns_who_was_forgotten() -> None:
    """So that none of them writes an entry about the person that waits there."""
    async with AccountsWorld() as world:
        ann, other, forgotten = await world.person("ann"), PeopleStore(world.hub.connect()), list[str]()
        other.on_forgotten = forgotten.append
        await other.open()
        await world.ask("POST", f"/v1/people/{ann}:forget")
        await eventually_async(lambda: forgotten == [ann])


async def test_nothing_of_a_forgotten_person_is_left_in_the_buckets() -> None:
    """Every row of both buckets goes: name, e-mail, identity, login, password, tokens, sessions, also those that ended before. The
    log has the opaque id alone, and others keep their rows."""
    async with AccountsWorld() as world:
        bob = await world.person("bob")
        kept = rows(world)
        accounts = world.gateway.accounts
        principal = await accounts.admit_person(ANN, NEW)
        await accounts.credentials.set_password(principal, "$phc")
        _, text = await accounts.open_session(principal, SignInAt("corp", sid="x", address="192.0.2.7", agent="Canary"))
        ended, _ = await accounts.open_session(principal, SignInAt("corp", address="192.0.2.7"))
        await accounts.send(end_of(world, ended))
        await world.token(text)
        await accounts.open_cli(principal, SignInAt("corp"))
        await world.ask("POST", f"/v1/people/{principal}:forget")
        left = rows(world)
        assert {key for key in left if key not in kept} <= {key for key in left if key.startswith("sid.")}
        assert not [value for value in left.values() if b"ann" in value or b"192.0.2.7" in value or b"Canary" in value]
        assert bob in world.gateway.views.access.kinds
        assert not world.gateway.views.access.access.principals[principal]
        await world.ask("GET", "/v1/whoami", token=text, status=401)
        again = await accounts.admit_person(ANN, NEW)
        assert again != principal


async def test_an_e_mail_address_is_the_key_of_no_account() -> None:
    """The same address at another provider, or of another subject, is another person; a changed one stays the same person."""
    async with AccountsWorld() as world:
        accounts, people = world.gateway.accounts, list[str]()
        for identity, mail in (
            (("corp", "1"), "a@x"),
            (("other", "1"), "a@x"),
            (("corp", "2"), "a@x"),
            (("corp", "1"), "b@x"),
        ):
            people.append(await accounts.admit_person(identity, NewPerson("ann", email=mail, source=identity[0])))
        assert len(set(people)) == 3 and people[0] == people[3]


async def test_a_forgotten_person_is_in_no_group() -> None:
    """The lists of groups and of roles have no opaque id that leads to no person."""
    async with AccountsWorld() as world:
        ann, bob = await world.person("ann", member="cluster"), await world.person("bob")
        accounts = world.gateway.accounts
        sync = SyncGroup(id=world.gateway.access.new_id(), group="group:ml", source="corp", added=(ann, bob))
        await accounts.send(sync)
        await world.ask("POST", "/v1/people/ann:forget")
        (group,) = (await world.ask("GET", "/v1/groups"))["items"]
        assert group["members"] == ["bob"]
        assert ann not in str((await world.ask("GET", "/v1/access"))["items"])


def end_of(world: AccountsWorld, session: str) -> EndSession:
    """Command that ends a session without erasing its row, as an expiry does."""
    return EndSession(id=world.gateway.access.new_id(), session=session, reason="expired")


async def test_the_set_up_makes_one_owner_and_no_second_admin() -> None:
    """Repeated, it issues another token of the same owner; for another login it refuses while there are admins."""
    async with AccountsWorld() as world:
        accounts = world.gateway.accounts
        again = await accounts.make_owner("owner")
        assert again != world.owner
        assert len(world.gateway.views.access.access.admins()) == 1
        with pytest.raises(HttpError) as refused:
            await accounts.make_owner("eve")
        assert refused.value.code == "has_owner"
