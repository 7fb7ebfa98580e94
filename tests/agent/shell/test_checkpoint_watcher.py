"""Words in files, and a whole agent that tells its runs: processes, and containers where an engine answers."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead_agent.core.runs import CheckpointMark
from fairlead_agent.shell.checkpoint_watcher import FILE_BYTES_MAX, read_mark
from fairlead_schemas.policies.checkpoints import Checkpoint
from fairlead_schemas.wire.reports import CheckpointSeen, ExitSeen, StartSeen
from tests.agent.placer_script import order
from tests.agent.world import AgentWorld

SECOND = 1_000_000_000
#: Says "ready" by a first word; saves and exits when told, says its variables in the last.
TRAINER = """
trap 'echo "told ${FAIRLEAD_RESTARTED:-new}" > "$FAIRLEAD_CHECKPOINT_FILE"; exit 0' USR1
echo ready > "$FAIRLEAD_CHECKPOINT_FILE"
while true; do sleep 0.05; done
"""
#: Saves and stays.
STAYS = TRAINER.replace("; exit 0", "")
TOLD = Checkpoint(signal="SIGUSR1", notice_ns=60 * SECOND)

# ---------------------------------------------------------------------------- words


def test_a_checkpoint_mark_is_a_file_with_a_time(tmp_path: Path) -> None:
    """An empty file is a mark, too; a missing file is none, and neither is one of time 0, as containers get it."""
    path = tmp_path / "word"
    assert read_mark(path) is None
    path.touch()
    os.utime(path, ns=(0, 0))
    assert read_mark(path) is None
    path.write_text("step=1200\nmore\n")
    os.utime(path, ns=(5, 7))
    assert read_mark(path) == CheckpointMark(7, "step=1200")


def test_only_a_regular_file_is_a_checkpoint_mark(tmp_path: Path) -> None:
    """Links are not followed, and a pipe without a writer is not waited for."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    link = tmp_path / "link"
    link.symlink_to(secret)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "folder").mkdir()
    assert [read_mark(tmp_path / name) for name in ("link", "pipe", "folder")] == [None, None, None]


def test_a_mark_that_grows_too_long_is_emptied(tmp_path: Path) -> None:
    """It is on the node's own disk; its content still counts, and does not count twice."""
    path = tmp_path / "word"
    path.write_text("step=1\n" + "x" * FILE_BYTES_MAX)
    first = read_mark(path)
    assert first is not None
    assert first.note == "step=1"
    assert path.stat().st_size == 0
    second = read_mark(path)
    assert second is not None
    assert second.stamp == first.stamp


# ---------------------------------------------------------------------------- an agent


class CheckpointNode(AgentWorld):
    """An agent on one of the runtimes; its orders carry what that needs."""

    def __init__(self, data: Path, kind: str) -> None:
        super().__init__(data)
        self.kind = kind

    def order(self, job: str, script: str = "", **more: Any) -> Any:
        spec: dict[str, Any] = {}
        if self.kind == "docker":
            from tests.agent.runtimes.docker.image import ensure_image

            spec["image"] = ensure_image()
        return order(job, "sh", "-c", script, spec=spec, memory_mib=64, cpu_milli=500, **more)

    async def start(self, **settings: Any) -> Any:
        return await super().start(**({"runtime": self.kind} | settings))

    async def running(self, job: str, script: str, checkpoint: Checkpoint | None = TOLD, **more: Any) -> None:
        """It runs, and (if it says so) is ready."""
        await self.placer.desire("n1", self.order(job, script, checkpoint=checkpoint, **more))
        said = CheckpointSeen if checkpoint is not None else StartSeen
        await self.placer.until(lambda: bool(self.placer.of(said, job)))

    async def stopped(self, job: str, *, notice_s: float = 60) -> ExitSeen:
        """It is asked to end; how it did."""
        await self.placer.desire("n1", self.order(job, stop="preempted", notice_ns=int(notice_s * 1e9)))
        await self.placer.until(lambda: bool(self.placer.of(ExitSeen, job)))
        (report,) = self.placer.of(ExitSeen, job)
        return report

    def words(self, job: str) -> list[tuple[str, bool]]:
        return [(report.note, report.noticed) for report in self.placer.of(CheckpointSeen, job)]


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
async def node(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[CheckpointNode]:
    """A joined node per runtime that the machine has."""
    node = CheckpointNode(tmp_path, request.param)
    await node.open()
    yield node
    await node.close()


async def test_a_run_gets_its_notice_saves_and_exits(node: CheckpointNode) -> None:
    """Long before its notice is over: its checkpoint is reported before its end, and the exit code 0 is that of a stop."""
    await node.running("7", TRAINER, restarted="preempted")
    end = await node.stopped("7")
    assert (end.outcome, end.exit_code) == ("stopped", 0)
    assert node.words("7") == [("ready", False), ("told preempted", True)]


async def test_a_run_that_saves_and_stays_is_ended_at_once(node: CheckpointNode) -> None:
    """The rest of a minute's notice would be for nothing."""
    await node.running("7", STAYS)
    end = await node.stopped("7")
    assert (end.outcome, end.signal) == ("stopped", 15)
    assert node.words("7")[-1] == ("told new", True)


async def test_a_run_that_says_nothing_has_its_notice(node: CheckpointNode) -> None:
    """Then TERM, whatever it does."""
    await node.running("7", STAYS.replace("USR1", "USR2").replace("trap", "trap '' USR1; trap"))
    end = await node.stopped("7", notice_s=1)
    assert (end.outcome, end.signal, node.words("7")) == ("stopped", 15, [("ready", False)])


async def test_a_command_saves_the_checkpoint(node: CheckpointNode) -> None:
    """It runs next to the program; its output to the file is the mark, and its end is the end of the notice."""
    script = 'echo "command $FAIRLEAD_STOP_REASON" > "$FAIRLEAD_CHECKPOINT_FILE"'
    command = Checkpoint(command=("sh", "-c", script), notice_ns=60 * SECOND)
    await node.running("7", STAYS, command)
    end = await node.stopped("7")
    assert (end.outcome, end.signal) == ("stopped", 15)
    assert node.words("7")[-1] == ("command preempted", True)


async def test_a_restarted_agent_continues_to_watch_checkpoints(node: CheckpointNode) -> None:
    """A mark written meanwhile is reported, and a later stop gives notice as usual."""
    late = TRAINER.replace("while true", 'sleep 1; echo late > "$FAIRLEAD_CHECKPOINT_FILE"; while true')
    await node.running("7", late)
    await node.stop()
    await asyncio.sleep(1.5)
    await node.start()
    await node.placer.until(lambda: ("late", False) in node.words("7"))
    assert (await node.stopped("7")).outcome == "stopped"
    # Only the newest word lies there: "ready" is heard only where the agent looked before "late" came.
    assert node.words("7")[-2:] == [("late", False), ("told new", True)]


async def test_a_run_without_checkpoints_has_no_file(node: CheckpointNode) -> None:
    """And is not watched: a stop is TERM."""
    await node.running("7", 'test -z "$FAIRLEAD_CHECKPOINT_FILE" || exit 1; while true; do sleep 0.05; done', None)
    assert (await node.stopped("7")).outcome == "stopped"
    assert node.words("7") == []
