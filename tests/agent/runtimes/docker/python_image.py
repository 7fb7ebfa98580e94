"""Images made on the spot for tests of what containers can do: this Python as a root file system, and busybox with words of a
Dockerfile.

No registry is asked and no compiler is needed: the interpreter that runs the tests is taken with the libraries that the
loader names, and calls the kernel by ctypes.
"""

import io
import re
import subprocess
import sys
import sysconfig
import tarfile
from functools import cache
from pathlib import Path

import docker

from tests.agent.runtimes.docker.image import ensure_image

_VERSION = "-".join(str(part) for part in sys.version_info[:3])
IMAGE = f"fairlead-test:python-{_VERSION}"
PYTHON = "/usr/bin/python3"
#: Large parts of the library that no canary needs.
_LEFT_OUT = {
    "test",
    "tests",
    "site-packages",
    "__pycache__",
    "idlelib",
    "tkinter",
    "ensurepip",
    "turtledemo",
    "pydoc_data",
}
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x", re.ASCII)


def libraries(*programs: Path) -> set[str]:
    """Paths that the loader takes for these programs."""
    said = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True, check=True).stdout
    return set(_LIBRARY.findall(said))


def root_file_system() -> bytes:
    """A tar of the interpreter, its library, and the shared libraries of both."""
    program = Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib")).resolve()
    extensions = list((library / "lib-dynload").glob("*.so"))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, mode in (("tmp", 0o1777), ("proc", 0o755), ("sys", 0o755), ("dev", 0o755), ("etc", 0o755)):
            directory = tarfile.TarInfo(name)
            directory.type, directory.mode = tarfile.DIRTYPE, mode
            tar.addfile(directory)
        for path in {str(program), *libraries(program, *extensions)}:
            tar.add(Path(path).resolve(), path.lstrip("/"))
        tar.add(library, str(library).lstrip("/"), filter=_wanted)
        link = tarfile.TarInfo(PYTHON.lstrip("/"))
        link.type, link.linkname = tarfile.SYMTYPE, str(program)
        if str(program) != PYTHON:
            tar.addfile(link)
        passwd = tarfile.TarInfo("etc/passwd")
        content = b"root:x:0:0::/:/bin/sh\napp:x:1234:1235::/:/bin/sh\n"
        passwd.size = len(content)
        tar.addfile(passwd, io.BytesIO(content))
    return buffer.getvalue()


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = member.name.rpartition("/")[2]
    return None if name in _LEFT_OUT or name.startswith("config-") else member


@cache
def ensure_python_image() -> str:
    """The image's name; the image is made where it is missing."""
    client = docker.APIClient(version="auto")
    if not client.images(name=IMAGE):
        repository, _, tag = IMAGE.partition(":")
        client.import_image_from_data(root_file_system(), repository=repository, tag=tag)
    return IMAGE


@cache
def ensure_image_with(tag: str, *changes: str) -> str:
    """Our Python image with words of a Dockerfile: "VOLUME /x", "USER app", "ENV A=b"."""
    client = docker.APIClient(version="auto")
    name = f"fairlead-test:{tag}"
    text = "\n".join([f"FROM {ensure_python_image()}", *changes, ""]).encode()
    for line in client.build(fileobj=io.BytesIO(text), tag=name, rm=True, decode=True):
        assert "error" not in line, line
    return name


__all__ = ["PYTHON", "ensure_image", "ensure_image_with", "ensure_python_image"]
