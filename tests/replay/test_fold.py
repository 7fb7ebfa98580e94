"""Folding: to any sequence, from a snapshot and its tail, and to the same bytes under every hash seed."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fairlead.commands.audit import summary
from fairlead_bus import snapshots
from fairlead_bus.log import identity
from fairlead_bus.memory import MemoryHub
from fairlead_bus.port import Message
from fairlead_queue.core import QueueCore
from fairlead_replay.audit import verify_export
from fairlead_replay.fold import CORES, FoldEnd, PlacedCommit, commits_of, fold_from, fold_to, fold_to_time, state_hash
from fairlead_replay.live_comparison import compare_live, compare_snapshots, fold_export
from fairlead_replay.sim.world import run_seed
from fairlead_schemas.wire import subjects
from tests.replay.worlds import GOLDEN, GOLDEN_QUEUES, hub_of, log_of

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from fairlead_replay.live_comparison import fold_export
from fairlead_replay.sim.seeds import quiet
from fairlead_replay.sim.world import run_seed
from fairlead_schemas.wire import subjects
quiet()
print(sorted(fold_export(sys.argv[1]).state_hashes().items()))
print([run_seed(seed).digest for seed in (3, 4)])
"""


@pytest.mark.parametrize("golden", [GOLDEN, GOLDEN_QUEUES], ids=lambda golden: golden.name)
def test_a_golden_log_is_whole_and_folds_to_the_recorded_states(golden: Path) -> None:
    """Code of today reads the log of yesterday to the same bytes."""
    assert verify_export(golden).ok
    assert fold_export(golden).state_hashes() == msgspec.json.decode((golden / "states.json").read_bytes())


def test_state_and_simulation_are_the_same_under_every_hash_seed() -> None:
    """No set's or dict's order reaches a state or a decision."""
    found = set[str]()
    for hash_seed in ("0", "1", "4242"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(GOLDEN)], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    assert len(found) == 1


def test_a_seed_is_one_history() -> None:
    """Twice the same seed, twice the same log, byte for byte; another seed, another log."""
    assert run_seed(11) == run_seed(11)
    assert run_seed(11).digest != run_seed(12).digest


def test_a_snapshot_and_its_tail_fold_to_what_the_whole_log_folds_to() -> None:
    """At every tenth sequence, for every core."""
    commits = list(commits_of(log_of(8)))
    whole = fold_to(commits).state_hashes()
    assert len(commits) > 100
    for sequence in range(0, len(commits), 10):
        for writer, core in fold_to(commits, sequence).cores().items():
            tail = fold_from(writer, core.snapshot(), sequence, commits, len(commits))
            assert state_hash(tail.snapshot()) == whole[writer], f"{writer} from {sequence}"


def test_folding_beyond_the_end_is_refused() -> None:
    """An answer for a sequence that is not there would be a wrong answer."""
    commits = list(commits_of(log_of(8)))
    with pytest.raises(ValueError, match="the log ends at sequence"):
        fold_to(commits, len(commits) + 1)


def test_a_moment_is_the_last_sequence_before_it() -> None:
    """Folding to a commit's own time includes it."""
    commits = list(commits_of(log_of(8)))
    # Writers' clocks differ: one at which no earlier commit has a later time.
    middle = next(at for at in range(30, len(commits)) if _latest(commits[:at]) <= commits[at].commit.at_ns)
    assert fold_to_time(commits, commits[middle].commit.at_ns).sequence >= commits[middle].sequence
    assert fold_to_time(commits, commits[0].commit.at_ns - 1).sequence == 0


def _latest(commits: list[PlacedCommit]) -> int:
    return max(each.commit.at_ns for each in commits)


async def test_services_that_do_not_answer_are_not_called_equal() -> None:
    """Silence is no proof."""
    compared = await compare_live(MemoryHub().connect())
    assert [(each.what, each.equal) for each in compared] == [(writer, False) for writer in CORES]


@pytest.mark.parametrize("wrong", [False, True])
async def test_snapshots_in_the_store_are_compared(wrong: bool) -> None:
    """One taken at its sequence folds on to what the log says; one that was tampered with does not."""
    bus, commits = hub_of(8).connect(), list(commits_of(log_of(8)))
    log_id = await identity(bus)
    end = commits[-1].sequence  # no later commit puts right what was tampered with
    state = fold_to(commits, end).queue.snapshot()
    if wrong:
        state = state.replace(b'"next_number":', b'"next_number":9')
    for turn in (0, 1):  # both that are kept
        await snapshots.save(
            bus, "queue", snapshots.Snapshot(end, {}, state), log_id=log_id, schema=QueueCore.schema, turn=turn
        )
    compared = {each.what: each.equal for each in await compare_snapshots(bus, commits)}
    assert compared["queue snapshot"] is not wrong


async def test_a_snapshot_of_another_version_is_reported_and_not_read() -> None:
    """After an upgrade the newest snapshot may be an earlier version's: no error, and no difference either. What the
    services have answered is treated alike."""
    bus, commits = hub_of(8).connect(), list(commits_of(log_of(8)))
    log_id = await identity(bus)
    for turn, (sequence, schema) in enumerate(((40, QueueCore.schema), (41, "1"))):
        state = fold_to(commits, 40).queue.snapshot() if schema != "1" else b'{"queues":[["a",null]]}'
        await snapshots.save(
            bus, "queue", snapshots.Snapshot(sequence, {}, state), log_id=log_id, schema=schema, turn=turn
        )
    (found,) = (each for each in await compare_snapshots(bus, commits) if each.what == "queue snapshot")
    assert (found.what, found.sequence, found.verdict) == ("queue snapshot", 41, "of another version")
    assert "found 1" in found.message

    async def answer(_: Message) -> bytes:
        return msgspec.json.encode({"sequence": 40, "sha256": "0" * 64, "bytes": 1, "schema": "1"})

    await bus.serve(subjects.rpc("queue", "state"), answer)
    compared = {each.what: each.verdict for each in await compare_live(bus)}
    assert compared["queue"] == "of another version"
    assert compared["placer"] == "DIFFERS", "a service that does not answer is not called of another version"


def test_a_fold_has_a_readable_summary() -> None:
    """`fairlead replay` prints its time and content: every job of the log counted once."""
    cluster = fold_export(GOLDEN)
    words = dict(summary(cluster))
    jobs = sum(int(part.split()[0]) for part in words["jobs"].split(", "))
    assert len(cluster.queue.state.jobs) + len(cluster.queue.state.finished) == jobs > 0
    assert f"fairlead why ID --at {cluster.sequence}" == words["more"]
    assert summary(fold_to([])) == []


def test_an_export_is_folded_to_a_sequence_or_a_time() -> None:
    """To the last commit before the first one that is later than the time; beyond the end of a log by sequence: refused."""
    whole = fold_export(GOLDEN)
    half = fold_export(GOLDEN, FoldEnd(sequence=whole.sequence // 2))
    assert half.sequence == whole.sequence // 2
    by_time = fold_export(GOLDEN, FoldEnd(at_ns=half.at_ns))
    assert by_time.sequence >= half.sequence and by_time.at_ns == half.at_ns
    assert fold_export(GOLDEN, FoldEnd(at_ns=1)).sequence == 0
    assert fold_export(GOLDEN, FoldEnd(at_ns=whole.at_ns)).state_hashes() == whole.state_hashes()
    with pytest.raises(ValueError, match="the log ends at"):
        fold_export(GOLDEN, FoldEnd(sequence=whole.sequence + 1))
