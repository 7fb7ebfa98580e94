"""Output files of ended runs: the amount kept, and the answer to requests for more."""

import os
from pathlib import Path

import msgspec
import pytest

from fairlead_agent.core.output_retention import Keep, too_much
from fairlead_agent.core.runs import RunKey
from fairlead_agent.runtimes.process.runtime import ProcessRuntime
from fairlead_agent.runtimes.run_directory import RunDirectories
from fairlead_agent.settings import from_environment
from fairlead_agent.shell.output import printed
from fairlead_schemas.wire.reports import OutputPiece, ReadOutput, encode

DAY = 86400.0


@pytest.mark.parametrize(
    ("keep", "gone"),
    [
        (Keep(), 0),
        (Keep(bytes_max=100), 0),
        (Keep(bytes_max=99), 1),
        (Keep(bytes_max=50), 2),
        (Keep(bytes_max=1), 2),  # the newest stays
        (Keep(age_s=3.5 * DAY), 0),
        (Keep(age_s=2 * DAY), 1),
        (Keep(age_s=0.5 * DAY), 3),
        (Keep(bytes_max=50, age_s=3 * DAY), 2),
    ],
)
def test_the_oldest_go_first(keep: Keep, gone: int) -> None:
    """Until the others are within the bounds; the newest run may be larger than all of them."""
    found = [("1.1.0", 10, 7 * DAY), ("2.1.0", 40, 8.2 * DAY), ("3.1.0", 50, 9 * DAY)]
    assert too_much(found, keep, 10 * DAY) == gone


async def test_files_beyond_the_bounds_are_removed(tmp_path: Path) -> None:
    """By size on the disk, oldest first."""
    directories = RunDirectories(tmp_path / "runs", Keep(bytes_max=64 * 1024))
    for job in "123":
        path = directories.path(RunKey(job, 1, 0))
        path.mkdir()
        (path / "stdout").write_bytes(os.urandom(30 * 1024))
        directories.ended(RunKey(job, 1, 0))
    await directories.look()
    assert sorted(path.name for path in directories.base.iterdir()) == ["2.1.0", "3.1.0"]


def test_a_request_for_removed_files_lists_the_kept_ones(tmp_path: Path) -> None:
    """A run without output differs: its files exist and are empty."""
    runtime = ProcessRuntime(tmp_path, "n1", "inc")
    question = encode(ReadOutput(job="7", attempt=1, rank=0, stream="stdout", offset=0))
    keep = from_environment({"FAIRLEAD_NODE": "n1", "FAIRLEAD_OUTPUT_MIB": "512", "FAIRLEAD_OUTPUT_DAYS": "14"}).keep
    piece = msgspec.json.decode(printed(question, runtime, {}, keep), type=OutputPiece)
    assert (
        piece.gone
        == "this node keeps output of the newest 200 runs, 512 MiB in all, for 14 days, or less where a job's output.keep is lower"
    )
    stdout, _ = runtime.output(RunKey("7", 1, 0))
    stdout.parent.mkdir(parents=True)
    stdout.touch()
    piece = msgspec.json.decode(printed(question, runtime, {}, keep), type=OutputPiece)
    assert (piece.gone, piece.last) == ("", True)
