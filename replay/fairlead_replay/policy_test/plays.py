"""Plays of a policy test, and what is measured of each.

The recorded policy is played first: its grade says how far the rest can be believed. Then come the policy under test and what it
is compared with, once as recorded and, with seeds, in pairs that are shaken alike.
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from fairlead_bus.port import Stored
from fairlead_replay.policy_test.metrics import MeasuredJobs, PlayMeasures, metric_named
from fairlead_replay.policy_test.policy_file import PolicyTest
from fairlead_replay.whatif.commands import Command
from fairlead_replay.whatif.effects import counted_jobs, groups_of
from fairlead_replay.whatif.fidelity import Fidelity, compare
from fairlead_replay.whatif.given import Given, GivenCommand
from fairlead_replay.whatif.record import LogRecording
from fairlead_replay.whatif.replays import Conditions, Outcome, play_recording
from fairlead_replay.whatif.stimuli import CHANGE_ID, Changes
from fairlead_schemas.queuefile.parse import QueueFile
from fairlead_schemas.queuefile.settings import DEFAULT_POOL, PoolEntry, PoolSettings
from fairlead_schemas.wire import commands as cmd

#: Makes the change of one play; None: as recorded.
type MakeChanges = Callable[[], Changes | None]

#: Names that a message has.
NAMED_MAX = 8
#: Figures of every queue that goldens keep.
KEPT_METRICS = ("started", "wait_mean", "wait_p50", "wait_p95", "gpu_hours", "preemptions")


class MissingJobs(ValueError):
    """An expectation is of jobs that the window does not have; the message names its place."""


class PlayFacts(NamedTuple):
    """What is measured of one play."""

    #: Of each expectation, in their order.
    values: tuple[float, ...]
    #: {job: its wait in seconds}
    waits: dict[str, float]


class QueueFigures(NamedTuple):
    """Figures of one queue in one play: {metric: value}."""

    queue: str
    figures: dict[str, float]


class PolicyPlays(NamedTuple):
    """All plays of a test."""

    fidelity: Fidelity
    #: (what is compared with, the policy under test), of equal seeds.
    pairs: tuple[tuple[PlayFacts, PlayFacts], ...]
    #: SHA-256 of the unshaken play of the policy under test, commit by commit, and its figures by queue.
    play_sha256: str
    queues: tuple[QueueFigures, ...]
    #: What was not given in it: {reason: how many}.
    left_out: dict[str, int]


def run(
    test: PolicyTest,
    recording: LogRecording,
    policy: MakeChanges,
    against: MakeChanges,
    progress: Callable[[int, int], None] | None = None,
) -> PolicyPlays:
    """Play all that a test needs. Raises MissingJobs, PlayStalled, InvalidOverlay, UnknownQueues."""
    check_jobs(test, recording)
    compares_recorded = test.against.is_recorded
    plays = 2 + (2 * test.seeds or (0 if compares_recorded else 1))
    done = 0

    def play(make: MakeChanges, seed: int, record: Callable[[Stored], None] | None = None) -> Outcome:
        nonlocal done
        found = play_recording(recording, Conditions(make(), seed), record=record)
        done += 1
        if progress is not None:
            progress(done, plays)
        return found

    digest = hashlib.sha256()
    control = play(lambda: None, 0)
    fidelity, compared = compare(recording, control), _facts(test, recording, control)
    del control
    tested = play(policy, 0, lambda stored: digest.update(stored.payload + b"\n"))
    if test.seeds:
        pairs = [
            (_facts(test, recording, play(against, seed)), _facts(test, recording, play(policy, seed)))
            for seed in range(1, test.seeds + 1)
        ]
    else:
        other = compared if compares_recorded else _facts(test, recording, play(against, 0))
        pairs = [(other, _facts(test, recording, tested))]
    return PolicyPlays(
        fidelity,
        tuple(pairs),
        digest.hexdigest(),
        tuple(_figures(recording, tested)),
        dict(sorted((+tested.left_out).items())),
    )


def check_jobs(test: PolicyTest, recording: LogRecording) -> None:
    """Raise MissingJobs where an expectation is of a queue, user, pool or size without jobs in the window."""
    jobs = counted_jobs(recording)
    if not jobs:
        raise MissingJobs("log: expected jobs in the window, found none")
    for each in test.expectations:
        if each.jobs.kind and not any(map(each.jobs.has, jobs)):
            known = sorted({group.name for job in jobs for group in groups_of(job) if group.kind == each.jobs.kind})
            shown = ", ".join(known[:NAMED_MAX]) + (
                f" and {len(known) - NAMED_MAX} more" if len(known) > NAMED_MAX else ""
            )
            raise MissingJobs(
                f"{each.at}.{each.jobs.kind}: {each.metric.name} does not exist for {each.jobs}, which has no job in the log's "
                f"window; expected one of {shown}"
            )


def _facts(test: PolicyTest, recording: LogRecording, outcome: Outcome) -> PlayFacts:
    measures = PlayMeasures(recording, outcome)
    values = [measures.value(each.metric, each.jobs, each.longer_than_ns) for each in test.expectations]
    return PlayFacts(tuple([0.0 if value is None else value for value in values]), measures.waits())


def _figures(recording: LogRecording, outcome: Outcome) -> list[QueueFigures]:
    measures = PlayMeasures(recording, outcome)
    found: list[QueueFigures] = []
    for queue in sorted({life.job.queue for life in measures.lives}):
        figures: dict[str, float] = {}
        for name in KEPT_METRICS:
            metric = metric_named(name)
            assert metric is not None
            value = measures.value(metric, MeasuredJobs("queue", queue))
            figures[name] = round(value or 0.0, 6)
        found.append(QueueFigures(queue, figures))
    return found


# ---------------------------------------------------------------------------- a queue file as the policy


class UnknownQueues(ValueError):
    """The queue file lacks queues that jobs of the window are in; the message names them."""


class QueueFileChange(Changes):
    """Whole queue file instead of the recorded settings: it holds from the window's begin, and recorded changes of queues are left out. One object serves one play. `sequencer`: of the default pool, "" as the file says."""

    def __init__(self, file: QueueFile, recording: LogRecording, sequencer: str = "") -> None:
        """Raises UnknownQueues."""
        self._recording = recording
        self._queues, self._pools = file.queues, _with_sequencer(file.pools, sequencer)
        known = {entry.path for entry in file.queues} | {*recording.start.cluster().queue.state.queues, "default"}
        begin_ns = recording.start.at_ns
        used = {
            job.submitted.queue for job in recording.real.jobs.values() if job.submitted_ns > begin_ns or not begin_ns
        }
        missing = sorted(used - known)
        if missing:
            raise UnknownQueues(
                f"expected the queues that jobs of the log are submitted to, found none named {', '.join(missing[:8])}"
                + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
            )

    def first(self, at_ns: int) -> list[Given]:
        """Return the file's command, before all else."""
        apply = cmd.ApplyQueues(id=CHANGE_ID, user=CHANGE_ID, pools=self._pools, queues=self._queues)
        begin_ns = at_ns or self._recording.begin_ns or min([each.at_ns for each in self._recording.given], default=0)
        return [GivenCommand(begin_ns, 0, "queue", 0, apply)]

    def command(self, command: Command) -> Command | None:
        """Return None for a recorded change of queues."""
        return None if isinstance(command, cmd.ApplyQueues) and command.id != CHANGE_ID else command


def _with_sequencer(pools: tuple[PoolEntry, ...], sequencer: str) -> tuple[PoolEntry, ...]:
    if not sequencer:
        return pools
    named = {entry.pool: entry.settings for entry in pools}
    named[DEFAULT_POOL] = msgspec.structs.replace(named.get(DEFAULT_POOL, PoolSettings()), sequencer=sequencer)
    return tuple([PoolEntry(pool=pool, settings=settings) for pool, settings in sorted(named.items())])
