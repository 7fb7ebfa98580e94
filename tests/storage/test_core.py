"""The storage core: given events, when a command comes, then these events, and nothing else."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_schemas.policies.storage import ENFORCEMENT, OWNER_UID_FIRST, StorageWordError, parse_dataset, parse_owner
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_storage.state import QUOTA_BYTES_MAX, broken
from tests.storage.world import GIB, StorageWorld, refused

REMOVED = ev.QueueRemoved(cause="c", path="research")


def test_a_volume_is_made_resized_and_deleted() -> None:
    """Each by one event; afterwards nothing of it is left but the user id, which is no other owner's ever."""
    world = StorageWorld()
    world.send(world.volume("before"), world.make(cmd.DeleteVolume, volume="before"))
    empty = world.core.snapshot()
    (made,) = world.send(world.volume("data", gib=3))
    assert isinstance(made, ev.VolumeCreated) and made.quota_bytes == 3 * GIB
    assert world.core.state.volumes["data"].created == world.sequence
    (resized,) = world.send(world.make(cmd.ResizeVolume, volume="data", quota_bytes=GIB))
    assert isinstance(resized, ev.VolumeResized)
    world.send(world.make(cmd.DeleteVolume, volume="data"))
    assert world.core.snapshot() == empty


def test_files_of_an_owner_have_one_user_id_that_no_other_owner_ever_gets() -> None:
    """Also of a queue that was removed and made again: files of the first one stay closed to the second one."""
    world = StorageWorld()
    first, second, other = world.send(
        world.volume("a", "queue:research"), world.volume("b", "queue:research"), world.volume("c", "user:ann")
    )
    assert (first.uid, second.uid, other.uid) == (OWNER_UID_FIRST, OWNER_UID_FIRST, OWNER_UID_FIRST + 1)
    world.queue_events(REMOVED, ev.QueueConfigured(cause="c", path="research", settings=None))
    again, same, new = world.send(
        world.volume("d", "queue:research"), world.volume("e", "user:ann"), world.volume("f", "project:llm")
    )
    assert [each.uid - OWNER_UID_FIRST for each in (again, same, new)] == [2, 1, 3]


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"volume": "Data"}, "invalid", "volume: expected 1 to 63 of a-z 0-9 _ -"),
        ({"volume": "../etc"}, "invalid", "volume: expected"),
        ({"volume": "a\0b"}, "invalid", "volume: expected"),
        ({"owner": "ann"}, "invalid", 'owner: expected "user:NAME"'),
        ({"owner": "user:"}, "invalid", 'owner: expected "user:NAME"'),
        ({"owner": "queue:nowhere"}, "not_found", "there is no queue nowhere"),
        ({"storage_class": "gold"}, "not_found", "there is no class of storage gold (known: fast, shared)"),
        ({"quota_bytes": 0}, "invalid", "quota: expected 1Mi to"),
        ({"quota_bytes": -5}, "invalid", "quota: expected 1Mi to"),
        ({"quota_bytes": QUOTA_BYTES_MAX + 1}, "invalid", "quota: expected 1Mi to"),
    ],
)
def test_a_wrong_volume_is_refused_by_its_field(fields: dict[str, Any], code: str, words: str) -> None:
    """The message names the field and what was expected; the state stays."""
    world = StorageWorld()
    before = world.core.snapshot()
    given = {"volume": "data", "owner": "user:ann", "storage_class": "shared", "quota_bytes": GIB, **fields}
    found = refused(world.send(world.make(cmd.CreateVolume, **given)))
    assert found[0] == code and words in found[1]
    assert world.core.snapshot() == before


def test_commands_about_what_is_not_there_are_refused_by_its_name() -> None:
    """Each is answered by its name."""
    world = StorageWorld()
    for command in (
        world.make(cmd.ResizeVolume, volume="data", quota_bytes=GIB),
        world.make(cmd.DeleteVolume, volume="data"),
        world.make(cmd.RetireDataset, dataset="data@1"),
        world.make(cmd.RemoveStorageClass, name="gold"),
    ):
        assert refused(world.send(command))[0] == "not_found"


def test_users_share_a_bound_that_several_commands_of_a_message_cannot_pass() -> None:
    """Two volumes of 6 GiB in one message: the second is refused, with what is left; another user is not touched."""
    world = StorageWorld()
    first, second, other = world.send(
        world.volume("a", "user:ann", 6), world.volume("b", "user:ann", 6), world.volume("c", "user:bob", 10)
    )
    assert isinstance(first, ev.VolumeCreated) and isinstance(other, ev.VolumeCreated)
    assert second.code == "too_many" and "4Gi are left" in second.message
    assert refused(world.send(world.make(cmd.ResizeVolume, volume="a", quota_bytes=11 * GIB)))[0] == "too_many"
    (grown,) = world.send(world.make(cmd.ResizeVolume, volume="a", quota_bytes=10 * GIB))
    assert isinstance(grown, ev.VolumeResized)
    assert isinstance(world.send(world.volume("d", "queue:research", 500))[0], ev.VolumeCreated)


def test_a_class_bounds_a_volume_and_may_be_lowered_below_what_there_is() -> None:
    """A volume above the new bound keeps its size, may shrink, and may not grow."""
    world = StorageWorld()
    world.send(world.volume("data", gib=8))
    world.send(world.make(cmd.SetStorageClass, name="shared", backend="directory", volume_bytes_max=4 * GIB))
    assert refused(world.send(world.make(cmd.ResizeVolume, volume="data", quota_bytes=9 * GIB)))[0] == "too_many"
    assert isinstance(world.send(world.make(cmd.ResizeVolume, volume="data", quota_bytes=7 * GIB))[0], ev.VolumeResized)
    assert "has at most 4Gi" in refused(world.send(world.volume("more", gib=5)))[1]


def test_an_image_only_grows() -> None:
    """A mounted ext4 cannot be made smaller, so a smaller quota would be a lie."""
    world = StorageWorld()
    world.send(world.volume("data", gib=2, storage_class="fast"))
    found = refused(world.send(world.make(cmd.ResizeVolume, volume="data", quota_bytes=GIB)))
    assert found == ("conflict", "quota: a volume of class fast (ext4-image) only grows, and has 2Gi")


def test_a_class_keeps_its_backend_and_goes_when_it_is_empty() -> None:
    """What its volumes promise never changes under them."""
    world = StorageWorld()
    world.send(world.volume("data"))
    assert refused(world.send(world.make(cmd.SetStorageClass, name="shared", backend="nfs")))[0] == "conflict"
    assert "has 1 volumes" in refused(world.send(world.make(cmd.RemoveStorageClass, name="shared")))[1]
    deleted, removed = world.send(
        world.make(cmd.DeleteVolume, volume="data"), world.make(cmd.RemoveStorageClass, name="shared")
    )
    assert isinstance(deleted, ev.VolumeDeleted) and isinstance(removed, ev.StorageClassRemoved)


def test_a_version_of_a_dataset_is_for_ever() -> None:
    """Neither another content nor the same is added under it again, not even after it is retired."""
    world = StorageWorld()
    (added,) = world.send(world.dataset("imagenet@1"))
    assert isinstance(added, ev.DatasetAdded)
    for digit in "ab":
        assert refused(world.send(world.dataset("imagenet@1", digit=digit)))[0] == "conflict"
    world.send(world.make(cmd.RetireDataset, dataset="imagenet@1"))
    assert "is retired already" in refused(world.send(world.make(cmd.RetireDataset, dataset="imagenet@1")))[1]
    assert refused(world.send(world.dataset("imagenet@1")))[0] == "conflict"
    assert isinstance(world.send(world.dataset("imagenet@2"))[0], ev.DatasetAdded)


def test_a_name_is_one_owners_and_one_things() -> None:
    """Versions of a dataset have one owner; a dataset takes no volume's name, and a volume no dataset's."""
    world = StorageWorld()
    made, taken = world.send(world.dataset("data@1"), world.volume("data"))
    assert isinstance(made, ev.DatasetAdded) and taken.code == "conflict"
    assert "another owner" in refused(world.send(world.dataset("data@2", "user:eve")))[1]
    world.send(world.volume("other"))
    assert "is a volume" in refused(world.send(world.dataset("other@1")))[1]
    assert "is taken" in refused(world.send(world.volume("other")))[1]


@pytest.mark.parametrize(
    "dataset", ["imagenet", "@1", "imagenet@", "imagenet@..", "Image@1", "a@b@c", "a@1/2", "a@1\0"]
)
def test_a_wrong_name_of_a_dataset_is_refused(dataset: str) -> None:
    """It names a directory on nodes."""
    found = refused(StorageWorld().send(StorageWorld().dataset(dataset)))
    assert found[0] == "invalid" and "expected NAME@VERSION" in found[1]


def test_a_removed_queue_leaves_its_volumes_to_the_cluster() -> None:
    """A new queue of the name has none of them; nobody else's are touched."""
    world = StorageWorld()
    world.send(world.volume("data"), world.volume("anns", "user:ann"), world.dataset("set@1"))
    world.queue_events(REMOVED)
    world.queue_events(ev.QueueConfigured(cause="c", path="research", settings=None))
    state = world.core.state
    assert (state.volumes["data"].owner, state.volumes["anns"].owner) == ("", "user:ann")
    assert state.dataset_owners["set"] == ""
    assert isinstance(world.send(world.make(cmd.ResizeVolume, volume="data", quota_bytes=2 * GIB))[0], ev.VolumeResized)
    assert "another owner" in refused(world.send(world.dataset("set@2")))[1]


def test_a_volume_that_is_made_again_is_another_one() -> None:
    """Its creation's sequence differs, by which nodes tell its files from the old one's."""
    world = StorageWorld()
    world.send(world.volume("data"))
    first = world.core.state.volumes["data"].created
    world.send(world.make(cmd.DeleteVolume, volume="data"))
    world.send(world.volume("data"))
    assert world.core.state.volumes["data"].created > first


def test_bounds_of_the_tables_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused with the bound, also in one message."""
    for name in ("CLASSES_MAX", "VOLUMES_MAX", "DATASETS_MAX"):
        monkeypatch.setattr(f"fairlead_storage.decide.commands.{name}", 2)
    world = StorageWorld()
    for kind in (world.volume, lambda name: world.dataset(f"{name}@1")):
        events = world.send(*(kind(f"{kind.__name__.strip('<>')}{each}") for each in range(3)))
        assert [getattr(each, "code", "") for each in events] == ["", "", "too_many"]
    assert refused(world.send(world.make(cmd.SetStorageClass, name="third", backend="nfs")))[0] == "too_many"


def test_every_backend_says_what_its_quota_means() -> None:
    """No class is without the word."""
    assert set(ENFORCEMENT) == set(cmd.SetStorageClass.__annotations__["backend"].__args__)


@pytest.mark.parametrize("text", ["user:ann", "user:Ann Lee", "project:llm", "queue:research/vision"])
def test_owners_are_read_as_they_are_written(text: str) -> None:
    """The text is the form on the wire."""
    assert str(parse_owner(text)) == text
    with pytest.raises(StorageWordError):
        parse_owner(text.partition(":")[2])


def test_datasets_are_read_as_they_are_written() -> None:
    """Name and version."""
    assert parse_dataset("imagenet@2012.1") == ("imagenet", "2012.1")
    assert str(parse_dataset("imagenet@2012.1")) == "imagenet@2012.1"


NAMES, OWNERS = ("a", "b", "c"), ("user:ann", "user:bob", "queue:research", "project:llm", "queue:gone")
DRAWN = st.one_of(
    st.tuples(
        st.just("volume"),
        st.sampled_from(NAMES),
        st.sampled_from(OWNERS),
        st.integers(0, 9),
        st.sampled_from(("shared", "fast", "x")),
    ),
    st.tuples(st.just("resize"), st.sampled_from(NAMES), st.integers(-1, 20)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(
        st.just("dataset"),
        st.sampled_from([f"{name}@{version}" for name in NAMES for version in (1, 2)]),
        st.sampled_from(OWNERS),
    ),
    st.tuples(st.just("retire"), st.sampled_from([f"{name}@1" for name in NAMES])),
    st.tuples(st.just("class"), st.sampled_from(("shared", "fast", "x")), st.integers(0, 12)),
    st.tuples(st.just("unclass"), st.sampled_from(("shared", "x"))),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.lists(DRAWN, min_size=1, max_size=6), st.booleans()), max_size=12))
def test_any_commands_keep_the_invariants_and_the_bound_of_users(
    messages: list[tuple[list[tuple[Any, ...]], bool]],
) -> None:
    """Whatever comes, in whatever messages, with the queue made and removed between: the state folds, restores and holds. No volume
    of a user grew, or was made, beyond the bound of its class as of its message.
    """
    world = StorageWorld()
    for message, toggles in messages:
        before = dict(world.core.state.quota_bytes)
        classes = dict(world.core.state.classes)
        events = world.send(*(_command(world, each) for each in message))
        changed = {each.name for each in events if isinstance(each, ev.StorageClassSet)}
        for (kind, owner), total in world.core.state.quota_bytes.items():
            if owner.startswith("user:") and kind not in changed and total > before.get((kind, owner), 0):
                assert total <= classes[kind].user_bytes_max
        if toggles:
            there = "research" in world.core.state.queues
            world.queue_events(REMOVED if there else ev.QueueConfigured(cause="c", path="research", settings=None))


def _command(world: StorageWorld, drawn: tuple[Any, ...]) -> Any:
    match drawn:
        case ("volume", name, owner, gib, kind):
            return world.volume(name, owner, gib, kind)
        case ("resize", name, gib):
            return world.make(cmd.ResizeVolume, volume=name, quota_bytes=gib * GIB)
        case ("delete", name):
            return world.make(cmd.DeleteVolume, volume=name)
        case ("dataset", name, owner):
            return world.dataset(name, owner)
        case ("retire", name):
            return world.make(cmd.RetireDataset, dataset=name)
        case ("class", name, gib):
            return world.make(
                cmd.SetStorageClass, name=name, backend="nfs" if name == "x" else "directory", user_bytes_max=gib * GIB
            )
        case _:
            return world.make(cmd.RemoveStorageClass, name=drawn[1])


def test_the_invariants_see_what_is_wrong() -> None:
    """Each condition is reported of a state that breaks it."""
    world = StorageWorld()
    world.send(world.volume("data"), world.dataset("set@1"))
    state = world.core.state
    for spoil in (
        lambda copy: copy.quota_bytes.update({("shared", "user:eve"): 1}),
        lambda copy: copy.classes.pop("shared"),
        lambda copy: copy.queues.clear(),
        lambda copy: copy.dataset_owners.update({"data": "user:eve"}),
        lambda copy: copy.dataset_owners.clear(),
    ):
        copy = state.copy()
        spoil(copy)
        assert list(broken(copy))
    assert list(broken(state)) == []
