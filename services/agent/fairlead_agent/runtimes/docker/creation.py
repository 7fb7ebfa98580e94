"""Creates one container, and makes sure that it is the one that was asked for. It is started by others.

Further parts:
- files of a run's directory apart from its output: a mark while it waits for its image, notes to readers of its output,
  and the files that its container is given;
- devices that this machine's CDI specifications offer to containers.

Order matters: what the run holds of the node is there first, then the container, then the check, and only then may
its program read its secrets.
"""

import contextlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import docker
import docker.errors

from fairlead_agent.launch.plan import Launch, devices_of
from fairlead_agent.runtimes.docker import template
from fairlead_agent.runtimes.docker.adoption import Installation
from fairlead_agent.runtimes.docker.container_run import CHECKPOINT, make_word
from fairlead_agent.runtimes.docker.holdings import Holdings
from fairlead_agent.runtimes.docker.template import Bind, ContainerEngine
from fairlead_agent.runtimes.run_directory import clear, write_note
from fairlead_agent.runtimes.run_files import WORK

#: Of an image's list of users.
PASSWD_BYTES_MAX = 4 * 1024 * 1024


class ContainerMismatch(ValueError):
    """The engine has created another container than asked for; the message says where they differ."""


def create(
    api: docker.APIClient,
    launch: Launch,
    engine: ContainerEngine,
    whose: Installation,
    holdings: Holdings,
    *,
    name: str,
    image: str,
    files: Sequence[Bind],
    labels: Mapping[str, str],
) -> str:
    """The new container's id. `files`: the run's own, of this machine. Whatever is raised, a container of that name may
    be there, and what the run holds is the caller's to drop. Raises NotAsAsked, NotGranted, Unpinnable, ValueError, and
    what the SDK raises."""
    path = template.gpu_path(devices_of(launch.order), engine)
    binds = [*holdings.hold(launch), *files]
    config = {
        "Image": image,
        "Cmd": launch.argv,
        "Entrypoint": [],
        "WorkingDir": launch.workdir,
        "Env": template.environment(launch, engine, path),
        "Labels": {**template.labels(launch, engine, whose.node, whose.incarnation, whose.directory, path), **labels},
        "HostConfig": template.host_config(launch, engine, path, binds),
    }
    inspected = _created(api, config, name)
    if declared := template.image_volumes(config["HostConfig"], inspected):
        # Only now is it known what the image declares. Of the volumes that the engine has made for it nothing is left.
        api.remove_container(name, v=True, force=True)
        config["HostConfig"] = template.host_config(launch, engine, path, binds, declared)
        inspected = _created(api, config, name)
    if wrong := template.differences(config["HostConfig"], inspected, engine):
        api.remove_container(name, v=True, force=True)
        raise ContainerMismatch("the engine created another container than asked for: " + "; ".join(wrong))
    if launch.secrets or launch.stored:
        uid, gid = user_of(api, name, str(inspected["Config"].get("User") or ""))
        holdings.give(launch, engine.first_uid + uid, engine.first_uid + gid)
    return str(inspected["Id"])


def _created(api: docker.APIClient, config: Mapping[str, Any], name: str) -> dict[str, Any]:
    api.create_container_from_config(config, name)
    inspected: dict[str, Any] = api.inspect_container(name)
    return inspected


def user_of(api: docker.APIClient, name: str, user: str) -> tuple[int, int]:
    """(user id, group id) of an image's user ("1000", "1000:1000", "app"), as the container counts them. Raises
    ValueError for one that the image does not know."""
    who, _, group = user.partition(":")
    if not who or (who.isdecimal() and (group.isdecimal() or not group)):
        return int(who or 0), int(group or 0)
    users = _users(_etc_passwd(api, name))
    known = users.get(who) or ((int(who), 0) if who.isdecimal() else None)
    if known is None:
        raise ValueError(
            f'the image sets its user to "{user[:80]}", but has no such user; it cannot be given secrets or volumes'
        )
    return known


def _etc_passwd(api: docker.APIClient, name: str) -> bytes:
    try:
        pieces, _ = api.get_archive(name, "/etc/passwd")
    except docker.errors.NotFound:
        return b""
    archive = b""
    for piece in pieces:
        archive += piece
        if len(archive) > PASSWD_BYTES_MAX:
            raise ValueError(f"the image's /etc/passwd is larger than {PASSWD_BYTES_MAX} bytes")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        member = next((each for each in tar if each.isfile()), None)
        file = tar.extractfile(member) if member is not None else None
        return file.read() if file is not None else b""


def _users(passwd: bytes) -> dict[str, tuple[int, int]]:
    """{name: (user id, group id)}."""
    found: dict[str, tuple[int, int]] = {}
    for line in passwd.decode(errors="replace").splitlines():
        fields = line.split(":")
        if len(fields) >= 4 and fields[2].isdecimal() and fields[3].isdecimal():
            found.setdefault(fields[0], (int(fields[2]), int(fields[3])))
    return found


#: While it waits for its image: nothing of it was created yet.
PULLING = "pulling"


class RunNotes:
    """Notes of the agent to readers of a run that has not started: lines at the head of its stderr."""

    def __init__(self, directory: Path, stderr: Path) -> None:
        self._directory = directory
        self._stderr = stderr
        self.written = False

    def say(self, words: str) -> None:
        """Write one line. The first line makes the run's directory, marks it as one without a container yet, and removes the notes
        of an earlier process of the agent.
        """
        if not self.written:
            make_directory(self._directory)
            (self._directory / PULLING).touch()
            clear(self._stderr)
            self.written = True
        write_note(self._stderr, words)


def own_files(launch: Launch, directory: Path) -> list[Bind]:
    """Write the files that the run's container is given, and return their binds."""
    files: list[Bind] = []
    if launch.hostfile:
        hostfile = directory / "hostfile"
        hostfile.write_text(launch.hostfile)
        files.append(Bind(str(hostfile), template.HOSTFILE, read_only=True))
    if launch.order.checkpoint is not None:
        word = make_word(directory / CHECKPOINT)
        files.append(Bind(word, template.CHECKPOINT_FILE, read_only=False))
    if launch.work:
        Path(launch.work).rename(directory / WORK)
        files.append(Bind(str(directory / WORK), launch.workdir, read_only=False))
    if launch.box:
        files.append(Bind(launch.box, launch.box_inside, read_only=True))
    return files


def make_directory(directory: Path) -> None:
    """The run's directory, new; or that of the same run which an earlier process of the agent had waiting."""
    directory.mkdir(mode=0o750, exist_ok=(directory / PULLING).exists())


def cdi_devices() -> frozenset[str]:
    """Names that the CDI specifications of this machine list (JSON ones; nvidia-ctk writes them with --format=json)."""
    names: set[str] = set()
    for path in [*Path("/etc/cdi").glob("*.json"), *Path("/var/run/cdi").glob("*.json")]:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            spec = json.loads(path.read_bytes())
            names.update(f"{spec['kind']}={device['name']}" for device in spec["devices"])
    return frozenset(names)
