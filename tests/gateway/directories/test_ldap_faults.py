"""LDAP whose answer is whole and wrong: what a search without rights, a mistaken attribute or a protected person must not lead to."""

from msgspec import structs

from fairlead_gateway.access.accounts import NewPerson
from fairlead_gateway.access.people import identity_key
from fairlead_gateway.directories.ldap import LdapPicture, LdapSettings
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.directories.ldap_world import members, picture, principal, synced

ISSUER = "https://corp.example"
STRICT = LdapSettings(
    url="ldap://localhost",
    people_base="p",
    groups_base="g",
    issuer=ISSUER,
    subject_attribute="employeeNumber",
    suspend_leavers=True,
)
EVERYBODY = [f"u{number}" for number in range(40)]


async def test_an_answer_without_groups_empties_no_group() -> None:
    """Whoever may not see groups, or their members, gets no error but an empty answer."""
    async with AccountsWorld() as world:
        sync = synced(world, STRICT)
        await sync.apply(picture("ann", ml=["ann"]))
        await sync.apply(picture("ann"))
        assert members(world, "ml") == {await principal(world, "ann")}
        await sync.apply(picture(*EVERYBODY, ml=EVERYBODY, ops=EVERYBODY[:3]))
        assert (await sync.apply(picture(*EVERYBODY, ml=[], ops=EVERYBODY[:3]))).kept == 37
        assert len(members(world, "ml")) == 40


async def test_half_a_directory_takes_no_groups() -> None:
    """As it suspends nobody; those who are new come in all the same, and a usual departure loses its groups."""
    async with AccountsWorld() as world:
        sync = synced(world, structs.replace(STRICT, suspend_leavers=False))
        await sync.apply(picture(*EVERYBODY, ml=EVERYBODY))
        assert (await sync.apply(picture(*EVERYBODY[:20], "new", ml=[*EVERYBODY[:20], "new"]))).kept == 20
        assert len(members(world, "ml")) == 41
        assert (await sync.apply(picture(*EVERYBODY[:36], "new", ml=[*EVERYBODY[:36], "new"]))).kept == 0
        assert len(members(world, "ml")) == 37


async def test_a_protected_leaver_does_not_protect_other_leavers() -> None:
    """The owner is never suspended; who left with the owner is."""
    async with AccountsWorld() as world:
        sync, accounts = synced(world, STRICT), world.gateway.accounts
        owner = await principal(world, "owner")
        row = await accounts.people.find(owner)
        assert row is not None
        await accounts.people.write(owner, structs.replace(row, identities=((ISSUER, "sub-boss"),)))
        await accounts.people.claim(identity_key((ISSUER, "sub-boss")), owner)
        await sync.apply(picture("boss", "ann", "bob"))
        left = [await principal(world, each) for each in ("ann", "bob")]
        assert (await sync.apply(picture("cleo"))).suspended == 2
        states = world.gateway.views.access.access.principals
        assert [states[each] for each in (owner, *left)] == [True, False, False]


async def test_a_person_with_the_subject_of_another_one_has_not_left() -> None:
    """The two stay two people, and neither loses anything."""
    async with AccountsWorld() as world:
        sync = synced(world, STRICT)
        await synced(world, structs.replace(STRICT, issuer="", subject_attribute="")).apply(picture("ann", ml=["ann"]))
        ann = await principal(world, "ann")
        other = await world.gateway.accounts.admit_person((ISSUER, "sub-ann"), NewPerson("ann", source="corp"))
        assert (await sync.apply(picture("ann", ml=["ann"]))).suspended == 0
        assert members(world, "ml") == {ann} and other != ann
        assert world.gateway.views.access.access.principals[ann]


async def test_a_corrected_subject_replaces_the_wrong_one() -> None:
    """Once the directory states another one, the account of before does not sign in as this person."""
    async with AccountsWorld() as world:
        sync, accounts = synced(world, STRICT), world.gateway.accounts
        wrong = picture("ann")
        stated = {"id-ann": wrong.people["id-ann"]._replace(subject="sub-eve")}
        await sync.apply(LdapPicture(stated, {}, ()))
        await sync.apply(wrong)
        ann = await principal(world, "ann")
        assert await accounts.admit_person((ISSUER, "sub-ann"), NewPerson("ann", source="corp")) == ann
        assert await accounts.admit_person((ISSUER, "sub-eve"), NewPerson("eve", source="corp")) != ann
