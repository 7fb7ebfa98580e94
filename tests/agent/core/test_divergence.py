"""A journal or a log that is an old copy: the agent reports it and ends, instead of dropping messages permanently."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fairlead_agent.__main__ import build_agent
from fairlead_agent.core.divergence import DOUBT_NS, DOUBTS_MAX
from fairlead_agent.core.ledger import Condemned, Confirmed, Ledger, Opened, Record, Reported, Took
from fairlead_agent.core.outbox import Outbox
from fairlead_agent.core.reconcile import Reconciler
from fairlead_agent.core.steps import GiveUp, Step
from fairlead_agent.files.journal import Journal, JournalDamaged
from fairlead_agent.settings import Settings
from fairlead_bus.memory import MemoryHub
from fairlead_schemas.units.timestamps import SECOND_NS
from fairlead_schemas.wire.reports import CleanSeen, ExitSeen, ReportAck, StartSeen
from fairlead_schemas.wire.resources import Inventory
from tests.agent.placer_script import PlacerScript, order

BEAT_NS = 2 * SECOND_NS
NOTHING = Step([], [], [])


def report(n: int) -> CleanSeen:
    return CleanSeen(n=n, job="7", attempt=1, rank=0)


class Past:
    """A core whose journal has numbered 8 reports, 6 of them confirmed, and has taken up desired state 50."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        records: list[Record] = [
            Opened(incarnation="inc", node="n1"),
            *(Reported(report=report(n)) for n in range(1, 9)),
        ]
        for record in [*records, Confirmed(through=6), Took(sequence=50)]:
            self.ledger.apply(record)
        self.core = Reconciler(self.ledger, fence_ns=60 * SECOND_NS, now=0)
        self.core.begin(boot_id="b", inventory=Inventory(), found={}, now=0, at_ns=0)

    def told(self, now: int, through: int = 8, desired: int = 50, incarnation: str = "inc") -> Step:
        confirm = ReportAck(node="n1", incarnation=incarnation, through=through, beat=now, desired=desired)
        return self.core.confirmed(confirm, now, 0)


def gives_up(step: Step) -> str:
    """Return the reason to give up, or "" to continue."""
    return "".join(each.reason for each in step.instructions if isinstance(each, GiveUp))


# ------------------------------------------------------------------ the node


def test_an_agent_of_a_removed_node_ends_with_instructions_to_join_again() -> None:
    """The message is for one journal: another agent of the node that receives it continues."""
    past = Past()
    other = ReportAck(node="n1", removed="another")
    assert gives_up(past.core.confirmed(other, BEAT_NS, 0)) == ""
    told = gives_up(past.core.confirmed(ReportAck(node="n1", removed="inc"), BEAT_NS, 0))
    assert "was removed from the cluster" in told and "move this agent's directory away" in told


# ------------------------------------------------------------------ the journal


def test_a_placer_that_has_more_than_was_ever_made_ends_the_agent_and_condemns_the_journal() -> None:
    """Report 9 is this process's own inventory, which was not sent before the placer's first word: 9 was another's."""
    past = Past()
    step = past.told(1, through=9)
    assert "confirmed report 9, and the newest here was 8" in gives_up(step)
    assert [Condemned(reason=gives_up(step))] == step.records
    assert (past.ledger.confirmed, past.core.has_lease(2)) == (6, False)


def test_reports_of_this_process_may_be_confirmed_after_the_first_answer() -> None:
    """The first answer releases the reports; later ones confirm them, and no more than them."""
    past = Past()
    assert not gives_up(past.told(1, through=8))
    assert not gives_up(past.told(2, through=9))
    assert past.ledger.confirmed == 9
    assert "confirmed report 10, and the newest here was 9" in gives_up(past.told(3, through=10))


def test_another_journals_numbers_say_nothing_about_this_one() -> None:
    """A successor's confirmation is not ours."""
    assert Past().told(1, through=99, incarnation="successor") == NOTHING


def test_reports_wait_for_the_first_answer_and_are_never_dropped_unconfirmed() -> None:
    """After a restart nothing is sent before the placer's answer with its last number; a number never used drops
    nothing."""
    outbox = Outbox("n1", "inc", 6, held=True)
    outbox.add(report(7))
    assert outbox.due(1) == []
    outbox.confirm(ReportAck(node="n1", incarnation="inc", through=99), 2)
    assert outbox.confirmed == 6
    assert len(outbox.due(3)) == 1


# ------------------------------------------------------------------ the log

OLD: list[dict[str, Any]] = [{"through": 5}, {"desired": 49}, {"incarnation": ""}]


@pytest.mark.parametrize("old", OLD)
def test_a_log_that_stays_behind_ends_the_agent(old: dict[str, Any]) -> None:
    """Reports that it had confirmed, a desired state that it had written, the node itself: gone for half a minute. The
    journal is not to blame: with the right log the agent continues."""
    past = Past()
    limit = (DOUBTS_MAX - 1) * DOUBT_NS
    steps = {now: past.told(now, **old) for now in range(0, limit + DOUBTS_MAX * BEAT_NS, BEAT_NS)}
    ended = [now for now, step in steps.items() if gives_up(step)]
    assert ended and ended[0] >= limit
    assert "the log went backwards" in gives_up(steps[ended[0]])
    assert past.ledger.condemned == ""


@pytest.mark.parametrize("old", OLD)
def test_a_deposed_placer_that_resumes_is_outlived(old: dict[str, Any]) -> None:
    """It sends for a while next to the new one, and every message of the new one clears the doubt."""
    past = Past()
    for now in range(0, 600 * SECOND_NS, BEAT_NS):
        assert not gives_up(past.told(now, **old))
        if now % (20 * SECOND_NS) == 0:
            past.told(now)


def test_many_old_answers_at_once_are_one_doubt() -> None:
    """A suspended placer answers all beats that it finds, at once; so does a buffer of a suspended agent."""
    past = Past()
    for now in (1, 100 * SECOND_NS, 200 * SECOND_NS):
        for _ in range(100):
            assert not gives_up(past.told(now, through=5))


def test_a_placer_that_names_no_desired_state_is_not_behind() -> None:
    """The field is younger than the message."""
    past = Past()
    for now in range(0, 120 * SECOND_NS, BEAT_NS):
        assert not gives_up(past.told(now, desired=0))


# ------------------------------------------------------------------ the agent


async def test_an_agent_on_an_old_copy_of_its_journal_ends_and_does_not_start_again(tmp_path: Path) -> None:
    """Exit code 1; the next start refuses at once, however many inventories would make up for what is missing."""
    hub = MemoryHub()
    bus = hub.connect()
    await bus.ensure()
    placer = await PlacerScript(bus).open()
    settings = Settings(node="n1", devices="simulated", data=tmp_path, beat_s=0.1)
    agent = await build_agent(hub.connect(), settings)
    task = asyncio.ensure_future(agent.run())
    await placer.joined("n1")
    await placer.until(lambda: placer.beats > 1)
    await agent.stop()
    assert await task == 0
    old = (settings.directory / "journal").read_bytes()

    agent = await build_agent(hub.connect(), settings)
    task = asyncio.ensure_future(agent.run())
    await placer.desire("n1", order("7", "true"))
    await placer.until(lambda: bool(placer.of(StartSeen)) and bool(placer.of(ExitSeen)))
    await agent.stop()
    assert await task == 0
    said = len(placer.reports)

    (settings.directory / "journal").write_bytes(old)
    agent = await build_agent(hub.connect(), settings)
    assert await asyncio.wait_for(agent.run(), 60) == 1
    assert len(placer.reports) == said
    with pytest.raises(JournalDamaged, match="the journal went backwards"):
        await build_agent(hub.connect(), settings)


async def test_a_condemned_journal_stays_so_over_compaction(tmp_path: Path) -> None:
    """The shortest list says it as well."""
    ledger = Ledger()
    for record in (Opened(incarnation="inc", node="n1"), Condemned(reason="old")):
        ledger.apply(record)
    assert list(ledger.records())[-1] == Condemned(reason="old")
    journal = Journal.open(tmp_path, "n1", "inc")
    journal.write([Condemned(reason="old")])
    await journal.close()
    with pytest.raises(JournalDamaged, match="old"):
        Journal.open(tmp_path, "n1", "inc")
