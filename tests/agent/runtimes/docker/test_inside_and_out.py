"""Real containers: what a job sees, the ways out that are shut, limits that hold, volumes and secrets."""

# ruff: noqa: ASYNC110

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import docker
import docker.errors
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from fairlead_agent.__main__ import read_host
from fairlead_agent.core.cpu_pinning import Reserved
from fairlead_agent.core.runs import Exit, RunKey
from fairlead_agent.launch.plan import Launch
from fairlead_agent.linux import machine
from fairlead_agent.runtimes.docker.adoption import Installation
from fairlead_agent.runtimes.docker.creation import create
from fairlead_agent.runtimes.docker.fitness import HostLimits, engine_of
from fairlead_agent.runtimes.docker.holdings import Holdings
from fairlead_agent.runtimes.docker.runtime import DockerRuntime
from fairlead_agent.runtimes.docker.template import LABEL_INCARNATION, LABEL_JOB
from fairlead_agent.settings import Grants, NodeMount
from fairlead_bus.environment_settings import StoragePlace
from fairlead_schemas.jobfile.agent_fields import Secret, Volume
from fairlead_schemas.wire.volumes import VolumeGrant
from tests.agent.runtime_watch import Watch, incarnation, launch
from tests.agent.runtimes.docker.hostile_jobs import ALWAYS, ORDERS, PROGRAMS, launched
from tests.agent.runtimes.docker.image import ensure_image
from tests.agent.runtimes.docker.python_image import PYTHON, ensure_image_with, ensure_python_image
from tests.kit.eventually import eventually_async

pytestmark = pytest.mark.docker
CANARIES = (Path(__file__).parent / "canaries.py").read_text()
SECRET = b"fl-7f3a-very-secret-word"
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="mounting: only root may mount (run the tests as root)")


class ContainerNode:
    """A Docker runtime with everything granted, and what ran on it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.incarnation = incarnation()
        for name in ("datasets", "volumes", "secrets/vision"):
            (base / name).mkdir(parents=True)
        (base / "secrets").chmod(0o700)
        (base / "datasets/one").write_text("1")
        (base / "secrets/vision/hf-token").write_bytes(SECRET)
        listed = {"datasets": NodeMount(path=str(base / "datasets"))}
        (base / "images").mkdir(mode=0o700)
        storage = {"images": StoragePlace(path=str(base / "images"), backend="ext4-image")}
        self.grants = Grants(listed, str(base / "volumes"), str(base / "secrets"), storage)
        self.watch = Watch()
        self.runtime = self.make()

    def make(self) -> DockerRuntime:
        host = read_host(Path("/sys"), machine.cpus(), machine.memory_mib(), Reserved())
        limits = HostLimits(host, machine.open_files_max())
        return DockerRuntime(
            self.base / "agent",
            "n1",
            self.incarnation,
            simulated=True,
            grants=self.grants,
            limits=limits,
            network="none",
        )

    def container(self, run: Launch) -> str:
        """The engine's id of a run's container, which may have ended."""
        labels = [f"{LABEL_JOB}={run.key.job}", f"{LABEL_INCARNATION}={self.incarnation}"]
        (there,) = docker.APIClient(version="auto").containers(all=True, filters={"label": labels})
        return there["Id"]

    async def run(self, run: Launch) -> tuple[Exit, str]:
        """Return the end of a run and its output."""
        self.runtime.start(run)
        await self.watch.until(lambda: run.key in self.watch.exits or run.key in self.watch.failures, 60)
        assert run.key not in self.watch.failures, self.watch.failures[run.key]
        out, err = self.runtime.output(run.key)
        return self.watch.exits[run.key], out.read_text() + err.read_text()

    async def refused(self, run: Launch) -> str:
        """Return the reason for a refused start."""
        self.runtime.start(run)
        await self.watch.until(lambda: run.key in self.watch.failures, 60)
        return self.watch.failures[run.key]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[ContainerNode]:
    node = ContainerNode(tmp_path)
    await node.runtime.open(node.watch.handle)
    yield node
    await node.runtime.adopt([])
    await node.runtime.close()
    assert not node.runtime.holdings.directory.exists()


def python(job: str, code: str, *arguments: str, image: str = "", **order: Any) -> Launch:
    return launch(
        job,
        PYTHON,
        "-I",
        "-S",
        "-c",
        code,
        *arguments,
        image=image or ensure_python_image(),
        **{"memory_mib": 256, **order},
    )


def sh(job: str, script: str, **order: Any) -> Launch:
    return launch(job, "sh", "-c", script, image=ensure_image(), **order)


async def test_every_way_out_is_shut(node: ContainerNode, tmp_path: Path) -> None:
    """Mounts, device files, namespaces, keys, other processes, the host's files, kernel settings, limits: none is open, and
    each was refused by rule."""
    (tmp_path / "treasure").write_text("gold")
    exit, said = await node.run(python("7101", CANARIES, str(tmp_path / "treasure"), str(os.getpid())))
    assert exit == Exit(code=0), said
    sung: dict[str, str] = json.loads(said)
    assert len(sung) > 60
    assert {name: reached for name, reached in sung.items() if reached} == {}


#: Canaries that harm nobody where the way is open.
HARMLESS = (
    "mount tmpfs",
    "remount root writable",
    "mknod char",
    "unshare user",
    "unshare mount",
    "keyctl",
    "chroot",
    "setuid",
    "chown",
    "write the root",
    "host name",
    "fsopen",
    "capabilities",
    "more open files",
    "core dumps",
)


def test_the_canaries_sing_where_a_way_is_open(tmp_path: Path) -> None:
    """The same program in a container with more rights gets through: what the test above finds shut, the template has
    shut."""
    client = docker.APIClient(version="auto")
    command = [PYTHON, "-I", "-S", "-c", CANARIES, str(tmp_path), str(os.getpid()), ",".join(HARMLESS)]
    # Not "Privileged": an engine that lacks a capability itself cannot make such a one.
    open_wide = {"CapAdd": ["SYS_ADMIN", "MKNOD"], "SecurityOpt": ["seccomp=unconfined"], "NetworkMode": "none"}
    container = client.create_container_from_config(
        {"Image": ensure_python_image(), "Cmd": command, "HostConfig": open_wide}, f"fairlead-canaries-{os.getpid()}"
    )["Id"]
    try:
        client.start(container)
        client.wait(container)
        sung: dict[str, str] = json.loads(client.logs(container, stderr=False))
    finally:
        client.remove_container(container, force=True)
    shut = [name for name, reached in sung.items() if not reached]
    assert set(shut) <= {"more open files", "unshare user", "core dumps"}, (
        shut
    )  # some kernels and engines keep these shut


#: Those with volumes and secrets are nearly all refused before; the others are made.
PLAIN_PROGRAMS = PROGRAMS.map(lambda program: {**program, "volumes": [], "secrets": [], "project": ""})


@settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(PLAIN_PROGRAMS, ORDERS)
def test_the_engine_makes_no_other_container_for_a_hostile_job(
    tmp_path: Path, program: dict[str, Any], order: dict[str, Any]
) -> None:
    """For any job, the container that a real engine has created equals the template, or there is none."""
    client = docker.APIClient(version="auto")
    limits = HostLimits(
        read_host(Path("/sys"), machine.cpus(), machine.memory_mib(), Reserved()), machine.open_files_max()
    )
    engine = engine_of(client.info(), client.api_version, network="none", cdi_devices=(), limits=limits, simulated=True)
    name = f"fairlead-hostile-{os.getpid()}"
    refusal: Exception | None = None
    try:
        run = launched(program, order, simulated=True)
        create(
            client,
            run,
            engine,
            Installation("n1", str(tmp_path), "hostile"),
            Holdings(tmp_path),
            labels={},
            name=name,
            image=ensure_python_image(),
            files=[],
        )
        made = client.inspect_container(name)["HostConfig"]
    except (ValueError, docker.errors.APIError) as error:
        made, refusal = None, error
    finally:
        with contextlib.suppress(docker.errors.NotFound):
            client.remove_container(name, v=True, force=True)
    # A refusal is a decision about the request: our own, or a 4xx of the engine. Anything else is a failure of the test.
    assert not isinstance(refusal, docker.errors.APIError) or refusal.is_client_error(), refusal
    # Refused examples do not count: without enough created containers the property is not satisfied, and the test fails.
    assume(made is not None)
    assert made is not None
    expected = ALWAYS | {"NetworkMode": "none"}
    assert {field: made[field] for field in expected} == expected
    for field in ("Binds", "CapAdd", "Devices", "DeviceRequests", "VolumesFrom", "PidMode", "UsernsMode", "Mounts"):
        assert not made.get(field)


SEEN = """
import json, os
limit = "/sys/fs/cgroup/memory/memory.limit_in_bytes"
def size(path):
    facts = os.statvfs(path)
    return facts.f_blocks * facts.f_frsize // 2**20
with open(limit if os.path.exists(limit) else "/sys/fs/cgroup/memory.max") as file:
    memory = int(file.read()) // 2**20
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
print(json.dumps({
    "cpus": sorted(os.sched_getaffinity(0)), "mems": status["Mems_allowed_list"], "memory": memory, "shm": size("/dev/shm"),
    "tmp": size("/tmp"), "devices": {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")},
}))
"""


async def test_a_job_sees_exactly_what_it_was_granted(node: ContainerNode) -> None:
    """CPUs, NUMA memory, memory, shared memory, scratch space, devices: of a machine that has more of each."""
    cpu = max(machine.cpus())
    home = next(number for number, share in node.runtime._limits.host.nodes.items() if cpu in share.cpus)  # pyright: ignore[reportPrivateUsage]
    run = python("7111", SEEN, cpus=str(cpu), memory_mib=128, shm_mib=32, gpus=("GPU-sim-3",))
    _, said = await node.run(run)
    assert json.loads(said) == {
        "cpus": [cpu],
        "mems": str(home),
        "memory": 128,
        "shm": 32,
        "tmp": 48,
        "devices": {"CUDA_VISIBLE_DEVICES": "GPU-sim-3", "NVIDIA_VISIBLE_DEVICES": "void"},
    }


async def test_simulated_cpus_are_not_pinned_and_this_is_reported(node: ContainerNode) -> None:
    """A list that this host lacks pins nothing, and more CPUs than it has are no error."""
    run = sh("7112", "echo $FAIRLEAD_CPUS_SIMULATED", cpus="0-4095", cpu_milli=4096000)
    assert (await node.run(run))[1].strip() == "1"
    inspected = docker.APIClient(version="auto").inspect_container(node.container(run))
    assert inspected["HostConfig"]["CpusetCpus"] == ""
    assert inspected["Config"]["Labels"]["fairlead.cpus"].startswith("not pinned: this host has not all of the played")


async def test_memory_above_the_limit_ends_the_job_alone(node: ContainerNode) -> None:
    """The kernel kills it, and the report says so."""
    exit, _ = await node.run(python("7121", "x = bytearray(300 * 2**20); print(len(x))", memory_mib=128))
    assert (exit.signal, "memory limit" in exit.message) == (9, True)


async def test_scratch_space_and_shared_memory_have_an_end(node: ContainerNode) -> None:
    """Filled up, they refuse; the job is not killed for it, since both fit into its memory."""
    script = "for at in /dev/shm /tmp; do seq 1 99999999 > $at/x 2>/tmp/e || echo full; set -- $(wc -c < $at/x); echo $1; rm $at/x; done"
    script = script.replace("$(wc -c < $at/x)", "$(cat $at/x | busybox wc -c)")
    exit, said = await node.run(sh("7122", script, memory_mib=64))
    assert exit.code == 0
    assert [word for word in said.split() if word != "full"] == [str(32 * 2**20), str(16 * 2**20)], said


@pytest.mark.slow
async def test_a_fork_bomb_stops_at_the_limit(node: ContainerNode) -> None:
    """4096 processes, and then no more; the node continues."""
    script = "while sleep 60 & do n=$((n+1)); echo $n > /tmp/n; done; exit 7"
    exit, said = await node.run(sh("7123", f"sh -c '{script}'; cat /tmp/n", memory_mib=4096, cpu_milli=2000))
    assert exit.code == 0 and "fork" in said
    assert 3900 < int(said.split()[0] if said.split()[0].isdecimal() else said.split()[-1]) < 4096


def anonymous(client: docker.APIClient) -> set[str]:
    """Volumes without a name."""
    return {each["Name"] for each in client.volumes()["Volumes"] or [] if re.fullmatch("[0-9a-f]{64}", each["Name"])}


async def test_an_image_grants_itself_nothing(node: ContainerNode) -> None:
    """Its volumes are scratch space, its device variables are overruled, its entrypoint and its working directory in /proc do not
    count."""
    client = docker.APIClient(version="auto")
    before = anonymous(client)
    image = ensure_image_with(
        "greedy",
        "VOLUME /var/lib/data/ /cache",
        "ENV NVIDIA_VISIBLE_DEVICES=all CUDA_VISIBLE_DEVICES=0,1",
        "ENTRYPOINT false",
    )
    code = "import os; print(os.environ['NVIDIA_VISIBLE_DEVICES'], *(os.statvfs(p).f_blocks * 4096 // 2**20 for p in ('/cache', '/var/lib/data', '/tmp')))"
    exit, said = await node.run(python("7131", code, image=image, memory_mib=96))
    assert (exit.code, said.split()) == (0, ["void", "8", "8", "8"])
    async with asyncio.timeout(60):
        while not anonymous(client) <= before:  # others on this engine may make some, and remove them
            await asyncio.sleep(0.1)
    door = ensure_image_with("door", "WORKDIR /proc/self/fd")
    assert "WorkingDir: expected an absolute path outside of /proc" in await node.refused(
        python("7132", "", image=door)
    )


WRITES = """
import errno, os, sys
wrote = 0
with open("/data/big", "wb", buffering=0) as file:
    try:
        for _ in range(int(sys.argv[1])):
            wrote += file.write(bytes(2**20))
            os.fsync(file)
    except OSError as error:
        print(errno.errorcode[error.errno], end=" ")
found = os.stat("/data/big")
print(found.st_uid == os.getuid(), found.st_gid == os.getgid(), os.stat("/data").st_uid == os.getuid(), wrote > 8 * 2**20)
"""


def mounted_below(base: Path) -> list[str]:
    """Return the mounts of this machine that are below a directory."""
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(base) in line]


@needs_root
async def test_two_users_have_volumes_of_their_own_with_quotas_that_hold(node: ContainerNode) -> None:
    """Programs of unlike users own their files inside, the disk has the owners' ids; a full volume is full for its run alone, grows for the
    next one, and a reader cannot write."""
    stored, holdings = {}, node.runtime.holdings
    for job, image, uid in (("7151", "app", 2_000_000_001), ("7152", "", 2_000_000_002)):
        stored[job] = VolumeGrant(
            name="data",
            made=int(job),
            storage_class="images",
            backend="ext4-image",
            quota_bytes=16 << 20,
            uid=uid,
            write=True,
        )
        user = ensure_image_with("app", "USER app") if image else ""
        run = python(job, WRITES, "20" if image else "9", image=user)
        run = run._replace(volumes=(Volume("data", "/data", False, False, int(job)),), stored={"data": stored[job]})
        exit, said = await node.run(run)
        assert (exit.code, said.split()) == (0, [*(["ENOSPC"] if image else []), *["True"] * 4]), said
        inside = holdings.stored.open(stored[job])
        found = os.stat("big", dir_fd=inside)
        os.close(inside)
        node.runtime.release(run.key)
        assert (found.st_uid, found.st_gid) == (uid, uid)
    larger = msgspec.structs.replace(stored["7151"], quota_bytes=40 << 20)
    await eventually_async(lambda: not mounted_below(node.base))
    run = python("7153", WRITES, "20", image=ensure_image_with("app", "USER app"))
    volume = Volume("data", "/data", False, False, 7151)
    _, said = await node.run(run._replace(volumes=(volume,), stored={"data": larger}))
    assert said.split() == ["True"] * 4
    reader = msgspec.structs.replace(larger, write=False)
    run = python("7154", "open('/data/x', 'w')")._replace(volumes=(volume,), stored={"data": reader})
    exit, said = await node.run(run)
    assert exit.code == 1 and "Read-only file system" in said


@needs_root
async def test_volumes_are_there_and_closed(node: ContainerNode) -> None:
    """The listed one read-only, the project's own kept for its next job; nothing on them gains privileges."""
    volumes = (Volume("datasets", "/data", False, False), Volume("ckpt", "/ckpt", False, True))
    script = "cat /data/one; touch /data/x && echo wrote; echo 5 > /ckpt/step; cat /proc/mounts"
    exit, said = await node.run(sh("7141", script)._replace(volumes=volumes, project="vision"))
    assert exit.code == 0 and said.startswith("1") and "wrote" not in said
    flags = {line.split()[1]: set(line.split()[3].split(",")) for line in said.splitlines() if line.count(" ") == 5}
    assert {"ro", "nosuid", "nodev"} <= flags["/data"] and {"rw", "nosuid", "nodev"} <= flags["/ckpt"]
    _, said = await node.run(sh("7142", "cat /ckpt/step")._replace(volumes=volumes[1:], project="vision"))
    assert said.split() == ["5"]
    _, said = await node.run(sh("7143", "ls /ckpt")._replace(volumes=volumes[1:], project="speech"))
    assert "step" not in said
    assert "FAIRLEAD_MOUNTS" in await node.refused(
        sh("7144", "")._replace(volumes=(Volume("none", "/x", False, False),))
    )


@needs_root
@pytest.mark.parametrize(("user", "owner"), [("", "0"), ("USER 1000:1001", "1000"), ("USER app", "1234")])
async def test_a_secret_is_readable_by_the_program_only(node: ContainerNode, user: str, owner: str) -> None:
    """For any user of the image: the file belongs to that user, 0400, in memory, and its content is nowhere else."""
    image = ensure_image_with(f"user-{owner}", user) if user else ensure_python_image()
    code = (
        "import hashlib, os, time; path = '/run/secrets/hf-token'; facts = os.stat(path); content = open(path, 'rb').read();"
        "print(hashlib.sha256(content).hexdigest(), oct(facts.st_mode), facts.st_uid);"
        "print([line.split()[2] for line in open('/proc/mounts') if path in line], content.decode() in str(os.environ))"
    )
    run = python(f"7{151 + len(user)}", code, image=image)
    run = run._replace(secrets=(Secret("hf-token", "/run/secrets/hf-token"),), project="vision")
    exit, said = await node.run(run)
    import hashlib

    assert exit.code == 0, said
    assert said.split()[:3] == [hashlib.sha256(SECRET).hexdigest(), "0o100400", owner]
    assert said.splitlines()[1] == "['tmpfs'] False"
    client = docker.APIClient(version="auto")
    there = node.container(run)
    assert SECRET.decode() not in json.dumps(client.inspect_container(there))
    assert SECRET not in b"".join(client.export(there))  # what the container has on disk
    node.runtime.release(run.key)
    await eventually_async(lambda: not node.runtime.holdings.directory.exists())


@needs_root
async def test_grants_of_a_run_that_ended_without_an_agent_are_released(node: ContainerNode) -> None:
    """The next agent removes its secrets, and keeps those of running ones."""
    secrets = (Secret("hf-token", "/run/secrets/hf-token"),)
    runs = [
        sh(job, f"sleep {sleep}")._replace(secrets=secrets, project="vision")
        for job, sleep in (("7161", 60), ("7162", 0.2))
    ]
    for run in runs:
        node.runtime.start(run)
    await node.watch.until(lambda: len(node.watch.starts) == 2)
    await node.runtime.close()
    client = docker.APIClient(version="auto")
    client.wait(node.container(runs[1]))
    node.runtime, node.watch = node.make(), Watch()
    await node.runtime.open(node.watch.handle)
    await node.runtime.adopt([run.key for run in runs])
    assert [path.name for path in node.runtime.holdings.directory.iterdir()] == ["7161.1.0"]


def test_the_key_of_a_run_is_its_name() -> None:
    """Its mounts and secrets are found again by it."""
    assert RunKey("7161", 1, 0).name == "7161.1.0"
