"""Lines on when a job starts (the interval, how it was found, who yields, what would be sooner), and tables of how right that was. Pure."""

from collections.abc import Iterator
from typing import Any

import msgspec

from fairlead.render import terminal
from fairlead.render.terminal import TableColumn, hidden_jobs
from fairlead_schemas.http.api import EstimateGiven, Estimates, QueueEstimates, StartForecast

_HEAD = ("QUEUE", "ESTIMATES", "HELD", "LOSS", "WIDTH", "AT ONCE TRUE", "NO INTERVAL", "WAITING", "LOSS OVER THAT OF")
_WORST = ("JOB", "QUEUE", "SAID AT", "FROM", "TO", "STARTED", "LOSS")


def forecast_lines(found: StartForecast | dict[str, Any] | None) -> list[tuple[str, str]]:
    """(label, text) of each line on when a job starts; [] where that was not asked for."""
    if found is None:
        return []
    forecast = msgspec.convert(found, StartForecast) if isinstance(found, dict) else found
    if forecast.from_at is None:
        return [("starts", forecast.note)]
    hidden = [*forecast.nodes, *([f"{forecast.nodes_hidden} hidden"] if forecast.nodes_hidden else [])]
    if forecast.at_once:
        return [("starts", f"at once, on {', '.join(hidden)}")]
    spoken = f"{forecast.from_at} to {forecast.to_at} (80 % interval), most likely about {forecast.middle_at}"
    how = f"{forecast.futures} futures, {forecast.basis}"
    if forecast.like_it:
        how += (
            f"; of the last {forecast.like_it} estimates of its queue {100 * forecast.held // forecast.like_it} % held"
        )
    how += "; too few to learn from yet, so the interval is wide" if forecast.wide else ""
    yields = [f"{one.job} ({one.rule}) in {one.futures} of {forecast.futures} futures" for one in forecast.displaces]
    yields += hidden_jobs(forecast.displaces_hidden)
    return [
        ("starts", spoken),
        ("by", how),
        *_lines("displaces", yields),
        *_lines("sooner", [f"{one.message}: about {one.start_at}" for one in forecast.sooner]),
    ]


def _lines(label: str, texts: list[str]) -> list[tuple[str, str]]:
    return [("" if at else label, text) for at, text in enumerate(texts)]


def tables(found: Estimates) -> Iterator[str]:
    """Return the parts of the page."""
    if not found.queues:
        yield "no estimate yet: each of a sample of submits is estimated, and joined with what comes\n"
        return
    yield terminal.table([_queue(each) for each in found.queues], [TableColumn(head, str) for head in _HEAD])
    if found.worst:
        yield "\nfurthest off:\n"
        yield terminal.table([_worst(each) for each in found.worst], [TableColumn(head, str) for head in _WORST])


def _queue(each: QueueEstimates) -> tuple[str, ...]:
    against = ", ".join(f"{way.replace('_', ' ')} {value:.2f}" for way, value in each.against.items())
    return (
        each.queue,
        str(each.estimates),
        "-" if each.coverage is None else f"{each.coverage:.0%}",
        "-" if each.pinball is None else f"{each.pinball:.2f}",
        "-" if each.width is None else f"{each.width:.1f}",
        f"{each.at_once_true} of {each.at_once}",
        str(each.unknown),
        str(each.waiting),
        against or "-",
    )


def _worst(each: EstimateGiven) -> tuple[str, ...]:
    return (each.job, each.queue, each.at, each.from_at, each.to_at, each.started_at, f"{each.loss:.2f}")
