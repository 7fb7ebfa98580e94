"""The folder for machines without a network: its refusals, the units in it, and an installation in a namespace without a network."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.offline import machine

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "deploy/systemd"


def run(*words: str | Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with both outputs in one text."""
    return subprocess.run(
        words,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A wheelhouse without wheels: enough for all that is checked before the first of them is read."""
    house = tmp_path / "wheelhouse"
    house.mkdir()
    for name in ("install.sh", "machine.py"):
        shutil.copy(ROOT / "deploy/offline" / name, house)
    (house / "machine").write_text(f"{machine.name()}\n")
    sign(house)
    return house


def sign(house: Path) -> None:
    """Write SHA256SUMS as the builder of the folder does."""
    names = sorted(path.name for path in house.iterdir() if path.name != "SHA256SUMS")
    (house / "SHA256SUMS").write_text(run("sh", "-c", f"cd {house} && sha256sum {' '.join(names)}").stdout)


def test_a_damaged_folder_installs_nothing(folder: Path, tmp_path: Path) -> None:
    """The file is named, and there is no half environment."""
    (folder / "machine.py").write_text("print('another')")
    done = run("sh", folder / "install.sh", "--prefix", tmp_path / "to")
    assert done.returncode == 1 and "machine.py: FAILED" in done.stdout and "copy it again" in done.stdout
    assert not (tmp_path / "to").exists()


def test_a_folder_for_another_python_is_refused(folder: Path, tmp_path: Path) -> None:
    """Both are named, and what to do."""
    (folder / "machine").write_text("CPython 3.99 on linux riscv64\n")
    sign(folder)
    done = run("sh", folder / "install.sh", "--prefix", tmp_path / "to", FAIRLEAD_PYTHON=sys.executable)
    assert done.returncode == 1 and "for CPython 3.99 on linux riscv64" in done.stdout, done.stdout
    assert machine.name() in done.stdout and "make wheelhouse" in done.stdout
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("words", [["--prefx", "/x"], ["--prefix"]])
def test_unknown_words_are_refused(folder: Path, words: list[str]) -> None:
    """Before anything is checked or made."""
    done = run("sh", folder / "install.sh", *words)
    assert done.returncode == 1 and "expected" in done.stdout


def test_each_service_has_its_unit_user_and_program() -> None:
    """A service of compose.yaml has a user of its own, and the unit's program can be run."""
    users = {line.split()[1] for line in (UNITS / "sysusers.conf").read_text().splitlines() if line.startswith("u ")}
    services = {
        "queue",
        "placer",
        "access",
        "telemetry",
        "explainer",
        "gateway",
        "notifier",
        "past",
        "appproxy",
        "storage",
    }
    assert {f"fairlead-{name}" for name in services | {"nats", "archiver"}} == users
    for name in services - {"explainer", "notifier", "past"}:
        assert list(ROOT.glob(f"services/*/fairlead_{name}/__main__.py")), name
    assert (ROOT / "replay/fairlead_replay/explainer/__main__.py").exists()
    assert (ROOT / "replay/fairlead_replay/past/__main__.py").exists()
    assert (ROOT / "services/gateway/fairlead_gateway/notify/__main__.py").exists()


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """`systemd-analyze verify`, with programs and users that are there."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd: no systemd-analyze (Debian: systemd)")
    for unit in UNITS.glob("*.service"):
        text = unit.read_text().replace("/opt/fairlead/bin/python", sys.executable)
        (tmp_path / unit.name).write_text(text.replace("/opt/fairlead/bin/nats-server", "/bin/true"))
    names = [f"fairlead@{name}.service" for name in ("queue", "placer", "access", "telemetry", "gateway")]
    names += ["fairlead-nats.service", "fairlead-archiver.service"]
    for name in names:
        done = run("systemd-analyze", "verify", "--man=no", tmp_path / name)
        assert done.returncode == 0 and str(tmp_path) not in done.stdout, done.stdout


@pytest.mark.slow
@pytest.mark.hosts
@pytest.mark.nats
def test_it_installs_and_runs_without_a_network(tmp_path: Path) -> None:
    """Built here, installed twice in a namespace that has loopback alone, and a job there."""
    house, prefix = tmp_path / "wheelhouse", tmp_path / "fairlead"
    built = run("sh", ROOT / "deploy/offline/wheelhouse.sh", sys.executable, house)
    assert built.returncode == 0, built.stdout
    fairlead = prefix / "bin/fairlead"
    session = f"""set -e
ip link set lo up
sh {house}/install.sh --prefix {prefix}
{fairlead} up --nodes 1 --detach
trap '{fairlead} down --jobs' EXIT
{fairlead} submit --wait -- echo without a network
"""
    done = run(
        "unshare",
        "--net",
        "sh",
        "-c",
        session,
        FAIRLEAD_PYTHON=sys.executable,
        FAIRLEAD_DATA=str(tmp_path / "data"),
        PATH=f"{prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    )
    assert done.returncode == 0, done.stdout
    assert "installed fairlead" in done.stdout and "down      stopped" in done.stdout


@pytest.mark.slow
@pytest.mark.hosts
def test_the_package_installs_runs_and_is_removed(tmp_path: Path) -> None:
    """Built here; unpacked and configured by dpkg below another root in a namespace without a network; then upgraded, removed and purged."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("debian: no dpkg-deb (Debian: dpkg)")
    house, root = tmp_path / "wheelhouse", tmp_path / "root"
    for name in ("info", "updates", "triggers"):
        (root / "var/lib/dpkg" / name).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    for script in (
        ("deploy/offline/wheelhouse.sh", sys.executable, house),
        ("deploy/debian/build.sh", sys.executable, house, tmp_path),
    ):
        built = run("sh", ROOT / script[0], *script[1:])
        assert built.returncode == 0, built.stdout
    [package] = tmp_path.glob("fairlead_*.deb")

    def dpkg(*words: str | Path, **settings: str) -> str:
        done = run(
            "unshare",
            "--net",
            "dpkg",
            f"--root={root}",
            "--force-script-chrootless,depends",
            *words,
            PATH="/usr/sbin:/usr/bin:/sbin:/bin",
            **settings,
        )
        assert done.returncode == 0 or "FAIRLEAD_PYTHON" in done.stdout, done.stdout
        return done.stdout

    refused = dpkg("-i", package, FAIRLEAD_PYTHON="/nowhere/python")
    assert "no /nowhere/python on PATH: install it, or name it in FAIRLEAD_PYTHON" in refused
    for _ in range(2):  # the second is an upgrade
        assert "fairlead: fairlead 0." in dpkg("-i", package, FAIRLEAD_PYTHON=sys.executable)
    fairlead = root / "opt/fairlead/bin/fairlead"
    assert run(fairlead, "--version", PATH="/usr/bin:/bin").stdout.startswith("fairlead 0.")
    assert run(root / "opt/fairlead/bin/nats-server", "--version").stdout.startswith("nats-server: v")
    session = f"""set -e
ip link set lo up
{fairlead} up --nodes 1 --detach
trap '{fairlead} down --jobs' EXIT
{fairlead} submit --wait -- echo without a network
"""
    done = run(
        "unshare",
        "--net",
        "sh",
        "-c",
        session,
        FAIRLEAD_DATA=str(tmp_path / "data"),
        PATH="/usr/sbin:/usr/bin:/sbin:/bin",
    )
    assert done.returncode == 0, done.stdout
    for path in ("usr/bin/fairlead", "etc/fairlead/nats.conf", "usr/lib/sysusers.d/fairlead.conf"):
        assert (root / path).is_symlink() or (root / path).is_file(), path
    units = {path.name for path in (root / "usr/lib/systemd/system").iterdir()}
    assert {"fairlead-nats.service", "fairlead@.service", "fairlead@notifier.service.d"} <= units
    (root / "etc/fairlead/bus").mkdir()
    dpkg("--remove", "fairlead")
    assert not (root / "opt/fairlead").exists()
    assert (root / "etc/fairlead/nats.conf").exists()
    assert "/etc/fairlead/bus (keys)" in dpkg("--purge", "fairlead")
    assert not (root / "etc/fairlead/nats.conf").exists() and (root / "etc/fairlead/bus").exists()
