"""What a log says was given: windows, commands, absences; and what is wrong with a window, in words."""

import msgspec
import pytest

from fairlead_bus.port import LogDamaged, Stored
from fairlead_replay.virtual.load import machines
from fairlead_replay.whatif.commands import CommandReader
from fairlead_replay.whatif.reactions import Reactions, ReactionWatch
from fairlead_replay.whatif.record import SLACK_NS, Absence, LogWindow, WindowError, record_of
from fairlead_replay.whatif.replays import play_recording
from fairlead_schemas.queuefile.settings import PoolSettings, QueueSettings
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire import commands as cmd
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.commit import GENESIS, VERSION, Commit, commit_hash, decode_commit, encode_commit
from fairlead_schemas.wire.resources import Request
from tests.replay.whatif.scenes import SPEC, Scene, at, queues


def commit(*events: ev.Event, writer: str = "queue", at_ns: int = 1000) -> Commit:
    """Return a commit of these events."""
    return Commit(v=VERSION, writer=writer, n=1, basis=0, at_ns=at_ns, cursors={}, prev=GENESIS, events=list(events))


def small_log() -> list[Stored]:
    """Return a log of two jobs on one node, from -1 s to 30 s."""
    scene = Scene()
    scene.command(-1, queues())
    scene.submit(0, 4, 20)
    scene.submit(10, 2, 20)
    return scene.play(60)[0]


# ---------------------------------------------------------------------------- commands


def test_a_submit_is_read_with_every_field() -> None:
    """Each field of the event that the command has is the command's."""
    asked = cmd.SubmitJob(
        id="7",
        user="ann",
        name="n",
        queue="a",
        request=Request(gpu_milli=1000),
        spec=SPEC,
        project="p",
        kind="session",
        priority=70,
        array=(1, 3),
        retries=2,
        total_ns=5,
        grace_ns=6,
        start_at_ns=7,
        deadline_ns=8,
        slice_ns=9,
        after=(ev.Dependency(job="1"),),
        array_limit=1,
        gang="leader",
        key="k",
        digest="d",
    )
    same = {name: getattr(asked, name) for name in asked.__struct_fields__ if name not in ("id", "authority")}
    event = ev.JobSubmitted(cause="cmd:7", job="12", **same)
    assert CommandReader().read(commit(event)) == [asked]


def test_what_follows_from_a_command_is_no_command() -> None:
    """A hold of an offered job says its cause twice; so does the stop of every element of an array."""
    reader = CommandReader()
    withdrawn = ev.OfferWithdrawn(cause="cmd:h", job="1", attempt=1, reason="hold", by="ann")
    stop = ev.JobStopRequested(cause="cmd:c", job="2", attempt=0, reason="cancelled", by="ann")
    assert reader.read(commit(withdrawn, stop)) == [
        cmd.HoldJob(id="h", user="ann", job="1"),
        cmd.CancelJob(id="c", user="ann", job="2"),
    ]
    held = ev.JobHeld(cause="cmd:h", job="1", by="ann")
    assert reader.read(commit(held, msgspec.structs.replace(stop, job="2_1"))) == []


def test_a_change_of_queues_is_read_as_a_whole() -> None:
    """With what it left as it was, of which the log has only the number."""
    reader = CommandReader()
    first = [
        ev.PoolConfigured(cause="cmd:1", pool="big", settings=PoolSettings()),
        ev.QueueConfigured(cause="cmd:1", path="a", settings=QueueSettings()),
        ev.QueueConfigured(cause="cmd:1", path="b", settings=QueueSettings()),
        ev.QueuesApplied(cause="cmd:1", command="1", configured=3, by="op"),
    ]
    (made,) = reader.read(commit(*first))
    assert isinstance(made, cmd.ApplyQueues)
    assert ([each.pool for each in made.pools], [each.path for each in made.queues]) == (["big"], ["a", "b"])
    heavier = QueueSettings(weight=2)
    second = [
        ev.QueueConfigured(cause="cmd:2", path="b", settings=heavier),
        ev.QueueRemoved(cause="cmd:2", path="c", move_to="b"),
        ev.QueuesApplied(cause="cmd:2", command="2", configured=1, removed=1, unchanged=1, by="op", reclaim=True),
    ]
    (changed,) = reader.read(commit(*second))
    assert isinstance(changed, cmd.ApplyQueues)
    assert [(each.path, each.settings.weight) for each in changed.queues] == [("b", 2), ("a", 1)]
    assert (changed.remove[0].path, changed.remove[0].move_to, changed.reclaim, changed.prune) == (
        "c",
        "b",
        True,
        False,
    )


def test_a_deadline_is_read_as_the_time_left() -> None:
    """The event has the moment, the command the time from now."""
    event = ev.NodeDraining(cause="cmd:d", node="n1", by="op", reason="fan", deadline_ns=5000)
    (drain,) = CommandReader().read(commit(event, writer="placer"))
    assert drain == cmd.DrainNode(id="d", user="op", node="n1", reason="fan", deadline_ns=4000)


def test_answers_that_do_not_tell_what_was_asked_are_counted() -> None:
    """A log of before refused commands were named."""
    reader = CommandReader()
    refused = ev.CommandRejected(cause="cmd:x", command="x", code="conflict", message="too late")
    assert reader.read(commit(refused)) == []
    assert reader.unknown == {"CommandRejected": 1}


# ---------------------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (LogWindow(at(20), at(10)), "to: expected a time after from"),
        (LogWindow(at(10), at(10)), "to: expected a time after from"),
        (LogWindow(at(-100)), "from: expected a time from the log's first commit on"),
        (LogWindow(at(31)), "from: expected a time before the log's last commit"),
        (LogWindow(at(5), at(500)), "to: expected a time up to the log's last commit"),
    ],
)
def test_a_window_outside_of_the_log_is_refused(window: LogWindow, words: str) -> None:
    """The bound, what was expected, what was found."""
    with pytest.raises(WindowError, match=words):
        record_of(small_log(), window)


def test_an_empty_log_is_refused() -> None:
    """There is nothing to play."""
    with pytest.raises(WindowError, match="log: expected commits, found none"):
        record_of([])


def test_a_window_holds_whole_moments() -> None:
    """Commits of the very moment belong to what was before; the next ones are given."""
    log = small_log()
    recording = record_of(log, LogWindow(at(10), at(25)))
    assert recording.start.at_ns == at(10)
    assert recording.end_ns == at(25)
    assert recording.first == recording.start.sequence + 1
    assert recording.last < log[-1].sequence
    assert not recording.given  # both jobs had come


def test_a_damaged_log_gives_no_answer() -> None:
    """Not even from what is before the damage."""
    log = small_log()
    middle = len(log) // 2
    cut = [*log[:middle], *log[middle + 1 :]]
    with pytest.raises(LogDamaged):
        record_of(cut)
    changed = [
        *log[:middle],
        msgspec.structs.replace(log[middle], payload=log[middle].payload[:-2]),
        *log[middle + 1 :],
    ]
    with pytest.raises(LogDamaged) as found:
        record_of(changed)
    assert found.value.sequence == log[middle].sequence


def test_an_event_of_a_newer_version_is_named_with_its_place() -> None:
    """The log is not damaged; this version cannot read it."""
    log = small_log()
    newer = log[0].payload.replace(b'"QueueConfigured"', b'"QueueDreamt"')
    with pytest.raises(LogDamaged, match="QueueDreamt"):
        record_of([msgspec.structs.replace(log[0], payload=newer), *log[1:]])


# ---------------------------------------------------------------------------- absences


def chained(*commits: tuple[str, int, float, list[ev.Event]]) -> list[Stored]:
    """Return a log of (writer, basis, at in seconds, events)."""
    heads: dict[str, tuple[int, str]] = {}
    log: list[Stored] = []
    for sequence, (writer, basis, seconds, events) in enumerate(commits, 1):
        n, prev = heads.get(writer, (0, GENESIS))
        made = Commit(
            v=VERSION, writer=writer, n=n + 1, basis=basis, at_ns=at(seconds), cursors={}, prev=prev, events=events
        )
        payload = encode_commit(made)
        heads[writer] = n + 1, commit_hash(payload)
        log.append(Stored(sequence, subjects.log(writer), payload))
    return log


def submitted(job: str) -> list[ev.Event]:
    """Return the events of a job that is offered at once."""
    asked = Request(gpu_milli=1000)
    return [
        ev.JobSubmitted(cause=f"cmd:{job}", job=job, name=job, queue="default", user="ann", request=asked, spec=SPEC),
        ev.JobOffered(cause=f"cmd:{job}", job=job, attempt=1, rank=1),
    ]


def unplaceable(cause: str) -> list[ev.Event]:
    """Return the answer that there is no room."""
    return [ev.JobUnplaceable(cause=cause, job="1", attempt=1, reasons={}, nodes=0)]


def test_a_late_first_answer_shows_that_the_placer_was_away() -> None:
    """The offer of the second commit is answered after 30 s; such answers take milliseconds."""
    start: list[ev.Event] = [ev.QueueConfigured(cause="clock", path="default")]
    log = chained(("queue", 0, 0, start), ("queue", 1, 10, submitted("1")), ("placer", 2, 40, unplaceable("2.1")))
    assert record_of(log).absences == (("placer", at(10) - SLACK_NS, at(40)),)


def test_a_prompt_answer_shows_nothing() -> None:
    """A second one of the same class shows nothing either, which waits for room."""
    start: list[ev.Event] = [ev.QueueConfigured(cause="clock", path="default")]
    log = chained(
        ("queue", 0, 0, start),
        ("queue", 1, 10, submitted("1")),
        ("placer", 2, 10, unplaceable("2.1")),
        ("placer", 3, 40, unplaceable("2.1")),
    )
    assert record_of(log).absences == ()


def test_a_commit_that_reached_the_log_late_shows_that_its_writer_was_cut_off() -> None:
    """It was written knowing the first commit only, and is stored behind one of 20 s."""
    start: list[ev.Event] = [ev.QueueConfigured(cause="clock", path="default")]
    late: list[ev.Event] = [ev.BreakerReset(cause="cmd:b")]
    log = chained(
        ("queue", 0, 0, start),
        ("queue", 1, 10, submitted("1")),
        ("queue", 2, 20, submitted("2")),
        ("placer", 1, 11, late),
    )
    assert record_of(log).absences == (("placer", at(10) - SLACK_NS, at(20)),)


def test_services_that_were_away_decide_nothing_meanwhile() -> None:
    """The record's placer placed nothing for 30 s; in the play the job starts when it is back, too."""
    scene = Scene()
    scene.command(-1, queues())
    job = scene.submit(10, 4, 20)
    recording = scene.recording(100)._replace(absences=(Absence("placer", at(5), at(35)),))
    played = play_recording(recording).job(job)
    assert played is not None
    assert played.first_start_ns == at(35)
    assert (played.ended_ns - played.first_start_ns) == 20 * SECOND_NS


def test_an_outage_begins_after_the_last_commit_of_its_service() -> None:
    """A play is some milliseconds ahead, so the outage begins a little earlier; never before what the service still wrote."""
    start: list[ev.Event] = [ev.QueueConfigured(cause="clock", path="default")]
    last: list[ev.Event] = [ev.BreakerReset(cause="cmd:b")]
    log = chained(
        ("queue", 0, 0, start),
        ("placer", 1, 9.99, last),
        ("queue", 2, 10, submitted("1")),
        ("placer", 3, 40, unplaceable("3.1")),
    )
    assert record_of(log).absences == (("placer", at(9.99) + 1, at(40)),)


# ---------------------------------------------------------------------------- reactions

NODE = machines(1, 4)["n001"]


def late_answer(offer_s: float, answer_s: float) -> list[Stored]:
    """A log in which the placer answers an offer so late, and once before after 2 ms."""
    return chained(
        ("queue", 0, 0, [ev.QueueConfigured(cause="clock", path="default")]),
        ("queue", 1, 1, submitted("1")),
        ("placer", 2, 1.002, unplaceable("2.1")),
        ("queue", 3, offer_s, submitted("2")),
        ("placer", 4, answer_s, [ev.JobUnplaceable(cause="4.1", job="2", attempt=1, reasons={}, nodes=0)]),
    )


def test_a_writer_knows_a_commit_when_it_answers_it() -> None:
    """Its usual time is the median of its prompt answers."""
    reactions = record_of(late_answer(10, 10.05)).reactions
    assert reactions is not None
    assert reactions.heard["placer"]["JobOffered", "2", 1, 1] == 50_000_000
    assert reactions.usual_heard["placer"] == 2_000_000


def test_a_writer_does_not_know_a_commit_beyond_the_basis_of_its_next_one() -> None:
    """The placer wrote at 11 s on the state of the third commit, and so did not know the fourth of 10 s by then."""
    log = chained(
        ("queue", 0, 0, [ev.QueueConfigured(cause="clock", path="default")]),
        ("queue", 1, 1, submitted("1")),
        ("placer", 2, 1.002, unplaceable("2.1")),
        ("queue", 3, 10, submitted("2")),
        ("placer", 3, 11, [ev.BreakerReset(cause="cmd:b")]),
        ("placer", 5, 12, [ev.BreakerReset(cause="cmd:c")]),
    )
    reactions = record_of(log).reactions
    assert reactions is not None
    assert SECOND_NS < reactions.heard["placer"]["JobOffered", "2", 1, 1] < 2 * SECOND_NS


def test_a_log_in_which_all_is_answered_at_once_has_no_reactions() -> None:
    """So logs that the engine recorded are played as before."""
    log = chained(
        ("queue", 0, 0, [ev.QueueConfigured(cause="clock", path="default")]),
        ("queue", 1, 1, submitted("1")),
        ("placer", 2, 1, unplaceable("2.1")),
    )
    assert record_of(log).reactions is None


def test_delays_of_a_long_recording_are_bounded() -> None:
    """After the first events only the usual delay is known, so that a week of a large cluster fits into memory."""
    watch = ReactionWatch(events_max=4)
    for stored in late_answer(10, 10.05):
        found = decode_commit(stored.payload)
        watch.take(stored.sequence, found, found.at_ns)
    reactions = watch.reactions()
    assert reactions.usual_heard["placer"] == 2_000_000
    assert {job for _, job, _, _ in reactions.heard["placer"]} == {"", "1"}


def test_a_play_hears_as_late_as_the_record_did() -> None:
    """The placer hears of this job's offer after 3 s, and of others at once."""
    scene = Scene()
    scene.command(-1, queues())
    late, other = scene.submit(10, 1, 20), scene.submit(40, 1, 20)
    keys = [("JobSubmitted", late, 0, 1), ("JobOffered", late, 1, 1)]
    slow = Reactions(
        {"queue": {}, "placer": dict.fromkeys(keys, 3 * SECOND_NS)},
        {"queue": {}, "placer": {}},
        {"queue": 0, "placer": 0},
        {"queue": 0, "placer": 0},
    )
    played = play_recording(scene.recording(100)._replace(reactions=slow))
    starts = [found.first_start_ns for job in (late, other) if (found := played.job(job)) is not None]
    assert starts == [at(13), at(40)]


def test_a_command_is_decided_when_it_was_however_busy_its_service_is() -> None:
    """The queue would be busy with its own commit for 5 s; the record says that it took the next submit after 1 s."""
    scene = Scene()
    scene.command(-1, queues())
    first, next_ = scene.submit(10, 1, 20), scene.submit(11, 1, 20)
    busy = Reactions(
        {"queue": {}, "placer": {}},
        {"queue": {("JobSubmitted", first, 0, 1): 5 * SECOND_NS}, "placer": {}},
        {"queue": 0, "placer": 0},
        {"queue": 0, "placer": 0},
    )
    played = play_recording(scene.recording(100)._replace(reactions=busy)).job(next_)
    assert played is not None
    assert played.submitted_ns == at(11)


def test_an_outage_begins_when_a_time_limit_was_due() -> None:
    """The queue stopped a run 30 s after its limit: no other commit shows that it was away."""
    start: list[ev.Event] = [ev.QueueConfigured(cause="clock", path="default")]
    part = ev.Part(node="n001", gpus=(NODE.gpus[0].uuid,))
    stop: list[ev.Event] = [
        ev.JobStopRequested(cause="clock", job="1", attempt=1, reason="time_limit", ran_ns=5 * SECOND_NS)
    ]
    log = chained(
        ("queue", 0, 0, start),
        (
            "placer",
            1,
            1,
            [
                ev.NodeJoined(
                    cause="report:n001:1",
                    node="n001",
                    incarnation="i",
                    boot_id="b",
                    inventory=NODE,
                )
            ],
        ),
        ("queue", 2, 10, submitted("1")),
        ("placer", 3, 10, [ev.JobPlaced(cause="3.1", job="1", attempt=1, parts=(part,))]),
        ("placer", 4, 10, [ev.RunStarted(cause="report:n001:2", job="1", attempt=1)]),
        ("queue", 5, 45, stop),
    )
    assert record_of(log).absences == (("queue", at(15) - SLACK_NS, at(45)),)
