"""The two base images of compose.yaml made out of this machine, for where no registry is reachable.

    python -m tests.kit.base_images      # prints PYTHON_IMAGE=… and NATS_IMAGE=…, as compose.yaml takes them

Stand-ins, and no more: a static busybox, this very Python with the libraries that it loads, the packages of the lock file
as wheels (so that the Dockerfile installs offline, still by hash), and the nats-server of the `embedded` extra. What is
built upon them is built by the repository's own Dockerfile.
"""

import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker

from deploy import lock_for
from tests.kit.nats_server import find_program

ROOT = Path(__file__).parents[2]
PARTS = ("build", "gateway", "queue", "placer", "past", "agent", "telemetry", "access")
REPOSITORY = "fairlead-test"
APPLETS = (
    "sh",
    "cat",
    "chmod",
    "chown",
    "cp",
    "echo",
    "env",
    "false",
    "hostname",
    "id",
    "kill",
    "ln",
    "ls",
    "mkdir",
    "mv",
    "rm",
    "sed",
    "seq",
    "sleep",
    "test",
    "touch",
    "tr",
    "true",
    "wget",
    "[",
)
#: Of the interpreter's own files, what no service needs.
LEFT_OUT = ("test", "idlelib", "tkinter", "turtledemo", "site-packages", "__pycache__", "lib2to3")
#: Loaded by packages, besides what the interpreter's own modules load.
LIBRARIES = (
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libutil.so.1",
    "libm.so.6",
    "libresolv.so.2",
    "libnss_files.so.2",
    "libnss_dns.so.2",
)
#: The official image has Debian's; this one does what the Dockerfile asks of it.
USERADD = """#!/bin/sh
# useradd --system --uid UID --create-home --home-dir DIR NAME
while [ $# -gt 1 ]; do
  case $1 in --uid) uid=$2; shift ;; --home-dir) home=$2; shift ;; esac
  shift
done
echo "$1:x:$uid:$uid::$home:/bin/sh" >>/etc/passwd
echo "$1:x:$uid:" >>/etc/group
mkdir -p "$home" && chmod 700 "$home" && chown "$uid:$uid" "$home"
"""
PIP = '#!/bin/sh\nexec python -m pip "$@"\n'


def lock_of_all() -> str:
    """The part of requirements.lock that the images install."""
    return "\n".join(
        entry
        for part in PARTS
        for entry in [
            subprocess.run(
                [sys.executable, "deploy/lock_for.py", part], cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout
        ]
    )


def ensure(wheels: Path) -> dict[str, str]:
    """{PYTHON_IMAGE: …, NATS_IMAGE: …}; each is made where it is missing. `wheels`: where downloads are kept."""
    client = docker.APIClient(version="auto", timeout=300)
    locked = _unique(lock_of_all())
    mark = hashlib.sha256((locked + sys.version + Path(__file__).read_text()).encode()).hexdigest()[:12]
    python = f"{REPOSITORY}:python-{mark}"
    if not client.images(name=python):
        _download(locked, wheels)
        _import(
            client,
            python,
            _python_files(wheels),
            [
                "ENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COMPILE=1 PATH=/usr/local/bin:/usr/bin:/bin"
            ],
        )
    nats = f"{REPOSITORY}:nats-{hashlib.sha256(Path(find_program()).read_bytes()).hexdigest()[:12]}"
    if not client.images(name=nats):
        _import(
            client,
            nats,
            [*_busybox(), ("bin/nats-server", Path(find_program()))],
            ['ENTRYPOINT ["nats-server"]', "ENV PATH=/bin"],
        )
    return {"PYTHON_IMAGE": python, "NATS_IMAGE": nats}


def _unique(text: str) -> str:
    found = lock_for.entries(text)
    return "\n".join(found[name] for name in sorted(found)) + "\n"


def _download(locked: str, wheels: Path) -> None:
    wheels.mkdir(parents=True, exist_ok=True)
    requirements = wheels / "requirements.lock"
    requirements.write_text(locked)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "-r",
            str(requirements),
            "-d",
            str(wheels),
        ],
        check=True,
    )


type Content = Path | bytes | str
#: A path within the image: a file to copy, bytes to write (programs), or where a link leads.
type Files = list[tuple[str, Content]]


def _busybox() -> Files:
    busybox = shutil.which("busybox")
    assert busybox is not None, "tests/conftest.py skips the tests marked docker where there is none"
    files: Files = [("bin/busybox", Path(busybox).resolve())]
    return [*files, *((f"bin/{name}", "busybox") for name in APPLETS)]


def _python_files(wheels: Path) -> Files:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    standard = Path(sysconfig.get_path("stdlib"))
    program = Path(sys.executable).resolve()
    files = [*_busybox(), (f"usr/local/bin/python{version}", program)]
    files += [("usr/local/bin/python3", f"python{version}"), ("usr/local/bin/python", f"python{version}")]
    loaded = {program}
    for path in sorted(standard.rglob("*")):
        within = path.relative_to(standard)
        if path.is_file() and not any(part in LEFT_OUT or part.startswith("config-") for part in within.parts):
            files.append((f"usr/local/lib/python{version}/{within}", path))
            if path.suffix == ".so":
                loaded.add(path)
    pip = Path(sysconfig.get_path("purelib")) / "pip"
    files += [
        (f"usr/local/lib/python{version}/site-packages/pip/{p.relative_to(pip)}", p)
        for p in sorted(pip.rglob("*"))
        if p.is_file() and "__pycache__" not in p.parts
    ]
    # Where every loader looks, also in an environment without LD_LIBRARY_PATH.
    files += [
        (str(path).lstrip("/") if path.name.startswith("ld-") else f"lib/{path.name}", path.resolve())
        for path in sorted(_libraries(loaded))
    ]
    files += [(f"wheels/{path.name}", path) for path in sorted(wheels.iterdir()) if path.suffix in (".whl", ".gz")]
    return [*files, ("usr/local/bin/pip", PIP.encode()), ("bin/useradd", USERADD.encode())]


def _libraries(programs: set[Path]) -> set[Path]:
    """Shared libraries of these, and those that packages load; the loader under its own path."""
    found: dict[str, Path] = {}
    for name, path in _loaded_by(programs):
        found.setdefault(name, path)
    known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    for name in LIBRARIES:
        listed = re.search(rf"^\s*{re.escape(name)} .*x86-64.*=> (\S+)$", known, re.MULTILINE) or re.search(
            rf"^\s*{re.escape(name)} .*=> (\S+)$", known, re.MULTILINE
        )
        if listed:
            found.setdefault(name, Path(listed[1]))
    return set(found.values())


def _loaded_by(programs: set[Path]) -> Iterator[tuple[str, Path]]:
    said = subprocess.run(["ldd", *map(str, sorted(programs))], capture_output=True, text=True, check=False).stdout
    for line in said.splitlines():
        if match := re.match(r"\s+(\S+) => (/\S+) \(", line):
            yield match[1], Path(match[2])
        elif match := re.match(r"\s+(/\S*ld-\S+) \(", line):
            yield match[1], Path(match[1])


def _import(client: docker.APIClient, name: str, files: Files, changes: list[str]) -> None:
    repository, _, tag = name.partition(":")
    with tempfile.NamedTemporaryFile(suffix=".tar") as file:
        with tarfile.open(fileobj=file, mode="w") as tar:
            for directory in ("bin", "etc", "tmp", "var/tmp", "proc", "sys", "dev", "root", "data"):
                entry = tarfile.TarInfo(directory)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if directory.endswith("tmp") else 0o755
                tar.addfile(entry)
            for path, content in [
                *files,
                ("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n"),
                ("etc/group", b"root:x:0:\n"),
                ("etc/nsswitch.conf", b"hosts: files dns\n"),
            ]:
                _add(tar, path, content)
        file.flush()
        answer = client.import_image_from_file(file.name, repository=repository, tag=tag, changes=changes)
    assert "error" not in answer, answer


def _add(tar: tarfile.TarFile, path: str, content: Content) -> None:
    entry = tarfile.TarInfo(path)
    if isinstance(content, Path):
        entry.size, entry.mode = content.stat().st_size, 0o755 if os.access(content, os.X_OK) else 0o644
        with content.open("rb") as file:
            tar.addfile(entry, file)
    elif isinstance(content, bytes):
        entry.size, entry.mode = len(content), 0o755 if content.startswith(b"#!") else 0o644
        tar.addfile(entry, io.BytesIO(content))
    else:
        entry.type, entry.linkname = tarfile.SYMTYPE, content
        tar.addfile(entry)


if __name__ == "__main__":
    assert platform.system() == "Linux"
    for setting, image in ensure(ROOT / ".venv" / "base-image-wheels").items():
        print(f"{setting}={image}")
