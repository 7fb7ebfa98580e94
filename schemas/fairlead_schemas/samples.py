"""Samples: what a node measured. Lossy by design; `n` counts batches so that loss can be counted."""

import msgspec

from fairlead_schemas.decoding import decode


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One GPU at one moment."""

    uuid: str
    utilization_pct: int
    memory_used_mib: int
    power_mw: int = 0
    temperature_c: int = 0
    sm_clock_mhz: int = 0
    #: The run that holds the GPU, "" if none: "<job>.<attempt>".
    run: str = ""


class SampleBatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that one node measured at one moment."""

    node: str
    incarnation: str
    n: int
    at_ns: int
    gpus: list[GpuSample] = []
    simulated: bool = False


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(SampleBatch)


def encode_samples(batch: SampleBatch) -> bytes:
    """Bytes of one batch."""
    return _encoder.encode(batch)


def decode_samples(payload: bytes) -> SampleBatch:
    """One batch. Raises msgspec.MsgspecError."""
    return decode(_decoder, payload)
