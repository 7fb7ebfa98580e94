"""The bill of one month, or of any other time, from sums of stays. Pure.

    pieces = price_periods(span, models, prices)   each model's time, cut where its price changes
    statement(span, by, pieces, sums, …)

A line is what one user (queue, project, job, model, pool) was charged of one model at one price. Its amount is rounded once, half
up, to hundredths; totals add up lines, so that a bill adds up. Months are UTC's, and a stay that crosses midnight of
a month's first day is in both, each with its part.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fairlead_schemas.queries.telemetry import (
    GPU_HOUR_MILLI_NS,
    By,
    UsageEstimate,
    UsageEstimateLine,
    UsageLine,
    UsageStatement,
)
from fairlead_schemas.units.money import MICRO
from fairlead_schemas.units.timestamps import calendar_period, midnight, rfc3339_seconds, utc_day
from fairlead_telemetry.usage.prices import GpuPrice, Prices

_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])\Z")


class Span(NamedTuple):
    """Time that a statement covers: a calendar month of UTC ("2026-11") or any other ("2026-11-02T00:00:00Z/2026-11-09T00:00:00Z"), from
    when until when (Unix ns, the end not included).
    """

    name: str
    begin_ns: int
    end_ns: int


class PricePeriod(NamedTuple):
    """A part of that time in which a model has one price, or none."""

    model: str
    begin_ns: int
    end_ns: int
    price: GpuPrice | None


class UsageSum(NamedTuple):
    """Charges of one key within one piece. Amounts are milli-GPU times ns."""

    key: str
    piece: int  # its position
    runs: int
    charged: int
    held: int
    weighted: int  # charged, times what the pool's prices count the model for, in thousandths


class MeasuredUse(NamedTuple):
    """Measured use of one key within one piece, in milli-GPU times ns: held time that was measured, and the used part of it."""

    measured: int
    used: int


#: {(key, position of the piece): what was measured}; nothing for those of which there are no samples.
type Measures = Mapping[tuple[str, int], MeasuredUse]


def month_named(name: str) -> Span | None:
    """ "2026-11" as a month; None where it is none."""
    found = _MONTH.match(name)
    if found is None or not 1970 <= int(found[1]) <= 2200:
        return None
    return Span(name, *calendar_period("month", midnight(f"{name}-01")))


def month_at(at_ns: int) -> Span:
    """The month that a moment is in."""
    found = month_named(utc_day(at_ns)[: len("2026-11")])
    assert found is not None, at_ns
    return found


def span_between(begin_ns: int, end_ns: int) -> Span:
    """The time between two moments; a whole calendar month is that month."""
    month = month_at(begin_ns)
    if (begin_ns, end_ns) == (month.begin_ns, month.end_ns):
        return month
    return Span(f"{rfc3339_seconds(begin_ns)}/{rfc3339_seconds(end_ns)}", begin_ns, end_ns)


def price_periods(span: Span, models: Iterable[str], prices: Prices) -> list[PricePeriod]:
    """Each model's time in pieces within which its price stays the same."""
    return [
        PricePeriod(model, *piece) for model in sorted(models) for piece in prices.of(model, span.begin_ns, span.end_ns)
    ]


def statement(
    span: Span,
    by: By,
    pieces: Sequence[PricePeriod],
    sums: Iterable[UsageSum],
    *,
    sequence: int,
    as_of_ns: int,
    measures: Measures | None = None,
) -> UsageStatement:
    """Return the bill; lines by key, then by model, the oldest price first. `measures` None: samples were not examined."""
    lines = [_line(each, pieces[each.piece], measures) for each in sorted(sums)]
    charged = sum(line.charged for line in lines)
    return UsageStatement(
        month=span.name,
        begin_ns=span.begin_ns,
        end_ns=span.end_ns,
        by=by,
        sequence=sequence,
        as_of_ns=as_of_ns,
        is_final=as_of_ns >= span.end_ns,
        lines=lines,
        gpu_hours=hours(charged),
        charged=charged,
        held=sum(line.held for line in lines),
        totals=_totals(lines),
        unpriced=sorted({line.model for line in lines if line.amount is None and line.charged}),
        measured=None if measures is None else sum(line.measured or 0 for line in lines),
        used=None if measures is None else sum(line.used or 0 for line in lines),
    )


def estimate(pieces: Sequence[PricePeriod], sums: Iterable[UsageSum], at_ns: int) -> UsageEstimate:
    """The same lines up to `at_ns`, from sums in which open stays count up to there."""
    lines = [_line(each, pieces[each.piece], None) for each in sorted(sums)]
    charged = sum(line.charged for line in lines)
    return UsageEstimate(
        at_ns=at_ns,
        gpu_hours=hours(charged),
        charged=charged,
        totals=_totals(lines),
        lines=[
            UsageEstimateLine(
                key=line.key, model=line.model, from_ns=line.from_ns, gpu_hours=line.gpu_hours, charged=line.charged
            )
            for line in lines
        ],
    )


def _totals(lines: Iterable[UsageLine]) -> dict[str, str]:
    totals: dict[str, int] = {}
    for line in lines:
        if line.amount is not None:
            totals[line.currency] = totals.get(line.currency, 0) + int(line.amount.replace(".", ""))
    return {currency: _hundredths(total) for currency, total in sorted(totals.items())}


def _line(each: UsageSum, piece: PricePeriod, measures: Measures | None) -> UsageLine:
    line = UsageLine(
        key=each.key,
        model=piece.model,
        from_ns=piece.begin_ns,
        runs=each.runs,
        gpu_hours=hours(each.charged),
        charged=each.charged,
        held=each.held,
        weighted=each.weighted,
    )
    if measures is not None:
        line.measured, line.used = measures.get((each.key, each.piece), MeasuredUse(0, 0))
    if piece.price is not None:
        line.per_gpu_hour, line.currency = piece.price.text, piece.price.currency
        line.amount = amount(each.charged, piece.price.micro)
    return line


def hours(charged: int) -> float:
    """milli-GPU x ns as GPU-hours, to be read by people."""
    return round(charged / GPU_HOUR_MILLI_NS, 6)


def amount(charged: int, micro: int) -> str:
    """Return the cost of `charged` milli-GPU x ns at `micro` millionths a GPU-hour: to hundredths, half up."""
    unit = GPU_HOUR_MILLI_NS * MICRO // 100
    return _hundredths((2 * charged * micro + unit) // (2 * unit))


def _hundredths(value: int) -> str:
    return f"{value // 100}.{value % 100:02}"
