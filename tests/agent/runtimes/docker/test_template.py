"""The one shape of a container: what it says, and that the engine has really made it so."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_agent.core.cpu_pinning import Host, NumaShare, Unpinnable
from fairlead_agent.core.runs import Exit, RunKey
from fairlead_agent.launch.plan import Launch, Unlaunchable
from fairlead_agent.runtimes.docker import template
from fairlead_agent.runtimes.docker.template import Bind, ContainerEngine, differences, image_volumes
from fairlead_schemas.jobfile.agent_fields import CLOSED_PATHS, mount_faults
from fairlead_schemas.jobfile.job_spec import RESERVED_ENV_PREFIXES
from tests.agent.runtime_watch import Watch, incarnation, launch
from tests.agent.runtimes.docker.hostile_jobs import ALWAYS, BY_ORDER, ENV_NAMES, ORDERS, PROGRAMS, TEXTS, launched
from tests.agent.runtimes.docker.inspected import as_created

#: Two NUMA nodes of four CPUs and 8 GiB each.
HOST = Host({0: NumaShare(frozenset(range(4)), 8192), 1: NumaShare(frozenset(range(4, 8)), 8192)}, frozenset({0}))
ENGINE = ContainerEngine(host=HOST, cpus=8, verbs={"mlx5_0": ("/dev/infiniband/uverbs3", "/dev/infiniband/rdma_cm")})


@given(PROGRAMS, ORDERS, st.booleans())
def test_no_hostile_job_changes_the_template(program: dict[str, Any], order: dict[str, Any], simulated: bool) -> None:
    """For any job file and order: it is refused, or the HostConfig equals the template, with amounts within bounds and
    mounts made by the agent."""
    try:
        run, engine = launched(program, order, simulated), ENGINE._replace(simulated=simulated)
        path = template.gpu_path(run.order.gpus, engine)
        binds = [Bind(f"/held/v{at}", each.path, each.read_only) for at, each in enumerate(run.volumes)]
        config = template.host_config(run, engine, path, binds)
    except (Unlaunchable, Unpinnable):
        return
    assert {name: config[name] for name in ALWAYS} == ALWAYS
    assert set(config) - ALWAYS.keys() - BY_ORDER <= {"DeviceRequests", "Devices"}
    files = [each["PathOnHost"] for each in config.get("Devices", [])]
    assert files == (list(ENGINE.verbs["mlx5_0"]) if "mlx5_0" in run.order.nics and not simulated else [])
    assert config["Memory"] == config["MemorySwap"] >= 6 * 2**20
    assert config["NanoCpus"] >= 10_000_000
    tmp = [int(re.search(r"size=(\d+)m", options)[1]) for options in config["Tmpfs"].values()]  # type: ignore[index]
    assert list(config["Tmpfs"]) == ["/tmp"] and min(tmp) > 0
    assert 0 < config["ShmSize"] + sum(tmp) * 2**20 <= config["Memory"]
    assert config["CpusetCpus"] in ("", "1-7", "0-3", "4-5", "0-7", *map(str, range(8)))
    assert all(mount["Type"] == "bind" and mount["Source"].startswith("/held/v") for mount in config["Mounts"])
    assert not any(f"{mount['Target']}/".startswith(f"{bad}/") for mount in config["Mounts"] for bad in CLOSED_PATHS)
    granted = [] if simulated else list(run.order.gpus)
    assert [uuid for request in config.get("DeviceRequests", []) for uuid in request["DeviceIDs"]] == granted
    assert [each["Name"] for each in config["Ulimits"]][:2] == ["core", "nofile"]
    assert len(config["Ulimits"]) == (3 if run.order.nics and not simulated else 2)


@given(st.dictionaries(ENV_NAMES, TEXTS, max_size=6), st.booleans(), st.sampled_from([(), ("GPU-a",)]))
def test_a_jobs_environment_says_nothing_about_devices(
    env: dict[str, str], simulated: bool, gpus: tuple[str, ...]
) -> None:
    """The container's device variables are the same with the job's variables and without, and nothing that would be
    loaded into a device runtime's hook comes from it."""
    order: dict[str, Any] = {"gpus": gpus}
    with_env = launched({"command": ["x"], "env": env}, order, simulated)
    without = launched({"command": ["x"]}, order, simulated)
    path = template.gpu_path(gpus, ENGINE._replace(simulated=simulated))
    assert devices_said(with_env, path) == devices_said(without, path)


def devices_said(run: Launch, path: template.GpuPath) -> list[str]:
    """Of a container's environment, what a device runtime or its libraries listen to."""
    own = tuple(prefix for prefix in RESERVED_ENV_PREFIXES)
    return [word for word in template.environment(run, ENGINE, path) if word.startswith(own)]


def test_an_image_cannot_request_devices_either() -> None:
    """If a device runtime's hooks run, an image's own variables for them are removed, and the GPUs are the granted
    ones."""
    run = launched({"command": ["x"]}, {"gpus": ("GPU-a",)}, simulated=False)
    said = template.environment(run, ENGINE, "device-request")
    assert "NVIDIA_VISIBLE_DEVICES=GPU-a" in said
    assert set(template.IMAGE_ENV_REMOVED) <= set(said)  # without "=": the engine takes them out
    assert "NVIDIA_VISIBLE_DEVICES=void" in template.environment(run, ENGINE, "cdi")


def test_gpus_go_in_by_the_best_way_there_is() -> None:
    """CDI where it lists every device, else a request by UUID, else nothing for played ones."""
    engine = template.ContainerEngine(cdi_devices=frozenset({"nvidia.com/gpu=GPU-a"}))
    assert template.gpu_path([], engine) == "none"
    assert template.gpu_path(["GPU-a"], engine._replace(simulated=True)) == "simulated"
    assert template.gpu_path(["GPU-a"], engine) == "cdi"
    assert template.gpu_path(["GPU-a", "GPU-b"], engine) == "device-request"


@pytest.mark.parametrize(
    ("memory", "asked", "tmpfs", "expected"),
    [
        (65536, 0, 1, (32768, 1024)),
        (1024, 0, 1, (512, 256)),
        (1024, 1024, 1, (1023, 1)),
        (1024, 4096, 1, (1023, 1)),
        (6, 0, 1, (3, 1)),
        (1024, 0, 4, (512, 64)),
        (1024, 1000, 8, (1000, 1)),
    ],
)
def test_shm_and_scratch_fit_into_memory(memory: int, asked: int, tmpfs: int, expected: tuple[int, int]) -> None:
    """/dev/shm is half of the memory, or what was asked for; scratch space gets half of the rest, up to 1 GiB."""
    shm, tmp = template.scratch(memory, asked, tmpfs)
    assert (shm, tmp) == expected
    assert shm + tmp * tmpfs <= memory


def test_rdma_may_lock_memory() -> None:
    """Only with real network devices granted."""
    names = [
        [each["Name"] for each in template.host_config(run, ENGINE._replace(simulated=played), "none")["Ulimits"]]
        for run, played in (
            (launched({"command": ["x"]}, {"nics": ("mlx5_0",)}, simulated=False), False),
            (launched({"command": ["x"]}, {"nics": ("mlx5_0",)}, simulated=True), True),
            (launched({"command": ["x"]}, {}, simulated=False), False),
        )
    ]
    assert names == [["core", "nofile", "memlock"], ["core", "nofile"], ["core", "nofile"]]


def test_a_nic_comes_with_its_files_and_those_that_all_share_once() -> None:
    """As the kernel numbers them; of a NIC without any, nothing."""
    engine = ENGINE._replace(verbs={**ENGINE.verbs, "mlx5_1": ("/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm")})
    run = launched({"command": ["x"]}, {"nics": ("mlx5_1", "mlx5_0", "mlx5_1", "mlx5_9")}, simulated=False)
    devices = template.host_config(run, engine, "none")["Devices"]
    assert [each["PathOnHost"].rpartition("/")[2] for each in devices] == ["uverbs0", "rdma_cm", "uverbs3"]
    assert all(each["PathInContainer"] == each["PathOnHost"] for each in devices)
    assert {each["CgroupPermissions"] for each in devices} == {"rw"}


def test_only_multi_node_runs_use_the_nodes_network_and_only_if_its_admin_allows_it() -> None:
    """A job file or an order cannot request it."""
    alone, gang = ({"command": ["x"]}, {}), ({"command": ["x"]}, {"hosts": ("10.0.0.1", "10.0.0.2")})
    for engine, expected in (
        (ENGINE, ["default", "default"]),
        (ENGINE._replace(gang_network="host"), ["default", "host"]),
    ):
        runs = [launched(*each, simulated=False) for each in (alone, gang)]
        assert [template.host_config(run, engine, "none")["NetworkMode"] for run in runs] == expected


# ---------------------------------------------------------------------------- the second look


def wanted() -> dict[str, Any]:
    run = launch("7", "true", image="x")
    return template.host_config(run, ENGINE, "none", [Bind("/held/v0", "/data", True)])


def test_a_container_as_requested_passes() -> None:
    """The engine's own additions do not count as differences."""
    assert differences(wanted(), as_created(wanted()), ENGINE) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Privileged", True),
        ("CapAdd", ["SYS_ADMIN"]),
        ("CapDrop", []),
        ("SecurityOpt", ["seccomp=unconfined"]),
        ("SecurityOpt", []),
        ("PidMode", "host"),
        ("PidMode", "container:x"),
        ("IpcMode", "host"),
        ("IpcMode", "shareable"),
        ("UTSMode", "host"),
        ("UsernsMode", "host"),
        ("NetworkMode", "host"),
        ("CgroupnsMode", "host"),
        ("Cgroup", "x"),
        ("CgroupParent", "/"),
        ("Devices", [{"PathOnHost": "/dev/mem"}]),
        ("DeviceCgroupRules", ["a *:* rwm"]),
        ("DeviceRequests", [{"Driver": "nvidia", "Count": -1}]),
        ("Binds", ["/:/host"]),
        ("VolumesFrom", ["x"]),
        ("Mounts", [{"Type": "bind", "Source": "/", "Target": "/data", "ReadOnly": True}]),
        ("Mounts", [{"Type": "bind", "Source": "/held/v0", "Target": "/data"}]),
        ("Tmpfs", {"/tmp": ""}),
        ("ReadonlyRootfs", False),
        ("MaskedPaths", []),
        ("MaskedPaths", None),
        ("ReadonlyPaths", ["/proc/bus"]),
        ("Runtime", "nvidia"),
        ("Sysctls", {"kernel.core_pattern": "|x"}),
        ("GroupAdd", ["docker"]),
        ("ExtraHosts", ["a:1.2.3.4"]),
        ("PortBindings", {"22/tcp": [{}]}),
        ("PublishAllPorts", True),
        ("Memory", 0),
        ("MemorySwap", -1),
        ("NanoCpus", 0),
        ("PidsLimit", None),
        ("OomKillDisable", True),
        ("OomScoreAdj", -1000),
        ("Ulimits", None),
        ("CpuRealtimeRuntime", 950000),
        ("BlkioWeight", 1000),
        ("LogConfig", {"Type": "json-file", "Config": {}}),
        ("RestartPolicy", {"Name": "always"}),
        ("AutoRemove", True),
        ("StorageOpt", {"size": "1T"}),
        ("AFieldOfTomorrow", "all"),
    ],
)
def test_every_field_that_grants_something_is_checked(field: str, value: Any) -> None:
    """Each field of the engine's answer counts, also an unknown one."""
    inspected = as_created(wanted())
    inspected["HostConfig"][field] = value
    wrong = differences(wanted(), inspected, ENGINE)
    assert [each for each in wrong if each.startswith(f"{field}: expected")] == wrong != []


def test_fields_outside_the_host_config_are_checked() -> None:
    """Volumes of the engine's own, a working directory that is a device directory, a container without AppArmor."""
    inspected = as_created(wanted())
    inspected["Mounts"].append({"Type": "volume", "Destination": "/var/lib/x"})
    inspected["Config"]["WorkingDir"] = "/proc/self/fd/7"
    inspected["AppArmorProfile"] = "unconfined"
    wrong = differences(wanted(), inspected, ENGINE._replace(apparmor=True))
    assert [each.partition(":")[0] for each in wrong] == ["Mounts", "AppArmorProfile", "WorkingDir"]


@pytest.mark.parametrize("workdir", ["/proc", "//proc/self/fd/7", "/a/../proc/1/cwd", "/sys/./fs", "proc", "../x"])
def test_no_program_starts_in_a_device_directory(workdir: str) -> None:
    """In each spelling of its path."""
    inspected = as_created(wanted())
    inspected["Config"]["WorkingDir"] = workdir
    assert [each.partition(":")[0] for each in differences(wanted(), inspected, ENGINE)] == ["WorkingDir"]


def test_an_images_volumes_become_scratch_space() -> None:
    """They are found, covered, and then nothing of them is left to be found."""
    inspected = as_created(wanted())
    inspected["Config"]["Volumes"] = {"/var/lib/x/": {}, "/data": {}}
    assert image_volumes(wanted(), inspected) == ["/var/lib/x"]
    run = launch("7", "true", image="x")
    covered = template.host_config(run, ENGINE, "none", [], ["/var/lib/x"])
    assert list(covered["Tmpfs"]) == ["/tmp", "/var/lib/x"]
    with pytest.raises(ValueError, match="17 volumes; at most 16"):
        template.host_config(run, ENGINE, "none", [], [f"/v{at}" for at in range(17)])


def test_the_hostile_mounts_above_are_hostile() -> None:
    """The property accepts few cases: nearly all of the mount words are refused, and one is not."""
    assert list(mount_faults(["datasets:/data"], [], "")) == []
    assert list(mount_faults(["x:/proc/1"], [], "")) and list(
        mount_faults(["a:/run/nvidia-container-devices/all"], [], "")
    )


@pytest.mark.docker
def test_an_engine_creates_a_container_with_a_device_and_a_network_as_requested() -> None:
    """The values that a real engine returns for both equal the requested ones. The device exists on every machine."""
    import docker

    from tests.agent.runtimes.docker.image import ensure_image

    engine = ContainerEngine(gang_network="host", verbs={"mlx5_0": ("/dev/full",)}, has_init=False)
    run = launched({"command": ["x"]}, {"nics": ("mlx5_0",), "hosts": ("a", "b"), "memory_mib": 64}, simulated=False)
    config = template.host_config(run, engine, "none")
    api = docker.APIClient(version="auto")
    made = api.create_container_from_config(
        {"Image": ensure_image(), "Cmd": ["true"], "WorkingDir": "/", "HostConfig": config}, None
    )
    try:
        inspected = api.inspect_container(made["Id"])
        assert inspected["HostConfig"]["NetworkMode"] == "host" and inspected["HostConfig"]["Devices"]
        assert differences(config, inspected, engine) == []
    finally:
        api.remove_container(made["Id"], force=True)


@pytest.mark.docker
async def test_a_container_can_do_nothing_it_should_not(tmp_path: Path) -> None:
    """Mounting, writing the root file system and raising privileges fail; /tmp can be written."""
    from fairlead_agent.runtimes.docker.runtime import DockerRuntime
    from tests.agent.runtimes.docker.image import ensure_image

    runtime, watch = DockerRuntime(tmp_path, "n1", incarnation(), simulated=True), Watch()
    await runtime.open(watch.handle)
    script = "touch /x && echo root; mount -t tmpfs t /proc && echo mount; touch /tmp/y && echo tmp; exit 0"
    runtime.start(launch("7001", "sh", "-c", script, image=ensure_image()))
    key = RunKey("7001", 1, 0)
    assert await watch.exit_of(key) == Exit(code=0)
    assert runtime.output(key)[0].read_text().split() == ["tmp"]
    await runtime.adopt([])
    await runtime.close()
