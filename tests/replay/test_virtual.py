"""One cluster in virtual time: what comes of small loads, worked out by hand; and that nothing is lost or made up."""

from fractions import Fraction
from pathlib import Path

import pytest

from fairlead_bus.port import Stored
from fairlead_replay.audit import verify_export
from fairlead_replay.export import write_export
from fairlead_replay.live_comparison import fold_export
from fairlead_replay.virtual import figures
from fairlead_replay.virtual.load import BEGIN_NS, JobLife, Played
from fairlead_replay.virtual.play import TracePlayer, play
from fairlead_replay.whatif.player import PlayStalled
from fairlead_schemas.units.timestamps import SECOND_NS
from tests.replay.traces import job, mixed, setting


def runs_s(life: JobLife) -> list[tuple[int, int]]:
    """Start and end of each run, in seconds from the beginning."""
    return [((run.started_ns - BEGIN_NS) // SECOND_NS, (run.ended_ns - BEGIN_NS) // SECOND_NS) for run in life.runs]


#: Three jobs that fill the node, and one of another queue a little later.
LOAD = [*(job("a", 0, 4, 100) for _ in range(3)), job("b", 10, 4, 50)]


def test_first_come_first_served_over_both_queues() -> None:
    """The late one waits for all of them."""
    played = play(LOAD, setting("fifo"))
    assert [runs_s(life) for life in played.lives] == [[(0, 100)], [(100, 200)], [(200, 300)], [(300, 350)]]


def test_the_queue_that_has_nothing_goes_next_by_shares() -> None:
    """One queue holds the node when the other asks: that one's turn is next."""
    played = play(LOAD, setting("drf"))
    assert [runs_s(life) for life in played.lives] == [[(0, 100)], [(150, 250)], [(250, 350)], [(100, 150)]]


def test_figures_of_two_queues_by_hand() -> None:
    """First come, first served on 4 GPUs: a is alone for 10 s, both want all until 300 s, then b is alone for 50 s."""
    played = play(LOAD, setting("fifo"))
    assert figures.waits_s(played.lives) == [0, 100, 200, 290]
    assert figures.jcts_s(played.lives) == [100, 200, 300, 340]
    assert figures.makespan_s(played.lives) == 350
    assert figures.utilisation(played) == 1
    assert figures.static_fairness(played) == [1, 2, 3, 340 / 50]
    alone = {0: 100 * SECOND_NS, 3: 50 * SECOND_NS}
    assert figures.isolated_fairness(played, alone) == [1, 340 / 50]
    served = figures.service(played, {"a": 1, "b": 1})
    assert served["a"] == (620 * SECOND_NS, 620 * SECOND_NS)
    assert served["b"] == (200 * SECOND_NS, 780 * SECOND_NS)
    b = Fraction(200, 780)
    assert figures.jain([each.share for each in served.values()]) == pytest.approx(
        float((1 + b) ** 2 / (2 * (1 + b * b)))
    )


def test_unused_shares_go_to_the_others() -> None:
    """Max-min: by weight, and no queue gets more than its demand."""
    assert figures.max_min({"a": 2, "b": 20, "c": 20, "d": 0}, {"a": 1, "b": 1, "c": 2, "d": 9}, 20) == {
        "a": 2,
        "b": 6,
        "c": 12,
        "d": 0,
    }


def test_a_preempted_job_resumes_from_its_checkpoint() -> None:
    """Preempted as soon as the urgent job came, with 5 s of notice; each start loses 10 s, finished work is kept."""
    load = [job("a", 0, 4, 1000), job("a", 300, 4, 60, priority=90)]
    played = play(load, setting(restart_ns=10 * SECOND_NS, notice_ns=5 * SECOND_NS))
    low, high = played.lives
    assert runs_s(high) == [(305, 375)]  # and a quarter: the next look at who starves
    assert runs_s(low) == [(0, 305), (375, 375 + 10 + 1000 - 295)]
    assert figures.waits_in_all_s([low, high]) == [70, 5.25]


def test_a_job_ends_at_its_stated_limit() -> None:
    """Done or not; the limit is of its run time over all runs."""
    (life,) = play([job("a", 0, 4, 100, declared_ns=60 * SECOND_NS)], setting()).lives
    assert (life.end, runs_s(life)) == ("JobFailed", [(0, 60)])


def test_a_job_that_never_fits_is_reported() -> None:
    """It requests three nodes, and there are two."""
    with pytest.raises(PlayStalled, match="nothing will start any more, and 1 jobs"):
        play([job("a", 0, 12, 10), job("a", 5, 4, 10)], setting(nodes=2))


def test_a_refused_command_is_reported() -> None:
    """Of a queue that does not exist."""
    with pytest.raises(PlayStalled, match="refused"):
        play([job("c", 0, 1, 10)], setting())


def test_every_job_ends_once_and_gpu_time_adds_up() -> None:
    """Held time equals the work and its restarts, all of it on existing GPUs."""
    load, restart_s = mixed(), 10
    played = play(load, setting(nodes=3, gpus=8, restart_ns=restart_s * SECOND_NS))
    assert [life.job for life in played.lives] == load
    assert {life.end for life in played.lives} == {"JobSucceeded"}
    assert played.events["JobSucceeded"] == len(load)
    assert max(len(life.runs) for life in played.lives) > 1
    for life in played.lives:
        assert life.left_ns == 0
        assert life.held_ns == life.job.work_ns + len(life.runs) * restart_s * SECOND_NS
    assert max(_held(played)) <= played.gpus


def _held(played: Played) -> list[int]:
    """GPUs held after each change."""
    changes = [(run.started_ns, life.job.gpus) for life in played.lives for run in life.runs]
    changes += [(run.ended_ns, -life.job.gpus) for life in played.lives for run in life.runs]
    held = 0
    return [held := held + more for _, more in sorted(changes)]


@pytest.mark.slow
def test_two_plays_are_one_and_their_log_is_a_log(tmp_path: Path) -> None:
    """Byte for byte; it can be exported, verified, and folded to the state that the cores had."""
    logs: list[list[Stored]] = [[], []]
    players = [TracePlayer(mixed(), setting(nodes=3, gpus=8), log.append) for log in logs]
    for player in players:
        player.play()
    assert logs[0] == logs[1]
    write_export(tmp_path / "export", logs[0])
    assert verify_export(tmp_path / "export").ok
    assert fold_export(tmp_path / "export").state_hashes() == players[0].log.cluster.state_hashes()


def test_quiet_months_cost_nothing() -> None:
    """One job runs for two months while others of both queues wait: the cores are asked a few times, not every second."""
    load = [job("a", 0, 4, 60 * 86_400), *(job(queue, 1, 4, 10) for queue in "abab")]
    player = TracePlayer(load, setting())
    played = player.play()
    assert figures.makespan_s(played.lives) == 60 * 86_400 + 40
    assert player.moments < 50
