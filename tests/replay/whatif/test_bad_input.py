"""Logs, windows and changes that are strange or wrong: an answer with words, or an answer without effects; never a wrong one."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from fairlead_bus.port import Stored
from fairlead_queue.sequencers.drf import Drf
from fairlead_replay.whatif.documents import document
from fairlead_replay.whatif.overlay import InvalidOverlay, PlannedChange, read_overlay
from fairlead_replay.whatif.player import PlayStalled
from fairlead_replay.whatif.record import LogRecording, LogWindow, record_of
from fairlead_replay.whatif.replays import Conditions, play_recording
from fairlead_replay.whatif.study import run_study
from fairlead_schemas.queuefile.settings import QueueRemoval, QueueSettings
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire.commit import commit_hash, decode_commit, encode_commit
from tests.replay.whatif.scenes import Scene, at, queues

WEIGHT = {"queues": {"a": {"weight": 2}}}


def answer(log: list[Stored], words: dict[str, Any] = WEIGHT, window: LogWindow = LogWindow()) -> dict[str, Any]:  # noqa: B008 -- a constant
    """Return the document of an unshaken study."""
    return document(run_study(record_of(log, window), read_overlay(words), seeds=0))


# ---------------------------------------------------------------------------- logs


def test_a_log_of_queues_alone_gets_no_effects() -> None:
    """Nothing started in it; the grade says so."""
    scene = Scene(nodes={})
    scene.command(0, queues())
    scene.command(10, cmd.ApplyQueues(id="later", user="op", queues=queues().queues))
    found = answer(scene.play(60)[0])
    assert (found["grade"], found["withheld"], found["effects"]) == ("C", True, [])
    assert found["because"]


def test_a_log_without_nodes_gets_no_effects() -> None:
    """Jobs wait in both plays; a node cannot be added like one that never was."""
    scene = Scene(nodes={})
    scene.command(0, queues())
    for n in range(5):
        scene.submit(n + 1, 1, 10)
    log = scene.play(60)[0]
    assert answer(log)["withheld"]
    with pytest.raises(InvalidOverlay, match=r"nodes.add\[0\].like: expected a node of the window \(none\)"):
        answer(log, {"nodes": {"add": [{"like": "n001"}]}})


def test_jobs_that_never_end_end_in_no_play() -> None:
    """They run where the record stops, and hold what they hold; more room starts more of them."""
    scene = Scene(gpus=4)
    scene.command(-1, queues())
    for n in range(20):
        scene.submit(n, 2, None)
    log = scene.play(100)[0]
    recording = record_of(log)
    control = play_recording(recording)
    assert {job.end for job in control.books.jobs.values() if job.first_start_ns} == {""}
    more = play_recording(
        recording, Conditions(PlannedChange(read_overlay({"nodes": {"add": [{"like": "n001"}]}}), recording))
    )
    started = [sum(1 for job in each.books.jobs.values() if job.first_start_ns) for each in (control, more)]
    assert started == [4, 6]


def test_a_large_array_with_a_limit_is_played_within_it() -> None:
    """Ten thousand elements, two at once, in the record and under a change."""
    scene = Scene(gpus=4)
    scene.command(-1, queues())
    scene.submit(0, 1, 5, array=(1, 10_000), array_limit=2)
    log = scene.play(60)[0]
    found = answer(log, {"queues": {"a": {"maximum": {"nvidia.com/gpu": 1}}}})
    queue = {each["measure"]: each for each in found["effects"] if each["kind"] == "queue" and each["name"] == "a"}
    assert queue["started"]["control"] > queue["started"]["variant"] > 0
    assert queue["started"]["control"] <= 2 * (60 // 5 + 1)


def test_many_waiting_jobs_are_counted_with_the_wait_that_they_had() -> None:
    """A wait that is not over counts for as long as it has lasted."""
    scene = Scene(gpus=1)
    scene.command(-1, queues())
    for n in range(1500):
        scene.submit(n * 0.001, 1, 50)
    found = answer(scene.play(100)[0])
    (mean,) = [
        each
        for each in found["effects"]
        if each["kind"] == "queue" and each["name"] == "a" and each["measure"] == "wait_mean"
    ]
    assert 90 < mean["control"] <= 100


def test_a_dependency_on_a_job_of_before_the_window_is_kept() -> None:
    """On one that is long gone, and on one that has yet to end."""
    scene = Scene(gpus=4)
    scene.command(-1, queues())
    early = scene.submit(0, 1, 5)
    late = scene.submit(1, 1, 40)
    scene.submit(20, 1, 5, after=(ev.Dependency(job=early),))
    scene.submit(21, 1, 5, after=(ev.Dependency(job=late),))
    log = scene.play(100)[0]
    recording = record_of(log, LogWindow(at(15)))
    played = play_recording(recording)
    for job in ("3", "4"):
        again = played.job(job)
        assert again is not None
        assert again.first_start_ns == recording.real.jobs[job].first_start_ns > 0


def _with_leap(log: list[Stored], leap_ns: int) -> list[Stored]:
    """Return a log one of whose writers has a clock that is an hour ahead for some commits."""
    heads: dict[str, str] = {}
    found: list[Stored] = []
    for stored in log:
        commit = decode_commit(stored.payload)
        leaps = commit.writer == "placer" and 20 < stored.sequence < 30
        at_ns = commit.at_ns + (leap_ns if leaps else 0)
        changed = msgspec.structs.replace(commit, at_ns=at_ns, prev=heads.get(commit.writer, commit.prev))
        payload = encode_commit(changed)
        heads[commit.writer] = commit_hash(payload)
        found.append(Stored(stored.sequence, stored.subject, payload))
    return found


def test_a_clock_that_leaps_an_hour_ends_in_a_grade_not_in_a_crash() -> None:
    """The log's time never goes back; what cannot be known from such a log is withheld or within its grade."""
    scene = Scene(gpus=4)
    scene.command(-1, queues())
    for n in range(20):
        scene.submit(n * 5, 2, 20)
    found = answer(_with_leap(scene.play(300)[0], 3600 * 10**9))
    assert found["grade"] in ("A", "B", "C")
    assert found["withheld"] == (found["grade"] == "C")


# ---------------------------------------------------------------------------- windows


def hour() -> list[Stored]:
    """Return a log with a pause in its middle."""
    scene = Scene(gpus=4)
    scene.command(-1, queues())
    for n in range(10):
        scene.submit(n * 5, 2, 20)
    scene.command(400, cmd.ApplyQueues(id="later", user="op", queues=queues().queues))
    return scene.play(500)[0]


def test_a_window_without_submits_gets_no_effects() -> None:
    """Nothing happens in it that a policy decides."""
    found = answer(hour(), window=LogWindow(at(300)))
    assert (found["submits"], found["withheld"], found["effects"]) == (0, True, [])


def test_a_window_that_begins_at_a_commits_own_instant_has_that_instant_before_it() -> None:
    """All commits of one moment are on one side."""
    log = hour()
    times = sorted({decode_commit(each.payload).at_ns for each in log})
    for at_ns in times[2:12]:
        recording = record_of(log, LogWindow(at_ns))
        before = [each for each in log if decode_commit(each.payload).at_ns <= at_ns]
        assert recording.start.sequence == before[-1].sequence
        played = play_recording(recording)
        real = {job.id: job.first_start_ns for job in recording.real.jobs.values() if job.first_start_ns > at_ns}
        assert {id_: found.first_start_ns for id_ in real if (found := played.job(id_)) is not None} == real


def test_a_window_of_one_moment_is_played() -> None:
    """From one commit to the next."""
    log = hour()
    times = sorted({decode_commit(each.payload).at_ns for each in log})
    recording = record_of(log, LogWindow(times[4], times[5]))
    assert play_recording(recording).end_ns == times[5]


# ---------------------------------------------------------------------------- changes


def _running() -> LogRecording:
    """Return a window at whose start two runs hold 8 GPUs of queue a."""
    scene = Scene(gpus=4)
    scene.command(-1, queues())
    scene.submit(0, 4, 100)
    scene.submit(1, 4, 100)
    for n in range(6):
        scene.submit(20 + n, 2, 30)
    return record_of(scene.play(300)[0], LogWindow(at(10)))


def test_a_limit_below_what_runs_lets_it_run_and_starts_no_more() -> None:
    """Runs are not stopped by a limit; the next one starts when it fits below."""
    recording = _running()
    change = PlannedChange(read_overlay({"queues": {"a": {"maximum": {"nvidia.com/gpu": 2}}}}), recording)
    played = play_recording(recording, Conditions(change))
    for job in ("1", "2"):
        found = played.job(job)
        assert found is not None
        assert (len(found.attempts), found.end) == (1, "JobSucceeded")
    starts = sorted(job.first_start_ns for job in played.books.jobs.values() if job.first_start_ns > at(10))
    assert starts
    assert starts[0] >= at(100)
    assert all(later - earlier >= 29 * 10**9 for earlier, later in pairwise(starts))


def test_a_node_is_added_like_one_that_has_gone() -> None:
    """It was there in the window; what it had is known."""
    scene = Scene(gpus=4)
    scene.command(-1, queues())
    scene.fact(5, "n002", "silent", silent_ns=10**9)
    for n in range(10):
        scene.submit(n, 4, 30)
    recording = record_of(scene.play(300)[0])
    change = PlannedChange(read_overlay({"nodes": {"add": [{"like": "n002"}]}}), recording)
    played = play_recording(recording, Conditions(change))
    nodes = {node for job in played.books.jobs.values() for run in job.attempts for node in run.nodes}
    assert "n002-plus-1" in nodes


def test_a_pool_that_has_no_nodes_is_named() -> None:
    """A queue's pool is its own; another one cannot be chosen by a change of something that is not there."""
    recording = _running()
    with pytest.raises(InvalidOverlay, match=r'pools.empty: expected a pool of the window \(default\), found "empty"'):
        PlannedChange(read_overlay({"pools": {"empty": {"sequencer": "fifo"}}}), recording)


def test_a_sequencer_that_raises_is_named_with_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sequencer may be anybody's."""

    def broken(*_: object, **__: object) -> Any:
        raise ZeroDivisionError("no share")

    recording = _running()
    monkeypatch.setattr(Drf, "place", broken)
    with pytest.raises(PlayStalled, match=r"the queue could not decide at 2023-11-14T.*Z: ZeroDivisionError: no share"):
        play_recording(recording)


def test_every_mistake_of_a_change_is_named_at_once() -> None:
    """A person corrects a file once."""
    with pytest.raises(InvalidOverlay) as refused:
        read_overlay({"queues": {"a": {"weight": 0, "wait": 1}}, "nodes": {"add": [{"count": 0}]}, "sequenser": "x"})
    fields = {each.field for each in refused.value.errors}
    assert fields >= {"queues.a.wait", "nodes.add[0].like", "sequenser"}


def test_a_change_that_names_a_queue_which_the_record_removes_is_a_conflict() -> None:
    """The record's own removal is given; the answer says that it and the change contradict each other."""
    scene = Scene(gpus=4)
    scene.command(-1, queues(a=QueueSettings(), b=QueueSettings()))
    for n in range(10):
        scene.submit(n * 3, 1, 10)
    scene.command(60, cmd.ApplyQueues(id="gone", user="op", remove=(QueueRemoval(path="b", move_to=""),)))
    found = answer(scene.play(200)[0], {"queues": {"b": {"weight": 3}}})
    assert found["conflicts"] == {"queues.b: the record removes the queue": 1}
