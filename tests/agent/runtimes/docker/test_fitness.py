"""Fitness of engines for closed containers, judged from their own facts."""

from typing import Any

import pytest

from fairlead_agent.core.cpu_pinning import Host, NumaShare
from fairlead_agent.runtimes.docker.fitness import HostLimits, engine_of, unfit

#: As Docker 20.10 on Debian 12 answers, what matters here.
INFO: dict[str, Any] = {
    "SecurityOptions": ["name=seccomp,profile=default"],
    "InitBinary": "docker-init",
    "CPUSet": True,
    "MemoryLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
    "NCPU": 2,
    "DefaultRuntime": "runc",
    "Runtimes": {"runc": {}},
    "DockerRootDir": "/var/lib/docker",
}
REMAPPED = INFO | {
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=userns"],
    "DockerRootDir": "/var/lib/docker/100000.100000",
}
LIMITS = HostLimits(Host({0: NumaShare(frozenset({0, 1}), 1024)}), 20000)


@pytest.mark.parametrize(
    ("info", "require", "words"),
    [
        (INFO, False, ""),
        (REMAPPED, True, ""),
        (INFO | {"SecurityOptions": ["name=seccomp,profile=default", "name=rootless"]}, True, ""),
        (INFO, True, 'put {"userns-remap": "default"} into /etc/docker/daemon.json'),
        (INFO | {"SecurityOptions": None}, False, "no system calls (seccomp)"),
        (INFO | {"SecurityOptions": ["name=seccomp,profile=unconfined"]}, False, 'leave "seccomp-profile" out'),
        (INFO | {"PidsLimit": False}, False, "PidsLimit is off"),
    ],
)
def test_an_unfit_engine_is_reported_with_its_cure(info: dict[str, Any], require: bool, words: str) -> None:
    """One sentence; nothing for a fit one."""
    said = unfit(info, require_userns=require)
    assert words in said and bool(words) == bool(said)


def test_gangs_use_the_nodes_network_only_without_user_remapping() -> None:
    """The engine would refuse each such container, so the fault is reported at start, with both remedies."""
    assert unfit(INFO, require_userns=False, host_network=True) == ""
    said = unfit(REMAPPED, require_userns=False, host_network=True)
    assert 'take "userns-remap" out' in said and "leave the setting out" in said


def test_facts_that_the_template_needs_are_read() -> None:
    """Remapped users, runtimes that give devices by variable, engines without cgroup namespaces."""

    def engine(info: dict[str, Any], api: str = "1.41") -> Any:
        return engine_of(info, api, network="bridge", cdi_devices=(), limits=LIMITS)

    assert (engine(INFO).first_uid, engine(REMAPPED).first_uid) == (0, 100000)
    assert (engine(INFO).apparmor, engine(REMAPPED).apparmor) == (False, True)
    assert (engine(INFO).cgroupns, engine(INFO, "1.40").cgroupns) == (True, False)
    assert (engine(INFO).host, engine(INFO | {"CPUSet": False}).host) == (LIMITS.host, Host())
    nvidia = INFO | {"DefaultRuntime": "nvidia", "Runtimes": {"nvidia": {}, "runc": {}}}
    assert (engine(nvidia).runtime, engine(INFO | {"DefaultRuntime": "crun"}).runtime) == ("runc", "crun")
