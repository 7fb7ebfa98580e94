"""Whole studies: planted changes are found and nothing else, the grade comes before the answer, and what is wrong with a
change is stated in words."""

from typing import Any

import pytest

from fairlead_replay.whatif import lengths
from fairlead_replay.whatif.documents import StudyReader, document
from fairlead_replay.whatif.effects import Effect, is_changed
from fairlead_replay.whatif.fidelity import compare, distance, quantile
from fairlead_replay.whatif.overlay import InvalidOverlay, PlannedChange, read_overlay
from fairlead_replay.whatif.player import PlayStalled
from fairlead_replay.whatif.record import LogRecording, LogWindow, record_of
from fairlead_replay.whatif.replays import Conditions, play_recording
from fairlead_replay.whatif.report_page import page
from fairlead_replay.whatif.study import Study, run_study
from fairlead_schemas.queuefile.settings import Preemption, QueueSettings
from fairlead_schemas.wire import commands as cmd
from tests.replay.whatif.scenes import Scene, at, queues, shared_hour


def busy(*, until_s: float = 4000) -> LogRecording:
    """Return the record of an hour of two queues on 16 GPUs."""
    return record_of(shared_hour(until_s=until_s))


def study(recording: LogRecording, words: dict[str, Any], seeds: int = 3) -> Study:
    """Return the study of a change."""
    return run_study(recording, read_overlay(words), seeds=seeds)


def verdicts(found: Study, measure: str = "wait_mean") -> dict[str, str]:
    """Return {queue: verdict about the measure}."""
    return {
        each.group.name: each.verdict
        for each in found.effects.effects
        if each.group.kind == "queue" and each.measure == measure
    }


def effect(found: Study, queue: str, measure: str) -> Effect:
    """Return one effect on a queue."""
    return next(each for each in found.effects.effects if (each.group.name, each.measure) == (queue, measure))


# ---------------------------------------------------------------------------- planted changes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "hurt"),
    [
        (
            {"queues": {"research": {"guaranteed": {"nvidia.com/gpu": 4}, "maximum": {"nvidia.com/gpu": 6}}}},
            "research",
        ),
        ({"queues": {"teaching": {"maximum": {"nvidia.com/gpu": 8}}}}, "teaching"),
        ({"queues": {"research": {"users": {"default": {"nvidia.com/gpu": 2}}}}}, "research"),
    ],
)
def test_a_change_that_hurts_a_queue_names_it(words: dict[str, Any], hurt: str) -> None:
    """By at least 15 % of its mean wait, in every pair; and the other one is not named."""
    found = study(busy(), words)
    assert found.fidelity.grade == "A"
    assert verdicts(found)[hurt] == "worse"
    changed = effect(found, hurt, "wait_mean")
    assert changed.difference >= 0.15 * changed.control
    assert [queue for queue, verdict in verdicts(found).items() if verdict == "worse"] == [hurt]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        {"queues": {"research": {"maximum": {"nvidia.com/gpu": 16}}}},
        {"queues": {"research": {"weight": 1}, "teaching": {"weight": 1}}},
        {"pools": {"default": {"halfLife": "30d"}}},
    ],
)
def test_a_change_without_effect_has_no_changed_measure(words: dict[str, Any]) -> None:
    """No measure of any queue: every limit is above what was ever held."""
    found = study(busy(), words)
    assert [each for each in found.effects.effects if each.changed] == []
    assert not found.effects.winners
    assert not found.effects.losers


@pytest.mark.slow
def test_more_nodes_shorten_waits() -> None:
    """Two nodes like the first one."""
    found = study(busy(), {"nodes": {"add": [{"like": "n001", "count": 2}]}})
    assert verdicts(found) == {"research": "better", "teaching": "better"}
    assert found.variant.gpus == found.control.gpus + 16


@pytest.mark.slow
def test_a_removed_node_is_empty_from_the_start() -> None:
    """Both queues wait longer on half of the GPUs, and nothing ever runs on it."""
    found = study(busy(), {"nodes": {"remove": ["n002"]}})
    assert set(verdicts(found).values()) == {"worse"}
    nodes = {node for job in found.variant.books.jobs.values() for run in job.attempts for node in run.nodes}
    assert nodes == {"n001"}


def test_a_node_that_is_removed_in_the_middle_gives_its_runs_back() -> None:
    """They are stopped at the window's start and wait again, as a drain does it."""
    recording = _window(busy(until_s=900), 400)
    running = [
        run.nodes[0]
        for job in recording.real.jobs.values()
        for run in job.attempts
        if 0 < run.started_ns <= at(400) and not 0 < run.ended_ns <= at(400)
    ]
    assert running
    changed = Conditions(PlannedChange(read_overlay({"nodes": {"remove": [running[0]]}}), recording))
    outcome = play_recording(recording, changed)
    there = [
        run
        for job in outcome.books.jobs.values()
        for run in job.attempts
        if running[0] in run.nodes and not 0 < run.ended_ns <= at(400)
    ]
    assert there
    assert {run.ended_ns - at(400) for run in there} == {1}


def _window(recording: LogRecording, from_s: float) -> LogRecording:
    """Return a later window of a recorded play: it is played again, and read from there on."""
    log: list[Any] = []
    play_recording(recording, record=log.append)
    return record_of(log, LogWindow(at(from_s)))


# ---------------------------------------------------------------------------- the hardest example: cut runs


def lab() -> LogRecording:
    """Return the record of a lab with a limit of 8 of 16 GPUs, whose long runs its people end by hand, and whose longest
    ones still run where the record ends."""
    plain = QueueSettings(preemption=Preemption(protect_ns=0))
    limited = QueueSettings(maximum={"gpu": 8000}, preemption=Preemption(protect_ns=0))
    scene = Scene(gpus=8)
    scene.command(-1, queues(lab=limited, rest=plain))
    for n in range(90):
        queue = "lab" if n % 3 else "rest"
        job = scene.submit(n * 20, 2, 100 + n * 53 % 200, queue=queue, user=f"u{n % 4}", name=f"{queue}-{n % 4}")
        if n % 5 == 0:
            scene.lengthen(job, 40_000)
            scene.cancel_after(job, 400 + n)
    log, _ = scene.play(3000)
    return record_of(log)


DOUBLED = {"queues": {"lab": {"maximum": {"nvidia.com/gpu": 16}}}}


def starts(recording: LogRecording) -> tuple[str, int, int]:
    """Return the control's grade, and the starts of the lab in control and variant."""
    control = play_recording(recording)
    variant = play_recording(recording, Conditions(PlannedChange(read_overlay(DOUBLED), recording)))
    of_lab = [sum(1 for job in outcome.books.jobs.values() if job.first_start_ns) for outcome in (control, variant)]
    return compare(recording, control).grade, of_lab[0], of_lab[1]


@pytest.mark.slow
def test_with_rules_for_cut_runs_the_sign_is_right_and_the_control_is_near() -> None:
    """A limit that is doubled lets more jobs start."""
    grade, control, variant = starts(lab())
    assert grade in ("A", "B")
    assert variant > control


@pytest.mark.slow
def test_with_runs_that_never_end_the_sign_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Left to themselves, cut runs fill the cluster: the doubled limit then lets more of them in, and fewer jobs start. The
    control shows it: its grade is C."""

    def endless(phases: list[lengths.Phase]) -> list[lengths.Phase]:
        return [each._replace(work=None, calls=()) if each.basis == "drawn" else each for each in phases]

    original = lengths.phases_of
    monkeypatch.setattr(lengths, "phases_of", lambda *given: endless(original(*given)))
    grade, control, variant = starts(lab())
    assert grade == "C"
    assert variant < control


@pytest.mark.slow
def test_with_careless_draws_the_answer_is_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut runs that end where they were cut leave the cluster emptier than it was, and the grade says so."""

    def short(phases: list[lengths.Phase]) -> list[lengths.Phase]:
        return [
            each._replace(work=max(1, (each.work or 1) // 4), calls=()) if each.basis == "drawn" else each
            for each in phases
        ]

    original = lengths.phases_of
    monkeypatch.setattr(lengths, "phases_of", lambda *given: short(original(*given)))
    found = study(lab(), DOUBLED, seeds=0)
    assert found.is_withheld
    words = document(found)
    assert (words["grade"], words["withheld"], words["effects"]) == ("C", True, [])
    assert words["because"]
    assert document(found, even_so=True)["effects"]


# ---------------------------------------------------------------------------- effects and grades by hand


def test_a_difference_needs_one_sign_in_every_pair_and_twice_the_spread() -> None:
    """Fewer than three pairs show nothing."""
    assert is_changed([5, 6, 7], [10, 11, 12])
    assert not is_changed([5, 6, -7], [10, 11, 12])
    assert not is_changed([1, 2, 1.5], [10, 11, 12])
    assert not is_changed([5, 6], [10, 10])
    assert not is_changed([0, 0, 0], [10, 10, 10])


def test_distances_of_waits_are_in_tenths_of_a_second() -> None:
    """Nanoseconds are no difference; one of two values that is another one is a half."""
    assert distance([1.0, 2.0], [1.00001, 2.00001]) == 0
    assert distance([1.0, 2.0], [1.0, 3.0]) == 0.5
    assert (distance([], []), distance([1.0], [])) == (0, 1)


def test_quantiles_are_values_that_there_are() -> None:
    """The smallest that so large a part does not exceed."""
    values = [4.0, 1.0, 3.0, 2.0]
    assert [quantile(values, part) for part in (0.0, 0.25, 0.5, 0.51, 1.0)] == [1, 1, 2, 3, 4]
    assert quantile([], 0.5) == 0


def test_a_window_in_which_nothing_starts_gets_no_grade() -> None:
    """Everything is cut; there is no effect table."""
    scene = Scene(nodes={})
    scene.command(0, queues())
    scene.submit(1, 1, 10)
    scene.command(50, cmd.HoldJob(id="h", user="bob", job="1"))
    log, _ = scene.play(100)
    found = study(record_of(log), {"queues": {"a": {"weight": 2}}}, seeds=0)
    assert found.fidelity.because == ("no job started in the window both in the record and in the control",)
    assert document(found)["withheld"]


# ---------------------------------------------------------------------------- wrong changes


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (None, "nothing would be different"),
        ({"sequenser": "fifo"}, "sequenser: "),
        ({"queues": {"a": {"wait": 1}}}, "queues.a.wait: "),
        ({"queues": {"a": {"weight": 0}}}, "queues.a.weight: expected a whole number from 1"),
        ({"queues": {"a": {"roles": {"ann": "admin"}}}}, "roles decide nothing in a play"),
        ({"sequencer": "fifo", "pools": {"default": {"sequencer": "drf"}}}, "keep one of them"),
        ({"nodes": {"add": [{"count": 2}]}}, r"nodes.add\[0\].like: "),
        ({"nodes": {"add": [{"like": "n001", "count": 0}]}}, r"nodes.add\[0\].count: expected a whole number from 1"),
        ({"queues": ["a"]}, "queues: expected"),
    ],
)
def test_a_change_that_cannot_be_read_names_its_field(words: Any, told: str) -> None:
    """The path in the file, what was expected, what was found."""
    with pytest.raises(InvalidOverlay, match=told):
        read_overlay(words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"queues": {"aa": {"weight": 2}}}, r"queues.aa: expected a queue of the window \(a, b"),
        ({"pools": {"big": {"sequencer": "fifo"}}}, "pools.big: expected a pool of the window"),
        ({"nodes": {"add": [{"like": "n009"}]}}, r"nodes.add\[0\].like: expected a node of the window"),
        (
            {"nodes": {"remove": ["n009"]}},
            r'nodes.remove\[0\]: expected a node of the window \(n001, n002\), found "n009"',
        ),
        ({"nodes": {"remove": ["n001", "n002"]}}, "nodes.remove: expected a node that is left, found none"),
    ],
)
def test_a_change_of_what_the_window_has_not_is_refused(words: Any, told: str) -> None:
    """What there is, is named."""
    scene = Scene()
    scene.command(-1, queues())
    scene.submit(0, 1, 10)
    recording = record_of(scene.play(100)[0])
    with pytest.raises(InvalidOverlay, match=told):
        PlannedChange(read_overlay(words), recording)


def test_a_sequencer_that_does_not_exist_is_the_services_own_refusal() -> None:
    """The queue service knows which there are; its words are the answer."""
    with pytest.raises(PlayStalled, match=r"the change was refused: .*sequencer.*nosuch"):
        study(busy(until_s=200), {"sequencer": "nosuch"}, seeds=0)


def test_a_limit_below_the_guarantee_is_the_services_own_refusal() -> None:
    """The recorded change of queues cannot be applied with the overlay on top."""
    with pytest.raises(PlayStalled, match=r"the change was refused: .*maximum"):
        study(busy(until_s=200), {"queues": {"research": {"maximum": {"nvidia.com/gpu": 6}}}}, seeds=0)


def test_a_recorded_change_of_the_same_field_is_a_conflict() -> None:
    """The overlay's value is kept, and the answer lists it."""
    scene = Scene()
    scene.command(-1, queues(a=QueueSettings(weight=1), b=QueueSettings()))
    scene.submit(0, 1, 10)
    changed = queues(a=QueueSettings(weight=5))
    scene.command(20, cmd.ApplyQueues(id="later", user="op", queues=changed.queues))
    scene.submit(30, 1, 10)
    found = study(record_of(scene.play(100)[0]), {"queues": {"a": {"weight": 3}}}, seeds=0)
    assert found.conflicts == {"queues.a.weight: the record changes it, too": 1}
    assert any("the record changes it" in each for each in document(found)["conflicts"])


# ---------------------------------------------------------------------------- words


def test_a_report_escapes_every_name() -> None:
    """Names of jobs, users and queues are other people's text."""
    scene = Scene()
    scene.command(-1, queues())
    for n in range(12):
        scene.submit(n * 3, 4, 20, name="<script>alert(1)</script>", user=f"<b>{n % 2}")
    found = study(record_of(scene.play(300)[0]), {"queues": {"a": {"maximum": {"nvidia.com/gpu": 4}}}})
    text = page(document(found, even_so=True))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "<b>" not in text
    assert "://" not in text  # one file, no network


def of_ann(row: dict[str, Any]) -> bool:
    """Return True for a row of ann's."""
    return row["user"] == "ann"


def test_a_reader_sees_own_jobs_and_totals_of_others() -> None:
    """As in SQL: no name, no id of another user's job."""
    scene = Scene()
    scene.command(-1, queues())
    for n in range(12):
        scene.submit(n * 3, 4, 20, name=f"secret-{n}", user=("ann", "bob")[n % 2])
    found = study(record_of(scene.play(400)[0]), {"queues": {"a": {"maximum": {"nvidia.com/gpu": 4}}}})
    words = document(found, reader=StudyReader(job=of_ann, user=lambda name: name == "ann"), even_so=True)
    rows = [*words["winners"], *words["losers"]]
    assert {each["user"] for each in rows if "user" in each} == {"ann"}
    assert sum(each.get("others", 0) for each in rows) > 0
    assert "bob" not in {each["name"] for each in words["effects"]}
    assert len([each for each in document(found, even_so=True)["losers"] if each["user"] == "bob"]) > 0


def test_the_bases_of_run_lengths_are_shares_of_gpu_time() -> None:
    """One whole run, and one that is still going where the record ends: of equal GPU time."""
    scene = Scene()
    scene.command(-1, queues())
    scene.submit(0, 2, 100)
    scene.submit(100, 2, 1000)
    scene.submit(200, 0, 1000)
    found = study(record_of(scene.play(200)[0], LogWindow()), {"queues": {"a": {"weight": 2}}}, seeds=0)
    assert found.lengths.exact == pytest.approx(0.5, abs=0.02)
    assert found.lengths.drawn == pytest.approx(0.5, abs=0.02)
    assert found.submits == 3
