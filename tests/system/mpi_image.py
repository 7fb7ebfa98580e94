"""A container image with this machine's Open MPI and one program, made on the spot: no registry is asked.

It is the busybox image of tests/agent/runtimes/docker/image.py with mpirun, its daemon, its plugins, and the libraries that the loader names.
"""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

from tests.agent.runtimes.docker.image import root_file_system
from tests.agent.runtimes.docker.python_image import libraries

IMAGE = "fairlead-test:openmpi"
#: What Open MPI and its run-time look for besides programs and libraries, where Debian has it.
_DIRECTORIES = (
    "/usr/share/openmpi",
    "/etc/openmpi",
    "/usr/share/pmix",
    "/etc/pmix-mca-params.conf",
    "/usr/share/hwloc",
)


def archive(program: Path) -> bytes:
    """A tar of its root file system, with the program as /solve."""
    busybox = shutil.which("busybox")
    assert busybox is not None, "tests/conftest.py skips the tests marked docker where there is none"
    buffer = io.BytesIO(root_file_system(busybox))
    buffer.seek(0)
    with tarfile.open(fileobj=buffer, mode="a") as tar:
        tools = [Path(_of(name)) for name in ("mpirun", "orted")]
        plugins = [path for directory in _plugins() for path in directory.rglob("*.so")]
        for path in {*libraries(*tools, *plugins, program), *map(str, tools), *map(str, plugins)}:
            tar.add(Path(path).resolve(), path.lstrip("/"))
        for name in _DIRECTORIES:
            if Path(name).exists():
                tar.add(name, name.lstrip("/"))
        tar.add(program, "solve")
        passwd = tarfile.TarInfo("etc/passwd")
        content = b"root:x:0:0::/:/bin/sh\n"
        passwd.size = len(content)
        tar.addfile(passwd, io.BytesIO(content))
    return buffer.getvalue()


def _of(name: str) -> str:
    path = shutil.which(name)
    assert path is not None, "tests/conftest.py skips the tests marked mpi where there is none"
    return path


def _plugins() -> list[Path]:
    """Where Open MPI's plugins lie, and those of its PMIx."""
    said = subprocess.run(["ompi_info", "--path", "pkglibdir"], capture_output=True, text=True, check=True).stdout
    own = Path(said.partition("Pkglibdir:")[2].strip())
    return [own, *own.parents[2].glob("pmix*/lib/pmix*")]
