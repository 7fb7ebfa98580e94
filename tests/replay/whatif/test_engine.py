"""The engine: a log that it recorded, imported and played again, is the same log; and what was given is given again where the
play goes another way."""

from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from fairlead_bus.port import Stored
from fairlead_replay.audit import verify_export
from fairlead_replay.export import write_export
from fairlead_replay.virtual.load import machines
from fairlead_replay.virtual.play import play
from fairlead_replay.whatif.record import LogRecording, LogWindow, record_of
from fairlead_replay.whatif.replays import Conditions, Outcome, play_recording
from fairlead_replay.whatif.stimuli import Changes
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import decode_commit
from fairlead_schemas.wire.resources import Request
from tests.placer.scheduling.repartition.migworld import cut_inventory, mig
from tests.replay.traces import mixed, setting
from tests.replay.whatif.scenes import Scene, at, queues


def people() -> Scene:
    """Holds, releases, moves, cancels, limits, arrays, dependencies, gangs, failures and preemption on three nodes."""
    scene = Scene(machines(3, 4))
    scene.command(-1, queues())
    for n in range(30):
        scene.submit(
            n * 7, (1, 2, 4)[n % 3], 20 + n * 13 % 90, queue="ab"[n % 2], user=f"u{n % 3}", exit_code=int(n % 7 == 6)
        )
    waits = scene.submit(30, 4, 50)
    scene.command(31, cmd.HoldJob(id="h", user="bob", job=waits))
    scene.command(60, cmd.ReleaseJob(id="r", user="bob", job=waits))
    scene.command(41, cmd.CancelJob(id="c", user="bob", job=scene.submit(40, 4, 1000)))
    scene.cancel_after(scene.submit(50, 1, 1000, priority=90), 30)
    scene.submit(60, 1, 20, array=(0, 5), array_limit=2)
    first = scene.submit(70, 1, 25)
    scene.submit(71, 1, 10, after=(ev.Dependency(job=first),))
    gang = Request(nodes=2, gpu_milli=2000, cpu_milli=1000, memory_mib=1024)
    scene.submit(80, 0, 33, request=gang)
    scene.submit(82, 0, 33, request=gang, exit_code=3, retries=1)
    scene.submit(83, 1, None, total_ns=40 * SECOND_NS)
    scene.command(90, cmd.HoldJob(id="late", user="bob", job="1"))  # it has ended: refused, and recorded as such
    return scene


def operators() -> Scene:
    """Drains, taints, windows, silence, loss, faults, a new node and a new journal on twelve nodes that have work."""
    scene = Scene(machines(12, 2))
    scene.command(-1, queues())
    for n in range(80):
        scene.submit(n * 4, 1 + n % 2, 30 + n * 17 % 120, queue="ab"[n % 2], user=f"u{n % 3}")
    scene.command(100, cmd.DrainNode(id="d", user="op", node="n001", deadline_ns=20 * SECOND_NS))
    scene.command(160, cmd.UncordonNode(id="u", user="op", node="n001"))
    scene.command(110, cmd.TaintNode(id="t", user="op", node="n003", taint="x=y:NoExecute"))
    scene.command(150, cmd.UntaintNode(id="v", user="op", node="n003", taint="x"))
    scene.fact(120, "n002", "quiet")
    scene.fact(170, "n002", "silent", silent_ns=50 * SECOND_NS)
    scene.fact(190, "n002", "heard")
    scene.fact(210, "n005", "ailing", gpu="n005-g1", code="xid79", evidence="it has fallen off the bus")
    scene.fact(260, "n005", "well", gpu="n005-g1")
    window = cmd.ScheduleMaintenance(
        id="w", user="op", name="w", starts_ns=at(240), ends_ns=at(270), nodes=("n006",), notice_ns=5 * SECOND_NS
    )
    scene.command(220, window)
    scene.command(230, cmd.ResetBreaker(id="b", user="op"))
    more = machines(14, 2)
    scene.fact(300, "n013", "joined", inventory=more["n013"], incarnation="n013-1", boot_id="b")
    scene.fact(330, "n007", "joined", inventory=more["n007"], incarnation="n007-2", boot_id="b2")
    return scene


def slices() -> Scene:
    """Jobs that want MIG instances of GPUs that have to be cut for them."""
    scene = Scene({"n001": cut_inventory("n001", "", "1g.5gb@6")})
    scene.command(-1, queues())
    for n in range(9):
        scene.submit(n * 11, 0, 60 + n, request=mig(("1g.5gb", "3g.20gb", "2g.10gb")[n % 3]))
    return scene


SCENES = {"people": (people, 700), "operators": (operators, 900), "slices": (slices, 400)}


def replayed(log: list[Stored], window: LogWindow = LogWindow()) -> tuple[list[Stored], LogRecording, Outcome]:  # noqa: B008
    """Import a log and play it again."""
    recording, again = record_of(log, window), list[Stored]()
    outcome = play_recording(recording, record=again.append)
    return again, recording, outcome


def first_difference(log: list[Stored], again: list[Stored]) -> tuple[Stored | None, Stored | None] | None:
    """Return the first pair of commits that differ, None where the logs are one."""
    for at_ in range(max(len(log), len(again))):
        some, other = log[at_] if at_ < len(log) else None, again[at_] if at_ < len(again) else None
        if some != other:
            return some, other
    return None


@pytest.mark.parametrize("name", SCENES)
def test_a_log_that_the_engine_recorded_is_played_again_byte_for_byte(name: str) -> None:
    """Everything that people, operators, nodes and drivers did is read off its events alone."""
    scene, until_s = SCENES[name]
    log, _ = scene().play(until_s)
    again, recording, outcome = replayed(log)
    assert first_difference(log, again) is None
    assert not recording.unknown
    assert not +outcome.left_out
    assert not recording.absences


def test_the_scenes_hold_what_they_are_for() -> None:
    """A scene in which nothing of it happens would prove nothing."""
    wanted: dict[str, tuple[str, ...]] = {
        "people": (
            "JobHeld",
            "JobReleased",
            "JobCancelled",
            "JobStopRequested",
            "JobFailed",
            "JobQueued",
            "JobDeferred",
            "RankEnded",
            "JobRequeued",
        ),
        "operators": (
            "NodeDraining",
            "NodeTainted",
            "NodeUntainted",
            "NodeLost",
            "NodeReturned",
            "GpuFaulted",
            "GpuRestored",
            "MaintenanceStarted",
            "MaintenanceEnded",
            "JobRequeued",
            "BreakerTripped",
            "BreakerReset",
        ),
        "slices": ("MigLayoutPlanned", "MigLayoutChanged", "NodeChanged"),
    }
    for name, types in wanted.items():
        scene, until_s = SCENES[name]
        _, outcome = scene().play(until_s)
        assert not [each for each in types if not outcome.events[each]], name


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2, 3])
def test_a_trace_that_was_played_is_the_same_log_again(nodes: int) -> None:
    """Preempted runs, notices and restarts included: the length of the next run shows what a cut run had done."""
    log: list[Stored] = []
    notice_ns = 5 * SECOND_NS if nodes == 2 else 0
    play(mixed(), setting(nodes=nodes, gpus=8, restart_ns=10 * SECOND_NS, notice_ns=notice_ns), record=log.append)
    again, _, outcome = replayed(log)
    assert first_difference(log, again) is None
    assert outcome.events["PreemptionStarted"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("part", [1, 2, 3, 4, 5])
def test_a_play_from_the_middle_starts_and_ends_every_run_at_the_recorded_time(part: int) -> None:
    """The state at the moment is all that is needed. (A core that continues from a state has forgotten what it had worked out for
    prices of scarce room, so that a placement may be written with another score.)"""
    log: list[Stored] = []
    play(mixed(), setting(nodes=3, gpus=8, restart_ns=10 * SECOND_NS), record=log.append)
    from_ns = decode_commit(log[len(log) * part // 6].payload).at_ns
    _, recording, outcome = replayed(log, LogWindow(from_ns))
    assert recording.start.sequence > len(log) * part // 7
    later = [job for job in recording.real.jobs.values() if not 0 < job.ended_ns <= from_ns]
    assert later
    for job in later:
        played = outcome.job(job.id)
        assert played is not None
        assert [(run.started_ns, run.ended_ns) for run in played.attempts] == [
            (run.started_ns, run.ended_ns) for run in job.attempts
        ]


def test_the_play_of_a_log_is_a_log(tmp_path: Path) -> None:
    """It can be exported and verified, also where it went another way."""
    log, _ = people().play(700)
    again: list[Stored] = []
    play_recording(record_of(log), Conditions(seed=3), record=again.append)
    assert again != log
    write_export(tmp_path / "export", again)
    assert verify_export(tmp_path / "export").ok


def test_equal_seeds_are_equal_plays_and_others_differ_a_little() -> None:
    """Shaken lengths change by one part in a hundred at most."""
    log, _ = people().play(700)
    recording = record_of(log)
    plays: list[list[Stored]] = [[], [], []]
    outcomes = [
        play_recording(recording, Conditions(seed=seed), record=each.append)
        for seed, each in zip((1, 1, 2), plays, strict=True)
    ]
    assert plays[0] == plays[1] != plays[2]
    lasted = [
        run.ran_ns(0) / real.attempts[0].ran_ns(0)
        for real in recording.real.jobs.values()
        if len(real.attempts) == 1 and real.end == "JobSucceeded" and (job := outcomes[2].job(real.id)) is not None
        for run in job.attempts
        if run.end is not None and run.end.exit_code == 0
    ]
    assert len(lasted) > 10
    assert 0.99 <= min(lasted) < median(lasted) < max(lasted) <= 1.01


# ---------------------------------------------------------------------------- where the play goes another way


class Dropping(Changes):
    """A change under which some commands were never sent."""

    def __init__(self, dropped: Callable[[object], bool]) -> None:
        self._dropped = dropped

    def command(self, command: cmd.QueueCommand | cmd.PlacerCommand) -> cmd.QueueCommand | cmd.PlacerCommand | None:
        """Return what is not dropped."""
        return None if self._dropped(command) else command


def without(log: list[Stored], *ids: str) -> tuple[LogRecording, Outcome]:
    """Play a log as if these submits had not come."""
    recording = record_of(log)
    changes = Dropping(lambda command: isinstance(command, cmd.SubmitJob) and command.id in ids)
    return recording, play_recording(recording, Conditions(changes))


def test_a_cancel_of_a_running_job_comes_after_the_same_run_time() -> None:
    """Its owner was done with it; in the play it starts 100 s earlier."""
    scene = Scene(machines(1, 4))
    scene.command(-1, queues())
    ahead, job = scene.submit(0, 4, 100), scene.submit(1, 4, 1000)
    scene.cancel_after(job, 30)
    log, _ = scene.play(400)
    _, outcome = without(log, f"s{ahead}")
    played = outcome.job(job)
    assert played is not None
    assert (played.end, played.first_start_ns, played.ended_ns) == ("JobCancelled", at(1), at(31))


def test_a_cancel_out_of_impatience_does_not_reach_a_job_that_runs() -> None:
    """It waited when it was cancelled; without the job before it, it runs by then, and for how long is drawn."""
    scene = Scene(machines(1, 4))
    scene.command(-1, queues())
    for n in range(9):
        scene.submit(n * 300, 4, 60 + n, name="same")
    ahead, job = scene.submit(3000, 4, 500), scene.submit(3001, 4, 70, name="same")
    scene.command(3020, cmd.CancelJob(id="c", user="ann", job=job))
    log, _ = scene.play(4000)
    recording, outcome = without(log, f"s{ahead}")
    assert recording.real.jobs[job].attempts == []
    played = outcome.job(job)
    assert played is not None
    assert (played.end, played.first_start_ns) == ("JobSucceeded", at(3001))
    assert 60 <= (played.ended_ns - played.first_start_ns) / SECOND_NS <= 68
    assert outcome.left_out["cancels of jobs that run in the play and only waited in the record"] == 1


def test_ids_are_those_of_the_play_and_dependencies_follow() -> None:
    """The first submit is gone, so that every job has another id; who waited for which one is the same."""
    scene = Scene(machines(1, 4))
    scene.command(-1, queues())
    gone, first = scene.submit(0, 1, 10), scene.submit(1, 1, 50)
    second = scene.submit(2, 1, 10, after=(ev.Dependency(job=first),))
    log, _ = scene.play(100)
    _, outcome = without(log, f"s{gone}")
    played = outcome.job(second)
    assert played is not None
    assert (played.id, played.first_start_ns) == ("2", at(51))
    assert outcome.ids.real("2") == second
    assert outcome.job(gone) is None


def test_closed_users_submit_after_the_ends_of_the_play() -> None:
    """He thinks for 21 s after an end; closed, his second job comes as much earlier as the first has ended."""
    scene = Scene(machines(1, 4))
    scene.command(-1, queues())
    ahead = scene.submit(0, 4, 100, user="bob")
    scene.submit(1, 4, 50)
    second = scene.submit(171, 4, 10)
    log, _ = scene.play(300)
    recording = record_of(log)
    changes = Dropping(lambda command: isinstance(command, cmd.SubmitJob) and command.id == f"s{ahead}")
    starts = [
        job.first_start_ns
        for closed in (False, True)
        if (job := play_recording(recording, Conditions(changes, closed=closed)).job(second)) is not None
    ]
    assert starts == [at(171), at(72)]


def test_a_lost_node_ends_the_runs_that_the_play_has_there() -> None:
    """The node is lost at 50 s; another job is on it in the play."""
    scene = Scene(machines(2, 2))
    scene.command(-1, queues())
    ahead, job = scene.submit(0, 2, 200), scene.submit(1, 2, 200)
    scene.fact(50, "n001", "silent", silent_ns=20 * SECOND_NS)
    log, recorded = scene.play(500)
    lost = [each.id for each in recorded.books.jobs.values() if len(each.attempts) > 1]
    assert lost == [ahead]
    _, outcome = without(log, f"s{ahead}")
    played = outcome.job(job)
    assert played is not None
    assert [run.end.outcome for run in played.attempts if run.end is not None] == ["node_lost", "exited"]


def test_a_grid_rounds_moments_up() -> None:
    """Starts come up to a second later, and no more moments are looked at than there are seconds."""
    log, _ = people().play(700)
    recording = record_of(log)
    outcome = play_recording(recording, Conditions(grid_ns=SECOND_NS))
    starts = [job.first_start_ns for job in outcome.books.jobs.values() if job.first_start_ns]
    assert starts
    assert not [each for each in starts if each % SECOND_NS]


def test_a_refused_command_about_an_unknown_job_is_refused_again() -> None:
    """A decision on a refusal reviews the offers, too, so a play without it would review them at other times."""
    scene = Scene()
    scene.command(-1, queues())
    scene.submit(0, 4, 20)
    scene.command(5, cmd.HoldJob(id="h", user="bob", job="999"))
    recording = record_of(scene.play(60)[0])
    again = play_recording(recording)
    assert again.events["CommandRejected"] == 1
    assert not again.left_out


def rank_ends(exit_code: int) -> dict[str, list[tuple[int, str]]]:
    """Play a gang of two whose first rank decides the outcome after 33 s and whose last rank ends after 50 s; return times and
    outcomes of its ends."""
    scene = Scene(machines(2, 4))
    scene.command(-1, queues())
    gang = scene.submit(0, 0, 33, request=Request(nodes=2, gpu_milli=2000), exit_code=exit_code)
    recording = scene.recording(200)
    attempt = recording.real.jobs[gang].attempts[0]
    attempt.rank_ended_ns = {0: attempt.ended_ns}
    attempt.ended_ns += 17 * SECOND_NS
    log: list[Stored] = []
    play_recording(recording, record=log.append)
    found: dict[str, list[tuple[int, str]]] = {}
    for stored in log:
        commit = decode_commit(stored.payload)
        for event in commit.events:
            if isinstance(event, ev.RankEnded | ev.RunEnded):
                found.setdefault(type(event).__name__, []).append(((commit.at_ns - at(0)) // SECOND_NS, event.outcome))
    return found


@pytest.mark.parametrize("exit_code", [0, 3])
def test_ranks_of_a_gang_end_as_far_apart_as_they_did(exit_code: int) -> None:
    """Whether it succeeds or fails, its nodes are held until the last rank has ended."""
    found = rank_ends(exit_code)
    assert [when for when, _ in found["RankEnded"]] == [33]
    assert [when for when, _ in found["RunEnded"]] == [50]
