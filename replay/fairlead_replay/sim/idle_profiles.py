"""Scripted devices: a run's samples over time and the times when it is alive, from tables (tests/data/README.md).

A table's row holds from its second to the next row's. The last row ends the table, and playback starts over.
"""

import csv
from bisect import bisect_right
from pathlib import Path
from random import Random
from typing import NamedTuple

from fairlead_schemas.wire.samples import GpuSample, RunResources, SampleBatch

SECOND_NS = 1_000_000_000
#: Numbers are not as smooth as a table.
JITTER = 0.15


class Moment(NamedTuple):
    """Row of a profile's table."""

    second: int
    gpu_pct: int
    memory_pct: int
    power_w: int
    links_kb_s: int
    cpu_milli: int
    network_kb_s: int
    disk_kb_s: int
    typing: int
    alive: int


class Profile:
    """Scripted behaviour of one kind of run."""

    def __init__(self, name: str, moments: list[Moment]) -> None:
        self.name, self.moments = name, moments
        self.length_s = moments[-1].second
        self._seconds = [each.second for each in moments]

    def at(self, second: float) -> Moment:
        """Return the row that holds this many seconds after the run's start."""
        return self.moments[bisect_right(self._seconds, second % self.length_s) - 1]


def load(directory: Path) -> dict[str, Profile]:
    """{name: profile} of all tables in a directory. Raises ValueError that names the file and the field."""
    found: dict[str, Profile] = {}
    for path in sorted(directory.glob("*.csv")):
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        try:
            moments = [Moment(**{field: int(row[field]) for field in Moment._fields}) for row in rows]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: expected whole numbers in the columns {', '.join(Moment._fields)}: {error}"
            ) from error
        if len(moments) < 2 or moments[0].second or [m.second for m in moments] != sorted({m.second for m in moments}):
            raise ValueError(f"{path}: second: expected two or more rows that rise from 0")
        found[path.stem] = Profile(path.stem, moments)
    if not found:
        raise ValueError(f"{directory}: expected tables (*.csv) of devices, found none")
    return found


class Player:
    """Run on one GPU of its own node, and the samples of the node's agent."""

    def __init__(self, job: str, profile: Profile, began_ns: int, rng: Random) -> None:
        self.job, self.profile, self.began_ns, self.rng = job, profile, began_ns, rng
        self.node, self.uuid = f"n{job}", f"GPU-n{job}-0"
        self._n = self._at_ns = self._cpu_ms = self._network = self._disk = self._typed_ns = 0

    def at(self, now_ns: int) -> Moment:
        """Return the profile's row that holds at this time."""
        return self.profile.at((now_ns - self.began_ns) / SECOND_NS)

    def sample(self, now_ns: int) -> SampleBatch:
        """Return the node's sample batch for this time. Counters have risen since the previous sample."""
        self._n += 1
        moment, passed_s = self.at(now_ns), max(0, now_ns - (self._at_ns or now_ns)) / SECOND_NS
        self._at_ns = now_ns
        self._cpu_ms += int(self._about(moment.cpu_milli) * passed_s)
        self._network += int(self._about(moment.network_kb_s * 1000) * passed_s)
        self._disk += int(self._about(moment.disk_kb_s * 1000) * passed_s)
        if moment.typing:
            self._typed_ns = now_ns
        run = f"{self.job}.1"
        gpu = GpuSample(
            uuid=self.uuid, run=run, utilization_pct=min(100, self._about(moment.gpu_pct)), memory_used_mib=20_000,
            memory_busy_pct=min(100, self._about(moment.memory_pct)), power_mw=self._about(moment.power_w * 1000),
            pcie_tx_bytes_s=self._about(moment.links_kb_s * 500), pcie_rx_bytes_s=self._about(moment.links_kb_s * 500),
        )  # fmt: skip
        rank = RunResources(
            run=run, cpu_ms=self._cpu_ms, network_rx_bytes=self._network, network_tx_bytes=0, disk_read_bytes=self._disk,
            disk_written_bytes=0, terminal_ns=self._typed_ns,
        )  # fmt: skip
        return SampleBatch(
            node=self.node, incarnation="sim", n=self._n, at_ns=now_ns, gpus=[gpu], resources=[rank], simulated=True
        )

    def _about(self, value: int) -> int:
        return round(value * self.rng.uniform(1 - JITTER, 1 + JITTER))
