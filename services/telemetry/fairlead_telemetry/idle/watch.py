"""Samples' contents for the watched runs, since this process started. They are in no log: after a restart the watch begins
empty, so that no run counts as idle before it was watched for the whole time. Start at `Watch`.

Its memory is a few integers for each node and signal of each watched run, for any length of time.

Observed state of one node's part of a run: its signals' stretches, its counters, and when a person was present.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fairlead_schemas.policies.idle import IdleSignal
from fairlead_schemas.wire.samples import SampleBatch
from fairlead_telemetry.idle.idle_windows import IdleWindow, RisingCounter, over_parts
from fairlead_telemetry.idle.limits import FUTURE_NS, LATE_NS, UNSEEN_NS
from fairlead_telemetry.idle.questions import ActivityAnswer, ActivityQuestion, SignalReading
from fairlead_telemetry.idle.sample_readings import GpuReading, NodeReading, RunReading, read_batch
from fairlead_telemetry.idle.scopes import PRESENCE

_OF_GPUS = frozenset(("gpu", "memory_traffic", "power", "gpu_links"))
_KIB = 1024


class UserPresence(NamedTuple):
    """Presence of a person: the last time, the time of the last report, and the number of reports."""

    last_ns: int
    heard_ns: int
    times: int


class PartWatch:
    """Takes a node's readings in the order of their times, of whichever signals are asked about."""

    def __init__(self, run: str, devices: tuple[str, ...], started_ns: int) -> None:
        self.run, self.devices, self.started_ns = run, devices, started_ns
        self._heard_ns = 0
        self._stretches: dict[IdleSignal, IdleWindow] = {}
        self._presence: dict[IdleSignal, UserPresence] = {}
        self._counters: dict[str, RisingCounter] = {}

    def ask(self, below: Mapping[IdleSignal, int]) -> None:
        """Follow these signals from here on, by these thresholds."""
        for signal, threshold in below.items():
            if signal in PRESENCE:
                self._presence.setdefault(signal, UserPresence(0, 0, 0))
            elif signal not in self._stretches:
                self._stretches[signal] = IdleWindow(threshold)
            elif self._stretches[signal].threshold != threshold:
                self._stretches[signal].ask(threshold)

    def take(self, node: NodeReading, rest_mw: Mapping[str, int]) -> None:
        """Take the node's report; `rest_mw` is {GPU: power drawn when no run holds it}. A report that is not later is ignored."""
        if node.at_ns <= self._heard_ns:
            return
        self._heard_ns = node.at_ns
        rank = node.runs.get(self.run)
        if rank is not None:
            for signal in self._presence:
                self._somebody(signal, rank, node.at_ns)
        for signal, stretch in self._stretches.items():
            values = self._values(signal, rank, node, rest_mw)
            known = [value for value in values if value is not None]
            if known and len(known) == len(values):
                highest = max(known)
                stretch.add(node.at_ns, highest, sum(known), len(known))
                if highest >= stretch.threshold:
                    return  # one busy signal makes the run busy; the others restart once this one is low, as they must

    def _values(
        self, signal: IdleSignal, rank: RunReading | None, node: NodeReading, rest_mw: Mapping[str, int]
    ) -> list[int | None]:
        """Return the value of each GPU, or of the rank."""
        if signal in _OF_GPUS:
            return [self._of_gpu(signal, uuid, node, rest_mw) for uuid in self.devices]
        return [self._of_rank(signal, rank, node.at_ns) if rank is not None else None]

    def could(self, signal: IdleSignal, threshold: int, after_ns: int, now_ns: int) -> bool:
        """Return True if a signal may show idle. A no is cheap to see here; the reading decides a yes."""
        stretch = self._stretches.get(signal)
        if stretch is not None:
            return 0 < stretch.since_ns <= now_ns - after_ns
        return now_ns - self._presence[signal].last_ns >= max(threshold, after_ns)

    def reading(self, signal: IdleSignal, now_ns: int) -> SignalReading | None:
        """Return the signal's present reading; None where it is missing or stale."""
        if signal not in PRESENCE:
            stretch = self._stretches.get(signal)
            return stretch.reading(now_ns) if stretch is not None else None
        last_ns, heard_ns, times = self._presence.get(signal, UserPresence(0, 0, 0))
        if now_ns - heard_ns > UNSEEN_NS:
            return None
        gone_ns = max(0, now_ns - last_ns)
        return SignalReading(last_ns, gone_ns, gone_ns, times, gone_ns, last_ns)

    def _of_gpu(self, signal: IdleSignal, uuid: str, node: NodeReading, rest_mw: Mapping[str, int]) -> int | None:
        gpu = node.gpus.get(uuid)
        if signal == "gpu":
            share = node.shares.get((uuid, self.run))
            return share if share is not None else gpu.busy_permille if gpu is not None else None
        if gpu is None:
            return None
        if signal == "memory_traffic":
            return gpu.memory_permille
        if signal == "power":
            rest = rest_mw.get(uuid)
            return max(0, gpu.power_mw - rest) if gpu.power_mw is not None and rest is not None else None
        return self._links(uuid, gpu, node.at_ns)

    def _links(self, uuid: str, gpu: GpuReading, at_ns: int) -> int | None:
        """PCIe and, where there is any, NVLink."""
        if gpu.nvlink_kib is None:
            return gpu.pcie_bytes_s
        rate = self._counter(uuid).rate(gpu.nvlink_kib, at_ns, _KIB)
        return rate + gpu.pcie_bytes_s if rate is not None and gpu.pcie_bytes_s is not None else None

    def _of_rank(self, signal: IdleSignal, rank: RunReading, at_ns: int) -> int | None:
        """Milliseconds of CPU per second are milli-CPU; bytes are bytes."""
        value = {"cpu": rank.cpu_ms, "network": rank.network_bytes, "disk": rank.disk_bytes}[signal]
        return self._counter(signal).rate(value, at_ns, 1) if value is not None else None

    def _counter(self, name: str) -> RisingCounter:
        counter = self._counters.get(name)
        if counter is None:
            counter = self._counters[name] = RisingCounter()
        return counter

    def _somebody(self, signal: IdleSignal, rank: RunReading, at_ns: int) -> None:
        """Record a person's presence: at the terminal or, of a run that has none, in its application. Without presence so far, it counts
        from the run's start.
        """
        known = rank.terminal_ns if signal == "terminal" and rank.terminal_ns is not None else rank.proxy_ns
        if known is not None:
            before = self._presence[signal]
            last_ns = max(before.last_ns, known, rank.proxy_ns or 0, self.started_ns)
            self._presence[signal] = UserPresence(last_ns, at_ns, before.times + 1)


class ActivityWatch:
    """Follows what is asked, takes batches, answers."""

    def __init__(self) -> None:
        self._questions: list[ActivityQuestion] = []
        #: {node: {"<job>.<attempt>": its part there}}
        self._nodes: dict[str, dict[str, PartWatch]] = {}
        #: {GPU: its least power draw while no run had it}. GPUs are measured for it only while a policy asks about
        #: power.
        self._rest_mw: dict[str, int] = {}
        self._asks_power = False
        #: Batches of clocks that are far from ours.
        self.untimely = 0

    @property
    def asks(self) -> bool:
        """True if there is anything to watch."""
        return bool(self._questions)

    def follow(self, questions: Iterable[ActivityQuestion]) -> None:
        """Replace all questions by these. Readings of the same run stay; those of other runs are dropped."""
        self._questions = list(questions)
        nodes: dict[str, dict[str, PartWatch]] = {}
        for question in self._questions:
            run = f"{question.job}.{question.attempt}"
            for node, devices in question.parts:
                runs = nodes.setdefault(node, {})
                if run not in runs:
                    known = self._nodes.get(node, {}).get(run)
                    runs[run] = known or PartWatch(run, devices, question.started_ns)
                runs[run].ask(question.below)
        self._nodes = nodes
        self._asks_power = any("power" in question.below for question in self._questions)

    def wants(self, node: str) -> bool:
        """Return True if anything of this node is watched. Otherwise the node's report need not be decoded."""
        return self._asks_power or node in self._nodes

    def take(self, batch: SampleBatch, now_ns: int) -> None:
        """Take a node's measurements. Untimely batches are as good as lost."""
        if not self.wants(batch.node):
            return
        if not now_ns - LATE_NS <= batch.at_ns <= now_ns + FUTURE_NS:
            self.untimely += 1
            return
        node = read_batch(batch)
        if self._asks_power:
            self._learn_rest(node)
        for watched in self._nodes.get(batch.node, {}).values():
            watched.take(node, self._rest_mw)

    def _learn_rest(self, node: NodeReading) -> None:
        for uuid, gpu in node.gpus.items():
            if gpu.is_free and gpu.power_mw is not None:
                self._rest_mw[uuid] = min(gpu.power_mw, self._rest_mw.get(uuid, gpu.power_mw))

    def answers(self, now_ns: int) -> list[ActivityAnswer]:
        """Return the answers for every run that counts as idle, and for those that could be."""
        return [
            ActivityAnswer(question.job, question.attempt, question.rule, self._readings(question, now_ns))
            for question in self._questions
            if question.is_idle or self._could(question, now_ns)
        ]

    def _parts(self, question: ActivityQuestion) -> list[PartWatch]:
        run = f"{question.job}.{question.attempt}"
        return [self._nodes[node][run] for node, _ in question.parts]

    def _could(self, question: ActivityQuestion, now_ns: int) -> bool:
        """Most runs are busy by the first signal that is looked at."""
        parts = self._parts(question)
        return all(
            part.could(signal, threshold, question.after_ns, now_ns)
            for signal, threshold in question.below.items()
            for part in parts
        )

    def _readings(self, question: ActivityQuestion, now_ns: int) -> dict[IdleSignal, SignalReading]:
        parts, found = self._parts(question), dict[IdleSignal, SignalReading]()
        for signal in question.below:
            reading = over_parts([part.reading(signal, now_ns) for part in parts])
            if reading is not None:
                found[signal] = reading
        return found
