"""LDAP against Debian's slapd: nested groups, ten thousand people, leavers, and a directory that cannot be read."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from fairlead_bus.environment_settings import BadSetting
from fairlead_gateway.access.accounts import NewPerson
from fairlead_gateway.directories.ldap import (
    LdapFailed,
    LdapPerson,
    LdapPicture,
    LdapSettings,
    comparable,
    look_up,
    picture_of,
)
from fairlead_gateway.signon.settings import read_sign_on_file
from fairlead_schemas.wire import commands as cmd
from tests.gateway.access.accounts_world import AccountsWorld
from tests.gateway.directories.ldap_world import PLAIN, members, picture, principal, synced
from tests.kit.certificates import Authority
from tests.kit.ldap_server import PASSWORD, READER, SUFFIX, LdapServer, group, person

#: Seconds for ten thousand people.
LOOK_UP_S = 10.0


def settings(folder: Path, url: str, **more: Any) -> LdapSettings:
    """Settings of a directory, as its file would have them."""
    word = folder / "word"
    word.write_text(PASSWORD)
    word.chmod(0o600)
    people, groups = f"ou=people,{SUFFIX}", f"ou=groups,{SUFFIX}"
    named: dict[str, Any] = {
        "bind_dn": READER,
        "bind_password_file": str(word),
        "people_base": people,
        "groups_base": groups,
    }
    return LdapSettings(url=url, **(named | more))


def by_login(picture: LdapPicture) -> dict[str, set[str]]:
    """{group: logins of its people}."""
    return {name: {picture.people[each].login for each in members} for name, members in picture.groups.items()}


NESTED = (
    person("ann")
    + person("bob")
    + person("cleo", "Cleo Ö")
    + group("ML Research", "uid=ann", "cn=inner")
    + group("inner", "uid=bob", "cn=innermost")
    + group("innermost", "uid=cleo", "cn=ML Research")
    + group("strange (eu)", "uid=ann")
    + group("two words", "uid=ann")
    + group("two.words", "uid=bob")
)


@pytest.mark.slapd
def test_groups_in_groups_are_resolved(tmp_path: Path) -> None:
    """Also in a circle. Names that no group can have, and two that would be one, give nothing and are named."""
    with LdapServer(tmp_path, NESTED) as server:
        picture = look_up(settings(tmp_path, server.url))
    everybody = {"ann", "bob", "cleo"}
    assert by_login(picture) == {"ml-research": everybody, "inner": everybody, "innermost": everybody}
    assert picture.unusable == ("strange (eu)", "two words", "two.words")
    cleo = next(each for each in picture.people.values() if each.login == "cleo")
    assert (cleo.name, cleo.email) == ("Cleo Ö", "cleo@corp.example")


@pytest.mark.slapd
def test_a_directory_over_tls_must_have_a_known_certificate(tmp_path: Path) -> None:
    """With the right CA it is read; with another one nothing is sent to it."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "other").mkdir()
    authority, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    with LdapServer(tmp_path, person("ann"), authority) as server:
        assert len(look_up(settings(tmp_path, server.url, ca_file=str(authority.ca))).people) == 1
        with pytest.raises(LdapFailed, match=r"(?i)certificate|tls|ssl"):
            look_up(settings(tmp_path, server.url, ca_file=str(other.ca)))


@pytest.mark.slapd
def test_a_directory_that_cannot_be_read_is_no_picture(tmp_path: Path) -> None:
    """A wrong password, a base that is not there, a filter that selects no person, a server that is away."""
    with LdapServer(tmp_path, person("ann")) as server:
        wrong = tmp_path / "wrong"
        wrong.write_text("wrong")
        for more in (
            {"bind_password_file": str(wrong)},
            {"groups_base": f"ou=nothing,{SUFFIX}"},
            {"people_filter": "(uid=nobody)"},
            {"people_filter": "(uid="},
        ):
            with pytest.raises(LdapFailed):
                look_up(settings(tmp_path, server.url, **more))
    with pytest.raises(LdapFailed):
        look_up(settings(tmp_path, server.url))


@pytest.mark.slapd
def test_an_answer_that_the_server_cuts_is_no_picture(tmp_path: Path) -> None:
    """Beyond its limit a server sends the first entries and no more; the others have not left the directory."""
    entries = "".join(person(f"u{number}") for number in range(60))
    with LdapServer(tmp_path, entries, entries_max=50) as server, pytest.raises(LdapFailed, match="after 50 entries"):
        look_up(settings(tmp_path, server.url))


@pytest.mark.slapd
@pytest.mark.slow
async def test_ten_thousand_people_are_read_in_time(tmp_path: Path) -> None:
    """With nested groups, one of them with everybody in it; then synced, and synced again without a command."""
    count, teams = 10_000, 100
    entries = [person(f"u{number}") for number in range(count)]
    for team in range(teams):
        entries.append(group(f"team-{team}", *(f"uid=u{number}" for number in range(team, count, teams))))
    entries.append(group("all", *(f"cn=team-{team}" for team in range(teams))))
    with LdapServer(tmp_path, "".join(entries)) as server:
        began, cpu = time.monotonic(), time.process_time()
        picture = look_up(settings(tmp_path, server.url))
        took = time.monotonic() - began
        print(f"look-up of {count} people, {teams + 1} groups: {took:.2f} s, CPU {time.process_time() - cpu:.2f} s")
    assert len(picture.people) == count and len(picture.groups["all"]) == count
    assert len(picture.groups["team-7"]) == count // teams
    assert took < LOOK_UP_S
    async with AccountsWorld() as world:
        sync = synced(world, settings(tmp_path, server.url))
        for name in ("first", "next"):
            commands, began, cpu = world.commands_stored(), time.monotonic(), time.process_time()
            await sync.apply(picture)
            took, spent = time.monotonic() - began, time.process_time() - cpu
            print(f"{name} sync: {took:.2f} s, CPU {spent:.2f} s, {world.commands_stored() - commands} messages")
        assert world.commands_stored() == commands, "nothing has changed"
        assert len(world.gateway.views.access.access.groups["group:all"]["ldap"]) == count


# ------------------------------------------------------------------------------- sync


async def test_only_the_directorys_own_memberships_change() -> None:
    """People are admitted without roles; members by hand stay when the directory's go, and its groups end with it."""
    async with AccountsWorld() as world:
        sync, accounts = synced(world, PLAIN), world.gateway.accounts
        await sync.apply(picture("ann", "bob", ml=["ann", "bob"], ops=["bob"]))
        ann, bob = await principal(world, "ann"), await principal(world, "bob")
        by_hand = cmd.SyncGroup(id=accounts.new_command_id(None), group="group:ml", source="hand", added=(bob,))
        await accounts.send(by_hand)
        assert members(world, "ml") == {ann, bob}
        report = await sync.apply(picture("ann", ml=["ann"]))
        assert members(world, "ml") == {ann} and members(world, "ops") == set()
        assert members(world, "ml", "hand") == {bob}
        assert report.suspended == 0 and world.gateway.views.access.access.principals[bob]
        assert list(world.gateway.views.access.access.held(ann)) == []


async def test_leavers_are_suspended_where_it_is_demanded() -> None:
    """And come back with the directory; who was suspended by hand does not, and who is not of the directory is never touched."""
    async with AccountsWorld() as world:
        sync = synced(
            world, LdapSettings(url="ldap://localhost", people_base="p", groups_base="g", suspend_leavers=True)
        )
        local = await world.person("local")
        await sync.apply(picture("ann", "bob", "cleo"))
        ann, bob, cleo = [await principal(world, each) for each in ("ann", "bob", "cleo")]
        await world.ask("POST", f"/v1/people/{cleo}:suspend")
        states = world.gateway.views.access.access.principals
        assert (await sync.apply(picture("bob"))).suspended == 1
        assert [states[each] for each in (ann, bob, cleo, local)] == [False, True, False, True]
        await sync.apply(picture("ann", "bob", "cleo"))
        assert [states[each] for each in (ann, bob, cleo, local)] == [True, True, False, True]


async def test_half_a_directory_suspends_nobody() -> None:
    """More leavers at once than a departure explains are reported, and left alone."""
    async with AccountsWorld() as world:
        sync = synced(
            world, LdapSettings(url="ldap://localhost", people_base="p", groups_base="g", suspend_leavers=True)
        )
        everybody = [f"u{number}" for number in range(40)]
        await sync.apply(picture(*everybody))
        report = await sync.apply(picture(*everybody[:20]))
        assert (report.suspended, report.held_back) == (0, 20)
        assert all(world.gateway.views.access.access.principals.values())
        assert (await sync.apply(picture(*everybody[:32]))).suspended == 8


async def test_a_subject_at_the_issuer_is_the_same_person() -> None:
    """In both orders: first the sign-in and then the directory, and the reverse."""
    async with AccountsWorld() as world:
        accounts, issuer = world.gateway.accounts, "https://corp.example"
        linked = LdapSettings(
            url="ldap://localhost", people_base="p", groups_base="g", issuer=issuer, subject_attribute="employeeNumber"
        )
        bob = await accounts.admit_person((issuer, "sub-bob"), NewPerson("bob", source="corp"))
        await synced(world, linked).apply(picture("ann", "bob", ml=["ann", "bob"]))
        ann = await accounts.admit_person((issuer, "sub-ann"), NewPerson("ann", source="corp"))
        assert members(world, "ml") == {ann, bob}


async def test_two_gateways_may_sync_at_once() -> None:
    """One person each is left, and both continue."""
    async with AccountsWorld() as world:
        found = picture("ann", "bob", ml=["ann", "bob"])
        await asyncio.gather(synced(world, PLAIN).apply(found), synced(world, PLAIN).apply(found))
        await synced(world, PLAIN).apply(found)
        assert len(members(world, "ml")) == 2
        assert len(world.gateway.views.access.kinds) == 3


# ------------------------------------------------------------------------------- words


def test_equal_names_are_equal() -> None:
    """Case and spaces at separators do not count; an escaped comma is part of a value."""
    assert comparable("CN=Ann B, OU = People,dc=x") == comparable("cn=ann b,ou=people,DC=x")
    assert comparable(r"cn=b\, ann,dc=x") != comparable(r"cn=b\,ann,dc=x")


def test_unknown_members_are_left_out() -> None:
    """People of other parts of the directory, deleted ones, and a group that has itself as a member."""
    ann = LdapPerson("1", "ann", "", "", "")
    found = picture_of({"uid=ann": ann}, [("cn=a", "a", ["uid=ann", "uid=gone", "cn=a"]), ("cn=b", "b", [])])
    assert found.groups == {"a": frozenset({"1"}), "b": frozenset()}


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('url = "ldap://corp.example"', "ldaps"),
        ('url = "ldaps://x"\nevery_s = 1.0', "every_s"),
        ('url = "ldaps://x"\nsuspend_leaver = true', "suspend_leaver"),
        ('url = "ldaps://x"\nissuer = "https://x"', "subject_attribute"),
        ('url = "ldaps://x"\nbind_password_file = "none"', "bind_password_file"),
        ('url = "ldaps://x"\nbind_password_file = "open"', "0600"),
        ("url =", "TOML|value"),
    ],
)
def test_a_mistake_in_the_file_refuses_the_start(tmp_path: Path, text: str, hint: str) -> None:
    """With the name of the setting."""
    (tmp_path / "open").write_text("word")
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "ldap.toml").write_text(f'[ldap]\npeople_base = "p"\ngroups_base = "g"\n{text}\n')
    with pytest.raises(BadSetting, match=f"(?i){hint}"):
        read_sign_on_file(tmp_path / "ldap.toml")
