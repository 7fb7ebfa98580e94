"""The contract of devices, held by every adapter that this machine can open."""

import pytest

from fairlead_agent.devices.none import NoDevices
from fairlead_agent.devices.nvml import NvmlDevices
from fairlead_agent.devices.port import Devices, DevicesUnfit
from fairlead_agent.devices.simulated import SimulatedDevices, profiles


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


def test_an_unknown_profile_names_those_that_there_are() -> None:
    """The refusal helps."""
    with pytest.raises(DevicesUnfit, match="dgx-a100"):
        SimulatedDevices("n1", "dgx-z")
