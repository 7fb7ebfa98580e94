"""Estimates folded from the log: both cores, the history, and the ledger at one sequence. Pure.

core.evolve(sequence, commit)
core.answer(Question(submit=command), now_ns)
core.ledger.entries
"""

from typing import NamedTuple

import msgspec

from fairlead_placer.core import PlacerCore
from fairlead_queue.core import QueueCore
from fairlead_replay.estimates.calibration import FUTURES_WAY, ForecastShape, Kind, StartInterval, size_of, spread_of
from fairlead_replay.estimates.forecast import FUTURES, NEVER_NS, WORK_MAX, Forecast, Forecaster
from fairlead_replay.estimates.futures import ClusterMoment, Question, TwoCores
from fairlead_replay.estimates.history import ClusterHistory
from fairlead_replay.estimates.ledger import EstimateEntry, EstimateLedger, Quantiles, quantiles_of
from fairlead_schemas.units.ids import array_of
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import Commit
from fairlead_schemas.wire.resources import Request

#: "At once" is true for a start within this.
AT_ONCE_NS = 10 * SECOND_NS
#: Shape of the kept state: another one is folded anew.
SHAPE = 2


class SaidStart(NamedTuple):
    """What is said of a start."""

    forecast: Forecast
    #: None: no interval can be given, `forecast.unknown` says why.
    interval: StartInterval | None
    kind: Kind = Kind("", "", False)
    shape: ForecastShape = ForecastShape(0.0, 1.0)
    #: {baseline: its three quantiles}
    baselines: dict[str, Quantiles] = {}
    #: {way of estimating: the wait that it says}
    middles_ns: dict[str, int] = {}


class EstimatorCore:
    """State at a sequence of the log."""

    def __init__(self, *, keeps_ledger: bool = True) -> None:
        self.cluster = TwoCores()
        self.history = ClusterHistory()
        self.ledger = EstimateLedger()
        self._keeps_ledger = keeps_ledger
        #: Hash of the log's first commit: futures are drawn from it.
        self.seed = ""

    @property
    def sequence(self) -> int:
        """Sequence of the newest commit."""
        return self.cluster.sequence

    def evolve(self, sequence: int, commit: Commit) -> None:
        """Fold the next commit, and work out what would have been said of its submits."""
        self.seed = self.seed or f"{commit.writer}:{commit.at_ns}"
        self.cluster.evolve(sequence, commit)
        self.history.take(commit)
        self.ledger.pass_time(commit.at_ns)
        for event in commit.events:
            match event:
                case ev.JobSubmitted():
                    if self._keeps_ledger and self.ledger.samples(commit.at_ns):
                        self._keep(event, commit.at_ns)
                case ev.JobPlaced():
                    nodes = tuple([part.node for part in event.parts])
                    for each in sorted({event.job, array_of(event.job) or event.job}):
                        self.ledger.started(each, nodes, commit.at_ns + self.history.start_ns)
                case ev.JobCancelled():
                    self.ledger.ended(event.job, "cancelled", commit.at_ns)
                case ev.JobFailed() | ev.JobSucceeded():
                    self.ledger.ended(event.job, "ended", commit.at_ns)
                case _:
                    pass

    # ------------------------------------------------------------------ questions

    def forecaster(self, now_ns: int = 0) -> Forecaster:
        """Return who answers questions about the present state."""
        return Forecaster(ClusterMoment(self.cluster, now_ns), self.cluster.queue.state, self.history, self.seed)

    def answer(
        self,
        question: Question,
        now_ns: int = 0,
        *,
        forecaster: Forecaster | None = None,
        futures: int = FUTURES,
        work_max: int = WORK_MAX,
    ) -> SaidStart:
        """SaidStart one question."""
        asked = forecaster or self.forecaster(now_ns)
        forecast = asked.forecast(question, futures=futures, work_max=work_max)
        if forecast.unknown or not forecast.waits_ns:
            return SaidStart(forecast, None)
        queue, request = self._asked(question)
        if forecast.at_once:
            high_ns = forecast.wait_ns(1.0) + AT_ONCE_NS
            return SaidStart(forecast, StartInterval(0, forecast.wait_ns(0.5), high_ns, False))
        kind = Kind(request.pool, size_of(request.gpu_milli_total), self.cluster.queue.state.in_line > 1)
        baselines = asked.baselines(question)
        quantiles = self.ledger.queue_quantiles(queue)
        if quantiles is not None:
            baselines["queue_quantile"] = quantiles
        middles = {way: found[1] for way, found in baselines.items() if found[1] < NEVER_NS}
        middles[FUTURES_WAY] = forecast.wait_ns(0.5)
        calibrator = self.ledger.calibrator
        shape = ForecastShape(calibrator.blend(queue, middles), spread_of(forecast))
        interval = calibrator.interval(kind, queue, shape, forecast)
        return SaidStart(forecast, interval, kind, shape, baselines, middles)

    def _asked(self, question: Question) -> tuple[str, Request]:
        if question.submit is not None:
            return question.submit.queue, question.submit.request
        facts = self.history.facts_of(question.job)
        return (facts.queue, facts.request) if facts is not None else ("", Request())

    # ------------------------------------------------------------------ ledger

    def _keep(self, event: ev.JobSubmitted, at_ns: int) -> None:
        """Work out what a dry run would have said of a submit. It is in line already, so it is asked about as it waits there."""
        question = Question(job=event.job)
        forecaster = self.forecaster(at_ns)
        said = self.answer(question, at_ns, forecaster=forecaster)
        entry = EstimateEntry(
            event.job,
            event.user,
            event.queue,
            event.request.pool,
            self.sequence,
            at_ns,
            said.forecast.basis,
            said.forecast.futures,
            said.forecast.at_once,
            said.forecast.nodes,
            said.forecast.unknown or ("" if said.interval is not None else "never"),
        )
        if said.interval is not None:
            entry.said_ns, entry.wide = quantiles_of(said.interval), said.interval.wide
            entry.kind, entry.shape = said.kind, said.shape
            entry.baselines, entry.middles_ns = said.baselines, said.middles_ns
        self.ledger.add(entry)

    # ------------------------------------------------------------------ kept state

    def dump(self) -> bytes:
        """Return the whole state, to go on from."""
        state = {
            "shape": [SHAPE, QueueCore.schema, PlacerCore.schema],
            "sequence": self.sequence,
            "at_ns": self.cluster.at_ns,
            "seed": self.seed,
            "queue": self.cluster.queue.snapshot(),
            "placer": self.cluster.placer.snapshot(),
            "history": self.history.dump(),
            "ledger": self.ledger.dump(),
        }
        return msgspec.msgpack.encode(state)

    @classmethod
    def load(cls, dumped: bytes, *, keeps_ledger: bool = True) -> "EstimatorCore":
        """The inverse of `dump`. Raises msgspec.MsgspecError, or ValueError for another shape."""
        found = msgspec.msgpack.decode(dumped, type=_Dumped)
        if found.shape != [SHAPE, QueueCore.schema, PlacerCore.schema]:
            raise ValueError(f"expected a state of shape {SHAPE}, found {found.shape}")
        self = cls(keeps_ledger=keeps_ledger)
        self.cluster.queue = QueueCore.restore(found.queue)
        self.cluster.placer = PlacerCore.restore(found.placer)
        self.cluster.sequence, self.cluster.at_ns, self.seed = found.sequence, found.at_ns, found.seed
        self.history = ClusterHistory.load(found.history)
        self.ledger = EstimateLedger.load(found.ledger)
        return self


class _Dumped(msgspec.Struct):
    shape: list[int | str]
    sequence: int
    at_ns: int
    seed: str
    queue: bytes
    placer: bytes
    history: dict[str, object]
    ledger: dict[str, object]
