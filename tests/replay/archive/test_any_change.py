"""Every change of a signed log, with recomputed hashes or without, is found; no other change is reported."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead_bus.port import Stored
from fairlead_replay.archive.agreement import LogCopy, Signed, SignedCheckpoints
from fairlead_replay.archive.checkpoints import LogCheckpoint
from fairlead_replay.archive.merkle import MerkleTree, leaf_hash
from fairlead_replay.export import encode_line
from tests.replay.archive.scenes import LOG, chained, later

SHORT = LOG[:60]


def marks_at(sizes: list[int]) -> SignedCheckpoints:
    """Checkpoints of the true log at these sizes."""
    tree, signed = MerkleTree(), list[Signed]()
    for stored in SHORT:
        tree.add(leaf_hash(encode_line(stored)[:-1]))
        if tree.size in sizes:
            signed.append(Signed(LogCheckpoint("test", tree.size, tree.root(), ""), "book"))
    return SignedCheckpoints(signed)


def told(log: list[Stored], marks: SignedCheckpoints, other: LogCopy | None = None) -> LogCopy:
    """Run a verification to its end and return its findings."""
    telling = LogCopy("archive" if other is None else "log", marks, other)
    for stored in log:
        telling.take(stored)
    telling.end()
    return telling


ALL = marks_at([20, 40, 60])
TRUE = told(SHORT, ALL)


@st.composite
def changed(draw: st.DrawFn) -> list[Stored]:
    """Return the log after some edits, with numbers and hashes recomputed by an attacker."""
    log = list(SHORT)
    for _ in range(draw(st.integers(0, 3))):
        if not log:
            break
        at = draw(st.integers(0, len(log) - 1))
        match draw(st.sampled_from(["change", "drop", "double", "cut", "swap"])):
            case "change":
                log[at] = later(log[at], draw(st.integers(1, 9)))
            case "drop":
                del log[at]
            case "double":
                log.insert(at, log[at])
            case "cut":
                del log[at:]
            case _:
                log[at], log[at - 1] = log[at - 1], log[at]
    return chained(log)


@given(log=changed())
@settings(deadline=None, max_examples=60)
def test_a_log_that_is_not_the_archived_one_is_found(log: list[Stored]) -> None:
    """By the archive: at the first commit that differs, or is missing. A log that is only longer is no damage."""
    found = told(log, ALL, TRUE).found
    differs = next((at for at, (one, two) in enumerate(zip(log, SHORT, strict=False), start=1) if one != two), 0)
    if differs:
        assert differs in [one.sequence for one in found if one.where == "log"]
    elif len(log) < len(SHORT):
        assert len(log) + 1 in [one.sequence for one in found if one.where == "log"]
    elif log == SHORT:
        assert found == []


@given(log=changed(), sizes=st.lists(st.integers(1, len(SHORT)), min_size=1, max_size=3))
@settings(deadline=None, max_examples=60)
def test_checkpoints_alone_find_every_change_that_they_cover(log: list[Stored], sizes: list[int]) -> None:
    """Without an archive: a log that differs from the signed one up to the newest checkpoint is never taken for whole."""
    found = told(log, marks_at(sizes)).found
    newest = max(sizes)
    if log[:newest] != SHORT[:newest]:
        assert found
    elif log == SHORT:
        assert found == []
