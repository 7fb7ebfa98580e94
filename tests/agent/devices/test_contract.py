"""The contract of devices, held by every adapter with GPUs that this machine can open, and the adapter without any."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from bench.vectors.allocation import descriptions
from fairlead_agent.devices.adapters import NoDevices
from fairlead_agent.devices.nvml import NvmlDevices
from fairlead_agent.devices.port import Devices, DevicesUnfit
from fairlead_agent.devices.profiles import played_inside, profiles
from fairlead_agent.devices.recorded import RecordedDevices, read_recording, record, write_recording
from fairlead_agent.devices.simulated import SimulatedDevices
from fairlead_placer.topology.gpu_topology import checked
from fairlead_schemas.units.hardware import parse_cpus
from fairlead_schemas.units.taints import parse_label
from fairlead_schemas.wire.desired import LayoutOrder
from tests.agent.devices.amd_tree import two_cards
from tests.agent.devices.played_nvml import PlayedNvml
from tests.agent.devices.rocm_example import rocm_example
from tests.agent.placer_script import order as run_order


@pytest.fixture(params=["nvml", "nvml-played", "recorded", "plugin", *sorted(profiles())])
def devices(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Devices]:
    """Every adapter, the simulated one with every profile; the plugin is the example of docs/reference/devices.md."""
    try:
        opened = _open(request.param, tmp_path)
    except DevicesUnfit as error:
        pytest.skip(f"nvml: {error}")
    assert opened.gpus(), "without a GPU the contract would be checked on nothing"
    yield opened
    opened.close()


def _open(name: str, directory: Path) -> Devices:
    match name:
        case "nvml":
            return NvmlDevices()
        case "nvml-played":
            return NvmlDevices(PlayedNvml(), sys=directory)
        case "recorded":
            played = NvmlDevices(PlayedNvml(), sys=directory)
            made = record(played, 0, 1, "", mig=played.mig_tables(), recorded_on="2026-01-01", sleep=lambda _: None)
            return RecordedDevices(read_recording(write_recording(made)))
        case "plugin":
            two_cards(directory)
            return rocm_example().RocmDevices(directory)
    return SimulatedDevices("n1", name)


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
    assert devices.simulated == ("fairlead/simulated" in labels)
    if devices.name == "rocm":  # has the words of its own maker
        assert str(len(gpus)) == labels["amd.com/gpu.count"]
        return
    assert str(len(gpus)) == labels["nvidia.com/gpu.count"]
    assert str(gpus[0].memory_mib) == labels["nvidia.com/gpu.memory"]
    assert " " not in labels["nvidia.com/gpu.product"]


def test_labels_are_ones_that_a_node_may_have(devices: Devices) -> None:
    """As the inventory takes them."""
    labels = devices.labels()
    assert labels
    for key, value in labels.items():
        assert parse_label(f"{key}={value}") == (key, value)


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
    assert ["7.1", *[""] * (len(gpus) - 1)] == [sample.run for sample in samples]
    assert all(0 <= (s.utilization_pct or 0) <= 100 and s.memory_used_mib >= 0 for s in samples)


def test_other_measurements_are_unknown_or_plausible(devices: Devices) -> None:
    """Ratios are ratios, counters never fall, and the parts of memory are no more than the whole."""
    samples, later = devices.sample({}), devices.sample({})
    for gpu, one, other in zip(devices.gpus(), samples, later, strict=True):
        told = msgspec.structs.asdict(one)
        assert all(told[name] in range(1001) for name in told if name.endswith("_permille") and told[name] is not None)
        percents = ("memory_busy_pct", "encoder_pct", "decoder_pct")
        assert all(told[name] in range(101) for name in percents if told[name] is not None)
        for counter in ("energy_mj", "nvlink_tx_kib", "nvlink_rx_kib"):
            assert getattr(other, counter) is None or getattr(other, counter) >= told[counter] >= 0
        parts = (one.memory_used_mib, one.memory_free_mib, one.memory_reserved_mib)
        assert sum(part or 0 for part in parts) <= gpu.memory_mib + 1, "a MiB may be lost in rounding"


def test_an_unknown_gpu_is_not_known_to_be_free(devices: Devices) -> None:
    """Evidence is asked of the device; without one there is none. Asking about nothing finds nothing busy."""
    assert list(devices.busy(["GPU-nobody"])) == ["GPU-nobody"]
    assert devices.busy([]) == {}


def test_health_covers_every_gpu(devices: Devices) -> None:
    """In the inventory's order; what is there is not lost, and says why only then."""
    health = devices.health()
    assert [gpu.uuid for gpu in devices.gpus()] == [each.uuid for each in health]
    assert {(each.lost, each.why) for each in health} <= {(False, "")}


def test_xids_and_processes_belong_to_its_gpus(devices: Devices) -> None:
    """An XID is reported once, so a second read directly afterwards has none; processes are ordered by GPU and pid."""
    known = {each.uuid for gpu in devices.gpus() for each in (gpu, *gpu.instances)}
    assert {each.uuid for each in devices.xids()} <= known
    assert devices.xids() == []
    processes = devices.processes()
    assert {each.uuid for each in processes} <= known
    assert [(each.uuid, each.pid) for each in processes] == sorted((each.uuid, each.pid) for each in processes)


def test_an_unused_gpu_is_free(devices: Devices) -> None:
    """On a machine with work on it, a busy GPU has evidence."""
    busy = devices.busy([gpu.uuid for gpu in devices.gpus()])
    assert all(busy.values())
    if devices.simulated:
        assert busy == {}


def test_an_unknown_gpu_is_not_repartitioned(devices: Devices) -> None:
    """The refusal has a reason, and nothing else changes."""
    before = devices.gpus()
    assert devices.cut(LayoutOrder(gpu="GPU-nobody", plan=1, mode="on"))
    assert devices.gpus() == before


def test_adapters_do_not_set_the_common_variables(devices: Devices) -> None:
    """An adapter's variables are its own, and text."""
    gpus = tuple(gpu.uuid for gpu in devices.gpus()[:1])
    for order in (run_order("7", "true"), run_order("7", "true", gpus=gpus)):
        variables = devices.environment(order, contained=False)
        assert {name.partition("=")[0] for name in variables} == set(variables)
        assert not {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "FAIRLEAD_GPUS"} & set(variables)


def test_a_node_without_gpus_has_nothing_and_refuses_to_repartition() -> None:
    """Every list is empty. A GPU that is named anyway is reported as not known to be free, and its repartition is refused."""
    devices = NoDevices()
    assert (devices.simulated, devices.gpus(), devices.labels()) == (False, (), {})
    assert devices.gpus() == () and devices.sample({"GPU-other": "7.1"}) == devices.health() == []
    assert devices.xids() == devices.processes() == []
    assert devices.busy([]) == {} and list(devices.busy(["GPU-other"])) == ["GPU-other"]
    assert "GPU-other" in devices.cut(LayoutOrder(gpu="GPU-other", plan=1, mode="on"))
    assert devices.environment(run_order("7", "true"), contained=False) == {}
    inside = devices.inside()
    assert checked(inside) is inside and inside.numa == ()


def test_simulated_gpus_keep_their_uuids_and_differ_between_nodes() -> None:
    """A node finds its GPUs again after a restart; no two nodes share one."""
    assert SimulatedDevices("n1", "dgx-a100").gpus() == SimulatedDevices("n1", "dgx-a100").gpus()
    one, two = ({g.uuid for g in SimulatedDevices(node, "dgx-a100").gpus()} for node in ("n1", "n2"))
    assert one.isdisjoint(two)


PUBLISHED = {
    "dgx-1": "dgx1-v100",
    "dgx-1-p100": "dgx1-p100",
    "dgx-2": "dgx2-v100",
    "dgx-a100": "dgx-a100",
    "dgx-h100": "dgx-h100",
    "hgx-h100": "hgx-h100-8nic",
    "rtx8000x4": "rtx8000x4",
    "rtx4090x8": "rtx4090x8-pcie",
}


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
