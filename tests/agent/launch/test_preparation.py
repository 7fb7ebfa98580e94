"""Two agents on one bus: no rank starts before the other is ready, and what one says to the other is checked."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from fairlead_agent.launch import preparation
from fairlead_agent.linux.processes import tag_prefix, tagged
from fairlead_schemas.wire import subjects
from fairlead_schemas.wire.rank_rpc import DaemonEnded, DaemonWanted, RankReady, decode_answer
from fairlead_schemas.wire.reports import ExitSeen, StartSeen
from tests.agent.launch.pair import Pair, rank
from tests.agent.placer_script import order
from tests.kit.eventually import eventually_async


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """Both nodes have joined."""
    pair = await Pair(tmp_path).open()
    yield pair
    await pair.close()


async def test_no_rank_starts_before_every_rank_is_ready(pair: Pair) -> None:
    """The first to hear of it waits for the other, whichever that is."""
    for job, first, second in (("7", 0, 1), ("8", 1, 0)):
        orders = [msgspec.structs.replace(rank(number, "true"), job=job) for number in (0, 1)]
        await pair.placer.desire(f"n{first + 1}", orders[first])
        await asyncio.sleep(0.5)
        assert pair.placer.of(StartSeen, job) == []
        await pair.placer.desire(f"n{second + 1}", orders[second])
        await pair.placer.until(lambda job=job: len(pair.placer.of(ExitSeen, job)) == 2)
        assert [report.exit_code for report in pair.placer.of(ExitSeen, job)] == [0, 0]


async def test_a_rank_that_waits_can_be_stopped(pair: Pair) -> None:
    """Its other rank never comes: it ends as stopped, and has not started."""
    for number in (0, 1):
        await pair.placer.desire(f"n{number + 1}", rank(number, "true") if number == 0 else order("9", "true"))
    await asyncio.sleep(0.4)
    await pair.placer.desire("n1", msgspec.structs.replace(rank(0, "true"), stop="cancelled"))
    await pair.placer.until(lambda: bool(pair.placer.of(ExitSeen, "7")))
    (report,) = pair.placer.of(ExitSeen, "7")
    assert report.outcome == "stopped" and pair.placer.of(StartSeen, "7") == []


async def test_a_rendezvous_that_fails_names_the_missing_ranks(pair: Pair) -> None:
    """The wait is bounded, and the reason names the ranks and their nodes."""
    agent, _ = pair.agents["n1"]
    short = preparation.Rendezvous(agent.bus, "n1", lambda key: True, longest_s=0.3)
    with pytest.raises(preparation.Unlaunchable, match=r"not ready within 0\.3 s: rank 1 on n2"):
        await short.meet(rank(0, "true"))


async def test_a_rank_whose_agent_restarts_while_it_waits_is_reported(pair: Pair) -> None:
    """An accepted rank that has not started ends there, so that the whole run is retried."""
    await pair.placer.desire("n1", rank(0, "true"))
    accepted = pair.agents["n1"][0].ledger.runs
    await eventually_async(lambda: accepted)
    await pair.stop("n1")
    await pair.start("n1")
    await pair.placer.until(lambda: bool(pair.placer.of(ExitSeen, "7")))
    assert pair.placer.of(ExitSeen, "7")[0].outcome == "start_failed"


async def test_mpiruns_daemon_runs_on_the_other_ranks_node(pair: Pair, tmp_path: Path) -> None:
    """As mpirun would: its agent is called with a host and a command, and ends with the command's exit code."""
    program = (
        '"$OMPI_MCA_plm_rsh_agent" 127.0.0.2 "echo daemon of \\$FAIRLEAD_NODE > '
        + str(tmp_path / "said")
        + '; exit 5"; '
        'echo $?; cat "$OMPI_MCA_orte_default_hostfile"'
    )
    for number in (0, 1):
        await pair.placer.desire(f"n{number + 1}", rank(number, "sh", "-c", program, launcher="mpi"))
    await pair.placer.until(lambda: any(report.rank == 0 for report in pair.placer.of(ExitSeen)))
    output = (tmp_path / "n1/agent-n1/runs/7.1.0/stdout").read_text()
    assert output == "5\n127.0.0.1 slots=1\n127.0.0.2 slots=1\n"
    assert (tmp_path / "said").read_text() == "daemon of n2\n"
    await pair.placer.desire("n2", msgspec.structs.replace(rank(1, "true", launcher="mpi"), stop="leader_ended"))
    ends = await pair.ended(2)
    assert (ends[1].outcome, ends[1].exit_code) == ("stopped", 0)
    await eventually_async(lambda: not list((tmp_path / "n1/agent-n1/launch").iterdir()))


async def test_the_ssh_replacement_ends_with_its_run(pair: Pair, tmp_path: Path) -> None:
    """mpirun puts it into a group of its own, which outlives the run's; and mpirun does not wait for it."""
    there = tmp_path / "there"
    waits = f"while [ ! -e {there} ]; do sleep 0.05; done"
    program = f'setsid "$OMPI_MCA_plm_rsh_agent" 127.0.0.2 "touch {there}; sleep 600" & {waits}'
    for number in (0, 1):
        await pair.placer.desire(f"n{number + 1}", rank(number, "sh", "-c", program, launcher="mpi"))
    await pair.placer.until(lambda: any(report.rank == 0 for report in pair.placer.of(ExitSeen)))
    prefix = tag_prefix("n1", pair.agents["n1"][0].ledger.incarnation)
    await eventually_async(lambda: not any(process.run == "7.1.0" for process in tagged(prefix)), look_s=0.1)


async def test_daemons_are_started_through_a_restarted_agent(pair: Pair, tmp_path: Path) -> None:
    """mpirun is called while rank 0's agent is away: it waits, and gets its daemon."""
    go = tmp_path / "go"
    program = f'while [ ! -e {go} ]; do sleep 0.05; done; "$OMPI_MCA_plm_rsh_agent" 127.0.0.2 "exit 6"; exit $?'
    for number in (0, 1):
        await pair.placer.desire(f"n{number + 1}", rank(number, "sh", "-c", program, launcher="mpi"))
    await pair.placer.until(lambda: len(pair.placer.of(StartSeen)) == 2)
    for node in ("n1", "n2"):
        await pair.stop(node)
    go.touch()
    await asyncio.sleep(0.5)
    for node in ("n1", "n2"):
        await pair.start(node)
    await pair.placer.until(lambda: any(report.rank == 0 for report in pair.placer.of(ExitSeen)))
    assert next(report.exit_code for report in pair.placer.of(ExitSeen) if report.rank == 0) == 6


async def test_only_the_nodes_of_a_run_may_call_about_it(pair: Pair, tmp_path: Path) -> None:
    """Another node, another rank's node, another placement, another job: nothing is started, and the refusal gives the
    reason."""
    for number in (0, 1):
        await pair.placer.desire(f"n{number + 1}", rank(number, "sleep", "600", launcher="mpi"))
    await pair.placer.until(lambda: len(pair.placer.of(StartSeen)) == 2)
    evil = f"touch {tmp_path / 'evil'}"
    wanted = DaemonWanted(job="7", attempt=1, epoch=1, rank=0, id=1, command=evil)
    for speaker, call in (
        ("n3", wanted),
        ("n2", wanted),
        ("n2", msgspec.structs.replace(wanted, rank=1)),
        ("n1", msgspec.structs.replace(wanted, epoch=0)),
        ("n1", msgspec.structs.replace(wanted, rank=2)),
    ):
        answer = await pair.said(speaker, "n2", call)
        assert not answer.go and answer.refusal, (speaker, call)
    assert not (await pair.said("n1", "n2", msgspec.structs.replace(wanted, job="8"))).go
    assert (await pair.said("n2", "n1", wanted)).refusal == "n2 holds no rank 0 of 7.1"
    assert (await pair.said("n1", "n2", RankReady(job="7", attempt=1, epoch=1, rank=0))).refusal
    assert (await pair.said("n1", "n1", DaemonEnded(job="7", attempt=1, epoch=1, rank=1, id=1, code=0))).refusal
    answer = await pair.hub.connect().request(subjects.gang("n1", "n2"), b"\xff", timeout_s=60)
    assert decode_answer(answer).refusal.startswith("expected a GangCall")
    await asyncio.sleep(0.3)
    assert not (tmp_path / "evil").exists()
