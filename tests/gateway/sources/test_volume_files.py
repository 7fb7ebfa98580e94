"""Files of volumes on a gateway's disk: uploads that continue after any kill, and paths that lead nowhere but into the volume."""

import ctypes
import hashlib
import itertools
import os
import threading
from pathlib import Path

import pytest

from fairlead.client.answers import FilePart
from fairlead.errors import Conflict, FairleadError, NotFound, Unreachable
from fairlead.sync.volume_files import PART_BYTES, VolumePath, get_file, parse_volume_path, put_file
from fairlead_bus.environment_settings import StoragePlace
from fairlead_gateway.sources.volume_files import (
    UPLOADS_MAX,
    BadPath,
    NotReached,
    VolumeFiles,
    VolumePlace,
    WrongDigest,
    WrongOffset,
)
from fairlead_schemas.http.storage import UploadInfo

VOLUME = VolumePlace("data", 7, "shared", 2_000_000_001)
HOSTILE = (
    "",
    "/",
    "..",
    "../x",
    "a/../../x",
    "a//b",
    "./a",
    "a/.",
    "/etc/passwd",
    "a\0b",
    "x" * 256,
    "a/" * 64 + "b",
    "é" * 200,
)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def disk(tmp_path: Path) -> VolumeFiles:
    """The files of a class `shared`, whose place is `place`; next to it is a treasure."""
    (tmp_path / "place").mkdir(mode=0o700)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/treasure").write_bytes(b"gold")
    return VolumeFiles({"shared": StoragePlace(path=str(tmp_path / "place"), backend="directory")})


def put(disk: VolumeFiles, path: str, data: bytes) -> None:
    upload = disk.begin(VOLUME, path, len(data), "", "ann")
    disk.append(VOLUME, upload.id, 0, data)


def inside(tmp_path: Path) -> Path:
    return tmp_path / "place/7-data"


def test_an_upload_is_whole_or_not_there(disk: VolumeFiles, tmp_path: Path) -> None:
    """Its bytes are on the disk after each part, in the volume after the last, with the owner's id, and it is forgotten then."""
    data = os.urandom(1000)
    upload = disk.begin(VOLUME, "runs/7/model", 1000, digest_of(data), "ann")
    assert disk.append(VOLUME, upload.id, 0, data[:300])
    again = VolumeFiles(disk._places)  # pyright: ignore[reportPrivateUsage] -- another gateway
    assert again.begin(VOLUME, "runs/7/model", 1000, digest_of(data), "ann").offset == 300
    for offset in (0, 299, 301, 5000):
        with pytest.raises(WrongOffset) as wrong:
            again.append(VOLUME, upload.id, offset, b"x")
        assert wrong.value.offset == 300
    with pytest.raises(WrongOffset):
        again.append(VOLUME, upload.id, 300, data)  # more than it has
    assert not list(inside(tmp_path).glob("*"))
    done = again.append(VOLUME, upload.id, 300, data[300:])
    assert done is not None and done.offset == 1000
    found = inside(tmp_path) / "runs/7/model"
    assert found.read_bytes() == data
    if os.getuid() == 0:
        assert {found.stat().st_uid, found.parent.stat().st_uid, inside(tmp_path).stat().st_uid} == {VOLUME.uid}
    assert disk.state(VOLUME, upload.id) is None and disk.append(VOLUME, upload.id, 1000, b"") is None
    assert disk.begin(VOLUME, "runs/7/model", 1000, digest_of(data), "ann").offset == 1000
    assert disk.begin(VOLUME, "runs/7/model", 1000, digest_of(b"other"), "ann").offset == 0


def test_a_file_of_another_digest_is_not_kept(disk: VolumeFiles, tmp_path: Path) -> None:
    """And an upload of another person, path or length is another one."""
    upload = disk.begin(VOLUME, "a", 3, digest_of(b"abc"), "ann")
    others = {
        disk.begin(VOLUME, path, length, digest_of(b"abc"), by).id
        for path, length, by in (("b", 3, "ann"), ("a", 4, "ann"), ("a", 3, "bob"))
    }
    assert upload.id not in others and len(others) == 3
    with pytest.raises(WrongDigest):
        disk.append(VOLUME, upload.id, 0, b"abd")
    assert not list(inside(tmp_path).glob("*")) and disk.state(VOLUME, upload.id) is None


@pytest.mark.parametrize("path", HOSTILE)
def test_a_path_out_of_the_volume_is_refused(disk: VolumeFiles, path: str) -> None:
    """For reading and for writing, before anything is opened."""
    with pytest.raises(BadPath):
        disk.open(VOLUME, path)
    with pytest.raises(BadPath):
        disk.begin(VOLUME, path, 1, "", "ann")


@pytest.mark.parametrize("name", ["..", "../7-x", "0" * 31, "0" * 33, "x" * 32, "a/b", "\0" * 32, ""])
def test_an_id_that_is_none_names_no_upload(disk: VolumeFiles, name: str) -> None:
    """Ids are 32 hex digits."""
    assert disk.state(VOLUME, name) is None and disk.append(VOLUME, name, 0, b"x") is None
    assert not disk.cancel(VOLUME, name)


def test_links_of_a_volume_lead_nowhere(disk: VolumeFiles, tmp_path: Path) -> None:
    """To a file, a directory, the root, themselves; as the last name and on the way; and a FIFO and a directory are no files."""
    put(disk, "there", b"1")
    root = inside(tmp_path)
    (root / "file").symlink_to(tmp_path / "outside/treasure")
    (root / "dir").symlink_to(tmp_path / "outside")
    (root / "up").symlink_to("..")
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    for path in ("file", "dir/treasure", "up/7-data/there", "up/uploads", "loop", "pipe", "none", "there/x"):
        with pytest.raises(BadPath):
            disk.open(VOLUME, path)
    for path in ("dir/new", "up/new", "loop/new", "there/new"):
        with pytest.raises(BadPath):
            put(disk, path, b"x")
    put(disk, "file", b"replaced")  # the link itself, never its target
    assert (tmp_path / "outside/treasure").read_bytes() == b"gold" and not (tmp_path / "outside/new").exists()
    assert (root / "file").read_bytes() == b"replaced"


def test_a_link_that_is_swapped_in_meanwhile_is_not_followed(disk: VolumeFiles, tmp_path: Path) -> None:
    """A directory and a link change places without a pause while files are read and written below their name."""
    put(disk, "a/treasure", b"mine")
    root, ended = inside(tmp_path), threading.Event()
    (root / "b").symlink_to(tmp_path / "outside")
    libc = ctypes.CDLL(None)

    def swap() -> None:
        while not ended.is_set():
            assert libc.renameat2(-100, bytes(root / "a"), -100, bytes(root / "b"), 2) == 0  # RENAME_EXCHANGE

    swapper = threading.Thread(target=swap)
    swapper.start()
    outcomes = {"read": 0, "not read": 0, "written": 0, "not written": 0}
    try:
        while min(outcomes.values()) < 5:
            try:
                file = disk.open(VOLUME, "a/treasure")
                assert file.read(0, 10) == b"mine"
                file.close()
                outcomes["read"] += 1
            except BadPath:
                outcomes["not read"] += 1
            try:
                put(disk, "a/treasure", b"mine")
                outcomes["written"] += 1
            except BadPath:
                outcomes["not written"] += 1
    finally:
        ended.set()
        swapper.join()
    assert (tmp_path / "outside/treasure").read_bytes() == b"gold"


def test_uploads_have_an_end(disk: VolumeFiles, tmp_path: Path) -> None:
    """So many of one volume at once; those that nothing was added to for a week go."""
    for number in range(UPLOADS_MAX):
        disk.begin(VOLUME, f"f{number}", 10, "", "ann")
    with pytest.raises(OSError, match="uploads that are not whole"):
        disk.begin(VOLUME, "more", 10, "", "ann")
    disk.begin(VOLUME._replace(made=8), "more", 10, "", "ann")
    for file in (tmp_path / "place/uploads").glob("7-*.part"):
        os.utime(file, (0, 0))
    disk.begin(VOLUME, "more", 10, "", "ann")
    assert len(list((tmp_path / "place/uploads").iterdir())) == 4


def test_a_class_that_is_not_here_says_how_else(disk: VolumeFiles, tmp_path: Path) -> None:
    """Another class, and one of images."""
    with pytest.raises(NotReached, match="fairlead cp"):
        disk.open(VOLUME._replace(storage_class="gold"), "a")
    images = VolumeFiles({"shared": StoragePlace(path=str(tmp_path / "place"), backend="ext4-image")})
    with pytest.raises(NotReached, match="fairlead cp"):
        images.begin(VOLUME, "a", 1, "", "ann")


class DirectClient:
    """Client whose requests are calls. It is killed once so many of them were carried out: before the next one, or before the answer to the
    last of them.
    """

    def __init__(self, disk: VolumeFiles, requests: int, *, loses_answer: bool) -> None:
        self.disk, self.left, self.loses_answer = disk, requests, loses_answer

    def _begin(self) -> None:
        if not self.left:
            raise Unreachable("killed")
        self.left -= 1

    def _end(self) -> None:
        if not self.left and self.loses_answer:
            raise Unreachable("killed")

    def begin_upload(self, volume: str, path: str, length: int, digest: str) -> UploadInfo:
        found = self.disk.begin(VOLUME, path, length, digest, "ann")
        return UploadInfo(id=found.id, path=path, length=length, offset=found.offset)

    def upload(self, volume: str, upload: str) -> UploadInfo:
        found = self.disk.state(VOLUME, upload)
        if found is None:
            raise NotFound("no upload")
        return UploadInfo(id=found.id, path=found.path, length=found.length, offset=found.offset)

    def send_upload(self, volume: str, upload: str, offset: int, data: bytes) -> int:
        self._begin()
        try:
            found = self.disk.append(VOLUME, upload, offset, data)
        except WrongOffset as error:
            raise Conflict(str(error)) from error
        if found is None:
            raise NotFound("no upload")
        self._end()
        return found.offset

    def volume_file(
        self, volume: str, path: str, offset: int = 0, size: int = 1, *, tag: str = "", digest: bool = False
    ) -> FilePart:
        self._begin()
        file = self.disk.open(VOLUME, path)
        return FilePart(file.read(offset, size), file.size, file.tag, file.digest().hex() if digest else "", offset)


def until_done(transfer: object, kills: int) -> int:
    """Call it with one client after the other until one is not killed; return how many were."""
    for number in itertools.count():
        assert number < kills, "it makes no progress"
        try:
            transfer(number)  # type: ignore[operator]
        except FairleadError:
            continue
        return number
    raise AssertionError


def test_a_transfer_that_is_killed_at_every_part_is_byte_equal_at_the_end(disk: VolumeFiles, tmp_path: Path) -> None:
    """Up and down, killed before and after each MiB; each life of a client continues where the one before was."""
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom(9 * PART_BYTES + 17))
    place, seen = VolumePath("data", "runs/model"), list[int]()

    def up(number: int) -> None:
        client = DirectClient(disk, 1, loses_answer=bool(number % 2))
        put_file(client, source, place, lambda done, _: seen.append(done))  # type: ignore[arg-type]

    assert until_done(up, 40) >= 9
    assert seen == sorted(seen) and (inside(tmp_path) / "runs/model").read_bytes() == source.read_bytes()

    def down(number: int) -> None:
        get_file(DirectClient(disk, 2, loses_answer=False), place, back, lambda *_: None)  # type: ignore[arg-type]

    assert until_done(down, 40) == 3
    assert back.read_bytes() == source.read_bytes()
    assert not list(tmp_path.glob(".back*"))


def test_a_place_in_a_volume_is_read() -> None:
    """A volume, a colon and a path."""
    assert parse_volume_path("data:/runs/7/") == ("data", "runs/7")
    for text in ("data", "data:", ":x", "data:/"):
        with pytest.raises(FairleadError):
            parse_volume_path(text)
