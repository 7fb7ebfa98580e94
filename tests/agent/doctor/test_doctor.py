"""`fairlead doctor` on a node: each judgement with good and with bad facts, and the reading on a real machine."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead_agent.doctor import checks, collect
from fairlead_agent.doctor.checks import Check, DiskSetup, DriverSetup, EngineSetup, MachineSetup, Mode, NodeSetup
from fairlead_agent.files.journal import Journal
from fairlead_agent.setup import install
from fairlead_agent.setup.install import Where
from fairlead_bus import bus_users
from tests.bus.keyed import Keyed
from tests.cli.conftest import Run, run  # noqa: F401 -- a fixture

GIB = 2**30
ENGINE = EngineSetup(
    version="28.1.0", runc="1.3.3", live_restore=True, userns_remap=True, seccomp=True, cgroup="2", cdi=True
)
DRIVER = DriverSetup(version="580.65.06", gpus=8, toolkit="1.18.0", environment_opens=False)
GOOD = MachineSetup(
    python=(3, 13, 0),
    settings_from="/etc/fairlead/agent.env",
    node=NodeSetup("n7", "docker", "nvml"),
    engine=ENGINE,
    driver=DRIVER,
    disks=(DiskSetup("/var/lib/fairlead", 100 * GIB, 50 * GIB),),
    clock_synchronised=True,
    bus_url="bus:4222",
    keyed=True,
    modes=(Mode("/etc/fairlead/node.nk", 0o600, 0, 0o077),),
    agent_runs=True,
    guard_runs=True,
    spawner_runs=False,
    kernel={"kernel.pid_max": 4_194_304, "fs.inotify.max_user_instances": 8192, "vm.max_map_count": 1_048_576},
)


def bad(facts: MachineSetup) -> list[Check]:
    return [check for check in checks.judge(facts) if check.level != "ok"]


def test_a_good_node_has_no_fault() -> None:
    """Every check has run, and proposes no command."""
    found = checks.judge(GOOD)
    assert bad(GOOD) == []
    assert [check for check in found if check.mend] == []
    assert {check.name for check in found} == {
        "python",
        "settings",
        "bus",
        "modes",
        "agent",
        "guard",
        "docker",
        "runc",
        "NVIDIA driver",
        "NVIDIA container toolkit",
        "disk",
        "clock",
    }


def engine(**changed: Any) -> dict[str, Any]:
    return {"engine": ENGINE._replace(**changed)}


def driver(**changed: Any) -> dict[str, Any]:
    return {"driver": DRIVER._replace(**changed)}


@pytest.mark.parametrize(
    ("changed", "name", "level", "mend"),
    [
        ({"python": (3, 11, 2)}, "python", "FAIL", "install Python 3.12"),
        ({"bad_setting": "FAIRLEAD_BEAT_S: expected seconds"}, "settings", "FAIL", "fix it in /etc/fairlead/agent.env"),
        ({"bus": "bus:4222 does not know the key U"}, "bus", "FAIL", "fairlead credentials add n7 --public"),
        ({"bus": "no NATS server answers at bus:4222"}, "bus", "FAIL", "start the server"),
        ({"keyed": False}, "bus", "warn", "fairlead agent install"),
        (
            {"modes": (Mode("/etc/fairlead/node.nk", 0o644, 0, 0o077),)},
            "modes",
            "FAIL",
            "chmod 0600 /etc/fairlead/node.nk",
        ),
        ({"modes": (Mode("/var/lib/fairlead", 0o777, 0, 0o022),)}, "modes", "FAIL", "chmod 0755 /var/lib/fairlead"),
        ({"agent_runs": False}, "agent", "FAIL", "systemctl start fairlead-agent"),
        ({"guard_runs": False}, "guard", "warn", "systemctl start fairlead-guard"),
        ({"node": NodeSetup("n7", "process", "nvml"), "spawner_runs": False}, "spawner", "FAIL", "systemctl restart"),
        (engine(silent="refused"), "docker", "FAIL", "systemctl start docker"),
        (engine(live_restore=False), "docker live-restore", "warn", '"live-restore": true'),
        (
            {"node": NodeSetup("n7", "docker", "nvml", address="10.0.0.7")},
            "docker gangs",
            "warn",
            "set FAIRLEAD_GANG_NETWORK=host",
        ),
        (
            {"node": NodeSetup("n7", "docker", "nvml", address="10.0.0.7", gang_network="host")},
            "docker gangs",
            "FAIL",
            'take "userns-remap" out',
        ),
        (engine(userns_remap=False), "docker userns", "warn", '"userns-remap": "default"'),
        (engine(seccomp=False), "docker seccomp", "FAIL", "seccomp"),
        (engine(cgroup="1"), "cgroup", "warn", "unified_cgroup_hierarchy"),
        (engine(missing_limits=("memory", "pids")), "limits", "FAIL", "cgroup controllers"),
        (engine(missing_limits=("swap",)), "limits", "warn", "swapaccount=1"),
        (engine(runc="1.1.15"), "runc", "FAIL", "install runc 1.2.8"),
        (engine(runc=""), "runc", "warn", "look by hand"),
        ({"node": NodeSetup("n7", "docker", "nvml", True), **engine(runc="1.1.5+ds1")}, "runc", "warn", "install runc"),
        (driver(version=""), "nvidia driver", "FAIL", "install NVIDIA's driver"),
        (driver(gpus=0), "nvidia driver", "FAIL", "dmesg"),
        (driver(version="470.82.01"), "NVIDIA driver", "FAIL", "install a driver"),
        (driver(toolkit=""), "nvidia toolkit", "FAIL", "install nvidia-container-toolkit"),
        (driver(toolkit="1.17.7"), "NVIDIA container toolkit", "FAIL", "1.17.8"),
        (driver(environment_opens=True), "nvidia toolkit", "FAIL", "nvidia-ctk config --in-place"),
        (driver(environment_opens=None), "nvidia toolkit", "FAIL", "nvidia-ctk config --in-place"),
        (
            driver(unlinked=("nvidia0", "nvidiactl")) | engine(by_systemd=True),
            "nvidia devices",
            "warn",
            "nvidia-ctk system create-dev-char-symlinks",
        ),
        ({"disks": (DiskSetup("/d", 100 * GIB, 9 * GIB),)}, "disk", "warn", "docker system prune"),
        ({"disks": (DiskSetup("/d", 100 * GIB, 4 * GIB),)}, "disk", "FAIL", "docker system prune"),
        ({"clock_synchronised": False}, "clock", "warn", "timedatectl set-ntp true"),
        ({"clock_synchronised": None}, "clock", "warn", "chrony"),
        ({"kernel": {"kernel.pid_max": 32_768}}, "kernel", "warn", "kernel.pid_max = 65536"),
    ],
)
def test_each_fault_is_reported_once_with_its_cure(changed: dict[str, Any], name: str, level: str, mend: str) -> None:
    """One line more than for a good node, and no other verdict changes."""
    wrong = bad(GOOD._replace(**changed))
    assert [(check.name, check.level) for check in wrong] == [(name, level)]
    assert mend in wrong[0].mend
    assert wrong[0].finding


def test_a_machine_that_is_no_node_yet_gets_the_first_steps() -> None:
    """Checks that need settings are not made."""
    [check] = bad(MachineSetup(python=(3, 13, 0), settings_from="/etc/fairlead/agent.env", clock_synchronised=True))
    assert (check.name, check.level, "fairlead agent install" in check.mend) == ("settings", "FAIL", True)


def test_a_node_without_gpus_or_containers_does_not_need_their_software() -> None:
    """No engine and no driver is required; `auto` without a driver is a node of CPUs."""
    node = GOOD._replace(node=NodeSetup("n7", "process", "none"), engine=None, driver=DriverSetup(), spawner_runs=True)
    assert bad(node) == []
    assert bad(node._replace(node=NodeSetup("n7", "process", "auto"))) == []


def test_gangs_on_the_nodes_network_need_engines_without_user_namespaces() -> None:
    """Then remapping of users is not proposed; a loopback address is a node that no other one reaches anyway."""
    gangs = NodeSetup("n7", "docker", "nvml", address="10.0.0.7", gang_network="host")
    assert bad(GOOD._replace(node=gangs, engine=ENGINE._replace(userns_remap=False))) == []
    assert bad(GOOD._replace(node=gangs._replace(address="127.0.0.1", gang_network="bridge"))) == []


@pytest.fixture
def keyed() -> Iterator[Keyed]:
    made = Keyed()
    yield made
    made.close()


@pytest.mark.nats
def test_a_real_node_is_read(keyed: Keyed, tmp_path: Path) -> None:
    """Its settings, its key at a real server before and after it was let in, an agent's lock, modes, this kernel."""
    settings = {
        "FAIRLEAD_NATS": keyed.server.url,
        "FAIRLEAD_NODE": "n7",
        "FAIRLEAD_DEVICES": "none",
        "FAIRLEAD_DATA": str(tmp_path / "data"),
    }
    installed = install.install(Where(tmp_path), settings, lambda what, text: None)
    stranger = collect.read(tmp_path)
    assert f"does not know the key {installed.public_key}" in stranger.bus
    bus_users.change(keyed.directory, lambda users: bus_users.with_key(users, "node", "n7", installed.public_key))
    keyed.server.restart()
    facts = collect.read(tmp_path)
    assert (facts.bus, facts.keyed, facts.node) == ("", True, NodeSetup("n7", "process", "none"))
    assert (facts.agent_runs, facts.spawner_runs, facts.guard_runs) == (False, False, False)
    assert {Path(mode.path).name for mode in facts.modes} == {"node.nk", "agent.env", "fairlead"}
    assert facts.kernel.keys() == checks.KERNEL_LEAST.keys()
    assert [disk.free_bytes <= disk.total_bytes for disk in facts.disks] == [True]

    async def held() -> bool | None:
        journal = Journal.open(tmp_path / "data" / "agent-n7", "n7", "incarnation")
        try:
            return (await asyncio.to_thread(collect.read, tmp_path)).agent_runs
        finally:
            await journal.close()

    assert asyncio.run(held()) is True


def test_device_files_without_links_are_nothing_where_systemd_keeps_no_groups() -> None:
    """It takes nothing away there."""
    assert bad(GOOD._replace(**driver(unlinked=("nvidia0",)))) == []


def test_device_files_are_looked_for_by_their_numbers(tmp_path: Path) -> None:
    """A link anywhere in the directory's `char` counts; what is no device file is none."""
    (tmp_path / "nvidia0").symlink_to("/dev/null")
    (tmp_path / "nvidiactl").symlink_to("/dev/zero")
    (tmp_path / "nvidia-caps").mkdir()
    assert collect.unlinked(tmp_path) == ("nvidia0", "nvidiactl")
    (tmp_path / "char").mkdir()
    (tmp_path / "char/1:3").symlink_to("/dev/null")
    assert collect.unlinked(tmp_path) == ("nvidiactl",)


@pytest.mark.docker
def test_a_real_engine_describes_itself() -> None:
    """Version, runc and cgroup version are there, and are judged without a complaint about what could not be read."""
    facts = GOOD._replace(engine=collect.engine())
    assert facts.engine is not None
    assert (facts.engine.silent, facts.engine.cgroup in ("1", "2")) == ("", True)
    assert [check.finding for check in checks.judge(facts) if "could not be read" in check.finding] == []


def test_an_engine_that_does_not_answer_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never an exception."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    assert "does not answer" in collect.engine().silent


def test_an_address_of_the_bus_that_cannot_be_is_a_finding(run: Run, tmp_path: Path) -> None:  # noqa: F811
    """Never an exception; tokens of a list are not shown."""
    settings = {"FAIRLEAD_NATS": "nats://s3@a:4222,http://s3@b", "FAIRLEAD_NODE": "n7", "FAIRLEAD_DEVICES": "none"}
    install.install(Where(tmp_path), settings, lambda what, text: None)
    (tmp_path / "etc/fairlead/node.nk").chmod(0o600)
    ran = run("doctor", "--root", str(tmp_path), "-o", "json")
    (bus,) = (each for each in msgspec.json.decode(ran.out) if each["name"] == "bus")
    assert bus["level"] == "FAIL" and "s3" not in ran.out
    assert "FAIRLEAD_NATS: expected nats://[token@]host:port" in bus["finding"]


def test_the_command_prints_a_line_for_each_and_fails_when_one_does(run: Run, tmp_path: Path) -> None:  # noqa: F811
    """JSON has the same four fields; exit code 1; names are those that fail."""
    key = tmp_path / "etc/fairlead/node.nk"
    settings = {"FAIRLEAD_NATS": "nats://127.0.0.1:1", "FAIRLEAD_NODE": "n7", "FAIRLEAD_DEVICES": "none"}
    install.install(Where(tmp_path), settings, lambda what, text: None)
    key.chmod(0o644)
    ran = run("doctor", "--root", str(tmp_path), "-o", "json")
    checks = {each["name"]: each for each in msgspec.json.decode(ran.out)}
    assert ran.code == 1
    assert all(each.keys() == {"name", "level", "finding", "mend"} for each in checks.values())
    assert checks["modes"]["mend"] == f"chmod 0600 {key}"
    assert f"chmod 600 {key}" in checks["bus"]["finding"]
    assert set(run("doctor", "--root", str(tmp_path), "-o", "name").out.split()) == {"bus", "modes", "agent"}
    table = run("doctor", "--root", str(tmp_path)).out.splitlines()
    assert len([line for line in table if " FAIL " in line]) == 3
