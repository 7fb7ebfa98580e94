"""Answers of the estimator as they go over the bus. Pure."""

from collections.abc import Iterable, Iterator

import msgspec

from fairlead_replay.estimates.core import EstimatorCore
from fairlead_replay.estimates.forecast import Forecast, Forecaster
from fairlead_replay.estimates.futures import Question
from fairlead_replay.estimates.ledger import EstimateEntry
from fairlead_replay.estimates.scores import pinball, score
from fairlead_schemas.queries import estimates as q
from fairlead_schemas.units.timestamps import MINUTE_NS
from fairlead_schemas.wire.commands import SubmitJob
from fairlead_schemas.wire.resources import Request

#: Futures and work of each alternative.
FUTURES, WORK_MAX = 4, 300
#: Fewest seconds, and least part of the wait, by which an alternative starts earlier.
EARLIER_NS, EARLIER_PART = MINUTE_NS, 0.1
#: Lengths of which a time limit is proposed that most of them keep.
LENGTHS_MIN = 8
WORST_MAX = 10


def start_answer(core: EstimatorCore, ask: q.AskStart) -> q.EstimatesAnswer:
    """Return what is said of a start."""
    forecaster = core.forecaster(ask.now_ns)
    question = Question(ask.submit, ask.job)
    found = core.answer(question, forecaster=forecaster)
    forecast, interval = found.forecast, found.interval
    if interval is None:
        start = q.StartAnswer(unknown=forecast.unknown or "never")
        return q.EstimatesAnswer(sequence=forecast.sequence, start=start)
    now_ns = forecast.now_ns
    start = q.StartAnswer(
        low_ns=now_ns + interval.low_ns,
        middle_ns=now_ns + interval.middle_ns,
        high_ns=now_ns + interval.high_ns,
        at_once=forecast.at_once,
        nodes=forecast.nodes,
        displaced=tuple([q.Yielder(job=job, rule=rule, futures=times) for job, rule, times in forecast.displaced]),
        futures=forecast.futures,
        basis=forecast.basis,
        like_it=interval.like_it,
        held=interval.held,
        wide=interval.wide,
        sooner=() if forecast.at_once else tuple(_sooner(core, forecaster, question, forecast, ask.queues)),
    )
    return q.EstimatesAnswer(sequence=forecast.sequence, start=start)


def _sooner(
    core: EstimatorCore, forecaster: Forecaster, question: Question, said: Forecast, queues: Iterable[str]
) -> Iterator[q.SoonerStart]:
    """Yield the changes with which it starts earlier, each compared in the same few futures."""
    submit = question.submit or _submit_of(core, question.job)
    if submit is None:
        return
    wait_ns = said.wait_ns(0.5)
    for change, other in _changes(core, submit, queues):
        found = forecaster.forecast(Question(other), futures=FUTURES, work_max=WORK_MAX)
        if found.unknown or wait_ns - found.wait_ns(0.5) < max(EARLIER_NS, EARLIER_PART * wait_ns):
            continue
        yield msgspec.structs.replace(change, start_ns=said.now_ns + found.wait_ns(0.5))


def _changes(
    core: EstimatorCore, submit: SubmitJob, queues: Iterable[str]
) -> Iterator[tuple[q.SoonerStart, SubmitJob]]:
    replace = msgspec.structs.replace
    half = _half(submit.request)
    if half is not None:
        change = q.SoonerStart(kind="smaller", start_ns=0, gpu_milli=half.gpu_milli, nodes=half.nodes)
        yield change, replace(submit, request=half)
    for queue in [each for each in queues if each != submit.queue][: q.QUEUES_MAX]:
        yield q.SoonerStart(kind="other_queue", start_ns=0, queue=queue), replace(submit, queue=queue)
    if not submit.total_ns:
        name = ("name", submit.user, submit.name)
        size = ("queue", submit.queue, str(submit.request.gpu_milli_total))
        lengths = sorted(each.length_ns for each in core.history.lengths.last((name, size), LENGTHS_MIN))
        if lengths:
            limit_ns = -(-lengths[-1] * 5 // 4 // MINUTE_NS) * MINUTE_NS
            yield q.SoonerStart(kind="time_limit", start_ns=0, total_ns=limit_ns), replace(submit, total_ns=limit_ns)


def _half(request: Request) -> Request | None:
    if request.also or request.gpu_parts:
        return None
    if request.nodes > 1:
        least = min(request.nodes_min, request.nodes // 2) if request.nodes_min else 0
        return msgspec.structs.replace(request, nodes=request.nodes // 2, nodes_min=least)
    if request.gpu_milli >= 2000 and request.gpu_milli % 2000 == 0:
        return msgspec.structs.replace(request, gpu_milli=request.gpu_milli // 2)
    return None


def _submit_of(core: EstimatorCore, job: str) -> SubmitJob | None:
    facts = core.history.facts_of(job)
    if facts is None:
        return None
    return SubmitJob(
        id="instead",
        user=facts.user,
        name=facts.name,
        queue=facts.queue,
        request=facts.request,
        spec=msgspec.Raw(b'{"command":["true"]}'),
        total_ns=facts.total_ns,
    )


# ---------------------------------------------------------------------------- the ledger


def ledger_answer(core: EstimatorCore, ask: q.AskLedger) -> q.EstimatesAnswer:
    """Return calibration by queue, the worst estimates, and the newest ones."""
    entries = core.ledger.entries
    scored = core.ledger.scored()
    queues: list[q.QueueCalibration] = []
    for queue in sorted({each.queue for each in entries}):
        own = [each for each in entries if each.queue == queue]
        found = score(queue, [each for each in scored if each.queue == queue])
        at_once = [each for each in own if each.at_once and each.held is not None]
        queues.append(
            q.QueueCalibration(
                queue=queue,
                estimates=found.estimates,
                coverage=found.coverage,
                pinball=found.pinball,
                width=found.width,
                against=found.against,
                at_once=len(at_once),
                at_once_true=sum(bool(each.held) for each in at_once),
                unknown=sum(bool(each.unknown) for each in own),
                waiting=sum(each.outcome == "waiting" for each in own),
            )
        )
    known = [entry_of(each) for each in entries if each.outcome == "started" and not each.unknown and not each.at_once]
    worst = sorted(known, key=lambda each: (-(each.loss or 0), each.job))[:WORST_MAX]
    newest = list(entries)[-ask.entries_max :] if ask.entries_max else []
    ledger = q.LedgerAnswer(
        queues=tuple(queues), worst=tuple(worst), entries=tuple([entry_of(each) for each in reversed(newest)])
    )
    return q.EstimatesAnswer(sequence=core.sequence, ledger=ledger)


def entry_of(entry: EstimateEntry) -> q.LedgerEntry:
    """Return an entry as a row."""
    has_interval = not entry.unknown
    low_ns, middle_ns, high_ns = (entry.at_ns + wait if has_interval else 0 for wait in entry.said_ns)
    is_scored = has_interval and not entry.at_once and entry.outcome == "started"
    return q.LedgerEntry(
        job=entry.job,
        user=entry.user,
        queue=entry.queue,
        pool=entry.pool,
        sequence=entry.sequence,
        at_ns=entry.at_ns,
        basis=entry.basis,
        futures=entry.futures,
        at_once=entry.at_once,
        unknown=entry.unknown,
        low_ns=low_ns,
        middle_ns=middle_ns,
        high_ns=high_ns,
        outcome=entry.outcome,
        over_ns=entry.over_ns,
        held=entry.held,
        nodes=entry.nodes,
        got=entry.got,
        loss=pinball(entry.said_ns, entry.wait_ns) if is_scored else None,
    )
