"""Volumes on a node: made, owned, bounded, grown, measured, and on one node at a time. Needs root for mounts and owners."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_agent.linux import mounts
from fairlead_agent.runtimes.stored_volumes import StoredVolumes, VolumeUnusable, quota_commands, run_tool
from fairlead_agent.settings import grants_from_environment
from fairlead_bus.environment_settings import BadSetting, StoragePlace
from fairlead_schemas.policies.storage import Backend
from fairlead_schemas.wire.volumes import VolumeGrant

MIB = 2**20
root_only = pytest.mark.skipif(os.getuid() != 0, reason="mounting: only root may mount (run the tests as root)")


def grant(
    backend: Backend, name: str = "data", made: int = 7, quota_mib: int = 16, uid: int = 2_000_000_001
) -> VolumeGrant:
    return VolumeGrant(
        name=name,
        made=made,
        storage_class="c",
        backend=backend,
        quota_bytes=quota_mib * MIB,
        uid=uid,
        write=True,
    )


class Disk:
    """A place of a class and nodes that have it."""

    def __init__(self, base: Path, backend: Backend) -> None:
        self.place = base / "place"
        self.place.mkdir(mode=0o700)
        self.base = base
        self.backend: Backend = backend
        self.nodes: list[StoredVolumes] = []

    def node(self, name: str = "n1") -> StoredVolumes:
        places = {"c": StoragePlace(path=str(self.place), backend=self.backend)}
        made = StoredVolumes(places, self.base / name / "images", name)
        self.nodes.append(made)
        return made


@pytest.fixture
def images(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path, "ext4-image")
    yield disk
    for node in disk.nodes:
        node.close_images(())
    assert not [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(tmp_path) in line]


def fill(directory: int, name: str, mib: int) -> None:
    """Write a file of so many MiB, and get it onto the disk. Raises OSError."""
    file = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=directory)
    try:
        for _ in range(mib):
            os.write(file, os.urandom(MIB))
        os.fsync(file)
    finally:
        os.close(file)


def may_grow_mounted() -> bool:
    """Return True if this process has CAP_SYS_RESOURCE, which the kernel wants for growing a mounted ext4."""
    status = Path("/proc/self/status").read_text()
    return bool(int(status.partition("CapEff:")[2].split()[0], 16) >> 24 & 1)


@root_only
@pytest.mark.skipif(not may_grow_mounted(), reason="growing a mounted ext4: root has no CAP_SYS_RESOURCE here")
def test_an_image_grows_while_it_is_mounted(images: Disk) -> None:
    """What did not fit fits at once."""
    node = images.node()
    directory = node.open(grant("ext4-image"))
    try:
        with pytest.raises(OSError):
            fill(directory, "a", 20)
        node.bound(grant("ext4-image", quota_mib=48))
        fill(directory, "c", 20)
    finally:
        os.close(directory)


@root_only
def test_an_image_is_full_at_its_quota_and_grows_at_its_next_mount(images: Disk) -> None:
    """ENOSPC inside; another volume of the class and the disk around it are unharmed."""
    node = images.node()
    own, other = node.open(grant("ext4-image")), node.open(grant("ext4-image", "other", 8))
    try:
        with pytest.raises(OSError) as full:
            fill(own, "a", 20)
        assert full.value.errno == errno.ENOSPC
        fill(other, "b", 8)
        os.close(own)
        node.close_images([("other", 8)])
        own = node.open(grant("ext4-image", quota_mib=48))
        fill(own, "c", 20)
        use = node.measure(grant("ext4-image", quota_mib=48))
        assert 30 * MIB < use.used_bytes <= 48 * MIB and use.files > 2
    finally:
        os.close(own)
        os.close(other)


@root_only
def test_an_image_keeps_its_files_and_is_on_one_node_at_a_time(images: Disk) -> None:
    """Also after its agent has died: a file next to the image names the node until that one has unmounted it."""
    wanted, first, second = grant("ext4-image"), images.node("n1"), images.node("n2")
    directory = first.open(wanted)
    fill(directory, "a", 1)
    os.close(directory)
    restarted = images.node("n1")
    for _ in range(2):
        with pytest.raises(VolumeUnusable, match="is mounted on node n1") as refused:
            second.open(wanted)
        assert refused.value.fault == ""
        os.close(restarted.open(wanted))
    restarted.close_images([("data", 7)])
    with pytest.raises(VolumeUnusable):
        second.open(wanted)
    restarted.close_images(())
    directory = second.open(wanted)
    assert os.stat("a", dir_fd=directory).st_size == MIB
    os.close(directory)


@root_only
def test_a_half_made_image_is_made_again(images: Disk) -> None:
    """A kill while it was formatted leaves no volume under its name."""
    (images.place / "7-data.new").write_bytes(b"x" * 1000)
    directory = images.node().open(grant("ext4-image"))
    fill(directory, "a", 1)
    os.close(directory)
    assert not (images.place / "7-data.new").exists()


@root_only
@pytest.mark.parametrize("backend", ["directory", "ext4-image"])
def test_files_have_the_owner_on_disk_and_the_program_in_the_mount(tmp_path: Path, backend: Backend) -> None:
    """Two users in their own volumes: each sees its program's user inside, and the disk has the owner's id."""
    disk = Disk(tmp_path, backend)
    node = disk.node()
    try:
        for uid, user in ((2_000_000_001, 1000), (2_000_000_002, 0)):
            wanted = grant(backend, f"v{user}", user + 1, uid=uid)
            target = tmp_path / f"seen{user}"
            target.mkdir()
            source = node.open(wanted)
            mounts.bind(source, str(target), read_only=False, owner=node.owner(wanted, user, user))
            try:
                inside = os.open(target, os.O_RDONLY)
                program = ["touch", f"/proc/self/fd/{inside}/made"]
                as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *program]
                subprocess.run(as_user, check=True, pass_fds=[inside])
                os.close(inside)
                assert (target / "made").stat().st_uid == user
                on_disk = os.stat("made", dir_fd=source)
                assert (on_disk.st_uid, on_disk.st_gid) == (uid, uid)
            finally:
                os.close(source)
                mounts.unmount(str(target))
    finally:
        node.close_images(())


@root_only
def test_a_directory_counts_each_file_once_and_follows_no_link(tmp_path: Path) -> None:
    """Hard links, a link out of the volume, and a directory below."""
    disk = Disk(tmp_path, "directory")
    (tmp_path / "big").write_bytes(b"x" * 4 * MIB)
    node, wanted = disk.node(), grant("directory")
    directory = node.open(wanted)
    fill(directory, "a", 1)
    os.link("a", "b", src_dir_fd=directory, dst_dir_fd=directory)
    os.symlink(tmp_path / "big", "c", dir_fd=directory)
    os.symlink("/", "root", dir_fd=directory)
    os.close(directory)
    use = node.measure(wanted)
    assert MIB <= use.used_bytes < 2 * MIB and use.files == 2


@root_only
def test_a_volume_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """A name in the place of a class that leads elsewhere is not followed, of directories and of images."""
    (tmp_path / "elsewhere").mkdir()
    links: list[tuple[Backend, str]] = [
        ("directory", "7-data"),
        ("ext4-image", "7-data.img"),
        ("ext4-image", "7-data.node"),
    ]
    for backend, name in links:
        (tmp_path / name).mkdir()
        disk = Disk(tmp_path / name, backend)
        (disk.place / name).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(VolumeUnusable):
            disk.node().open(grant(backend))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_class_that_the_node_lacks_or_has_otherwise_is_refused(tmp_path: Path) -> None:
    """The message names what its admin changes."""
    node = Disk(tmp_path, "directory").node()
    with pytest.raises(VolumeUnusable, match="FAIRLEAD_STORAGE"):
        node.open(grant("nfs"))
    with pytest.raises(VolumeUnusable, match="class c, which this node does not have"):
        StoredVolumes({}, tmp_path, "n1").open(grant("directory"))


def test_a_project_quota_names_the_volume_and_its_bytes() -> None:
    """Written, not run: kernels of test machines have no XFS quotas."""
    assert quota_commands("xfs-project", "/x", "/x/7-data", grant("xfs-project")) == [
        ["xfs_quota", "-x", "-c", "project -s -p /x/7-data 7", "/x"],
        ["xfs_quota", "-x", "-c", f"limit -p bhard={16 * MIB} 7", "/x"],
    ]
    assert not quota_commands("directory", "/x", "/x/7-data", grant("directory"))


def test_a_tool_that_fails_is_quoted() -> None:
    """And one that is missing is an OSError, too."""
    with pytest.raises(OSError, match=r"ls has failed: .*nothing-here"):
        run_tool(["ls", "/nothing-here"])
    with pytest.raises(OSError):
        run_tool(["no-such-tool"])


def test_places_of_classes_are_read_from_a_file(tmp_path: Path) -> None:
    """A place is of the agent's user alone, and not where the system is."""
    place, file = tmp_path / "vols", tmp_path / "storage.toml"
    place.mkdir(mode=0o700)
    file.write_text(f'[shared]\npath = "{place}"\nbackend = "directory"\n')
    found = grants_from_environment({"FAIRLEAD_STORAGE": str(file)}).storage
    assert found == {"shared": StoragePlace(path=str(place), backend="directory")}
    place.chmod(0o755)
    with pytest.raises(BadSetting, match=r"FAIRLEAD_STORAGE: shared: .*chmod 700"):
        grants_from_environment({"FAIRLEAD_STORAGE": str(file)})
    file.write_text('[shared]\npath = "/etc/x"\nbackend = "directory"\n')
    with pytest.raises(BadSetting, match="FAIRLEAD_STORAGE: shared"):
        grants_from_environment({"FAIRLEAD_STORAGE": str(file)})
    file.write_text(f'[shared]\npath = "{place}"\nbackend = "floppy"\n')
    with pytest.raises(BadSetting, match="cannot be read"):
        grants_from_environment({"FAIRLEAD_STORAGE": str(file)})
