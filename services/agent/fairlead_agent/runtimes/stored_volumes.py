"""The cluster's volumes on this node: for each backend of a class, how a volume is made, opened, bounded and measured.

Each volume is `<made>-<name>` in the place of its class, which is the agent's alone; programs reach nothing but the inside of a volume,
through a mount. Files of a volume have one user id on disk, that of its owner. Everything here blocks. Start at `StoredVolumes.open`.

A growable ext4 image is on one node at a time: two kernels that write to one file system destroy it. A file next to the image names the
node that has it mounted, also while no agent runs there.
"""

import contextlib
import fcntl
import os
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fairlead_agent.linux import mounts
from fairlead_agent.linux.mounts import Closed, open_below, open_path
from fairlead_bus.environment_settings import StoragePlace
from fairlead_schemas.policies.storage import Backend, volume_directory
from fairlead_schemas.wire.events import StartFault
from fairlead_schemas.wire.volumes import VolumeGrant

#: Of mkfs, mount, resize2fs and the quota tools.
TOOL_S = 120
_EXT4_MAGIC, _EXT4_MAGIC_AT = b"\x53\xef", 1024 + 56
#: Directory of an image that is the volume: next to it is lost+found.
_FILES = "files"
_OPEN = os.O_NOFOLLOW | os.O_CLOEXEC

type Run = Callable[[Sequence[str]], None]


class VolumeUnusable(ValueError):
    """A volume cannot be mounted here; the message says why, `fault` whose it is."""

    def __init__(self, message: str, fault: StartFault = "node") -> None:
        super().__init__(message)
        self.fault: StartFault = fault


class VolumeUse(NamedTuple):
    """Measured content of a volume."""

    used_bytes: int
    files: int


def run_tool(argv: Sequence[str]) -> None:
    """Run a tool of the system. Raises OSError with its last words. Of e2fsck, 1 means that the file system is well again."""
    try:
        done = subprocess.run(argv, capture_output=True, timeout=TOOL_S, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise OSError(0, f"{argv[0]} takes longer than {TOOL_S} s") from error
    if done.returncode > (argv[0] == "e2fsck"):
        words = done.stderr.decode(errors="replace").strip().splitlines() or ["no words"]
        raise OSError(0, f"{argv[0]} has failed: {words[-1][:200]}")


class StoredVolumes:
    """Volumes of a node. `places`: of the classes that it has; `images`: a directory of the agent for mounted images."""

    def __init__(self, places: Mapping[str, StoragePlace], images: Path, node: str, run: Run = run_tool) -> None:
        self._places, self._images, self._node, self._run = places, images.absolute(), node, run
        self._lock = threading.Lock()

    def open(self, grant: VolumeGrant) -> int:
        """Return a descriptor of a volume's directory, made and bounded where it is new. The caller closes it. Raises VolumeUnusable."""
        place = self._place(grant)
        try:
            root = open_path(place.path)
        except Closed as error:
            raise VolumeUnusable(f'volume "{grant.name}" cannot be used on this node: {error}') from error
        try:
            with self._lock:
                if place.backend == "ext4-image":
                    return self._open_image(root, grant)
                return self._open_directory(root, place, grant)
        except (OSError, Closed) as error:
            words = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            raise VolumeUnusable(f'volume "{grant.name}" cannot be used on this node: {words}') from error
        finally:
            os.close(root)

    def bound(self, grant: VolumeGrant) -> None:
        """Give a volume that is mounted its quota as of now. Raises VolumeUnusable; an image then grows when it is next mounted."""
        os.close(self.open(grant))
        place = self._place(grant)
        if place.backend == "ext4-image":
            try:
                with self._lock:
                    self._grow_mounted(place, grant)
            except (OSError, Closed) as error:
                raise VolumeUnusable(
                    f'volume "{grant.name}" cannot grow while it is mounted: {error.strerror if isinstance(error, OSError) else error} (the '
                    "kernel wants CAP_SYS_RESOURCE for it): it grows when it is next mounted"
                ) from error

    def path(self, grant: VolumeGrant) -> str:
        """Return the path of a volume for a program of the agent's own user. Raises VolumeUnusable."""
        place = self._place(grant)
        if place.backend not in ("directory", "nfs"):
            raise VolumeUnusable(
                f'volume "{grant.name}" of class {grant.storage_class} ({place.backend}) needs containers, and this node runs jobs as '
                "processes",
                "job",
            )
        os.close(self.open(grant))
        return f"{place.path}/{_key(grant)}"

    def owner(self, grant: VolumeGrant, user: int, group: int) -> tuple[int, int, int] | None:
        """Return the mapping of the volume's owner to a program's user, for its mount; None where the backend has none: the kernel maps no
        users of network file systems.
        """
        return None if grant.backend in ("nfs", "cephfs") else (grant.uid, user, group)

    def measure(self, grant: VolumeGrant) -> VolumeUse:
        """Return what a volume holds. Raises VolumeUnusable, OSError."""
        directory = self.open(grant)
        try:
            if grant.backend == "ext4-image":
                found = os.fstatvfs(directory)
                return VolumeUse((found.f_blocks - found.f_bfree) * found.f_frsize, found.f_files - found.f_ffree)
            sizes = list(_sizes(directory))
            return VolumeUse(sum(sizes), len(sizes))
        finally:
            os.close(directory)

    def close_images(self, kept: Collection[tuple[str, int]]) -> None:
        """Unmount the images of all volumes but these (name, made), so that another node may have them."""
        keys = {volume_directory(name, made) for name, made in kept}
        with self._lock:
            for point in sorted(self._images.glob("*-*")):
                if point.name not in keys:
                    self._close_image(point)

    # ------------------------------------------------------------------------------- backends

    def _place(self, grant: VolumeGrant) -> StoragePlace:
        place = self._places.get(grant.storage_class)
        if place is None:
            raise VolumeUnusable(
                f'volume "{grant.name}" is of class {grant.storage_class}, which this node does not have (its admin names it in the file '
                "of FAIRLEAD_STORAGE)"
            )
        if place.backend != grant.backend:
            raise VolumeUnusable(
                f"class {grant.storage_class} is {grant.backend}, and this node has it as {place.backend}: its admin changes FAIRLEAD_STORAGE"
            )
        return place

    def _open_directory(self, root: int, place: StoragePlace, grant: VolumeGrant) -> int:
        # The mode of a file system without mapped users is that of all programs: nobody reaches it but through a run's mount.
        mode = 0o777 if self.owner(grant, 0, 0) is None else 0o700
        directory = open_below(root, (_key(grant),), make_mode=mode)
        try:
            self._own(directory, grant)
            path = f"{place.path}/{_key(grant)}"
            for words in quota_commands(place.backend, place.path, path, grant):
                self._run(words)
            if place.backend == "cephfs":
                os.setxattr(path, "ceph.quota.max_bytes", str(grant.quota_bytes).encode(), follow_symlinks=False)
        except BaseException:
            os.close(directory)
            raise
        return directory

    def _own(self, directory: int, grant: VolumeGrant) -> None:
        """Give a new volume's directory to its owner. An agent that is not root makes files of its own user, whose programs are alone there."""
        if os.getuid() == 0 and os.fstat(directory).st_uid != grant.uid and self.owner(grant, 0, 0) is not None:
            os.chown(f"/proc/self/fd/{directory}", grant.uid, grant.uid)

    def _open_image(self, root: int, grant: VolumeGrant) -> int:
        key = _key(grant)
        self._take(root, grant)
        point, image = self._images / key, f"/proc/self/fd/{root}/{key}.img"
        fresh = not self._is_formatted(root, key)
        if fresh:
            self._format(root, grant)
        if not point.is_mount():
            if self._enlarge(root, grant):
                with contextlib.suppress(
                    OSError
                ):  # a run that ends now may hold it still: it is mounted as it is, and grows later
                    self._run(["e2fsck", "-f", "-p", os.path.realpath(image)])
                    self._run(["resize2fs", os.path.realpath(image)])
            point.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._run(["mount", "-t", "ext4", "-o", "loop,nosuid,nodev,noatime", os.path.realpath(image), str(point)])
        mounted = open_path(str(point))
        try:
            directory = open_below(mounted, (_FILES,), make_mode=0o700)
            self._own(directory, grant)
            return directory
        finally:
            os.close(mounted)

    def _is_formatted(self, root: int, key: str) -> bool:
        try:
            image = os.open(f"{key}.img", os.O_RDONLY | _OPEN, dir_fd=root)
        except FileNotFoundError:
            return False
        try:
            return os.pread(image, 2, _EXT4_MAGIC_AT) == _EXT4_MAGIC
        finally:
            os.close(image)

    def _format(self, root: int, grant: VolumeGrant) -> None:
        """Make an image; under its name it is complete. It is sparse: it takes of the disk what is written to it."""
        new, name = f"{_key(grant)}.new", f"{_key(grant)}.img"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new, dir_fd=root)
        image = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=root)
        try:
            os.ftruncate(image, grant.quota_bytes)
        finally:
            os.close(image)
        self._run(["mkfs.ext4", "-q", "-F", "-m", "0", os.path.realpath(f"/proc/self/fd/{root}/{new}")])
        os.rename(new, name, src_dir_fd=root, dst_dir_fd=root)

    def _enlarge(self, root: int, grant: VolumeGrant) -> bool:
        """Give the image's file the bytes of its quota. True: its file system is smaller than that."""
        image = os.open(f"{_key(grant)}.img", os.O_RDWR | _OPEN, dir_fd=root)
        try:
            if os.fstat(image).st_size < grant.quota_bytes:
                os.ftruncate(image, grant.quota_bytes)
            superblock = os.pread(image, 64, 1024)
        finally:
            os.close(image)
        block = 1024 << int.from_bytes(superblock[24:28], "little")
        return int.from_bytes(superblock[4:8], "little") * block + block <= grant.quota_bytes

    def _grow_mounted(self, place: StoragePlace, grant: VolumeGrant) -> None:
        root = open_path(place.path)
        try:
            if self._enlarge(root, grant):
                device = f"/dev/loop{os.minor((self._images / _key(grant)).stat().st_dev)}"
                self._run(["losetup", "-c", device])
                self._run(["resize2fs", device])
        finally:
            os.close(root)

    # ------------------------------------------------------------------------------- one node at a time

    def _take(self, root: int, grant: VolumeGrant) -> None:
        """Note that this node has the image. Raises VolumeUnusable where another one has it."""
        with _locked(root, f"{_key(grant)}.node") as file:
            holder = os.pread(file, 100, 0).decode(errors="replace")
            if holder not in ("", self._node):
                raise VolumeUnusable(
                    f'volume "{grant.name}" is mounted on node {holder}, and one of class {grant.storage_class} (ext4-image) is on one node at '
                    "a time: wait for the runs there, or name that node (nodeSelector: {kubernetes.io/hostname: …})",
                    "",
                )
            if not holder:
                os.pwrite(file, self._node.encode(), 0)
                os.fsync(file)

    def _close_image(self, point: Path) -> bool:
        """Unmount an image, and let other nodes have it. False: it is still in use."""
        try:
            if point.is_mount():
                mounts.detach(str(point))
            point.rmdir()
            for place in self._places.values():
                if place.backend == "ext4-image" and Path(place.path, f"{point.name}.node").exists():
                    self._give(place, f"{point.name}.node")
        except (OSError, Closed):
            return False
        return True

    def _give(self, place: StoragePlace, name: str) -> None:
        root = open_path(place.path)
        try:
            with _locked(root, name) as file:
                if os.pread(file, 100, 0).decode(errors="replace") == self._node:
                    os.ftruncate(file, 0)
                    os.fsync(file)
        finally:
            os.close(root)


def quota_commands(backend: Backend, place: str, path: str, grant: VolumeGrant) -> list[list[str]]:
    """Return the commands that bound a directory by a project quota of XFS; none for other backends. Its project is the volume's `made`,
    which no other volume has.
    """
    if backend != "xfs-project":
        return []
    words = (f"project -s -p {path} {grant.made}", f"limit -p bhard={grant.quota_bytes} {grant.made}")
    return [["xfs_quota", "-x", "-c", each, place] for each in words]


def _key(grant: VolumeGrant) -> str:
    return volume_directory(grant.name, grant.made)


@contextlib.contextmanager
def _locked(root: int, name: str) -> Iterator[int]:
    file = os.open(name, os.O_RDWR | os.O_CREAT | _OPEN, 0o600, dir_fd=root)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def _sizes(directory: int) -> Iterator[int]:
    """Yield the bytes on disk of everything below a directory, each once, following no link."""
    seen: set[int] = set()
    for _, _, names, at in os.fwalk(".", dir_fd=directory, follow_symlinks=False):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=at, follow_symlinks=False)
                if found.st_ino not in seen:
                    seen.add(found.st_ino)
                    yield found.st_blocks * 512
