"""Samples' contents for the watched runs, since this process started. They are in no log: after a restart the watch begins
empty, so that no run counts as idle before it was watched for the whole time. Start at `Watch`.

Its memory is a few integers for each node and signal of each watched run, for any length of time.
"""

from collections.abc import Iterable

from fairlead_schemas.policies.idle import IdleSignal
from fairlead_schemas.wire.samples import SampleBatch
from fairlead_telemetry.idle.idle_windows import over_parts
from fairlead_telemetry.idle.limits import FUTURE_NS, LATE_NS
from fairlead_telemetry.idle.questions import Answer, Question, Reading
from fairlead_telemetry.idle.sample_readings import NodeReading, read
from fairlead_telemetry.idle.watched import Watched


class Watch:
    """Follows what is asked, takes batches, answers."""

    def __init__(self) -> None:
        self._questions: list[Question] = []
        #: {node: {"<job>.<attempt>": its part there}}
        self._nodes: dict[str, dict[str, Watched]] = {}
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

    def follow(self, questions: Iterable[Question]) -> None:
        """Replace all questions by these. Readings of the same run stay; those of other runs are dropped."""
        self._questions = list(questions)
        nodes: dict[str, dict[str, Watched]] = {}
        for question in self._questions:
            run = f"{question.job}.{question.attempt}"
            for node, devices in question.parts:
                runs = nodes.setdefault(node, {})
                if run not in runs:
                    known = self._nodes.get(node, {}).get(run)
                    runs[run] = known or Watched(run, devices, question.started_ns)
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
        node = read(batch)
        if self._asks_power:
            self._learn_rest(node)
        for watched in self._nodes.get(batch.node, {}).values():
            watched.take(node, self._rest_mw)

    def _learn_rest(self, node: NodeReading) -> None:
        for uuid, gpu in node.gpus.items():
            if gpu.is_free and gpu.power_mw is not None:
                self._rest_mw[uuid] = min(gpu.power_mw, self._rest_mw.get(uuid, gpu.power_mw))

    def answers(self, now_ns: int) -> list[Answer]:
        """Return the answers for every run that counts as idle, and for those that could be."""
        return [
            Answer(question.job, question.attempt, question.rule, self._readings(question, now_ns))
            for question in self._questions
            if question.is_idle or self._could(question, now_ns)
        ]

    def _parts(self, question: Question) -> list[Watched]:
        run = f"{question.job}.{question.attempt}"
        return [self._nodes[node][run] for node, _ in question.parts]

    def _could(self, question: Question, now_ns: int) -> bool:
        """Most runs are busy by the first signal that is looked at."""
        parts = self._parts(question)
        return all(
            part.could(signal, threshold, question.after_ns, now_ns)
            for signal, threshold in question.below.items()
            for part in parts
        )

    def _readings(self, question: Question, now_ns: int) -> dict[IdleSignal, Reading]:
        parts, found = self._parts(question), dict[IdleSignal, Reading]()
        for signal in question.below:
            reading = over_parts([part.reading(signal, now_ns) for part in parts])
            if reading is not None:
                found[signal] = reading
        return found
