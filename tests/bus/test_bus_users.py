"""The list of users and what is written of it for the server."""

import stat
from pathlib import Path

import pytest

from fairlead_bus import bus_users, nkey, permissions
from fairlead_bus.bus_users import BadUser, User, accounts_block
from fairlead_schemas.wire import subjects


def key() -> str:
    return nkey.generate().public


def test_a_node_and_its_keys_are_added_and_removed(tmp_path: Path) -> None:
    """Added, given a second key, the older one retired, revoked; both files each time."""
    first, second = key(), key()
    bus_users.change(tmp_path, lambda users: bus_users.with_key(users, "node", "n1", first))
    bus_users.change(tmp_path, lambda users: bus_users.with_key(users, "node", "n1", first))  # again: nothing changes
    assert bus_users.load(tmp_path) == [User(kind="node", name="n1", keys=(first,))]
    bus_users.change(tmp_path, lambda users: bus_users.with_key(users, "node", "n1", second))
    assert (tmp_path / bus_users.ACCOUNTS).read_text().count('"nkey"') == 2
    bus_users.change(tmp_path, lambda users: bus_users.with_newest_only(users, "node", "n1"))
    assert bus_users.load(tmp_path) == [User(kind="node", name="n1", keys=(second,))]
    assert first not in (tmp_path / bus_users.ACCOUNTS).read_text()
    bus_users.change(tmp_path, lambda users: bus_users.without(users, "node", "n1"))
    assert bus_users.load(tmp_path) == []


def test_a_third_key_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    """Two keys exist during a change; more would be forgotten."""
    for _ in range(2):
        bus_users.change(tmp_path, lambda users: bus_users.with_key(users, "node", "n1", key()))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(BadUser, match="retire the old one first"):
        bus_users.change(tmp_path, lambda users: bus_users.with_key(users, "node", "n1", key()))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("users", "told"),
    [
        ([User(kind="node", name="N 1", keys=(key(),))], 'found "N 1"'),
        ([User(kind="node", name="n1.>", keys=(key(),))], 'found "n1.>"'),
        ([User(kind="node", name="", keys=(key(),))], "node's id"),
        ([User(kind="service", name="root", keys=(key(),))], "expected a service"),
        ([User(kind="node", name="n1", keys=())], "expected 1 to 2 keys"),
    ],
)
def test_a_user_that_cannot_be_is_refused(users: list[User], told: str) -> None:
    """A name with a dot or a wildcard would be a permission for others' subjects."""
    with pytest.raises(BadUser, match=told):
        accounts_block(users)


def test_a_key_has_one_user() -> None:
    """Else a node's key would have another's permissions."""
    shared = key()
    users = [User(kind="node", name=name, keys=(shared,)) for name in ("n1", "n2")]
    with pytest.raises(BadUser, match="two users"):
        accounts_block(users)


def test_a_damaged_list_is_refused(tmp_path: Path) -> None:
    """It is not taken for an empty one: that would cut everybody off."""
    (tmp_path / bus_users.USERS).write_text('[{"name": "n1"')
    with pytest.raises(BadUser, match=str(tmp_path / bus_users.USERS)):
        bus_users.change(tmp_path, lambda users: users)


def test_the_files_hold_no_secret(tmp_path: Path) -> None:
    """Public keys only, so that they may be kept and copied like any configuration."""
    pair = nkey.generate()
    bus_users.change(tmp_path, lambda users: bus_users.with_key(users, "node", "n1", pair.public))
    assert [path for path in tmp_path.iterdir() if pair.seed in path.read_text()] == []
    assert stat.S_IMODE((tmp_path / bus_users.ACCOUNTS).stat().st_mode) & 0o400


def test_permissions_name_no_more_than_is_needed() -> None:
    """Allow-lists: no service may publish to everything of anything, and each part of the log has one writer."""
    for name, grant in permissions.SERVICES.items():
        assert [subject for subject in (*grant.publish, *grant.subscribe) if subject.endswith(">")] == [], name
        written = [subject for subject in grant.publish if subject.startswith("fairlead.log.")]
        assert written == ([f"fairlead.log.{name}"] if name in subjects.WRITERS else []), name
        api = [subject.split(".")[2:4] for subject in grant.publish if subject.startswith("$JS.API.STREAM.")]
        assert name == "streams" or {verb for _, verb in api} <= {"INFO", "MSG", "PURGE"}, name
    purges = {(name, s) for name, g in permissions.SERVICES.items() for s in g.publish if ".PURGE." in s}
    assert {s for _, s in purges} == {
        f"$JS.API.STREAM.PURGE.{s}"
        for s in ("KV_LEASE", "KV_DESIRED", "KV_PEOPLE", "KV_CREDENTIAL", "KV_NOTIFY", "OBJ_SNAPSHOT", "CMD", "AUDIT")
    }
    secrets = [each for each in purges if each[1].endswith(("KV_PEOPLE", "KV_CREDENTIAL", "KV_NOTIFY", ".AUDIT"))]
    assert {name for name, _ in secrets} == {"gateway"}
    assert [name for name, s in purges if s.endswith(".CMD")] == ["recovery"]


def test_a_node_reaches_only_what_crosses_between_the_accounts() -> None:
    """Every subject of a node's allow-list has its own name in it, but the one of sealed pieces; and each crosses."""
    grant, pieces = permissions.of_node("n1"), "$JS.API.DIRECT.GET.KV_PIECE.$KV.PIECE.data.*"
    for subject in (*grant.publish, *grant.subscribe):
        assert "n1" in subject.split(".") or subject == pieces, subject
        assert not subject.endswith(">"), subject
    assert grant.publish + grant.subscribe[:-1] == tuple(each.subject for each in permissions.crossings("n1"))
