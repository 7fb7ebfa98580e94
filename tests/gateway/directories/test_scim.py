"""SCIM over HTTP: what a directory may do to people and groups, and what it may not. Each attack succeeds where its check is gone."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fairlead_bus.memory import MemoryBus
from fairlead_gateway.access.accounts import NewPerson
from fairlead_gateway.access.directory_people import DirectoryPeople
from fairlead_gateway.directories import scim_patch
from fairlead_gateway.directories.scim import ScimUsers
from fairlead_gateway.directories.scim_groups import ScimGroups
from fairlead_gateway.signon.settings import Scim, SignOnFile
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import subjects
from tests.gateway.directories.scim_world import GROUP, USER, ScimWorld
from tests.gateway.gatehouse import Gatehouse

ISSUER = "https://corp.example"
SUSPEND = {"op": "replace", "path": "active", "value": False}


async def hand_made(world: ScimWorld, group: str, *members: str) -> None:
    """Let people be members of a group by another source."""
    accounts = world.gateway.accounts
    await accounts.send(
        cmd.SyncGroup(id=accounts.new_command_id(None), group=f"group:{group}", source="hand", added=members)
    )


def linked(world: ScimWorld) -> None:
    """Let the world's directory be that of ISSUER."""
    world.settings = world.settings._replace(file=SignOnFile(scim=Scim(issuer=ISSUER)))


# ------------------------------------------------------------------------------- people


async def test_a_person_is_made_found_and_read() -> None:
    """userName is compared without case, externalId with case; the login name has what stands before the @."""
    async with ScimWorld() as world:
        ann = await world.user("Ann.B@corp.example", externalId="X1", emails=[{"value": "a@corp.example"}])
        for text in (
            'userName eq "ann.b@CORP.example"',
            'externalId eq "X1"',
            f'id eq "{ann}"',
            "emails pr and active eq true",
        ):
            found = await world.scim("GET", f"/Users?filter={text}")
            assert ann in [each["id"] for each in found["Resources"]], text
        for text in ('externalId eq "x1"', 'userName eq "ann"', 'userName eq "owner" and active eq false'):
            assert (await world.scim("GET", f"/Users?filter={text}"))["totalResults"] == 0, text
        shown = await world.ask("GET", f"/v1/people/{ann}")
        assert (shown["login"], shown["email"], shown["source"]) == ("ann-b", "a@corp.example", "scim")
        assert list(world.gateway.views.access.access.held(ann)) == []


async def test_lists_come_in_pages() -> None:
    """startIndex counts from 1, count bounds, and 0 asks for the number alone."""
    async with ScimWorld() as world:
        made = {await world.user(f"u{number}") for number in range(5)} | {
            await world.gateway.accounts.people.resolve("owner")
        }
        seen: list[str] = []
        for start in (1, 3, 5):
            page = await world.scim("GET", f"/Users?startIndex={start}&count=2")
            assert (page["totalResults"], page["itemsPerPage"], page["startIndex"]) == (6, 2, start)
            seen += [each["id"] for each in page["Resources"]]
        assert len(seen) == 6 and set(seen) == made
        assert (await world.scim("GET", "/Users?count=0"))["Resources"] == []
        assert (await world.scim("GET", "/Users?startIndex=7"))["Resources"] == []


async def test_active_false_suspends_and_true_admits_again() -> None:
    """Also in Entra ID's spelling; tokens and sessions end with the suspension."""
    async with ScimWorld() as world:
        ann = await world.user("ann")
        session, _ = await world.session(ann)
        answer = await world.patch(f"/Users/{ann}", {"op": "Replace", "path": "active", "value": "False"})
        assert answer["active"] is False and not world.is_active(ann)
        assert session not in world.gateway.views.access.sessions
        answer = await world.patch(f"/Users/{ann}", {"op": "replace", "value": {"active": True}})
        assert answer["active"] is True and world.is_active(ann)
        gone = await world.user("gone", active=False)
        assert not world.is_active(gone)


async def test_a_suspension_by_hand_outlasts_the_directory() -> None:
    """A directory that repeats `active: true` every night admits no person whom an admin has suspended."""
    async with ScimWorld() as world:
        ann = await world.user("ann", displayName="Ann")
        await world.ask("POST", f"/v1/people/{ann}:suspend")
        body = {"schemas": [USER], "userName": "ann", "displayName": "Ann B", "active": True}
        assert (await world.scim("PUT", f"/Users/{ann}", body))["active"] is False
        await world.patch(f"/Users/{ann}", {"op": "replace", "path": "active", "value": True})
        assert not world.is_active(ann)
        await world.ask("POST", f"/v1/people/{ann}:admit")
        await world.patch(f"/Users/{ann}", {"op": "replace", "path": "displayName", "value": "Ann C"})
        assert world.is_active(ann)


async def test_a_removed_person_comes_back_as_a_new_one() -> None:
    """Roles and groups of before are not given again; the former row keeps its login name for the record."""
    async with ScimWorld() as world:
        ann = await world.user("ann", externalId="X1")
        await world.group("ml", ann)
        await world.ask("POST", "/v1/access:grant", {"subject": "ann", "role": "operator", "scope": "cluster"})
        await world.scim("DELETE", f"/Users/{ann}", status=204)
        for method, body in (("GET", None), ("DELETE", None), ("PUT", {"schemas": [USER], "userName": "ann"})):
            await world.scim(method, f"/Users/{ann}", body, status=404)
        assert not world.is_active(ann) and world.members("ml") == set()
        again = await world.user("ann", externalId="X1")
        assert again != ann
        access = world.gateway.views.access.access
        assert list(access.held(again)) == [] and access.groups_of(again) == ()
        assert await world.gateway.accounts.people.name_of(ann) == "ann"


async def test_a_forgotten_person_leaves_nothing_in_the_bucket() -> None:
    """What the directory has sent goes with the row, and so do the identities by which it found the person."""
    async with ScimWorld() as world:
        before = set(world.hub.buckets[subjects.PEOPLE])
        ann = await world.user("ann@corp.example", externalId="X1", displayName="Ann Example")
        await world.ask("POST", f"/v1/people/{ann}:forget")
        assert set(world.hub.buckets[subjects.PEOPLE]) == before
        await world.scim("GET", f"/Users/{ann}", status=404)


async def test_the_issuers_subject_is_the_same_person() -> None:
    """`externalId` is the subject at the issuer: whoever signs in there is the person whom the directory made, and the reverse."""
    world = ScimWorld()
    linked(world)
    async with world:
        ann = await world.user("ann", externalId="sub-1")
        accounts = world.gateway.accounts
        assert await accounts.admit_person((ISSUER, "sub-1"), NewPerson("ann", source="corp")) == ann
        bob = await accounts.admit_person((ISSUER, "sub-2"), NewPerson("bob", source="corp"))
        assert await world.user("bob@corp.example", externalId="sub-2") == bob
        await world.scim("POST", "/Users", {"schemas": [USER], "userName": "b", "externalId": "sub-2"}, status=409)
        other = await accounts.admit_person(("https://other.example", "sub-1"), NewPerson("ann", source="other"))
        assert other not in (ann, bob)


# ------------------------------------------------------------------------------- rights


async def test_a_token_that_may_grant_roles_is_enough_and_needed() -> None:
    """With `rights:grant` alone SCIM works; without it every route answers 403, and without a credential 401, in SCIM's form."""
    async with ScimWorld() as world:
        boss = await world.person("boss", admin="cluster")
        _, session = await world.session(boss)
        able = (await world.token(session, verbs=["rights:grant"]))["token"]
        unable = (await world.token(session, verbs=["job:read"]))["token"]
        body = {"schemas": [USER], "userName": "ann"}
        made = await world.scim("POST", "/Users", body, token=able, status=201)
        group = {"schemas": [GROUP], "displayName": "ml", "members": [{"value": made["id"]}]}
        await world.scim("POST", "/Groups", group, token=able, status=201)
        routes = [key for key in world.gateway.rights if key[1].startswith("/scim/")]
        assert len(routes) >= 18
        for method, template in routes:
            path = template.removeprefix("/scim/v2").replace("{user}", made["id"]).replace("{group}", "ml")
            for token, status in ((unable, 403), ("", 401)):
                refused = await world.scim(method, path.replace("{name}", "User"), body, token=token, status=status)
                assert refused["status"] == str(status)
        assert world.is_active(made["id"]) and world.members("ml") == {made["id"]}


async def test_without_sign_on_there_is_no_scim() -> None:
    """Everybody may do everything there, but no person makes people whom nothing would ask who they are."""
    async with Gatehouse() as house:
        answer = await house.http.post("/scim/v2/Users", json={"schemas": [USER], "userName": "ann"})
        assert answer.status_code == 409 and answer.json()["schemas"][0].endswith(":Error")


# ------------------------------------------------------------------------------- groups


async def test_members_by_hand_and_grants_stay() -> None:
    """The directory's members change and go; those of another source and the group's roles stay in every case."""
    async with ScimWorld() as world:
        ann, bob, cleo = [await world.user(name) for name in ("ann", "bob", "cleo")]
        group = await world.group("ml", ann)
        await hand_made(world, group, cleo)
        await world.ask("POST", "/v1/access:grant", {"subject": "group:ml", "role": "viewer", "scope": "cluster"})
        assert [each["value"] for each in (await world.scim("GET", f"/Groups/{group}"))["members"]] == [ann]
        await world.patch(f"/Groups/{group}", {"op": "add", "path": "members", "value": [{"value": bob}]})
        assert world.members("ml") == {ann, bob}
        await world.patch(f"/Groups/{group}", {"op": "remove", "path": "members"})
        assert world.members("ml") == set()
        await world.scim("DELETE", f"/Groups/{group}", status=204)
        await world.scim("GET", f"/Groups/{group}", status=404)
        assert world.members("ml", "hand") == {cleo}
        assert [grant.role for grant in world.gateway.views.access.access.held(cleo)] == ["viewer"]


async def test_names_of_groups_never_become_one() -> None:
    """Case, spaces, dots and slashes are the only differences that are dropped, and the second of two such groups is refused. A
    renamed group keeps its name in grants, which no other group can take."""
    async with ScimWorld() as world:
        assert await world.group("ML Research") == "ml-research"
        for name in ("ml-research", "ML.Research", "ML/RESEARCH"):
            answer = await world.scim("POST", "/Groups", {"schemas": [GROUP], "displayName": name}, status=409)
            assert answer["scimType"] == "uniqueness"
        for name in ("", "Ops (EU)", "Ö", "a\nb", "x" * 64):
            await world.scim("POST", "/Groups", {"schemas": [GROUP], "displayName": name}, status=400)
        await world.patch("/Groups/ml-research", {"op": "replace", "path": "displayName", "value": "Vision"})
        for name in ("ML Research", "vision"):
            await world.scim("POST", "/Groups", {"schemas": [GROUP], "displayName": name}, status=409)


async def test_a_group_of_thousands_is_synced_in_chunks() -> None:
    """1,200 members come in one request; the log has them in several commands, and a change of one sends one."""
    async with ScimWorld() as world:
        accounts = world.gateway.accounts
        people = [f"p{number}" for number in range(1200)]
        for each in people:
            await accounts.send(cmd.AdmitPrincipal(id=accounts.new_command_id(None), principal=each))
        group = await world.group("all", *people)
        before = world.commands_stored()
        last = f'members[value eq "{people[-1]}"]'
        await world.patch(f"/Groups/{group}", {"op": "remove", "path": last})
        assert world.commands_stored() == before + 1
        assert world.members("all") == set(people[:-1])


# ------------------------------------------------------------------------------- attacks


async def owner_is_kept(world: ScimWorld) -> None:
    """The owner of the set-up is neither removed nor suspended, although there is another admin."""
    await world.person("boss", admin="cluster")
    owner = await world.gateway.accounts.people.resolve("owner")
    await world.scim("DELETE", f"/Users/{owner}", status=409)
    await world.patch(f"/Users/{owner}", SUSPEND, status=409)
    await world.scim("PUT", f"/Users/{owner}", {"schemas": [USER], "userName": "owner", "active": False}, status=409)
    assert world.is_active(owner)
    assert (await world.scim("GET", f"/Users/{owner}"))["active"] is True


async def second_create_is_refused(world: ScimWorld) -> None:
    """The same person or group a second time is a conflict, and changes nothing."""
    ann = await world.user("ann@corp.example", externalId="X1")
    group = await world.group("ml", ann)
    for body in ({"userName": "ANN@corp.example"}, {"userName": "other", "externalId": "X1"}, {"userName": "owner"}):
        answer = await world.scim("POST", "/Users", {"schemas": [USER], **body}, status=409)
        assert answer["scimType"] == "uniqueness"
    await world.scim("POST", "/Groups", {"schemas": [GROUP], "displayName": "ml"}, status=409)
    assert world.members(group) == {ann}
    assert (await world.scim("GET", "/Users"))["totalResults"] == 2


async def filtered_remove_takes_only_what_it_names(world: ScimWorld) -> None:
    """A filter in the path, and Entra ID's list of values, remove one member, never all."""
    ann, bob, cleo = [await world.user(name) for name in ("ann", "bob", "cleo")]
    group = await world.group("ml", ann, bob, cleo)
    await world.patch(f"/Groups/{group}", {"op": "remove", "path": f'members[value eq "{ann}"]'})
    assert world.members(group) == {bob, cleo}
    await world.patch(f"/Groups/{group}", {"op": "Remove", "path": "members", "value": [{"value": bob}]})
    assert world.members(group) == {cleo}
    await world.patch(f"/Groups/{group}", {"op": "remove", "path": 'members[value eq "nobody"]'})
    assert world.members(group) == {cleo}


async def replayed_group_gives_nothing_back(world: ScimWorld) -> None:
    """The request that once made a group is a conflict, also after a rename, and what was given by hand is as it was."""
    ann, bob = [await world.user(name) for name in ("ann", "bob")]
    group = await world.group("Old Team", ann)
    await hand_made(world, group, bob)
    await world.patch(f"/Groups/{group}", {"op": "remove", "path": "members"})
    await world.patch(f"/Groups/{group}", {"op": "replace", "path": "displayName", "value": "New Team"})
    old = {"schemas": [GROUP], "displayName": "Old Team", "members": [{"value": ann}]}
    await world.scim("POST", "/Groups", old, status=409)
    assert world.members(group) == set() and world.members(group, "hand") == {bob}


async def another_account_never_becomes_an_admin(world: ScimWorld) -> None:
    """A token that may not give an admin's role cannot let another account at the issuer act as the admin."""
    boss = await world.person("boss", admin="cluster")
    _, session = await world.session(boss)
    token = (await world.token(session, verbs=["rights:grant"]))["token"]
    body = {"schemas": [USER], "userName": "boss", "externalId": "evil"}
    await world.scim("PUT", f"/Users/{boss}", body, token=token, status=403)
    accounts = world.gateway.accounts
    assert await accounts.admit_person((ISSUER, "evil"), NewPerson("evil", source="corp")) != boss


async def _nothing(*_: Any, **__: Any) -> None:
    """Stand for a check that is gone."""


def _without_owners_check(patch: pytest.MonkeyPatch) -> None:
    plain = DirectoryPeople.set_active

    async def unchecked(self: DirectoryPeople, head: Any, principal: str, *, active: bool) -> None:
        find = self.people.find

        async def found(one: str) -> Any:
            row = await find(one)
            return None if row is not None and row.source == "up" else row

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self.people, "find", found)
            await plain(self, head, principal, active=active)

    patch.setattr(DirectoryPeople, "set_active", unchecked)


def _without_uniqueness(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ScimUsers, "_require_free", _nothing)


def _without_group_names(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ScimGroups, "_require_free", _nothing)

    async def put(self: Any, bucket: str, key: str, value: bytes, *, expected: int | None = None, **more: Any) -> int:
        return await plain(self, bucket, key, value, **more)

    plain = MemoryBus.put
    patch.setattr(MemoryBus, "put", put)


def _without_values(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        scim_patch,
        "_apply_to_chosen",
        lambda changed, operation, place, chosen: changed.pop(place.attribute.name, None),
    )


def _without_link_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ScimUsers, "_require_may_link", lambda *_: None)


type Attack = Callable[[ScimWorld], Awaitable[None]]
type Removal = Callable[[pytest.MonkeyPatch], None]
ATTACKS: list[tuple[Attack, Removal]] = [
    (owner_is_kept, _without_owners_check),
    (second_create_is_refused, _without_uniqueness),
    (filtered_remove_takes_only_what_it_names, _without_values),
    (replayed_group_gives_nothing_back, _without_group_names),
    (another_account_never_becomes_an_admin, _without_link_check),
]


@pytest.mark.parametrize("attack", [attack for attack, _ in ATTACKS], ids=lambda each: each.__name__)
async def test_an_attack_fails(attack: Attack) -> None:
    """Each attack by a directory, or by a person who has its token, is refused and changes nothing."""
    world = ScimWorld()
    linked(world)
    async with world:
        await attack(world)


@pytest.mark.parametrize(("attack", "remove"), ATTACKS, ids=lambda each: each.__name__)
async def test_an_attack_succeeds_without_its_check(
    attack: Attack, remove: Removal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests above notice it where the check is gone."""
    world = ScimWorld()
    linked(world)
    async with world:
        remove(monkeypatch)
        with pytest.raises(AssertionError):
            await attack(world)


async def test_the_last_admin_is_kept() -> None:
    """Also one who is not the owner of the set-up: the access service refuses, and the person is as before."""
    async with ScimWorld() as world:
        boss = await world.person("boss", admin="cluster")
        token = (await world.token((await world.session(boss))[1]))["token"]
        owner = {"subject": "owner", "role": "admin", "scope": "cluster"}
        await world.ask("POST", "/v1/access:revoke", owner, token=(await world.session(boss))[1])
        await world.scim("DELETE", f"/Users/{boss}", token=token, status=409)
        assert world.is_active(boss)
        assert (await world.scim("GET", f"/Users/{boss}", token=token))["userName"] == "boss"


async def test_a_page_of_people_reads_the_rows_of_that_page_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removed and forgotten people are not counted; a group is found by its name without a look at the others."""
    async with ScimWorld() as world:
        people = [await world.user(f"user-{number}") for number in range(12)]
        await world.scim("DELETE", f"/Users/{people[0]}", status=204)
        await world.ask("POST", f"/v1/people/{people[1]}:forget", {})
        for name in ("vision", "Speech Lab", "audio"):
            await world.group(name)
        store, read = world.gateway.accounts.people, list[str]()
        store._drop_all()
        plain = store._read

        async def counted(principal: str) -> Any:
            read.append(principal)
            return await plain(principal)

        monkeypatch.setattr(store, "_read", counted)
        page = await world.scim("GET", "/Users?startIndex=2&count=3")
        shown = sorted({*people[2:], *world.gateway.views.access.access.admins()})
        assert [each["id"] for each in page["Resources"]] == shown[1:4] and page["totalResults"] == len(shown)
        assert set(read) <= {*shown[1:4], *world.gateway.views.access.access.admins()}
        row, rows = ScimGroups._row, list[str]()

        async def noted(self: ScimGroups, group: str) -> Any:
            rows.append(group)
            return await row(self, group)

        monkeypatch.setattr(ScimGroups, "_row", noted)
        found = await world.scim("GET", '/Groups?filter=displayName eq "speech lab"')
        assert [each["id"] for each in found["Resources"]] == ["speech-lab"] and set(rows) == {"speech-lab"}


@pytest.mark.parametrize("name", ["password", "PASSWORD", f"{USER}:password"])
async def test_a_password_is_refused(name: str) -> None:
    """A directory that believes it has set one would be wrong. Null is none."""
    async with ScimWorld() as world:
        ada = await world.user("ada", password=None)
        body = {"schemas": [USER], "userName": "bob", name: "correct horse battery"}
        refused = await world.scim("POST", "/Users", body, status=400)
        assert refused["detail"].startswith("password: a directory sets no passwords here")
        await world.scim("PUT", f"/Users/{ada}", body, status=400)
        for operation in (
            {"op": "replace", "path": name, "value": "correct horse battery"},
            {"op": "add", "value": {name: "correct horse battery"}},
        ):
            await world.patch(f"/Users/{ada}", operation, status=400)
        assert await world.gateway.accounts.credentials.password(ada) == ""
