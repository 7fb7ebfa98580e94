"""A log whose beginning was trimmed: the process for the past answers from an archive of it, byte for byte, and from no other."""

from pathlib import Path

import pytest

from fairlead_bus.log import identity
from fairlead_bus.port import LogDamaged, Stored
from fairlead_replay.past import archived_log, keyframe_writer, keyframes
from fairlead_replay.past.archived_log import with_archive
from fairlead_replay.past.keyframe_writer import build
from fairlead_replay.past.service import BadSetting, PastSettings
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import commit_hash
from tests.gateway.standing import StandingGateway, fold, paths_at
from tests.replay.archive.scenes import fill, store_at
from tests.replay.past.beside_gateway import running
from tests.replay.worlds import log_of

#: Commits that the log does not hold any more.
GONE = 70


@pytest.fixture
def messages() -> list[Stored]:
    """A recorded log."""
    return log_of(8)


@pytest.fixture
def other_log() -> list[Stored]:
    """Another one."""
    return log_of(11)


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keyframes and pieces of the archive are small."""
    monkeypatch.setattr(keyframe_writer, "WEIGHT_MAX", 250)
    monkeypatch.setattr(keyframes, "READ_WEIGHT", 0)
    monkeypatch.setattr(archived_log, "CHUNK", 9)


def archive(directory: Path, log: list[Stored]) -> Path:
    """An archive of a log."""
    fill(store_at(directory), log)
    return directory


def trim(gateway: StandingGateway, count: int = GONE) -> None:
    """Remove the log's first commits."""
    del gateway.hub.streams[subjects.LOG].messages[:count]


@pytest.mark.parametrize("archived", [0, GONE, GONE + 1])
async def test_moments_behind_the_log_are_answered_from_the_archive(
    messages: list[Stored], tmp_path: Path, archived: int
) -> None:
    """Also where it ends just before the log's first commit (sealed or not), or has that one, too; by keyframes or without."""
    directory = archive(tmp_path / "archive", messages[: archived or None])
    async with StandingGateway(messages) as now:
        trim(now)
        async with running(now, tmp_path / "past", archive=directory):
            for sequence in (3, 40, GONE - 1, GONE, GONE + 1, len(messages)):
                async with StandingGateway(messages[:sequence]) as then:
                    for path in paths_at(then.views)[::3]:
                        assert await now.document(path, sequence) == await then.document(path), (path, sequence)
            time_then = (await now.get("/v1/breaker", 40)).headers["x-fairlead-at"].partition(" ")[2]
            assert 0 < (await now.get("/v1/cluster", time_then)).json()["sequence"] < GONE
            assert (await now.get("/v1/cluster", "1970-01-02T00:00:00Z")).status_code == 410


async def test_keyframes_of_what_was_trimmed_are_used(messages: list[Stored], tmp_path: Path) -> None:
    """They are of commits that only the archive has."""
    build(messages, tmp_path / "past", weight_max=250)
    directory = archive(tmp_path / "archive", messages)
    async with StandingGateway(messages) as now:
        trim(now)
        async with running(now, tmp_path / "past", archive=directory) as process:
            assert process.statistics()["keyframes"] >= 1
            async with StandingGateway(messages[: GONE - 5]) as then:
                assert await now.document("/v1/cluster", GONE - 5) == await then.document("/v1/cluster")


@pytest.mark.parametrize("kind", ["short", "other", "none"])
async def test_an_archive_that_does_not_reach_the_log_is_not_used(
    messages: list[Stored], other_log: list[Stored], tmp_path: Path, kind: str
) -> None:
    """One that ends earlier, one of another log, an empty one: the log begins where it begins."""
    log = {"short": messages[: GONE - 1], "other": other_log, "none": []}[kind]
    directory = archive(tmp_path, log)
    async with StandingGateway(messages) as now:
        trim(now)
        bus = with_archive(now.bus, directory)
        assert (await bus.state(subjects.LOG)).first == GONE + 1
        assert await bus.read(subjects.LOG, GONE) is None
        with pytest.raises(LogDamaged):
            await identity(bus)


async def test_a_damaged_archive_gives_no_answer_behind_the_damage(messages: list[Stored], tmp_path: Path) -> None:
    """The sequence is named, and what lies before is not shown in its place; what the log itself has is answered."""
    directory = archive(tmp_path / "archive", messages)
    build(messages, tmp_path / "past", weight_max=250)
    damaged = min((directory / "segments").glob("*.zst"))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    async with StandingGateway(messages) as now:
        trim(now, 120)
        async with running(now, tmp_path / "past", archive=directory):
            damaged.write_bytes(content)
            answer = await now.get("/v1/cluster", 5)
            assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (503, "log_damaged")
            assert "segments/" in answer.json()["detail"]
            assert (await now.get("/v1/cluster", len(messages))).status_code == 200


async def test_an_archive_that_is_gone_is_damage(messages: list[Stored], tmp_path: Path) -> None:
    """It was there at the start: readers stop with the sequence, and begin nowhere else."""
    directory = archive(tmp_path / "archive", messages)
    async with StandingGateway(messages) as now:
        trim(now)
        bus = with_archive(now.bus, directory)
        assert (await bus.state(subjects.LOG)).first == 1
        directory.rename(tmp_path / "away")
        with pytest.raises(LogDamaged, match="archive"):
            await bus.read(subjects.LOG, 5)
        tail = await bus.tail(subjects.LOG, after=5)
        with pytest.raises(LogDamaged, match="archive"):
            await tail.next()


async def test_a_whole_log_needs_no_archive(messages: list[Stored], tmp_path: Path) -> None:
    """Nothing of it is read while the log holds everything; what changes the bus goes to the bus."""
    async with StandingGateway(messages) as now:
        bus = with_archive(now.bus, tmp_path)
        assert await identity(bus) == commit_hash(messages[0].payload)
        assert (await bus.state(subjects.LOG)) == await now.bus.state(subjects.LOG)
        assert await bus.read(subjects.LOG, len(messages) + 1) is None
        assert with_archive(now.bus, None) is now.bus


async def test_a_reader_passes_the_seam(messages: list[Stored], tmp_path: Path) -> None:
    """From any place: the archive's commits, then the log's, also where more is trimmed meanwhile."""
    directory = archive(tmp_path, messages)
    async with StandingGateway(messages) as now:
        trim(now)
        bus = with_archive(now.bus, directory)
        for after in (0, 33, GONE - 1, GONE, GONE + 3):
            tail, found = await bus.tail(subjects.LOG, after=after), list[Stored]()
            while len(found) < len(messages) - after:
                found += await tail.next()
                if after == 33 and len(found) < 10:
                    trim(now, 10)
            await tail.close()
            assert found == messages[after:], after
    assert fold(messages).sequence == len(messages)


def test_the_setting_names_an_archive(tmp_path: Path, messages: list[Stored]) -> None:
    """A directory that is none is refused at the start."""
    with pytest.raises(BadSetting, match="FAIRLEAD_PAST_ARCHIVE: expected the directory of an archive"):
        PastSettings.from_environment({"FAIRLEAD_PAST_ARCHIVE": str(tmp_path)})
    directory = archive(tmp_path / "archive", messages[:9])
    assert PastSettings.from_environment({"FAIRLEAD_PAST_ARCHIVE": str(directory)}).archive == directory
    assert PastSettings.from_environment({}).archive is None
