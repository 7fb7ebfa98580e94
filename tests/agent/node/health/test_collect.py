"""What samples tell of their GPUs' health."""

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
def test_what_the_last_look_found_stands_in_the_sample(
    health: GpuHealth, xids: dict[str, Xids], told: dict[str, int]
) -> None:
    """What a GPU does not say is not known; clocks that nothing holds down are 0; everything else stays."""
    assert with_health([SAMPLE], [health], xids) == [msgspec.structs.replace(SAMPLE, **told)]


def test_nothing_is_told_of_what_nobody_has_looked_at() -> None:
    """Before the first look, and of MIG instances, whose health is their GPU's."""
    instance = GpuSample(uuid="m0", parent="g0", memory_used_mib=1)
    assert with_health([SAMPLE], [], {"g0": Xids(63, 2)}) == [SAMPLE]
    assert with_health([instance], [GpuHealth(uuid="g0", slowdowns=())], {})[0] is instance
