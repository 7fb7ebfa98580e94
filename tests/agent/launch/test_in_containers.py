"""The same scripts and pipes inside real containers, whose image has a shell and no Python: read-only to them, and working."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead_schemas.wire.reports import ExitSeen, StartSeen
from tests.agent.launch.pair import Pair, rank
from tests.agent.runtimes.docker.image import ensure_image
from tests.agent.runtimes.docker.registry import Registry

pytestmark = pytest.mark.docker

SMALL: dict[str, Any] = {"memory_mib": 64, "cpu_milli": 500}


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """Both nodes have joined; their runs are containers of this machine's engine."""
    pair = await Pair(tmp_path, "docker").open()
    yield pair
    await pair.close()


async def desire(pair: Pair, *command: str, **words: Any) -> None:
    for number in (0, 1):
        order = rank(number, *command, image=ensure_image(), **words)
        await pair.placer.desire(f"n{number + 1}", msgspec.structs.replace(order, **SMALL))


def output(pair: Pair, number: int) -> list[str]:
    return sorted((pair.data / f"n{number + 1}/agent-n{number + 1}/runs/7.1.{number}/stdout").read_text().splitlines())


async def test_processes_are_started_in_the_container_and_tagged(pair: Pair) -> None:
    """Two on each node: four ranks; the pipe that they report by is in a read-only mount."""
    script = "echo hello from $RANK of $WORLD_SIZE; touch /run/fairlead/launch/x 2>/dev/null && echo writable"
    await desire(pair, "sh", "-c", script + "; exit 0", launcher="env", processesPerNode=2)
    ends = await pair.ended(2)
    assert [ends[number].exit_code for number in (0, 1)] == [0, 0], ends
    assert [*output(pair, 0), *output(pair, 1)] == [f"[rank {n}] hello from {n} of 4" for n in range(4)]


async def test_one_container_starts_a_daemon_in_the_other(pair: Pair) -> None:
    """As mpirun would, by the script that replaces ssh; the command runs in the other rank's container, and its code is
    returned. A stop reaches the waiting rank through the container's first process, and ends it cleanly."""
    program = '"$OMPI_MCA_plm_rsh_agent" 127.0.0.2 "echo daemon on \\$FAIRLEAD_NODE; exit 5"; exit $?'
    await desire(pair, "sh", "-c", program, launcher="mpi")
    await pair.placer.until(lambda: any(report.rank == 0 for report in pair.placer.of(ExitSeen)))
    assert [report.exit_code for report in pair.placer.of(ExitSeen)] == [5]
    waiting = msgspec.structs.replace(
        rank(1, "true", image=ensure_image(), launcher="mpi"), stop="rank_failed", **SMALL
    )
    await pair.placer.desire("n2", waiting)
    ends = await pair.ended(2)
    assert (ends[1].outcome, ends[1].exit_code) == ("stopped", 0)
    assert output(pair, 1) == ["daemon on n2"]


async def test_an_image_that_is_not_here_keeps_every_rank_from_starting(pair: Pair) -> None:
    """The one that cannot says so; the other has not started."""
    with Registry() as registry:
        for number, image in ((0, ensure_image()), (1, f"{registry.address}/not-here:1")):
            order = rank(number, "true", image=image)
            await pair.placer.desire(f"n{number + 1}", msgspec.structs.replace(order, **SMALL))
        (failed,) = (await pair.ended(1)).values()
    assert (failed.rank, failed.outcome) == (
        1,
        "start_failed",
    ) and "not-here:1 is not in its registry" in failed.message
    assert pair.placer.of(StartSeen) == []
