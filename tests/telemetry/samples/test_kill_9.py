"""Killed again and again while events and samples come and days leave for files: each row is in one place, always."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairlead_telemetry.samples.day_files import FOLDER, mismatch, read_manifest
from fairlead_telemetry.warehouse.warehouse import Warehouse
from tests.telemetry.rows import actual, expected
from tests.telemetry.samples.nodes import content
from tests.telemetry.samples.storing_days import everything, store_all

KILLS = 50
REPOSITORY = Path(__file__).parents[3]


@pytest.mark.slow
def test_fifty_kills(tmp_path: Path) -> None:
    """After each: events and samples are those up to the cursors, files are what the manifest says; at the end all is as if
    nothing had happened."""
    story, batches = everything()
    rows = expected([payload for *_, payload in story.commits])
    told = [(batch.n, gpu.uuid, gpu.run, gpu.memory_used_mib) for batch in batches for gpu in batch.gpus]
    killed, chance = set[tuple[int, int]](), random.Random(5)
    directory = tmp_path / "killed"
    command = [sys.executable, "-m", "tests.telemetry.samples.storing_days", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        for kill in range(KILLS + 1):
            stdin.write("\n")
            stdin.flush()
            pid, line = int(stdout.readline()), ""
            if kill < KILLS:
                wanted = chance.randrange(4)
                while wanted and (line := stdout.readline()) not in ("done\n", "gone\n"):
                    wanted -= 1
                time.sleep(chance.uniform(0, 0.03))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            while line != "gone\n":
                line = stdout.readline()
            warehouse = Warehouse(directory)
            head = max((found.n for found in warehouse.sample_heads().values()), default=0)
            assert actual(warehouse) == rows[: warehouse.cursor.events]
            assert warehouse.rows("SELECT n, uuid, run, memory_used_mib FROM samples ORDER BY ALL") == sorted(
                row for row in told if row[0] <= head
            )
            assert warehouse.rows("SELECT (SELECT count(*) FROM uses), (SELECT count(*) FROM resources)") == [
                (head, head)
            ]
            files = warehouse.measured.files()
            warehouse.close()
            assert read_manifest(directory / FOLDER) == files
            assert [words for file in files if (words := mismatch(directory / FOLDER, file))] == []
            killed.add((head, len(files)))
    assert len(killed) > 5 and len({files for _, files in killed}) > 1, (
        "no kill fell into the middle: the test proved nothing"
    )
    store_all(tmp_path / "whole", story, batches)
    whole, survivor = Warehouse(tmp_path / "whole"), Warehouse(directory)
    assert content(survivor) == content(whole)
    assert actual(survivor) == actual(whole) == rows
    whole.close()
    survivor.close()
