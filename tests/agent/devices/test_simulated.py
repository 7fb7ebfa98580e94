"""Scenarios of simulated devices: their times, a reload while they run, and usage files of programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead_agent.devices.port import DevicesUnfit, GpuProcess
from fairlead_agent.devices.script import BadScript, read_script, value_at
from fairlead_agent.devices.simulated import SimulatedDevices
from fairlead_agent.devices.simulated_use import SimulatedUse, read_uses
from fairlead_schemas.wire.desired import LayoutOrder


class Play:
    """Devices over a script that a test writes, at a time that it sets."""

    def __init__(self, directory: Path, text: str = "", suffix: str = "toml") -> None:
        self.now = 1000.0
        self.file = directory / f"play.{suffix}"
        self.reports = directory / "told"
        self.writes = 0
        self.write(text)
        self.devices = SimulatedDevices(
            "n1", "dgx-a100", clock=lambda: self.now, script=self.file, reports=self.reports
        )
        self.uuids = [gpu.uuid for gpu in self.devices.gpus()]

    def write(self, text: str) -> None:
        """Another script, of another time."""
        self.file.write_text(text)
        self.writes += 1
        os.utime(self.file, ns=(self.writes * 10**9, self.writes * 10**9))

    def sample(self, index: int = 0, run: str = "") -> dict[str, int | str]:
        """Build the measurements of a GPU; omitted values are unknown."""
        found = self.devices.sample({self.uuids[index]: run} if run else {})
        return next(
            (
                {name: getattr(each, name) for name in each.__struct_fields__}
                for each in found
                if each.uuid == self.uuids[index]
            ),
            {},
        )


def test_a_curve_is_played_between_its_points(tmp_path: Path) -> None:
    """Straight lines; the last value stays; only on its GPUs."""
    play = Play(tmp_path, '[[curve]]\ngpus = [1]\nwhat = "utilization_pct"\npoints = [[10, 0], [20, 90], [30, 40]]')
    seen: list[object] = []
    for second in (0, 10, 15, 20, 25, 99):
        play.now = 1000.0 + second
        seen.append(play.sample(1)["utilization_pct"])
    assert seen == [0, 0, 45, 90, 65, 40]
    assert play.sample(0)["utilization_pct"] == 0
    assert [value_at(((0, 1), (5, 9), (5, 3)), second) for second in (4.99, 5, 6)] == [9, 3, 3]


def test_times_may_count_from_a_runs_start(tmp_path: Path) -> None:
    """From the moment when it took the GPU; the scenario ends with the run, and starts again with the next."""
    play = Play(tmp_path, '[[curve]]\nsince = "run"\nfrom = 5\nwhat = "temperature_c"\npoints = [[0, 95]]')
    play.now += 100
    assert [play.sample(run="7.1")["temperature_c"] == 95, play.sample()["temperature_c"]] == [False, 32]
    play.sample(run="7.1")
    play.now += 5
    assert play.sample(run="7.1")["temperature_c"] == 95
    assert play.sample(run="8.1")["temperature_c"] != 95
    assert play.sample()["temperature_c"] == 32


def test_facts_of_health_are_so_for_a_while(tmp_path: Path) -> None:
    """Throttling, ECC and rows in the words of the port; the rest stays well."""
    play = Play(
        tmp_path,
        """
        [[health]]
        gpus = [0]
        from = 10
        until = 20
        facts = { slowdowns = ["hw_thermal", "power_cap"], temperature_c = 93 }
        [[health]]
        gpus = [0]
        from = 15
        facts = { ecc_volatile_uncorrectable = 3, remap_pending = true, recovery = "gpu_reset" }
        """,
    )
    reports: list[tuple[object, ...]] = []
    for second in (0, 10, 15, 20):
        play.now = 1000.0 + second
        each = play.devices.health()[0]
        reports.append(
            (each.slowdowns, each.temperature_c, each.ecc_volatile_uncorrectable, each.remap_pending, each.recovery)
        )
    hot = ("hw_thermal", "power_cap")
    assert reports == [
        ((), 32, 0, False, "none"),
        (hot, 93, 0, False, "none"),
        (hot, 93, 3, True, "gpu_reset"),
        ((), 32, 3, True, "gpu_reset"),
    ]
    assert play.devices.health()[1].remap_pending is False


def test_a_lost_gpu_answers_nothing(tmp_path: Path) -> None:
    """Every question about it fails, until it is back; it stays in the inventory."""
    play = Play(
        tmp_path, "[[lost]]\ngpus = [3]\nfrom = 1\nuntil = 2\n[[process]]\ngpus = [3]\npid = 9\nmemory_mib = [[0, 8]]"
    )
    assert [each.pid for each in play.devices.processes()] == [9]
    play.now += 1
    assert play.sample(3) == {}
    assert len(play.devices.sample({})) == 7
    assert (play.devices.health()[3].lost, play.devices.health()[3].why) == (True, "GPU is lost")
    assert play.devices.busy([play.uuids[3]]) == {play.uuids[3]: "the GPU does not answer: GPU is lost"}
    assert play.devices.processes() == []
    assert play.devices.cut(LayoutOrder(gpu=play.uuids[3], plan=1, mode="on")) == "MIG mode: GPU is lost"
    assert len(play.devices.gpus()) == 8
    play.now += 1
    assert (play.sample(3) != {}, play.devices.health()[3].lost) == (True, False)


def test_an_xid_occurs_once_and_those_of_runs_once_for_each(tmp_path: Path) -> None:
    """In the order of their times, whenever they are read."""
    play = Play(
        tmp_path, '[[xid]]\ngpus = [0]\nfrom = 5\ncode = 79\n[[xid]]\ngpus = [0]\nsince = "run"\nfrom = 1\ncode = 13'
    )
    assert play.devices.xids() == []
    play.now += 10
    assert [(each.uuid, each.code) for each in play.devices.xids()] == [(play.uuids[0], 79)]
    codes: list[list[int]] = []
    for run in ("7.1", "8.1"):
        play.sample(run=run)
        play.now += 1
        codes += [[each.code for each in play.devices.xids()] for _ in range(2)]
    assert codes == [[13], [], [13], []]


def test_memory_stays_after_a_runs_end(tmp_path: Path) -> None:
    """Like memory of a process that hangs in the driver: busy from the first query, for the given time, and measured."""
    play = Play(tmp_path, "[[zombie]]\ngpus = [0]\nmemory_mib = 9000\nseconds = 30")
    play.sample(run="7.1")
    seen: list[bool] = []
    for second in (0, 29, 30, 40):
        play.now = 1010.0 + second
        seen.append(bool(play.devices.busy([play.uuids[0]])))
        if second == 29:
            assert play.sample()["memory_used_mib"] == 9004
    assert seen == [True, True, False, False]
    assert play.devices.busy(play.uuids[1:2]) == {}
    play.sample(run="8.1")
    assert play.devices.busy(play.uuids[:1]) == {play.uuids[0]: "9000 MiB in use without a process (simulated)"}


def test_a_scenario_is_reloaded_when_it_changes(tmp_path: Path) -> None:
    """So faults can be injected by hand; an unreadable file changes nothing; a removed one ends the scenario."""
    play = Play(tmp_path)
    assert play.devices.xids() == []
    play.write("[[xid]]\ngpus = [0]\ncode = 48\n[[lost]]\ngpus = [1]")
    assert [each.code for each in play.devices.xids()] == [48]
    play.write("[[xid]]\ngpus = [0]\ncode = 48\n[[lost]]\ngpus = [1]\n# touched")
    assert play.devices.xids() == [], "it was told"
    play.write("[[xid")
    assert play.devices.health()[1].lost
    play.file.unlink()
    assert not play.devices.health()[1].lost


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[[curve]]\nwhat = "colour"\npoints = [[0, 1]]', "colour"),
        ('[[curve]]\nwhat = "power_mw"\npoints = []', r"\$.curve\[0\].points"),
        ('[[curve]]\nwhat = "power_mw"\npoints = [[0, -1]]', r"\$.curve\[0\].points"),
        ("[[xid]]\ncode = 0", r"\$.xid\[0\].code"),
        ("[[xid]]\ncode = 79\nwhen = 3", "when"),
        ("[[xid]]\ncode = 79\ngpus = [8]", r"expected GPUs below 8, found 8 - at `\$.xid\[0\].gpus`"),
        ("[[lost]]\nfrom = 5\nuntil = 5", "expected `until` after `from`"),
        ("[[health]]\nfacts = { temperature = 90 }", r"temperature.*\$.health\[0\].facts"),
        ('[[health]]\nfacts = { slowdowns = ["tired"] }', r"\$.health\[0\].facts"),
        ("[[process]]\npid = 1", "memory_mib"),
        ("[[zombie]]\nmemory_mib = 1\nseconds = 1\nfrom = 3", "from"),
        ("[fire]", "fire"),
        ("[[xid", "xid|end of"),
    ],
)
def test_a_bad_scenario_is_refused_with_its_place(tmp_path: Path, text: str, expected: str) -> None:
    """At the start, so that a user does not rely on it."""
    with pytest.raises(BadScript, match=expected):
        read_script(text.encode(), toml=True, gpus=8)
    with pytest.raises(DevicesUnfit, match="FAIRLEAD_SIMULATION"):
        Play(tmp_path, text)


def test_a_script_may_be_json(tmp_path: Path) -> None:
    """The same words."""
    play = Play(tmp_path, json.dumps({"xid": [{"code": 94, "gpus": [2]}]}), "json")
    assert [(each.uuid, each.code) for each in play.devices.xids()] == [(play.uuids[2], 94)]


def test_programs_say_what_they_use_while_they_live(tmp_path: Path) -> None:
    """Of GPUs that are there; what cannot be read says nothing; a dead one's file goes."""
    play = Play(tmp_path)
    own = play.reports / str(os.getpid())
    own.write_text(f"{play.uuids[0]} 700\nGPU-nobody 5\n{play.uuids[1]} many\nhalf")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (play.reports / str(dead.pid)).write_text(f"{play.uuids[0]} 9")
    (play.reports / "note").write_text("x")
    assert play.devices.processes() == [GpuProcess(uuid=play.uuids[0], pid=os.getpid(), memory_mib=700)]
    assert sorted(path.name for path in play.reports.iterdir()) == sorted([str(os.getpid()), "gpus.json", "note"])
    assert play.sample()["memory_used_mib"] == 704
    assert play.devices.busy(play.uuids[:1]) == {play.uuids[0]: f"processes on it: {os.getpid()}"}
    assert read_uses(tmp_path / "nothing") == {}


def test_programs_say_how_busy_they_keep_a_gpu(tmp_path: Path) -> None:
    """Instead of what is played for a held one; several come to 100 at most, and power goes with it."""
    play = Play(tmp_path)
    own = play.reports / str(os.getpid())
    own.write_text(f"{play.uuids[0]} 700 3%\n{play.uuids[1]} 700 101x\n")
    assert play.devices.processes() == [
        GpuProcess(uuid=play.uuids[0], pid=os.getpid(), memory_mib=700, utilization_pct=3)
    ]
    assert (play.sample()["utilization_pct"], play.sample()["power_mw"]) == (3, 61_000)
    (play.reports / str(os.getppid())).write_text(f"{play.uuids[0]} 5 99%")
    assert (play.sample()["utilization_pct"], play.sample()["memory_used_mib"]) == (100, 709)
    own.write_text(f"{play.uuids[0]} 700")
    assert read_uses(own) == {play.uuids[0]: SimulatedUse(700)}


def test_a_directory_without_processes_is_listed_again_only_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while it is as it was for a while; a process that appears is seen at the next look."""
    play = Play(tmp_path)
    listed: list[Path] = []
    listing = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda self: (listed.append(self), listing(self))[1])
    assert play.devices.processes() == []
    assert len(listed) == 1
    assert play.devices.processes() == []
    assert len(listed) == 2, "a change within the same step of the clock would not be seen"
    os.utime(play.reports, (1000, 1000))
    for _ in range(3):
        assert play.devices.processes() == []
    assert len(listed) == 3
    (play.reports / str(os.getpid())).write_text(f"{play.uuids[0]} 5000\n")
    assert [each.memory_mib for each in play.devices.processes()] == [5000]
    (play.reports / str(os.getpid())).write_text(f"{play.uuids[0]} 6000\n")
    assert [each.memory_mib for each in play.devices.processes()] == [6000]
