"""Each MIG instance is a row of its own: with its GPU, its holder, and the driver's values for an instance."""

from pathlib import Path
from types import SimpleNamespace

import pynvml

from fairlead_agent.devices.nvml import NvmlDevices
from fairlead_agent.devices.simulated import SimulatedDevices
from fairlead_schemas.wire.desired import LayoutOrder
from fairlead_schemas.wire.resources import MigPlace
from tests.agent.devices.gpm import Gpm
from tests.agent.devices.mig_driver import MigDriver

PLACES = (MigPlace(profile="3g.20gb", start=0), MigPlace(profile="3g.20gb", start=4))


def test_simulated_instances_have_rows(tmp_path: Path) -> None:
    """Behind their GPU; the one that is held works, the other does not; nothing that a driver would not tell."""
    devices = SimulatedDevices("n1", "dgx-a100")
    gpu = devices.gpus()[1]
    order = LayoutOrder(
        gpu=gpu.uuid, plan=1, mode="on", create=tuple(MigPlace(profile="3g.40gb", start=s) for s in (0, 4))
    )
    assert devices.cut(order) == ""
    first, second = devices.gpus()[1].instances
    rows = devices.sample({first.uuid: "7.1"})
    assert [row.uuid for row in rows[:5]] == [
        devices.gpus()[0].uuid,
        gpu.uuid,
        first.uuid,
        second.uuid,
        devices.gpus()[2].uuid,
    ]
    held, free = rows[2:4]
    assert (held.parent, held.run, free.parent, free.run) == (gpu.uuid, "7.1", gpu.uuid, "")
    assert held.memory_used_mib > free.memory_used_mib
    assert (held.sm_permille or 0) > 0 == free.sm_permille
    assert {row.utilization_pct for row in (held, free)} == {None} == {row.power_mw for row in (held, free)}
    assert {row.parent for row in rows if row not in (held, free)} == {""}


def test_nvml_tells_memory_and_profiling_of_an_instance(tmp_path: Path) -> None:
    """Profiling by the GPU's handle and the number of its GPU instance; one that cannot be found has no row."""
    driver = MigDriver()
    driver.NVML_GPM_METRICS_GET_VERSION = pynvml.NVML_GPM_METRICS_GET_VERSION  # pyright: ignore[reportAttributeAccessIssue]
    gpm, asked = Gpm(driver), list[int]()

    def take(gpu: int, instance: int, sample: int) -> None:
        asked.append(instance)
        gpm._take(gpu, sample)

    driver.answers |= {
        "nvmlGpmMigSampleGet": take,
        "nvmlDeviceGetMemoryInfo": lambda device, **_: SimpleNamespace(
            total=40 << 30,
            used=(5 << 30 if isinstance(device, SimpleNamespace) else 1 << 30),
            free=15 << 30,
            reserved=0,
        ),
    }
    devices = NvmlDevices(driver, sys=tmp_path)
    assert devices.cut(LayoutOrder(gpu=devices.gpus()[0].uuid, plan=1, create=PLACES)) == ""
    held = devices.gpus()[0].instances[0].uuid
    devices.sample({})
    gpu, first, second = devices.sample({held: "7.1"})
    assert [gpu.parent, first.parent, second.parent] == ["", gpu.uuid, gpu.uuid]
    assert (first.run, first.memory_used_mib, first.memory_free_mib, second.run) == ("7.1", 5 << 10, 15 << 10, "")
    assert (first.sm_permille, first.utilization_pct, first.power_mw) == (800, None, None)
    assert sorted(set(asked)) == [1, 2]
    del driver.whole[1]
    assert [row.uuid for row in devices.sample({})][:2] == [gpu.uuid, held]
