"""Health in the samples of GPUs."""

import msgspec
import pytest

from fairlead_agent.devices.port import GpuHealth
from fairlead_agent.node.health.collect import with_health
from fairlead_agent.node.metrics.exposition import Xids
from fairlead_schemas.wire.samples import GpuSample

SAMPLE = GpuSample(uuid="g0", run="7.1", memory_used_mib=5)


@pytest.mark.parametrize(
    ("health", "xids", "told"),
    [
        (GpuHealth(uuid="g0"), {}, {"xid": 0, "xids": 0}),
        (GpuHealth(uuid="g0", slowdowns=()), {}, {"slowdowns": 0, "xid": 0, "xids": 0}),
        (
            GpuHealth(
                uuid="g0", ecc_volatile_correctable=3, ecc_volatile_uncorrectable=0, ecc_aggregate_correctable=90
            ),
            {"g0": Xids(63, 2), "g1": Xids(48, 1)},
            {"ecc_correctable": 3, "ecc_uncorrectable": 0, "xid": 63, "xids": 2},
        ),
        (GpuHealth(uuid="g0", slowdowns=("sw_thermal", "hw_thermal")), {}, {"slowdowns": 0x60, "xid": 0, "xids": 0}),
    ],
)
def test_the_last_health_check_is_part_of_the_sample(
    health: GpuHealth, xids: dict[str, Xids], told: dict[str, int]
) -> None:
    """A value that a GPU lacks is unknown; clocks without throttling are 0; everything else is kept."""
    assert with_health([SAMPLE], [health], xids) == [msgspec.structs.replace(SAMPLE, **told)]


def test_health_is_unknown_before_the_first_check() -> None:
    """And for MIG instances, whose health is their GPU's."""
    instance = GpuSample(uuid="m0", parent="g0", memory_used_mib=1)
    assert with_health([SAMPLE], [], {"g0": Xids(63, 2)}) == [SAMPLE]
    assert with_health([instance], [GpuHealth(uuid="g0", slowdowns=())], {})[0] is instance
