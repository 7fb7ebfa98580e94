"""What samples tell of their GPUs' health, of the last look at it. Pure."""

from collections.abc import Iterable, Mapping

import msgspec

from fairlead_agent.devices.facts import SLOWDOWNS, GpuHealth
from fairlead_agent.metrics.facts import Xids
from fairlead_schemas.samples import GpuSample


def with_health(samples: Iterable[GpuSample], gpus: Iterable[GpuHealth], xids: Mapping[str, Xids]) -> list[GpuSample]:
    """The same samples. Of a GPU that nobody has looked at yet, and of MIG instances, nothing is known. `xids`: {UUID: those that
    it had}."""
    known = {gpu.uuid: gpu for gpu in gpus}
    return [
        _told(sample, known[sample.uuid], xids.get(sample.uuid, Xids())) if sample.uuid in known else sample
        for sample in samples
    ]


def _told(sample: GpuSample, health: GpuHealth, xids: Xids) -> GpuSample:
    held = health.slowdowns
    return msgspec.structs.replace(
        sample, ecc_correctable=health.ecc_volatile_correctable, ecc_uncorrectable=health.ecc_volatile_uncorrectable,
        slowdowns=None if held is None else sum(SLOWDOWNS[each] for each in held), xid=xids.newest, xids=xids.total,
    )  # fmt: skip
