"""The contract of devices, held by every adapter that this machine can open."""

import pytest

from bench.vectors.allocation import descriptions
from fairlead_agent.devices.none import NoDevices
from fairlead_agent.devices.nvml import NvmlDevices
from fairlead_agent.devices.port import Devices, DevicesUnfit
from fairlead_agent.devices.simulated import SimulatedDevices, played_inside, profiles
from fairlead_placer.topology.description import checked
from fairlead_schemas.cpulists import parse_cpus


@pytest.fixture(params=["none", "nvml", *sorted(profiles())])
def devices(request: pytest.FixtureRequest) -> Devices:
    """Every adapter, the simulated one with every profile."""
    if request.param == "none":
        return NoDevices()
    if request.param == "nvml":
        try:
            return NvmlDevices()
        except DevicesUnfit as error:
            pytest.skip(f"nvml: {error}")
    return SimulatedDevices("n1", request.param)


def test_the_inventory_is_in_order_and_stays(devices: Devices) -> None:
    """Indexes count from 0, UUIDs are the device's own, and a second look finds the same."""
    gpus = devices.gpus()
    assert list(range(len(gpus))) == [gpu.index for gpu in gpus]
    assert len({gpu.uuid for gpu in gpus}) == len(gpus)
    assert all(gpu.memory_mib > 0 and gpu.model for gpu in gpus)
    assert gpus == devices.gpus()


def test_labels_speak_gpu_feature_discovery(devices: Devices) -> None:
    """Product without spaces, count and memory as decimal text; nothing where there is no GPU."""
    labels, gpus = devices.labels(), devices.gpus()
    if not gpus:
        assert labels == {}
        return
    assert str(len(gpus)) == labels["nvidia.com/gpu.count"]
    assert str(gpus[0].memory_mib) == labels["nvidia.com/gpu.memory"]
    assert " " not in labels["nvidia.com/gpu.product"]
    assert devices.simulated == ("fairlead/simulated" in labels)


def test_the_inside_has_a_place_for_each_gpu_and_makes_sense(devices: Devices) -> None:
    """As a placer checks it; a GPU's own NUMA node is that of the description."""
    inside, gpus = devices.inside(), devices.gpus()
    assert checked(inside) is inside
    assert inside == devices.inside()
    assert inside.numa == tuple(gpu.numa for gpu in gpus)


def test_samples_cover_every_gpu_and_name_the_holder(devices: Devices) -> None:
    """One sample per GPU, in plausible ranges, with the run that holds it."""
    gpus = devices.gpus()
    samples = devices.sample({gpu.uuid: "7.1" for gpu in gpus[:1]})
    assert [gpu.uuid for gpu in gpus] == [sample.uuid for sample in samples]
    assert ["7.1", *[""] * (len(gpus) - 1)][: len(gpus)] == [sample.run for sample in samples]
    assert all(0 <= s.utilization_pct <= 100 and s.memory_used_mib >= 0 for s in samples)


def test_an_unknown_gpu_is_not_known_to_be_free(devices: Devices) -> None:
    """Evidence is asked of the device; without one there is none. Asking about nothing finds nothing busy."""
    assert list(devices.busy(["GPU-nobody"])) == ["GPU-nobody"]
    assert devices.busy([]) == {}


def test_simulated_gpus_keep_their_uuids_and_differ_between_nodes() -> None:
    """A node finds its GPUs again after a restart; no two nodes share one."""
    assert SimulatedDevices("n1", "dgx-a100").gpus() == SimulatedDevices("n1", "dgx-a100").gpus()
    one, two = ({g.uuid for g in SimulatedDevices(node, "dgx-a100").gpus()} for node in ("n1", "n2"))
    assert one.isdisjoint(two)


PUBLISHED = {
    "dgx-1": "dgx1-v100", "dgx-1-p100": "dgx1-p100", "dgx-2": "dgx2-v100", "dgx-a100": "dgx-a100", "dgx-h100": "dgx-h100",
    "hgx-h100": "hgx-h100-8nic", "rtx8000x4": "rtx8000x4", "rtx4090x8": "rtx4090x8-pcie",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(profiles()))
def test_a_profile_has_the_published_inside(name: str) -> None:
    """Links, levels, NUMA nodes and NICs as they were written down; CPUs the same, if in another order; no CPU more
    than the node has."""
    published, played = descriptions()[PUBLISHED[name]], played_inside(name)
    assert played.numa == published.numa
    assert (played.nvlinks or ((0,) * played.gpus,) * played.gpus) == published.nvlinks
    assert played.pcie == published.pcie
    assert (played.nics, played.nic_levels) == (published.nics, published.nic_levels)
    cpus = {node.node: parse_cpus(node.cpus) for node in played.numa_nodes}
    for node in published.numa_nodes:
        assert sorted(parse_cpus(node.cpus)) in ([], sorted(cpus[node.node]))
    assert 1000 * sum(map(len, cpus.values())) == profiles()[name].cpu_milli


def test_threads_of_a_core_are_listed_side_by_side() -> None:
    """So that whole pieces of the list share no core."""
    first = played_inside("dgx-1").numa_nodes[0]
    assert (first.socket, first.cpus[:16]) == (0, "0,40,1,41,2,42,3")
    assert played_inside("hgx-h100").numa_nodes[1].cpus == "80-159", "nobody has said which share a core"


def test_an_unknown_profile_names_those_that_there_are() -> None:
    """The refusal helps."""
    with pytest.raises(DevicesUnfit, match="dgx-a100"):
        SimulatedDevices("n1", "dgx-z")
