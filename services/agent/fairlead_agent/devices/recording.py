"""A recording: what a machine's devices answered, as one JSON file. Strict: an unknown word is refused.

Answers are kept in the words of `port.Devices`, not as the driver's bytes, so that a recording outlives a driver; what each
GPU could be cut into is kept besides, because a layout can only be tried where that is known.
"""

from typing import Annotated

import msgspec

from fairlead_agent.devices.facts import GpuHealth, GpuProcess, Xid
from fairlead_schemas.inside import Description
from fairlead_schemas.resources import Gpu
from fairlead_schemas.samples import GpuSample

VERSION = 1


class MigTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One profile that a GPU can be cut into: where it may start, and how many memory slices it takes."""

    profile: str
    starts: tuple[int, ...]
    size: Annotated[int, msgspec.Meta(ge=1)]


class Frame(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One moment. `xids`: those since the frame before."""

    at_ms: Annotated[int, msgspec.Meta(ge=0)]
    samples: tuple[GpuSample, ...] = ()
    health: tuple[GpuHealth, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    xids: tuple[Xid, ...] = ()


class Recording(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine for a while. Frames by rising time."""

    version: Annotated[int, msgspec.Meta(ge=VERSION, le=VERSION)]
    #: Whence: the adapter that was asked, the day, and what a person has to say about it.
    devices: str
    recorded_on: str
    note: str = ""
    gpus: tuple[Gpu, ...]
    inside: Description
    labels: dict[str, str]
    #: {UUID: profiles}, of GPUs that can be cut.
    mig: dict[str, tuple[MigTable, ...]] = {}
    frames: Annotated[tuple[Frame, ...], msgspec.Meta(min_length=1)]


class BadRecording(ValueError):
    """The file is no recording; the message says where and what was expected."""


_decoder = msgspec.json.Decoder(Recording)


def read_recording(data: bytes) -> Recording:
    """A recording, checked. Raises BadRecording."""
    try:
        recording = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise BadRecording(str(error)) from error
    times = [frame.at_ms for frame in recording.frames]
    if times != sorted(times):
        raise BadRecording("expected frames by rising time - at `$.frames`")
    known = {each.uuid for gpu in recording.gpus for each in (gpu, *gpu.instances)}
    for at, frame in enumerate(recording.frames):
        for each in (*frame.samples, *frame.health, *frame.processes, *frame.xids):
            if each.uuid not in known:
                raise BadRecording(f"expected a GPU of the recording, found {each.uuid} - at `$.frames[{at}]`")
    return recording


def write_recording(recording: Recording) -> bytes:
    """Its bytes, with a frame per line: made to be looked at, and to be compared."""
    frames = b",\n  ".join(msgspec.json.encode(frame, order="deterministic") for frame in recording.frames)
    head = msgspec.to_builtins(msgspec.structs.replace(recording, frames=()))
    del head["frames"]
    text = msgspec.json.format(msgspec.json.encode(head, order="deterministic"), indent=1).rstrip()
    return text[:-1].rstrip() + b',\n "frames": [\n  ' + frames + b"\n ]\n}\n"
