"""The ledger: estimates of submits, joined with their starts, and intervals that learn from them."""

import random

import msgspec
import pytest

from fairlead_replay.estimates import calibration, scores
from fairlead_replay.estimates.calibration import Calibrator, ForecastShape, Kind
from fairlead_replay.estimates.chances import arrivals
from fairlead_replay.estimates.core import EstimatorCore
from fairlead_replay.estimates.forecast import Forecast
from fairlead_replay.estimates.futures import Question
from fairlead_replay.estimates.ledger import AT_ONCE, EstimateEntry, EstimateLedger
from fairlead_replay.estimates.lengths_now import BATCH_NS
from fairlead_replay.virtual.load import BEGIN_NS
from fairlead_schemas.units.timestamps import DAY_NS, SECOND_NS
from fairlead_schemas.wire.commit import decode_commit
from tests.replay.estimates import scenes

KIND = Kind("default", "1", busy=True)


def entry(job: str = "1", high_s: int = 100, **more: object) -> EstimateEntry:
    """Return an entry with an interval of 10 s to `high_s`."""
    said = (10 * SECOND_NS, 50 * SECOND_NS, high_s * SECOND_NS)
    values = {"at_once": False, "said_ns": said, "kind": KIND, "shape": ForecastShape(4.0, 1.0)} | more
    at_ns = values.pop("at_ns", BEGIN_NS)
    return EstimateEntry(job, "u", "a", "default", 1, at_ns, "played", 32, **values)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("wait_s", "held"), [(5, False), (10, True), (100, True), (101, False)])
def test_a_start_is_held_against_the_interval(wait_s: int, held: bool) -> None:
    ledger = EstimateLedger()
    ledger.add(entry())
    ledger.started("1", ("n001",), BEGIN_NS + wait_s * SECOND_NS)
    assert ledger.entries[0].held is held
    assert ledger.entries[0].wait_ns == wait_s * SECOND_NS
    assert len(ledger.scored()) == 1


def test_what_waits_beyond_its_interval_is_a_miss_before_it_starts() -> None:
    ledger = EstimateLedger()
    ledger.add(entry())
    ledger.pass_time(BEGIN_NS + 100 * SECOND_NS)
    assert ledger.entries[0].held is None
    ledger.pass_time(BEGIN_NS + 101 * SECOND_NS)
    assert ledger.entries[0].held is False
    assert not ledger.scored()
    ledger.started("1", (), BEGIN_NS + 500 * SECOND_NS)
    assert (
        ledger.calibrator.interval(KIND, "a", ForecastShape(4.0, 1.0), Forecast(1, 0, waits_ns=(SECOND_NS,))).like_it
        == 1
    )


def test_a_cancel_says_nothing_of_an_estimate() -> None:
    ledger = EstimateLedger()
    ledger.add(entry())
    ledger.ended("1", "cancelled", BEGIN_NS + 20 * SECOND_NS)
    assert (ledger.entries[0].outcome, ledger.entries[0].held) == ("cancelled", None)
    ledger.pass_time(BEGIN_NS + 10**6 * SECOND_NS)
    ledger.started("1", (), BEGIN_NS + 10**6 * SECOND_NS)
    assert (ledger.entries[0].outcome, ledger.scored()) == ("cancelled", [])


def test_the_sample_is_bounded_by_the_day() -> None:
    ledger = EstimateLedger()
    taken = sum(ledger.samples(BEGIN_NS + second * SECOND_NS) for second in range(0, 10 * 86_400, 20))
    assert 2_000 - AT_ONCE <= taken <= 2_000 + AT_ONCE
    burst = EstimateLedger()
    assert sum(burst.samples(BEGIN_NS) for _ in range(1_000)) == AT_ONCE


def test_the_ledger_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead_replay.estimates.ledger.ENTRIES_MAX", 5)
    ledger = EstimateLedger()
    for at in range(9):
        ledger.add(entry(str(at)))
    assert [each.job for each in ledger.entries] == ["4", "5", "6", "7", "8"]
    ledger.started("1", (), BEGIN_NS)
    assert not ledger.scored()


def test_intervals_hold_as_often_as_they_say_though_futures_are_wrong_and_drift() -> None:
    ledger, chance = EstimateLedger(), random.Random(1)
    held: list[bool] = []
    for at in range(3_000):
        middle = 3 + 4 * chance.random()
        bias = 1.5 if at < 1_500 else -0.8
        calibrated = ledger.calibrator.interval(
            KIND, "a", ForecastShape(middle, 0.7), Forecast(1, 0, waits_ns=(SECOND_NS,))
        )
        said = (calibrated.low_ns, calibrated.middle_ns, calibrated.high_ns)
        at_ns = BEGIN_NS + at * BATCH_NS
        ledger.add(entry(str(at), said_ns=said, shape=ForecastShape(middle, 0.7), at_ns=at_ns))
        ledger.started(str(at), (), at_ns + calibration.from_log_s(middle + bias + chance.gauss(0, 0.9)))
        held.append(bool(ledger.entries[-1].held))
    assert 0.75 <= sum(held[200:1_500]) / 1_300 <= 0.85
    assert 0.75 <= sum(held[2_100:]) / 900 <= 0.85


def parts_after(jobs: int, apart_ns: int, *, high_s: int) -> float:
    """Return the part of scores above the interval, once so many jobs have waited 1,000 s."""
    ledger = EstimateLedger()
    for at in range(jobs):
        ledger.add(entry(str(at), high_s, at_ns=BEGIN_NS + at * apart_ns))
    for at in range(jobs):
        ledger.started(str(at), (), BEGIN_NS + at * apart_ns + 1_000 * SECOND_NS)
    return ledger.calibrator.dump()["queues"]["a"].high


@pytest.mark.parametrize("high_s", [100, 10_000], ids=["misses", "hits"])
def test_jobs_of_one_batch_move_an_interval_as_much_as_one_job(high_s: int) -> None:
    """Two hundred of a sweep that all wait for the same run; two hundred of different days move it to its bound."""
    one, batch = parts_after(1, 0, high_s=high_s), parts_after(200, 0, high_s=high_s)
    days = parts_after(200, DAY_NS, high_s=high_s)
    assert batch == pytest.approx(one)
    assert abs(days - calibration.TAIL) > 2 * abs(one - calibration.TAIL)


def test_a_batch_alone_bounds_no_interval() -> None:
    """A hundred outcomes of one batch are too few to learn from; thirty of different days are enough."""
    for jobs, apart_ns, wide in ((100, 0, True), (30, DAY_NS, False)):
        ledger = EstimateLedger()
        for at in range(jobs):
            ledger.add(entry(str(at), at_ns=BEGIN_NS + at * apart_ns))
        for at in range(jobs):
            ledger.started(str(at), (), BEGIN_NS + at * apart_ns + 20 * SECOND_NS)
        forecast = Forecast(1, 0, waits_ns=(SECOND_NS,))
        assert ledger.calibrator.interval(KIND, "a", ForecastShape(4.0, 1.0), forecast).wide is wide


def test_too_few_earlier_estimates_make_it_wider_and_it_says_so() -> None:
    forecast = Forecast(1, 0, waits_ns=(60 * SECOND_NS, 100 * SECOND_NS, 200 * SECOND_NS))
    wide = Calibrator().interval(KIND, "a", ForecastShape(4.6, 0.5), forecast)
    assert wide.wide
    assert wide.low_ns < 40 * SECOND_NS
    assert wide.high_ns > 400 * SECOND_NS


def test_a_way_of_estimating_that_errs_less_counts_more() -> None:
    calibrator = Calibrator()
    ways = {"futures": 10 * SECOND_NS, "last_two": 1_000 * SECOND_NS}
    assert calibrator.blend("a", ways) == pytest.approx(calibration.log_s(10 * SECOND_NS))
    for _ in range(30):
        calibrator.compare("a", ways, 900 * SECOND_NS)
    assert calibrator.blend("a", ways) > calibration.log_s(800 * SECOND_NS)


def test_pinball_loss_is_least_for_the_truth_and_counts_the_wrong_side() -> None:
    truth = 100 * SECOND_NS
    assert scores.pinball((truth, truth, truth), truth) == 0
    near, far = (80 * SECOND_NS, truth, 120 * SECOND_NS), (SECOND_NS, truth, 10_000 * SECOND_NS)
    assert 0 < scores.pinball(near, truth) < scores.pinball(far, truth)
    below = (SECOND_NS, SECOND_NS, SECOND_NS)
    scored = scores.Scored("a", near, truth, held=True, baselines={"limits_layout": below})
    assert scores.score("a", [scored]).against["limits_layout"] < 0.1
    assert scores.score("a", []).estimates == 0


def test_the_ledger_follows_from_the_log_and_goes_on_from_a_kept_state() -> None:
    log = scenes.recorded(scenes.many(30))
    whole = scenes.folded(log)
    part = scenes.folded(log, until_s=900)
    resumed = EstimatorCore.load(part.dump())
    for stored in log[resumed.sequence :]:
        resumed.evolve(stored.sequence, decode_commit(stored.payload))
    assert len(whole.ledger.entries) > 20
    assert [*resumed.ledger.entries] == [*whole.ledger.entries]
    assert [*scenes.folded(log).ledger.entries] == [*whole.ledger.entries]


def test_a_kept_state_of_another_shape_is_refused() -> None:
    dumped = msgspec.msgpack.decode(EstimatorCore().dump())
    dumped["shape"] = [0]
    with pytest.raises(ValueError, match="shape"):
        EstimatorCore.load(msgspec.msgpack.encode(dumped))
    with pytest.raises(msgspec.MsgspecError):
        EstimatorCore.load(b"\x93")


def test_questions_leave_no_trace() -> None:
    log = scenes.recorded(scenes.many(12))
    core = scenes.folded(log, until_s=400)
    before = core.dump()
    core.answer(Question(submit=scenes.submit()))
    core.answer(Question(job="5"))
    assert core.dump() == before


def test_arrivals_of_an_old_log_are_those_of_the_same_hour() -> None:
    jobs = [scenes.job(day * 86_400 + 3_600, 60) for day in range(15)]
    core = scenes.folded(scenes.recorded(jobs))
    now_ns = BEGIN_NS + 15 * DAY_NS
    found = arrivals(core.history, "seed", 3, now_ns)
    assert found
    assert all((each.at_ns - BEGIN_NS) % DAY_NS == 3_600 * SECOND_NS for each in found)
    assert found == arrivals(core.history, "seed", 3, now_ns)
