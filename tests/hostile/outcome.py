"""Results of hostile rounds: rows of a table, and the checks after every fault. Start at `check_load`."""

import asyncio
import subprocess
import time
from collections import Counter
from typing import NamedTuple, Protocol

from fairlead_bus.log import LogReader
from fairlead_bus.nats.adapter import connect
from fairlead_schemas.wire import events as ev
from fairlead_schemas.wire import subjects
from tests.hostile.load import Load, read_marks

ENDED_S = 300.0


class Judged(Protocol):
    """What is judged after an attack: a stack, or an installation of several of each."""

    @property
    def nats_url(self) -> str: ...

    def wait_whole(self) -> None: ...

    def fairlead(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]": ...


class Row(NamedTuple):
    """One row of the table: a kind of attack, how often it was tried, how often something broke, and what."""

    round: str
    what: str
    tries: int
    failures: int
    notes: str = ""


def row(round_: str, what: str, tries: int, broken: list[str], notes: str = "") -> Row:
    """Make a row of the failures' words; the first few stand in the notes."""
    words = "; ".join(
        [*broken[:3], *([f"and {len(broken) - 3} more"] if len(broken) > 3 else []), *filter(None, [notes])]
    )
    return Row(round_, what, tries, len(broken), words)


def joined(rows: list[Row]) -> list[Row]:
    """Add up the rows of tries that did the same."""
    found: dict[str, Row] = {}
    for each in rows:
        old = found.get(each.what, Row(each.round, each.what, 0, 0))
        notes = "; ".join(dict.fromkeys(filter(None, (old.notes, each.notes))))
        found[each.what] = Row(each.round, each.what, old.tries + each.tries, old.failures + each.failures, notes)
    return list(found.values())


def table(rows: list[Row]) -> str:
    """Return the rows as Markdown."""
    lines = ["| round | what was done | tries | failures | |", "|---|---|---:|---:|---|"]
    lines += [f"| {r.round} | {_cell(r.what)} | {r.tries:,} | {r.failures} | {_cell(r.notes)} |" for r in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def check_load(round_: str, stack: Judged, load: Load, *, within_s: float = ENDED_S) -> list[Row]:
    """Wait until everything that was acknowledged has ended, then check it against the log, the programs' marks and a fold.

    The stack must run and its faults be over; nobody mends anything by hand.
    """
    lost = lost_or_open(stack, load, within_s)
    marks = read_marks(load.directory)
    doubles = [f"attempt {job}.{attempt} rank {rank} began twice" for job, attempt, rank in marks.doubles]
    stack.wait_whole()
    verify = stack.fairlead("audit", "verify", check=False)
    replay = stack.fairlead("replay", "--check", check=False)
    found = [
        row(round_, "acknowledged submits that were lost, or did not end", load.acknowledged, lost, _errors(load)),
        row(round_, "attempts whose program began twice", sum(marks.starts.values()), doubles),
        row(round_, "attempts of one job that overlapped", sum(marks.starts.values()), marks.overlaps),
    ]
    broken = [
        f"{what}: exit {done.returncode}: {(done.stdout + done.stderr).strip()[-200:]}"
        for what, done in (("audit verify", verify), ("replay --check", replay))
        if done.returncode
    ]
    return [*found, row(round_, "`audit verify` and `replay --check` afterwards", 2, broken)]


def lost_or_open(stack: Judged, load: Load, within_s: float) -> list[str]:
    """Wait until the log has an end for every acknowledged job; return what was lost or is still open."""
    deadline = time.monotonic() + within_s
    while True:
        told = asyncio.run(_read_log(stack.nats_url))
        lost = [f"job {job} is not in the log" for job in load.jobs if job not in told.submitted]
        lost += [
            f"command {one} was answered 202 and never decided" for one in load.undecided if one not in told.decided
        ]
        accepted = [told.decided[one] for one in load.undecided if one in told.decided]
        jobs = {job for job in [*load.jobs, *accepted] if job in told.submitted}
        still_open = [f"job {job} has not ended" for job in jobs if not told.ends[job]]
        if not lost and not still_open:
            return [f"job {job} ended {count} times" for job, count in told.ends.items() if count > 1]
        if time.monotonic() > deadline:
            return [*lost, *still_open]
        time.sleep(1.0)


class _Told(NamedTuple):
    submitted: set[str]
    ends: "Counter[str]"
    #: {command: the job that it led to, "" for a refusal}
    decided: dict[str, str]


async def _read_log(nats_url: str) -> _Told:
    """Read the whole log from the bus, checked link by link."""
    found = _Told(set(), Counter(), {})
    bus = await connect(nats_url, name="hostile")
    try:
        end = (await bus.state(subjects.LOG)).last
        reader = LogReader(bus)
        while reader.chain.last < end:
            for folded in await asyncio.wait_for(reader.next(), 30):
                for event in folded.commit.events:
                    _note(found, event)
        await reader.close()
    finally:
        await bus.close()
    return found


def _note(found: _Told, event: ev.Event) -> None:
    command = event.cause.removeprefix("cmd:")
    match event:
        case ev.JobSubmitted():
            found.submitted.add(event.job)
            found.decided[command] = event.job
        case ev.CommandRepeated():
            found.decided[command] = event.job
        case ev.JobRejected() | ev.CommandRejected():
            found.decided[command] = ""
        case ev.JobSucceeded() | ev.JobFailed() | ev.JobCancelled():
            found.ends[event.job] += 1
        case _:
            pass


def _errors(load: Load) -> str:
    return ", ".join(f"{count} × {what}" for what, count in load.errors.most_common(3))
