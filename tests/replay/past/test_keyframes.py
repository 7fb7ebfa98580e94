"""Keyframes: what a file promises, and that nothing but a true one is ever used."""

import zlib
from pathlib import Path

import pytest

from fairlead_bus.port import LogDamaged, Stored
from fairlead_gateway.views.fold import SCHEMA, Views
from fairlead_replay.past import keyframes
from fairlead_replay.past.keyframe_writer import build
from fairlead_replay.past.keyframes import COMMIT_WEIGHT, Keyframe, KeyframePlace, KeyframeStore, encode_keyframe
from fairlead_schemas.wire.commit import commit_hash
from tests.gateway.standing import fold, heads
from tests.replay.worlds import log_of

#: Events and commits between two keyframes of these tests.
WEIGHT = 250


@pytest.fixture
def messages() -> list[Stored]:
    """A recorded log."""
    return log_of(3, commits_min=250)


@pytest.fixture
def store(messages: list[Stored], tmp_path: Path) -> KeyframeStore:
    """The keyframes of that log."""
    made = build(messages, tmp_path, weight_max=WEIGHT)
    assert made is not None
    assert len(made.places) >= 4
    return made


def opened(tmp_path: Path, messages: list[Stored], bytes_max: int = keyframes.BYTES_MAX) -> KeyframeStore:
    """The store as another process finds it."""
    found = KeyframeStore(tmp_path, commit_hash(messages[0].payload), bytes_max)
    found.open()
    return found


def file_of(tmp_path: Path, place: KeyframePlace) -> Path:
    """The file of a keyframe."""
    (path,) = tmp_path.rglob(f"{place.sequence:020}.keyframe")
    return path


def is_true(found: Keyframe | None, messages: list[Stored]) -> bool:
    """Return True if a keyframe is what a fold to its place gives; also for none at all."""
    return found is None or (
        found.views.snapshot() == fold(messages[: found.sequence]).snapshot()
        and found.heads == heads(messages[: found.sequence])
    )


def test_keyframes_are_what_a_fold_gives(messages: list[Stored], store: KeyframeStore, tmp_path: Path) -> None:
    """Found again by another process, at the same places, with state, heads and events of that place."""
    again = opened(tmp_path, messages)
    assert again.places == store.places
    for place in again.places:
        found = again.nearest(place.sequence)
        assert found is not None
        assert found.sequence == place.sequence
        assert is_true(found, messages)
        between = again.nearest(place.sequence + 1)
        assert between is not None
        assert between.sequence == place.sequence
    assert again.nearest(store.places[0].sequence - 1) is None


def test_a_time_finds_a_keyframe_that_is_not_later(messages: list[Stored], store: KeyframeStore) -> None:
    """Also where writers' clocks cross: the running maximum counts."""
    for place in store.places:
        found = store.nearest(len(messages), place.at_ns)
        assert found is not None
        assert found.views.at_ns <= place.at_ns
        earlier = store.nearest(len(messages), place.at_ns - 1)
        assert earlier is None or earlier.views.at_ns < place.at_ns


def test_a_state_in_memory_is_folded_on_where_that_is_faster(store: KeyframeStore) -> None:
    """Reading a keyframe costs as much as some thousand events: one that is a few commits further is not read for a next moment."""
    places = store.places
    far, near = places[-1], places[-2]
    weight = far.events - near.events + COMMIT_WEIGHT * (far.sequence - near.sequence)
    store.read_weight = weight // 2
    assert store.is_nearer(near.sequence, far.sequence)
    assert not store.is_nearer(far.sequence - 2, far.sequence)
    assert store.is_nearer(places[0].sequence - 1, far.sequence), "many keyframes further"
    assert not store.is_nearer(far.sequence, 10**9)
    assert not store.is_nearer(near.sequence, far.sequence - 1), "none up to there is further"
    assert not store.is_nearer(near.sequence, far.sequence, near.at_ns), "the further one is later"
    store.read_weight = weight
    assert not store.is_nearer(near.sequence, far.sequence)


def test_a_second_run_makes_nothing_again(messages: list[Stored], store: KeyframeStore, tmp_path: Path) -> None:
    """Places depend on the log alone, so replicas agree on them."""
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.keyframe")}
    build(messages, tmp_path, weight_max=WEIGHT)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.keyframe")} == before


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_keyframe_is_not_used(
    messages: list[Stored], store: KeyframeStore, tmp_path: Path, damage: str, share: float
) -> None:
    """Cut or with a flipped bit, wherever: an older one is taken, and the file goes."""
    newest, older = store.places[-1], store.places[-2]
    path = file_of(tmp_path, newest)
    data = bytearray(path.read_bytes())
    at = int(len(data) * share)
    if damage == "cut":
        del data[at:]
    else:
        data[at] ^= 4
    path.write_bytes(bytes(data))
    for each in (store, opened(tmp_path, messages)):
        found = each.nearest(len(messages))
        assert found is not None
        assert found.sequence == older.sequence
        assert is_true(found, messages)
    assert not path.exists()


def test_a_keyframe_of_another_log_or_place_or_shape_is_not_used(
    messages: list[Stored], store: KeyframeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copied under a name that it does not have, whole as it is."""
    first, newest = store.places[0], store.places[-1]
    path = file_of(tmp_path, newest)
    views = fold(messages[: newest.sequence])
    others = {
        "another log": encode_keyframe("0" * 64, views.snapshot(), newest, heads(messages[: newest.sequence])),
        "another place": file_of(tmp_path, first).read_bytes(),
    }
    monkeypatch.setattr(keyframes, "SCHEMA", "0-0")
    others["another shape"] = encode_keyframe(commit_hash(messages[0].payload), views.snapshot(), newest, {})
    monkeypatch.setattr(keyframes, "SCHEMA", SCHEMA)
    for what, data in others.items():
        path.write_bytes(data)
        found = opened(tmp_path, messages).nearest(newest.sequence)
        assert found is not None, what
        assert found.sequence < newest.sequence, what
        assert is_true(found, messages), what


def test_two_logs_under_one_directory(messages: list[Stored], store: KeyframeStore, tmp_path: Path) -> None:
    """A stream that was made again has keyframes of its own; the other log's stay, and are never found."""
    other = log_of(8)
    made = build(other, tmp_path, weight_max=WEIGHT)
    assert made is not None
    for place in made.places:
        assert is_true(made.nearest(place.sequence), other)
    for place in store.places:
        assert is_true(opened(tmp_path, messages).nearest(place.sequence), messages)


def test_keyframes_of_an_older_version_are_removed(
    messages: list[Stored], store: KeyframeStore, tmp_path: Path
) -> None:
    """They are of no use any more, and take space."""
    folder = file_of(tmp_path, store.places[0]).parent
    old = folder.with_name("1-old")
    old.mkdir()
    (old / "00000000000000000007.keyframe").write_bytes(b"old")
    opened(tmp_path, messages)
    assert not old.exists()


def test_a_keyframe_that_is_removed_while_it_is_wanted(
    messages: list[Stored], store: KeyframeStore, tmp_path: Path
) -> None:
    """Another process thins the same directory: an older one is taken."""
    file_of(tmp_path, store.places[-1]).unlink()
    found = store.nearest(len(messages))
    assert found is not None
    assert found.sequence == store.places[-1].sequence
    assert is_true(found, messages)
    for place in store.places:
        file_of(tmp_path, place).unlink()
    assert store.nearest(len(messages)) is None


def test_two_processes_write_one_directory(messages: list[Stored], tmp_path: Path) -> None:
    """Both write the same files; neither reads half of one, and nothing else is left."""
    one, two = opened(tmp_path, messages), opened(tmp_path, messages)
    views = fold(messages[:40])
    place = KeyframePlace(40, views.at_ns, 1, 0)
    for each in (one, two, one):
        assert each.write(views.snapshot(), place, heads(messages[:40]))
        assert is_true(each.nearest(40), messages)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["00000000000000000040.keyframe"]


@pytest.mark.parametrize("bytes_max", [0, 1, 20_000, 60_000])
def test_the_bound_of_bytes_is_kept(messages: list[Stored], tmp_path: Path, bytes_max: int) -> None:
    """None with a bound of 0; otherwise every second of the oldest half goes first, and what stays is true."""
    made = build(messages, tmp_path, weight_max=WEIGHT // 5, bytes_max=bytes_max)
    assert made is not None
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.keyframe")) <= bytes_max
    assert sum(place.bytes for place in made.places) <= bytes_max
    for place in made.places:
        assert is_true(made.nearest(place.sequence), messages)
    if bytes_max == 60_000:
        gaps = [late.sequence - early.sequence for early, late in zip(made.places, made.places[1:], strict=False)]
        assert gaps[-1] <= gaps[0], "the newest stretch has the most"


def test_a_full_disk_costs_the_keyframe_only(
    messages: list[Stored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is raised, no half of a file is left, and the next one is written when there is room."""
    store = opened(tmp_path, messages)
    views = fold(messages[:40])
    place = KeyframePlace(40, views.at_ns, 1, 0)

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(keyframes.os, "fsync", full)
        assert not store.write(views.snapshot(), place, {})
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert store.nearest(40) is None
    assert store.write(views.snapshot(), place, {})


def test_a_directory_that_cannot_be_made_is_reported(messages: list[Stored], tmp_path: Path) -> None:
    """A file is in place of the directory: there are no keyframes, and no fault."""
    (tmp_path / "past").write_text("a file")
    store = KeyframeStore(tmp_path / "past", commit_hash(messages[0].payload))
    store.open()
    assert not store.write(Views().snapshot(), KeyframePlace(1, 1, 1, 0), {})
    assert store.nearest(99) is None


def test_logs_without_keyframes(messages: list[Stored], tmp_path: Path) -> None:
    """An empty log, one that is shorter than the first place, and one that is damaged in its middle."""
    assert build([], tmp_path) is None
    short = build(messages, tmp_path)
    assert short is not None
    assert short.places == []
    broken = list(messages)
    broken[60] = Stored(61, broken[60].subject, broken[60].payload[:-9] + b'"broken"}')
    with pytest.raises(LogDamaged, match="61"):
        build(broken, tmp_path, weight_max=WEIGHT)
    for place in opened(tmp_path, messages).places:
        assert place.sequence < 61
    gap = [*messages[:30], *messages[31:]]
    with pytest.raises(LogDamaged, match="gap"):
        build(gap, tmp_path)


def test_bombs_are_not_unpacked_unverified(messages: list[Stored], store: KeyframeStore, tmp_path: Path) -> None:
    """The digest is looked at before anything is decompressed or decoded."""
    path = file_of(tmp_path, store.places[-1])
    digest, _, rest = path.read_bytes().partition(b"\n")
    head, _, _ = rest.partition(b"\n")
    path.write_bytes(digest + b"\n" + head + b"\n" + zlib.compress(b"0" * 10_000_000))
    found = store.nearest(len(messages))
    assert found is not None
    assert is_true(found, messages)
