"""Lines on when a job starts: the interval, how it was found, who yields, and what would be sooner. Pure."""

from typing import Any

import msgspec

from fairlead.render.terminal import hidden_jobs
from fairlead_schemas.http.api import StartForecast


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
