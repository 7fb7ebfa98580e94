"""NVML's values for links, ECC, MIG and fabric, by a simulated driver over a tree that looks like /sys."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from fairlead_agent.devices.nvml import NvmlDevices
from fairlead_placer.topology.gpu_topology import checked
from fairlead_schemas.wire.resources import MigInstance, NodeTopology
from tests.agent.devices.nvml_driver import SWITCH, Driver
from tests.agent.linux.sysfs_tree import two_sockets


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    """Four GPUs on the machine of `two_sockets`."""
    return Driver(two_sockets(tmp_path)[1])


def inside(driver: Driver, sys: Path) -> NodeTopology:
    """Return the adapter's description, checked as a placer would."""
    return checked(NvmlDevices(driver, sys=sys).inside())


def test_links_between_gpus_are_counted(driver: Driver, tmp_path: Path) -> None:
    """By the far end's address; links that are down or lead to a hidden GPU are not counted."""
    driver.links = {(0, 0): 1, (0, 1): 1, (1, 0): 0, (1, 5): 0, (2, 0): 3, (3, 0): 2}
    driver.answers["nvmlDeviceGetNvLinkState"] = lambda i, link: int((i, link) in driver.links and link != 5)
    assert inside(driver, tmp_path).nvlinks == ((0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0))


def test_gpus_on_switches_reach_each_other_over_all_links(driver: Driver, tmp_path: Path) -> None:
    """As many as the one with fewer has."""
    driver.links = {(gpu, link): SWITCH for gpu in range(4) for link in range(12 if gpu else 10)}
    assert inside(driver, tmp_path).nvlinks[0] == (0, 10, 10, 10)
    assert inside(driver, tmp_path).nvlinks[1] == (10, 0, 12, 12)


def test_levels_are_the_drivers_if_it_reports_them(driver: Driver, tmp_path: Path) -> None:
    """One triangle is queried; the unknown rest is derived from paths. Without links there is no table of them."""
    driver.levels = {(0, 1): 0, (0, 2): 40}
    found = inside(driver, tmp_path)
    assert found.pcie[0] == ("X", "SAME_BOARD", "NODE", "SYS")
    assert found.pcie[2] == ("NODE", "SYS", "X", "PHB")
    assert found.nvlinks == ()
    assert (found.numa, found.nics) == ((0, 0, 1, 1), ("mlx5_0", "mlx5_2", "mlx5_10"))
    assert [gpu.numa for gpu in NvmlDevices(driver, sys=tmp_path).gpus()] == [0, 0, 1, 1]


def test_a_gpu_without_ecc_mig_and_fabric(driver: Driver, tmp_path: Path) -> None:
    """These fields are unknown, and the GPU is reported as unable to be partitioned."""
    devices = NvmlDevices(driver, sys=tmp_path)
    assert {(gpu.ecc, gpu.mig, gpu.instances) for gpu in devices.gpus()} == {("", False, ())}
    labels = devices.labels()
    assert labels["nvidia.com/mig.capable"] == "false"
    assert labels["nvidia.com/cuda.driver-version.full"] == "550.54.15"
    assert not {
        "fairlead/ecc",
        "nvidia.com/gpu.clique",
        "nvidia.com/mig.strategy",
        "nvidia.com/cuda.runtime-version.full",
    } & set(labels)


def test_mig_instances_are_found_where_they_start(driver: Driver, tmp_path: Path) -> None:
    """By rising start; empty places are passed over; a start that may not be asked for is not known."""
    mig = {
        0: SimpleNamespace(uuid="MIG-b", name="NVIDIA A100-SXM4-40GB MIG 3g.20gb", instance=1),
        2: SimpleNamespace(uuid="MIG-a", name=b"NVIDIA A100-SXM4-40GB MIG 2g.10gb", instance=2),
    }
    driver.answers |= {
        "nvmlDeviceGetMigMode": lambda i: [int(i == 1), 0],
        "nvmlDeviceGetEccMode": lambda i: [1, 0],
        "nvmlDeviceGetMaxMigDeviceCount": lambda i: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda i, at: driver._or_error(mig, at),
        "nvmlDeviceGetGpuInstanceId": lambda device: device.instance,
        "nvmlDeviceGetGpuInstanceById": lambda i, instance: instance,
        "nvmlGpuInstanceGetInfo": lambda instance: SimpleNamespace(
            placement=SimpleNamespace(start={1: 4, 2: 0}[instance])
        ),
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 12040,
    }
    devices = NvmlDevices(driver, sys=tmp_path)
    whole, cut, *_ = devices.gpus()
    assert (whole.mig, whole.instances, whole.ecc) == (False, (), "on")
    assert cut.mig
    assert cut.instances == (
        MigInstance(uuid="MIG-a", profile="2g.10gb", start=0),
        MigInstance(uuid="MIG-b", profile="3g.20gb", start=4),
    )
    labels = devices.labels()
    assert {
        "fairlead/ecc": "on",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/mig.strategy": "mixed",
    }.items() <= labels.items()
    assert {
        "nvidia.com/mig-3g.20gb.count": "1",
        "nvidia.com/cuda.runtime-version.full": "12.4",
    }.items() <= labels.items()
    del driver.answers["nvmlGpuInstanceGetInfo"]
    assert [each.start for each in NvmlDevices(driver, sys=tmp_path).gpus()[1].instances] == [-1, -1]


@pytest.mark.parametrize(
    ("cluster", "state", "clique"),
    [
        (bytes(range(16)), 3, "00010203-0405-0607-0809-0a0b0c0d0e0f.7"),
        (bytes(16), 3, None),
        (bytes(range(16)), 2, None),
    ],
)
def test_a_fabric_beyond_the_node_is_named(
    driver: Driver, tmp_path: Path, cluster: bytes, state: int, clique: str | None
) -> None:
    """Once it is up; a cluster id of zeros is every single machine's, and no name."""

    def fabric(_: int, reference: Any) -> None:
        info = reference._obj
        info.clusterUuid = (pynvml.c_uint8 * 16)(*cluster)
        info.state, info.status, info.cliqueId = state, 0, 7

    driver.answers["nvmlDeviceGetGpuFabricInfoV"] = fabric
    assert NvmlDevices(driver, sys=tmp_path).labels().get("nvidia.com/gpu.clique") == clique


def test_gpus_that_are_not_on_the_kernels_pci_bus(tmp_path: Path) -> None:
    """The driver's values are reported, their locality is unknown."""
    found = inside(Driver(["0000:01:00.0", "0000:02:00.0"]), tmp_path)
    assert found == NodeTopology(numa=(-1, -1))
