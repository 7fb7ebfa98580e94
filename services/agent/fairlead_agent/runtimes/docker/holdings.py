"""Holdings of runs on the node: volumes, mounted without set-user-id programs and device files, and secrets, in memory.

All holdings are below one file system in memory, `<base>/held/<run>/`. It belongs to the agent's user alone and exists
while a run holds anything. The engine then mounts the holdings into the run's container. An engine that does not share
the agent's view of the file system finds no such directory and refuses, instead of giving an empty directory.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from fairlead_agent.core.runs import RunKey, parse_name
from fairlead_agent.launch.plan import Launch
from fairlead_agent.linux import mounts
from fairlead_agent.linux.mounts import Closed, open_below, open_path, read_below
from fairlead_agent.runtimes.docker.template import Bind
from fairlead_agent.runtimes.stored_volumes import StoredVolumes, VolumeUnusable
from fairlead_agent.settings import Grants
from fairlead_schemas.jobfile.agent_fields import Secret, Volume
from fairlead_schemas.wire.events import StartFault
from fairlead_schemas.wire.volumes import VolumeGrant

SECRET_BYTES_MAX = 64 * 1024
HELD_MIB = 256
#: Within the directory of a run.
_VOLUME, _SECRET, _GRANTS = "v", "s", "grants"

_decode_grants = msgspec.json.Decoder(list[VolumeGrant]).decode


class NotGranted(ValueError):
    """The node does not give what the job names; the message says why, `fault` whether the name is at fault or the node."""

    def __init__(self, message: str, fault: StartFault = "job") -> None:
        super().__init__(message)
        self.fault: StartFault = fault


class Holdings:
    """Holdings of all runs of a node. Methods may be called from any thread; they block."""

    def __init__(self, base: Path, grants: Grants = Grants(), node: str = "") -> None:  # noqa: B008 -- immutable
        self.directory = base.absolute() / "held"
        self._grants = grants
        self.stored = StoredVolumes(grants.storage, base / "images", node)
        self._lock = threading.Lock()

    def hold(self, launch: Launch) -> list[Bind]:
        """Prepare the run's volumes and secrets and return their binds; only the agent can read the secrets yet. Raises
        NotGranted; no holding remains then.
        """
        if not launch.volumes and not launch.secrets:
            return []
        try:
            with self._lock:
                self._open()
                self._drop(launch.key)
                own = self.directory / launch.key.name
                own.mkdir(0o700)
            if launch.stored:
                self.note(launch.key, [*launch.stored.values()])
            binds = [self._volume(launch, each, own / f"{_VOLUME}{at}") for at, each in enumerate(launch.volumes)]
            return binds + [
                self._secret(launch, each, own / f"{_SECRET}{at}") for at, each in enumerate(launch.secrets)
            ]
        except (NotGranted, OSError) as error:
            self.drop(launch.key)
            if isinstance(error, NotGranted):
                raise
            raise NotGranted(f"this node's agent cannot mount its volumes or secrets: {error}", "node") from error

    def give(self, launch: Launch, uid: int, gid: int) -> None:
        """Make the run's secrets its program's, and mount the cluster's volumes so that their files are. `uid`, `gid`: as this machine
        counts them. Raises NotGranted.
        """
        own = self.directory / launch.key.name
        for path in own.glob(f"{_SECRET}*"):
            os.chown(path, uid, gid, follow_symlinks=False)
        for at, volume in enumerate(launch.volumes):
            if volume.made:
                self._mount(launch.stored[volume.name], own / f"{_VOLUME}{at}", uid, gid)

    def grants(self) -> dict[RunKey, list[VolumeGrant]]:
        """Return the cluster's volumes that runs hold, also those that an earlier process of the agent has mounted."""
        with self._lock:
            return self._held()

    def note(self, key: RunKey, grants: Sequence[VolumeGrant]) -> None:
        """Note the volumes of a run as they are now; no effect for a run that holds nothing any more."""
        with self._lock:
            own = self.directory / key.name
            if self._is_open and own.is_dir():
                (own / _GRANTS).write_bytes(msgspec.json.encode(grants))

    def drop(self, key: RunKey) -> None:
        """The run has ended: nothing of it is left. (What runs of a project's volume has been written stays, of course.)"""
        with self._lock:
            self._drop(key)
            self._close_images()
            self._close_if_empty()

    def keep_only(self, keys: Collection[RunKey]) -> None:
        """Nothing is held any more but by these runs."""
        with self._lock:
            for name in os.listdir(self.directory) if self._is_open else ():  # noqa: PTH208 -- names
                key = parse_name(name)
                if key is not None and key not in keys:
                    self._drop(key)
            self._close_images()
            self._close_if_empty()

    # ------------------------------------------------------------------ one volume, one secret

    def _volume(self, launch: Launch, volume: Volume, target: Path) -> Bind:
        if volume.made:  # mounted once the program's user is known
            if volume.name not in launch.stored:
                raise NotGranted(f'volume "{volume.name}" of this run is not known to the cluster')
            target.mkdir(0o700)
            return Bind(str(target), volume.path, read_only=False)
        with contextlib.ExitStack() as stack:
            source, writable = self._own(launch, volume) if volume.create else self._listed(launch, volume)
            stack.callback(os.close, source)
            target.mkdir(0o700)
            mounts.bind(source, str(target), read_only=volume.read_only or not writable)
        # Read-only is what we have mounted. An engine asked for it would mount once more, without nosuid and nodev.
        return Bind(str(target), volume.path, read_only=False)

    def _mount(self, grant: VolumeGrant, target: Path, uid: int, gid: int) -> None:
        try:
            source = self.stored.open(grant)
            try:
                owner = self.stored.owner(grant, uid, gid)
                mounts.bind(source, str(target), read_only=not grant.write, owner=owner)
            finally:
                os.close(source)
        except VolumeUnusable as error:
            raise NotGranted(str(error), error.fault) from error
        except OSError as error:
            raise NotGranted(f'volume "{grant.name}" cannot be mounted on this node: {error}', "node") from error

    def _held(self) -> dict[RunKey, list[VolumeGrant]]:
        found: dict[RunKey, list[VolumeGrant]] = {}
        for file in self.directory.glob(f"*/{_GRANTS}") if self._is_open else ():
            if (key := parse_name(file.parent.name)) is not None:
                found[key] = _decode_grants(file.read_bytes())
        return found

    def _listed(self, launch: Launch, volume: Volume) -> tuple[int, bool]:
        """A directory of the admin's list."""
        mount = self._grants.mounts.get(volume.name)
        if mount is None or (mount.projects and launch.project not in mount.projects):
            raise NotGranted(
                f'this node lists no volume "{volume.name}" for project "{launch.project}" (its admin does, in the file '
                "that FAIRLEAD_MOUNTS names); with create: true it would be a volume of the project's own"
            )
        private = (str(self.directory), self._grants.secrets, self._grants.volumes)
        if any(f"{path}/".startswith(f"{mount.path}/") for path in private if path):
            raise NotGranted(
                f'volume "{volume.name}" of this node cannot be used: the agent\'s own files lie in it', "node"
            )
        try:
            return open_path(mount.path), mount.writable
        except Closed as error:
            raise NotGranted(f'volume "{volume.name}" of this node cannot be used: {error}', "node") from error

    def _own(self, launch: Launch, volume: Volume) -> tuple[int, bool]:
        """A volume of the project. Everybody in its containers may write: who is who there, images decide."""
        if not self._grants.volumes:
            raise NotGranted(
                f'volume "{volume.name}" cannot be made: this node has no place for projects\' volumes (its admin names '
                "one with FAIRLEAD_VOLUMES)"
            )
        try:
            root = open_path(self._grants.volumes)
            try:
                return open_below(root, (launch.project, volume.name), make_mode=0o777), True
            finally:
                os.close(root)
        except Closed as error:
            raise NotGranted(
                f'volume "{volume.name}" of project "{launch.project}" cannot be used: {error}', "node"
            ) from error

    def _secret(self, launch: Launch, secret: Secret, target: Path) -> Bind:
        if not self._grants.secrets:
            raise NotGranted(
                f'secret "{secret.name}" cannot be given: this node has no secrets (its admin names a directory of them '
                "with FAIRLEAD_SECRETS)"
            )
        try:
            root = open_path(self._grants.secrets)
            try:
                content = read_below(root, (launch.project, secret.name), SECRET_BYTES_MAX)
            finally:
                os.close(root)
        except Closed as error:
            raise NotGranted(
                f'secret "{secret.name}" of project "{launch.project}" cannot be given: {error}'
            ) from error
        file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        try:
            if os.write(file, content) != len(content):
                raise OSError(errno.ENOSPC, "there is no room left for secrets", str(target))
        finally:
            os.close(file)
        return Bind(str(target), secret.path, read_only=True)

    # ------------------------------------------------------------------ the file system of all

    @property
    def _is_open(self) -> bool:
        return os.path.ismount(self.directory)

    def _open(self) -> None:
        self.directory.mkdir(0o700, exist_ok=True)
        if not self._is_open:
            mounts.mount_memory(str(self.directory), HELD_MIB)

    def _drop(self, key: RunKey) -> None:
        own = self.directory / key.name
        if not self._is_open or not own.is_dir():
            return
        for target in own.glob(f"{_VOLUME}*"):
            with contextlib.suppress(OSError):  # nothing is mounted there when its turn had not come yet
                mounts.unmount(str(target))
            target.rmdir()  # only ever an empty mount point: one where something is still mounted refuses
        for secret in own.glob(f"{_SECRET}*"):
            secret.unlink()
        (own / _GRANTS).unlink(missing_ok=True)
        own.rmdir()

    def _close_images(self) -> None:
        self.stored.close_images({(each.name, each.made) for held in self._held().values() for each in held})

    def _close_if_empty(self) -> None:
        if self._is_open and not os.listdir(self.directory):  # noqa: PTH208 -- names
            mounts.unmount(str(self.directory))
            self.directory.rmdir()
