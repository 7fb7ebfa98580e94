"""A container image made on the spot from busybox, since tests may not reach a registry.

`python -m tests.agent.runtimes.docker.image` makes it by hand.
"""

import io
import os
import shutil
import tarfile
from functools import cache

import docker

from fairlead_agent.settings import from_environment

#: Of the engine that DOCKER_HOST names.
SOCKET = from_environment({"FAIRLEAD_NODE": "n1", **os.environ}).docker_socket
IMAGE = "fairlead-test:busybox"
APPLETS = ("sh", "true", "false", "echo", "sleep", "cat", "env", "id", "touch", "mkdir", "mount", "kill", "trap", "seq")


def root_file_system(busybox: str) -> bytes:
    """A tar of a root file system with a static busybox and its names."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("bin", "tmp", "etc", "proc", "sys", "dev"):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(directory)
        tar.add(busybox, "bin/busybox")
        for name in APPLETS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return buffer.getvalue()


@cache
def ensure_image() -> str:
    """The image's name; the image is made where it is missing."""
    client = docker.from_env().api
    if not client.images(name=IMAGE):
        busybox = shutil.which("busybox")
        assert busybox is not None, "tests/conftest.py skips the tests marked docker where there is none"
        repository, _, tag = IMAGE.partition(":")
        client.import_image_from_data(root_file_system(busybox), repository=repository, tag=tag)
    return IMAGE


if __name__ == "__main__":
    print(ensure_image())
