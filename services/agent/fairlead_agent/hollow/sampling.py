"""Samples of a hollow node: played numbers of its GPUs, on or off as its runs hold them. No bus, no clock."""

import math

from fairlead_agent.devices.played_meters import PlayedMeters, shown
from fairlead_agent.devices.played_mig import instance_samples
from fairlead_agent.hollow.node import HollowNode
from fairlead_schemas.sample_columns import encode_samples
from fairlead_schemas.samples import GpuSample, SampleBatch


class HollowSamples:
    """Numbers the batches of one node."""

    __slots__ = ("_meters", "_n", "_node")

    def __init__(self, node: HollowNode) -> None:
        self._node = node
        self._meters = PlayedMeters()
        self._n = 0

    def next(self, at_ns: int) -> bytes:
        """The bytes of the next batch, as measured at that moment (Unix)."""
        self._n += 1
        second, held, gpus = at_ns / 1e9, self._node.held, list[GpuSample]()
        for gpu in self._node.inventory.gpus:
            run, wave = held.get(gpu.uuid, ""), math.sin(second / 20 + gpu.index)
            fields = shown(gpu, run, wave)
            gpus.append(
                GpuSample(
                    uuid=gpu.uuid, parent="", run=run, **fields, **self._meters.of(gpu, fields, second, linked=True)
                )
            )
            gpus += instance_samples(gpu, held, {}, fields["utilization_pct"])
        return encode_samples(
            SampleBatch(
                node=self._node.name, incarnation=self._node.incarnation, n=self._n, at_ns=at_ns, gpus=gpus, simulated=True,
            )
        )  # fmt: skip
