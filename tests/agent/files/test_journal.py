"""The journal: what was durable is there after any crash; a torn tail is dropped, anything else refuses."""

import asyncio
from pathlib import Path

import pytest

from fairlead_agent.core.ledger import Accepted, Booted, Confirmed, Forgot, Ledger, Opened, Record, Reported, Took
from fairlead_agent.files import journal as module
from fairlead_agent.files.journal import Journal, JournalDamaged, JournalHeld, decode_lines, encode_line
from fairlead_schemas.wire.reports import ExitSeen, StartSeen
from tests.kit.eventually import eventually_async

RECORDS: list[Record] = [
    Opened(incarnation="inc", node="n1"),
    Booted(boot_id="b"),
    Took(sequence=5),
    Accepted(job="7", attempt=1, rank=0, epoch=5, gpus=("GPU-a",), grace_ns=3),
    Reported(report=StartSeen(n=1, job="7", attempt=1, rank=0)),
    Reported(report=ExitSeen(n=2, job="7", attempt=1, rank=0, outcome="exited", exit_code=0, clean=True)),
    Confirmed(through=1),
    Accepted(job="8", attempt=1, rank=0, epoch=6),
    Forgot(job="9", attempt=1, rank=0),
]


def ledger_of(records: list[Record]) -> Ledger:
    ledger = Ledger()
    for record in records:
        ledger.apply(record)
    return ledger


def seen(ledger: Ledger) -> object:
    """A ledger as values that can be compared."""
    runs = {key: (run.epoch, run.gpus, run.grace_ns, run.phase) for key, run in ledger.runs.items()}
    return (
        ledger.incarnation,
        ledger.boot_id,
        ledger.sequence,
        ledger.reported,
        ledger.confirmed,
        runs,
        list(ledger.unconfirmed),
    )


def test_a_crash_at_any_byte_leaves_a_whole_prefix() -> None:
    """Cut the file at every byte: the whole lines before the cut are read, nothing else, and nothing refuses."""
    lines = [encode_line(record) for record in RECORDS]
    data = b"".join(lines)
    for cut in range(len(data) + 1):
        records, whole = decode_lines(data[:cut])
        assert RECORDS[: len(records)] == records
        assert whole == sum(map(len, lines[: len(records)])) and cut - whole < len(
            lines[min(len(records), len(lines) - 1)]
        )


def test_any_flipped_bit_in_a_whole_line_refuses() -> None:
    """A fault that is not a torn tail is named with its line, never skipped."""
    data = b"".join(encode_line(record) for record in RECORDS)
    flippable = [at for at in range(len(data)) if data[at] != 10 and data[at] ^ 1 != 10]
    assert len(flippable) > 100
    for at in flippable:
        with pytest.raises(JournalDamaged, match="line"):
            decode_lines(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_compaction_keeps_the_ledger() -> None:
    """The short list folds into the same ledger as the long one."""
    ledger = ledger_of(RECORDS)
    assert seen(ledger) == seen(ledger_of(list(ledger.records())))


async def test_then_runs_after_the_sync(tmp_path: Path) -> None:
    """A callback in `then` finds its records in the file; many writes share few syncs."""
    journal = Journal.open(tmp_path, "n1", "inc")
    done: list[int] = []
    all_done = asyncio.Event()

    def then(n: int) -> None:
        assert encode_line(Took(sequence=n)) in (tmp_path / "journal").read_bytes()
        done.append(n)
        if n == 500:
            all_done.set()

    for n in range(1, 501):
        journal.ledger.apply(Took(sequence=n))
        journal.write([Took(sequence=n)], lambda n=n: then(n))
    await asyncio.wait_for(all_done.wait(), 60)
    assert list(range(1, 501)) == done
    assert journal.syncs < 500
    await journal.close()


async def test_writes_of_one_turn_are_one_sync(tmp_path: Path) -> None:
    """Events that arrive together cost one sync, whatever each of them writes."""
    journal = Journal.open(tmp_path, "n1", "inc")
    done: list[int] = []
    for n in (1, 2, 3):
        journal.write([Took(sequence=n)], lambda n=n: done.append(n))
    await eventually_async(lambda: done == [1, 2, 3])
    assert journal.syncs == 1
    await journal.close()


async def test_a_write_that_can_wait_is_durable_with_the_next_one(tmp_path: Path) -> None:
    """It keeps its place, its callback comes first, and it costs no sync of its own."""
    journal = Journal.open(tmp_path, "n1", "inc")
    done: list[int] = []
    journal.write([Took(sequence=1)], lambda: done.append(1), can_wait=True)
    journal.write([Took(sequence=2)], lambda: done.append(2))
    await eventually_async(lambda: len(done) == 2)
    assert (done, journal.syncs) == ([1, 2], 1)
    journal.write([Took(sequence=3)], lambda: done.append(3), can_wait=True)
    journal.flush()
    await eventually_async(lambda: len(done) == 3)
    assert [record for record in decode_lines((tmp_path / "journal").read_bytes())[0] if isinstance(record, Took)] == [
        Took(sequence=n) for n in (1, 2, 3)
    ]
    await journal.close()


async def test_closing_makes_durable_what_waits(tmp_path: Path) -> None:
    """Also if a batch is under way."""
    journal = Journal.open(tmp_path, "n1", "inc")
    journal.write([Took(sequence=1)], lambda: None)
    await asyncio.sleep(0)  # the batch is with the thread
    journal.write([Took(sequence=2)], lambda: None, can_wait=True)
    await journal.close()
    assert ledger_of(decode_lines((tmp_path / "journal").read_bytes())[0]).sequence == 2


async def test_a_torn_tail_is_truncated_when_the_journal_is_opened(tmp_path: Path) -> None:
    """The incarnation is the journal's own, created once; new records follow whole lines."""
    first = Journal.open(tmp_path, "n1", "inc-1")
    first.ledger.apply(Took(sequence=7))
    first.write([Took(sequence=7)])
    await first.close()
    with (tmp_path / "journal").open("ab") as file:
        file.write(b'0123abcd {"r":"to')
    second = Journal.open(tmp_path, "n1", "inc-2")
    assert (second.ledger.incarnation, second.ledger.sequence) == ("inc-1", 7)
    second.ledger.apply(Took(sequence=8))
    second.write([Took(sequence=8)])
    await second.close()
    assert ledger_of(decode_lines((tmp_path / "journal").read_bytes())[0]).sequence == 8


async def test_it_compacts_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file does not grow with time, and holds the ledger after each rewrite."""
    monkeypatch.setattr(module, "COMPACT_BYTES", 4096)
    journal = Journal.open(tmp_path, "n1", "inc")
    for n in range(1, 2001):
        journal.ledger.apply(Took(sequence=n))
        journal.write([Took(sequence=n)], lambda: None)
        if n % 50 == 0:
            await asyncio.sleep(0)
    await journal.close()
    assert (tmp_path / "journal").stat().st_size < 16 * 4096
    assert ledger_of(decode_lines((tmp_path / "journal").read_bytes())[0]).sequence == 2000


async def test_one_agent_holds_it(tmp_path: Path) -> None:
    """A second process on the same directory is refused: two would start a run twice."""
    journal = Journal.open(tmp_path, "n1", "inc")
    with pytest.raises(JournalHeld):
        Journal.open(tmp_path, "n1", "inc")
    await journal.close()


async def test_a_failing_callback_does_not_lose_others(tmp_path: Path) -> None:
    """One that raises fails the journal, so that the agent ends and its successor examines everything; the rest is
    called."""
    journal = Journal.open(tmp_path, "n1", "inc")
    called: list[str] = []

    def broken() -> None:
        raise KeyError("planted")

    journal.write([], broken)
    journal.write([], lambda: called.append("second"))
    with pytest.raises(KeyError):
        await asyncio.wait_for(asyncio.shield(journal.failed), 60)
    await journal.close()
    await asyncio.sleep(0)
    assert called == ["second"]
