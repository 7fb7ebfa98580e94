"""Node labels: GPU feature discovery's words, and our own."""

import pytest

from fairlead_agent.devices.labels import driver_labels, gpu_labels, inside_labels, rack_labels
from fairlead_agent.devices.profiles import played_inside, profiles
from fairlead_agent.devices.simulated import SimulatedDevices
from fairlead_schemas.units.taints import parse_label
from fairlead_schemas.wire.resources import UNKNOWN_TOPOLOGY, Gpu, MigInstance, NodeTopology

GPU = Gpu(uuid="g", index=0, model="NVIDIA A100-SXM4-80GB", memory_mib=81920, compute_capability=80, ecc="on")


def test_a_dgx_a100() -> None:
    """All that a simulated one says of itself."""
    assert SimulatedDevices("n1", "dgx-a100").labels() == {
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/gpu.memory": "81920",
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mps.capable": "false",
        "nvidia.com/gpu.machine": "DGXA100",
        "nvidia.com/gpu.family": "ampere",
        "nvidia.com/gpu.compute.major": "8",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/mig.capable": "true",
        "fairlead/ecc": "on",
        "fairlead/numa": "4",
        "fairlead/nvlink-domains": "1",
        "fairlead/simulated": "true",
    }


@pytest.mark.parametrize("name", sorted(profiles()))
def test_labels_are_ones_that_kubernetes_takes(name: str) -> None:
    """Each of every profile's."""
    labels = SimulatedDevices("n1", name).labels()
    assert labels
    for key, value in labels.items():
        assert parse_label(f"{key}={value}") == (key, value)


def test_versions_of_driver_and_cuda() -> None:
    """In the new keys and the old ones, as GPU feature discovery has them."""
    assert driver_labels("550.107.02", 12050) == {
        "nvidia.com/cuda.driver-version.full": "550.107.02",
        "nvidia.com/cuda.driver-version.major": "550",
        "nvidia.com/cuda.driver-version.minor": "107",
        "nvidia.com/cuda.driver-version.revision": "02",
        "nvidia.com/cuda.driver.major": "550",
        "nvidia.com/cuda.driver.minor": "107",
        "nvidia.com/cuda.driver.rev": "02",
        "nvidia.com/cuda.runtime-version.full": "12.5",
        "nvidia.com/cuda.runtime-version.major": "12",
        "nvidia.com/cuda.runtime-version.minor": "5",
        "nvidia.com/cuda.runtime.major": "12",
        "nvidia.com/cuda.runtime.minor": "5",
    }
    assert driver_labels("560.35", 0)["nvidia.com/cuda.driver-version.revision"] == ""
    assert driver_labels("", 0) == {}


def test_mig_instances_are_counted_by_profile() -> None:
    """If any GPU is in MIG mode; a plus sign is no part of a key."""
    instances = (MigInstance(uuid="a", profile="1g.10gb"), MigInstance(uuid="b", profile="1g.10gb+me"))
    cut = Gpu(
        uuid="h", index=1, model=GPU.model, memory_mib=81920, compute_capability=80, mig=True, instances=instances
    )
    labels = gpu_labels([GPU, cut], "")
    assert labels["nvidia.com/mig.strategy"] == "mixed"
    assert (labels["nvidia.com/mig-1g.10gb.count"], labels["nvidia.com/mig-1g.10gb.me.count"]) == ("1", "1")
    assert (labels["nvidia.com/mig-1g.10gb.me.slices.gi"], labels["nvidia.com/mig-1g.10gb.slices.ci"]) == ("1", "1")
    assert "fairlead/ecc" not in labels, "of one it is not known"
    assert "nvidia.com/mig.strategy" not in gpu_labels([GPU], "")


def test_the_drivers_values_for_mig_and_fabric_win() -> None:
    """Over the expectation from the model."""
    assert gpu_labels([GPU], "", mig_capable=False)["nvidia.com/mig.capable"] == "false"
    assert gpu_labels([GPU], "", clique="c.1")["nvidia.com/gpu.clique"] == "c.1"


def test_groups_of_links() -> None:
    """Joined over others counts as joined; GPUs without links are groups of their own."""
    assert inside_labels(played_inside("dgx-1"))["fairlead/nvlink-domains"] == "1"
    assert inside_labels(played_inside("rtx8000x4"))["fairlead/nvlink-domains"] == "2"
    assert inside_labels(played_inside("rtx4090x8"))["fairlead/nvlink-domains"] == "8"
    assert inside_labels(NodeTopology(numa=(-1, -1))) == {"fairlead/nvlink-domains": "2"}
    assert inside_labels(UNKNOWN_TOPOLOGY) == {}


def test_racks() -> None:
    """Full ones, one after the other."""
    where = [rack_labels(number, 2, 3) for number in range(8)]
    assert [labels["fairlead/rack"] for labels in where] == ["r1", "r1", "r2", "r2", "r3", "r3", "r4", "r4"]
    assert [labels["fairlead/block"] for labels in where] == ["b1"] * 6 + ["b2"] * 2
    assert {labels["fairlead/spine"] for labels in where} == {"s1"}
    assert rack_labels(5, 0, 4) == {}
    assert rack_labels(5, 4, 0) == {"fairlead/rack": "r2", "fairlead/spine": "s1"}
