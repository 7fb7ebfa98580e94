"""A job's picture in the terminal: a row per GPU, holes that are no zeros, signs that the terminal has."""

import pytest

from fairlead.render.plot import ASCII, BLOCKS, plot, signs_for
from fairlead_schemas.queries.telemetry import GpuSeries, JobMetrics
from tests.cli.conftest import Run
from tests.cli.gateway_stub import GatewayStub


def series(uuid: str, *pct: float | None) -> GpuSeries:
    """A GPU whose steps have ten samples each, all alike; None: none."""
    return GpuSeries(
        node="n1",
        uuid=uuid,
        samples=[0 if one is None else 10 for one in pct],
        utilization_pct=list(pct),
        utilization_pct_max=[None if one is None else round(one) for one in pct],
        memory_used_mib=[None] * len(pct),
        power_mw=[None] * len(pct),
    )


def metrics(*gpus: GpuSeries) -> JobMetrics:
    return JobMetrics(
        job="812",
        attempt=2,
        sequence=7,
        from_ns=1_767_225_600 * 10**9,
        step_s=60,
        steps=len(gpus[0].samples),
        source="minutes",
        measured_pct=75.0,
        simulated=True,
        gpus=list(gpus),
    )


def test_each_gpu_has_a_row() -> None:
    """With the least and the greatest of its steps and their mean; what was not measured has a sign of its own."""
    drawn = plot(
        metrics(series("GPU-a", 0, 13, 50, 100), series("GPU-b", None, 0, None, 26), series("GPU-c", *[None] * 4)),
        100,
        BLOCKS,
    )
    assert drawn == [
        "job 812, attempt 2: 3 GPUs from 2026-01-01 00:00:00 UTC, a sign is 1m; 75 % measured; the GPUs are simulated",
        "",
        "          utilization    min   mean    max",
        "n1 GPU-a  ▁▂▅█             0     41    100 %",
        "n1 GPU-b  ·▁·▃             0     13     26 %",
        "n1 GPU-c  ····         no samples",
        "",
        "· no samples",
    ]


def test_long_names_are_shortened_while_they_stay_distinct() -> None:
    """The beginning of a UUID is enough to find it."""
    one, other = "GPU-4ffeb993-d597-071f-c510-4c26ec3a877e", "GPU-4ffeb994-d597-071f-c510-4c26ec3a877e"
    assert plot(metrics(series(one, 5), series(other, 5)), 100, BLOCKS)[3].startswith("n1 GPU-4ffeb993  ▁")
    assert plot(metrics(series(one, 5), series(one + "x", 5)), 100, BLOCKS)[3].startswith(f"n1 {one}   ▁")


def test_without_unicode_there_is_ascii() -> None:
    """Also where the encoding is not known."""
    assert [signs_for(name) for name in ("utf-8", "ascii", "latin-1", None, "nosuch")] == [
        BLOCKS,
        ASCII,
        ASCII,
        ASCII,
        ASCII,
    ]
    drawn = plot(metrics(series("GPU-a", 0, None, 50, 100)), 100, ASCII)
    assert drawn[3].startswith("n1 GPU-a  _?=#  ")
    assert drawn[-1] == "? no samples"
    assert "".join(drawn).isascii()


@pytest.mark.parametrize(("width", "signs"), [(40, 10), (60, 27), (1000, 240)])
def test_many_steps_are_drawn_in_what_room_there_is(width: int, signs: int) -> None:
    """Several as one: their mean, weighed by their samples, and the greatest of them."""
    drawn = plot(metrics(series("GPU-a", *([0, 100] * 120))), width, BLOCKS)
    row = drawn[3].split()[2]
    assert len(row) == signs
    assert drawn[3].endswith("50    100 %")


def test_show_plot(gateway: GatewayStub, run: Run) -> None:
    """The picture, or its numbers; the length of a step is passed on."""
    document = metrics(series("GPU-a", 50, 60))
    gateway.on("GET", "/v1/jobs/812/metrics", document)
    ran = run("show", "812", "--plot", "--step", "5m")
    assert (ran.code, gateway.requests[-1].url.params["step"]) == (0, "5m")
    assert "n1 GPU-a" in ran.out
    assert '"source": "minutes"' in run("show", "812", "--plot", "-o", "json").out
    assert run("show", "813", "--plot").code == 3
