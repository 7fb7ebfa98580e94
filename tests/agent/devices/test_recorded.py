"""Recordings: taken through NVML (played here), written, read strictly, and replayed."""

import sys
from pathlib import Path

import msgspec
import pytest

from fairlead_agent.devices import recorded as recording_program
from fairlead_agent.devices.nvml import NvmlDevices
from fairlead_agent.devices.port import DevicesUnfit, Xid
from fairlead_agent.devices.recorded import (
    BadRecording,
    RecordedDevices,
    Recording,
    read_recording,
    record,
    write_recording,
)
from fairlead_schemas.wire.desired import LayoutOrder
from fairlead_schemas.wire.resources import MigPlace
from tests.agent.devices.mig_driver import MigDriver
from tests.agent.devices.played_nvml import PlayedNvml


class Clock:
    """Time passes by sleeping."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def recorded(directory: Path, driver: PlayedNvml, seconds: int = 3) -> Recording:
    """A frame a second; in the second one a GPU falls off the bus, with an XID."""
    clock, devices = Clock(), NvmlDevices(driver, sys=directory)

    def sleep(pause_s: float) -> None:
        clock.sleep(pause_s)
        driver.running = {0: {17: int(1000 * (clock.now - 50))}}
        if clock.now == 51:
            driver.lost, driver.events = {1}, [(1, 79)]

    return record(
        devices, seconds, 1, "played", mig=devices.mig_tables(), recorded_on="2026-01-01", clock=clock, sleep=sleep
    )


def test_a_recording_contains_all_answers(tmp_path: Path) -> None:
    """Its bytes hold all of them; health is in the first frame, and holds until the next one that has it."""
    made = recorded(tmp_path, PlayedNvml())
    assert read_recording(write_recording(made)) == made
    assert write_recording(made) == write_recording(read_recording(write_recording(made)))
    assert [frame.at_ms for frame in made.frames] == [0, 1000, 2000]
    assert [[each.uuid for each in frame.samples] for frame in made.frames] == [
        ["GPU-0", "GPU-1"],
        ["GPU-0"],
        ["GPU-0"],
    ]
    assert [[each.code for each in frame.xids] for frame in made.frames] == [[], [79], []]
    assert [frame.samples[0].memory_used_mib for frame in made.frames] == [4, 1004, 2004]
    assert (made.devices, made.labels["nvidia.com/gpu.count"]) == ("nvml", "2")


def test_a_recording_is_replayed_in_a_loop(tmp_path: Path) -> None:
    """Recorded measurements with the current runs; each XID once a round; it reports that the machine is not this one."""
    clock = Clock()
    devices = RecordedDevices(recorded(tmp_path, PlayedNvml()), clock=clock)
    seen = []
    for _ in range(7):
        samples = devices.sample({"GPU-0": "7.1"})
        seen.append((samples[0].memory_used_mib, samples[0].run, len(samples), devices.xids()))
        clock.sleep(1)
    lost = [Xid(uuid="GPU-1", code=79)]
    whole = [(4, "7.1", 2, []), (1004, "7.1", 1, lost), (2004, "7.1", 1, [])]
    assert seen == [*whole, *whole, whole[0]]
    clock.sleep(3000)
    assert devices.xids() == lost, "no more than one round of them"
    assert (devices.simulated, devices.labels()["fairlead/simulated"]) == (True, "true")
    assert devices.busy(["GPU-0", "GPU-9"]) == {"GPU-9": "this node has no such GPU"}


def test_a_gpu_that_was_ill_then_is_ill_now(tmp_path: Path) -> None:
    """Health is replayed, and what was lost is not free."""
    opened = NvmlDevices(PlayedNvml(), sys=tmp_path)
    opened._nvml.lost = {1}
    made = record(opened, 0, 1, "", mig={}, recorded_on="2026-01-01", sleep=lambda _: None)
    devices = RecordedDevices(made)
    assert [each.lost for each in devices.health()] == [False, True]
    assert devices.busy(["GPU-0", "GPU-1"]) == {"GPU-1": "the GPU does not answer: GPU is lost"}


def test_a_recorded_gpu_is_partitioned_as_its_driver_allowed(tmp_path: Path) -> None:
    """The tables are in the recording; an unlisted place is refused, and the former instances restored."""
    opened = NvmlDevices(MigDriver(), sys=tmp_path)
    made = record(opened, 0, 1, "", mig=opened.mig_tables(), recorded_on="2026-01-01", sleep=lambda _: None)
    assert {each.profile: (each.starts, each.size) for each in made.mig["GPU-0"]}["3g.20gb"] == ((0, 4), 4)
    devices = RecordedDevices(read_recording(write_recording(made)))
    layout = LayoutOrder(gpu="GPU-0", plan=1, create=(MigPlace(profile="3g.20gb", start=4),))
    assert devices.cut(layout) == ""
    assert [each.profile for each in devices.gpus()[0].instances] == ["3g.20gb"]
    wrong = LayoutOrder(gpu="GPU-0", plan=2, create=(MigPlace(profile="2g.10gb", start=1),))
    assert devices.cut(wrong) == "2g.10gb at 1: Not Supported (recorded)"
    assert [each.profile for each in devices.gpus()[0].instances] == ["3g.20gb"]


@pytest.mark.connected
def test_the_program_writes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The adapter loads it; without a driver the program prints the reason and writes none."""
    out = tmp_path / "machine.json"
    monkeypatch.setattr(sys, "argv", ["record", "--seconds", "0", "--out", str(out), "--note", "a test"])
    assert recording_program.main(PlayedNvml()) == 0
    assert capsys.readouterr().out == f"2 GPUs, 1 frames: {out}\n"
    assert [gpu.uuid for gpu in RecordedDevices.load(out).gpus()] == ["GPU-0", "GPU-1"]
    out.unlink()
    without = PlayedNvml()
    del without.answers["nvmlInit"]
    assert recording_program.main(without) == 1
    assert "nothing to record: NVML cannot be used" in capsys.readouterr().err
    assert not out.exists()


def test_a_bad_recording_is_refused_with_its_place(tmp_path: Path) -> None:
    """Also as a setting of an agent."""
    made = msgspec.json.decode(write_recording(recorded(tmp_path, PlayedNvml())))
    for broken, expected in (
        ({**made, "version": 2}, r"\$.version"),
        ({**made, "frames": []}, r"\$.frames"),
        ({**made, "frames": made["frames"][::-1]}, "by rising time"),
        ({**made, "gpus": made["gpus"][:1]}, r"expected a GPU of the recording, found GPU-1 - at `\$.frames\[0\]`"),
        ({**made, "colour": 1}, "colour"),
    ):
        with pytest.raises(BadRecording, match=expected):
            read_recording(msgspec.json.encode(broken))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(DevicesUnfit, match=r"FAIRLEAD_RECORDING: .*bad.json cannot be replayed"):
        RecordedDevices.load(tmp_path / "bad.json")
