"""Bounds that a job sets for its own output: age, size, a restart of the agent, and readers of what is left."""

import os
from pathlib import Path

import pytest

from fairlead_agent.core.output_retention import Keep
from fairlead_agent.core.runs import RunKey
from fairlead_agent.launch.plan import NodePlace, Unlaunchable, plan, read_program
from fairlead_agent.runtimes.run_directory import RunDirectories, cut_head
from fairlead_agent.shell.output import read_piece
from fairlead_schemas.jobfile.agent_fields import NODE_BOUNDS, OutputBounds
from fairlead_schemas.units.timestamps import SECOND_NS as S
from fairlead_schemas.wire.desired import RunOrder

HOUR = 3600
MIB = 2**20
END = 1_800_000_000


class Clock:
    """The time of day, as a test sets it."""

    def __init__(self) -> None:
        self.now = float(END)

    def __call__(self) -> float:
        return self.now


def ended(directories: RunDirectories, job: str, bounds: OutputBounds = NODE_BOUNDS, size: int = 10) -> Path:
    """A run that has printed `size` bytes and ended at END; its stdout."""
    key = RunKey(job, 1, 0)
    directories.bound(key, bounds)
    directory = directories.path(key)
    directory.mkdir()
    for name in ("stdout", "stderr"):
        (directory / name).write_bytes(os.urandom(size) if name == "stdout" else b"")
        os.utime(directory / name, (END, END))
    directories.ended(key)
    return directory / "stdout"


def here(directories: RunDirectories) -> list[str]:
    """Jobs whose files are still there."""
    return sorted(path.name.partition(".")[0] for path in directories.base.iterdir())


async def test_a_run_goes_when_its_own_time_is_over(tmp_path: Path) -> None:
    """Not before, not those of others, whatever their order; its record goes with it."""
    clock = Clock()
    directories = RunDirectories(tmp_path / "runs", clock=clock)
    ended(directories, "1")
    ended(directories, "2", OutputBounds(keep_ns=2 * HOUR * S))
    ended(directories, "3", OutputBounds(keep_ns=HOUR * S))
    clock.now = END + HOUR - 1
    await directories.look()
    assert here(directories) == ["1", "2", "3"]
    clock.now = END + HOUR + 60
    await directories.look()
    assert here(directories) == ["1", "2"]
    clock.now = END + 2 * HOUR + 120
    await directories.look()
    assert here(directories) == ["1"]
    assert list((tmp_path / "runs-kept").iterdir()) == []


async def test_the_nodes_settings_are_upper_bounds(tmp_path: Path) -> None:
    """A job that asks for more than its node keeps gets the node's time."""
    clock = Clock()
    directories = RunDirectories(tmp_path / "runs", Keep(age_s=HOUR), clock=clock)
    ended(directories, "1", OutputBounds(keep_ns=100 * HOUR * S))
    clock.now = END + HOUR + 1
    await directories.look()
    assert here(directories) == []


async def test_bounds_outlive_the_agent(tmp_path: Path) -> None:
    """Of runs that are still there; records of others are removed, and one that cannot be read bounds nothing."""
    clock = Clock()
    before = RunDirectories(tmp_path / "runs", clock=clock)
    for job in "123":
        ended(before, job, OutputBounds(keep_ns=HOUR * S))
    (tmp_path / "runs-kept" / "9.1.0").write_bytes(b"[1,1]")
    (tmp_path / "runs-kept" / "2.1.0").write_bytes(b"")
    after = RunDirectories(tmp_path / "runs", clock=clock)
    after.open_only({RunKey("3", 1, 0)})
    assert not (tmp_path / "runs-kept" / "9.1.0").exists()
    clock.now = END + 2 * HOUR
    await after.look()
    assert here(after) == ["2", "3"]  # 3 still runs


async def test_a_run_keeps_the_end_of_its_output(tmp_path: Path) -> None:
    """Offsets and the time of its end stay, its disk space is given back, and readers are led to the first byte left."""
    clock = Clock()
    directories = RunDirectories(tmp_path / "runs", clock=clock)
    stdout = ended(directories, "1", OutputBounds(max_mib=1), size=3 * MIB + 5)
    whole = stdout.read_bytes()
    await directories.look()
    stat = stdout.stat()
    assert (stat.st_size, stat.st_mtime) == (len(whole), END)
    assert MIB <= stat.st_blocks * 512 <= MIB + 2 * stat.st_blksize
    piece = read_piece(stdout, "stdout", 0, 1000, ended=True)
    assert 2 * MIB <= piece.offset <= 2 * MIB + 5
    assert piece.data == whole[piece.offset : piece.offset + 1000]
    assert read_piece(stdout, "stdout", len(whole) - 3, 1000, ended=True).data == whole[-3:]
    assert read_piece(stdout, "stdout", len(whole), 1000, ended=True).last


def test_a_file_within_its_size_or_missing_is_left_alone(tmp_path: Path) -> None:
    """Cutting again changes nothing, either; a link is not followed."""
    path = tmp_path / "stdout"
    path.write_bytes(b"x" * MIB)
    cut_head(str(path), MIB)
    assert path.read_bytes() == b"x" * MIB
    cut_head(str(tmp_path / "none"), MIB)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="symbolic link"):
        cut_head(str(tmp_path / "link"), 1)


def test_an_order_brings_the_bounds_of_its_job_file() -> None:
    """They reach the runtime with the launch; a value out of range is the job's fault."""
    order = RunOrder(job="1", attempt=1, rank=0, epoch=1)
    place = NodePlace("n1", "10.0.0.1", {}, gpus_simulated=True)
    program = read_program(b'{"command":["true"],"output":{"keep":"1h","max":"1Gi"}}')
    assert plan(order, program, place).output == OutputBounds(HOUR * S, 1024)
    assert plan(order, read_program(b'{"command":["true"]}'), place).output == NODE_BOUNDS
    with pytest.raises(Unlaunchable, match=r"output\.keep: expected a duration from 1m"):
        plan(order, read_program(b'{"command":["true"],"output":{"keep":"1s"}}'), place)
